//! The certificate that a door shows, read again when its files change.
//!
//! A new pair takes the place of the old one only if it can be used: both files are there, and belong
//! together. Connections that are open stay as they are. Whoever renews writes two files, so a change is
//! looked at a second time before it is read.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use qiang_core::Timestamp;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use qiang_app::workers::Turn;
use qiang_app::{config, json_time, tls};
use qiang_engine::chain;

use super::handshakes::{Handshakes, Outcome};

/// Files are looked at so often.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A certificate that ends sooner is worth a warning, and another one a day later.
const SOON_MS: i64 = 14 * DAY_MS;
const DAY_MS: i64 = 86_400_000;

/// The certificate of one door.
#[derive(Debug)]
pub struct Certificate {
    files: config::Tls,
    shown: RwLock<Shown>,
    watch: Mutex<Watch>,
    renewed: AtomicU64,
    refused: AtomicU64,
    handshakes: OnceLock<Arc<Handshakes>>,
}

/// What clients see.
#[derive(Debug, Clone)]
struct Shown {
    pair: Arc<CertifiedKey>,
    ends_at: Option<Timestamp>,
}

/// What is known of the files.
#[derive(Debug)]
struct Watch {
    /// As they were when they were read last.
    read: Stamps,
    /// As they were at the last look.
    seen: Stamps,
    /// What is wrong with those that were read last.
    trouble: Option<String>,
    warned_at: Option<Timestamp>,
}

/// What tells a file from another one, and from itself after a change of its content or its rights.
type Stamp = Option<(u64, u64, i64, i64, u64)>;
type Stamps = [Stamp; 2];

impl Certificate {
    /// Reads both files.
    pub fn load(files: &config::Tls) -> Result<Self, tls::Error> {
        let stamps = stamps(files);
        let shown = Shown::load(files)?;
        let watch = Watch { read: stamps, seen: stamps, trouble: None, warned_at: None };
        Ok(Self {
            files: files.clone(),
            shown: RwLock::new(shown),
            watch: Mutex::new(watch),
            renewed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            handshakes: OnceLock::new(),
        })
    }

    pub(super) fn count_with(&self, handshakes: Arc<Handshakes>) {
        let _first = self.handshakes.set(handshakes);
    }

    /// `http` or `resp`.
    #[must_use]
    pub fn door(&self) -> &'static str {
        self.files.section
    }

    /// When it ends, if it says so in a way that can be read.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.shown().ends_at
    }

    /// How often another one took its place.
    #[must_use]
    pub fn renewed(&self) -> u64 {
        self.renewed.load(Ordering::Relaxed)
    }

    /// How often one could not.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many handshakes of its door ended so.
    #[must_use]
    pub fn handshakes(&self, outcome: Outcome) -> u64 {
        self.handshakes.get().map_or(0, |all| all.counted(outcome))
    }

    /// Reads the files again, whether or not they have changed.
    fn read_again(&self, watch: &mut Watch) {
        let stamps = stamps(&self.files);
        (watch.read, watch.seen) = (stamps, stamps);
        let (door, path) = (self.door(), self.files.cert.display());
        match Shown::load(&self.files) {
            Ok(shown) => {
                let ends_at = shown.ends_at.map(|at| json_time::format(at).to_string());
                let ends_at = ends_at.as_deref().unwrap_or("no time that can be read");
                *self.shown.write().unwrap_or_else(PoisonError::into_inner) = shown;
                self.renewed.fetch_add(1, Ordering::Relaxed);
                tracing::info!(
                    "[{door}] shows the certificate in {path} now, good until {ends_at}"
                );
                (watch.trouble, watch.warned_at) = (None, None);
            }
            Err(error) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let what = chain(&error);
                watch.trouble = Some(format!("[{door}] goes on with the old certificate: {what}"));
            }
        }
    }

    /// Reads the files again if they have changed and rest, and says what is wrong with them.
    fn look(&self, now: Timestamp) -> Turn {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        if stamps != watch.read && stamps == watch.seen {
            self.read_again(&mut watch);
        }
        watch.seen = stamps;
        self.warn(&mut watch, now);
        watch.trouble.clone().map_or(Ok(()), |trouble| Err(trouble.into()))
    }

    fn warn(&self, watch: &mut Watch, now: Timestamp) {
        let Some(ends_at) = self.ends_at() else { return };
        let left_ms = ends_at.millis() - now.millis();
        let lately = watch.warned_at.is_some_and(|at| now.millis() - at.millis() < DAY_MS);
        if left_ms >= SOON_MS || lately {
            return;
        }
        watch.warned_at = Some(now);
        tracing::warn!("{}", self.ending(ends_at, now));
    }

    fn ending(&self, ends_at: Timestamp, now: Timestamp) -> String {
        let (door, path) = (self.door(), self.files.cert.display());
        let when = json_time::format(ends_at);
        if ends_at <= now {
            format!("the certificate of [{door}] in {path} has ended, at {when}: renew it")
        } else {
            format!("the certificate of [{door}] in {path} ends soon, at {when}: renew it")
        }
    }

    /// What should be said of it before anything begins, if it ends soon.
    #[must_use]
    pub fn caution(&self, now: Timestamp) -> Option<String> {
        let ends_at = self.ends_at()?;
        (ends_at.millis() - now.millis() < SOON_MS).then(|| self.ending(ends_at, now))
    }

    fn shown(&self) -> Shown {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown().pair)
    }
}

impl Shown {
    fn load(files: &config::Tls) -> Result<Self, tls::Error> {
        let pair = files.load()?;
        let ends_at = pair.cert.first().and_then(|cert| ends_at(cert));
        Ok(Self { pair: Arc::new(pair), ends_at })
    }
}

/// When a certificate ends.
fn ends_at(der: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let seconds = certificate.validity().not_after.timestamp();
    Some(Timestamp::from_millis(seconds.saturating_mul(1000)))
}

fn stamps(files: &config::Tls) -> Stamps {
    [&files.cert, &files.key].map(|path| stamp(path).ok())
}

fn stamp(path: &Path) -> io::Result<(u64, u64, i64, i64, u64)> {
    let file = std::fs::metadata(path)?;
    Ok((file.dev(), file.ino(), file.ctime(), file.ctime_nsec(), file.len()))
}

/// The certificates of all doors.
#[derive(Debug, Clone, Default)]
pub struct Certificates(Arc<[Arc<Certificate>]>);

impl Certificates {
    pub(crate) fn new(all: impl IntoIterator<Item = Arc<Certificate>>) -> Self {
        Self(all.into_iter().collect())
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Certificate> {
        self.0.iter().map(|one| &**one)
    }

    /// Whether no door has TLS.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks at all files, and says what is wrong with those that have changed.
    pub(crate) async fn look(self, now: Timestamp) -> Turn {
        // A disk may take its time.
        let looked = tokio::task::spawn_blocking(move || {
            self.iter().map(|one| one.look(now)).fold(Ok(()), Turn::and)
        });
        looked.await?
    }

    /// Reads all files again.
    pub async fn read_again(self) {
        let read = tokio::task::spawn_blocking(move || {
            for one in self.iter() {
                let mut watch = one.watch.lock().unwrap_or_else(PoisonError::into_inner);
                one.read_again(&mut watch);
                if let Some(trouble) = &watch.trouble {
                    tracing::error!("{trouble}");
                }
            }
        });
        // A panic was reported when it happened.
        let _read = read.await;
    }
}

#[cfg(test)]
mod tests {
    use qiang_testkit::servers::Authority;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    /// A certificate in a folder, with the files that may take its place.
    struct Renewed {
        authority: Authority,
        folder: tempfile::TempDir,
        certificate: Certificate,
    }

    impl Renewed {
        fn new() -> Self {
            let (authority, folder) =
                (Authority::new().expect("made"), tempfile::tempdir().expect("a folder"));
            put(&authority, "a.example", folder.path());
            let path = |name: &str| folder.path().join(name);
            let files = config::Tls { section: "http", cert: path("cert"), key: path("key") };
            let certificate = Certificate::load(&files).expect("it fits");
            Self { authority, folder, certificate }
        }

        fn shown(&self) -> Vec<u8> {
            self.certificate.shown().pair.cert[0].to_vec()
        }

        fn counts(&self) -> (u64, u64) {
            (self.certificate.renewed(), self.certificate.refused())
        }
    }

    fn put(authority: &Authority, name: &str, folder: &Path) {
        let made = authority.issue(&[name]).expect("issued");
        for (from, to) in [(made.cert, "cert"), (made.key, "key")] {
            std::fs::copy(from, folder.join("new")).expect("copied");
            std::fs::rename(folder.join("new"), folder.join(to)).expect("ours");
        }
    }

    #[test]
    fn a_change_is_taken_when_it_rests() {
        let renewed = Renewed::new();
        let first = renewed.shown();
        renewed.certificate.look(NOW).expect("all is well");
        put(&renewed.authority, "b.example", renewed.folder.path());
        renewed.certificate.look(NOW).expect("not read yet");
        assert_eq!(renewed.shown(), first);
        renewed.certificate.look(NOW).expect("it fits");
        assert_ne!(renewed.shown(), first);
        renewed.certificate.look(NOW).expect("nothing new");
        assert_eq!(renewed.counts(), (1, 0));
    }

    #[test]
    fn a_pair_that_does_not_fit_is_told_until_it_does() {
        let renewed = Renewed::new();
        let (first, key) = (renewed.shown(), renewed.folder.path().join("key"));
        let other = renewed.authority.issue(&["b.example"]).expect("issued");
        std::fs::copy(other.key, &key).expect("copied");
        renewed.certificate.look(NOW).expect("not read yet");
        for _ in 0..3 {
            let error = renewed.certificate.look(NOW).expect_err("it does not fit").to_string();
            assert!(error.contains("[http] goes on with the old certificate"), "{error}");
            assert!(error.contains("does not fit"), "{error}");
        }
        assert_eq!((renewed.shown(), renewed.counts()), (first, (0, 1)));
        put(&renewed.authority, "b.example", renewed.folder.path());
        let _still = renewed.certificate.look(NOW);
        renewed.certificate.look(NOW).expect("it fits");
        assert_eq!(renewed.counts(), (1, 1));
        std::fs::remove_file(&key).expect("ours");
        let _still = renewed.certificate.look(NOW);
        let error = renewed.certificate.look(NOW).expect_err("it is gone").to_string();
        assert!(error.contains("cannot read"), "{error}");
    }

    #[test]
    fn a_certificate_that_ends_soon_is_told_once_a_day() {
        let renewed = Renewed::new();
        let ends_at = renewed.certificate.ends_at().expect("it says so");
        let before = |ms: i64| Timestamp::from_millis(ends_at.millis() - ms);
        assert_eq!(renewed.certificate.caution(before(SOON_MS)), None);
        let soon = renewed.certificate.caution(before(SOON_MS - 1)).expect("soon");
        assert!(soon.contains("ends soon, at 4096-01-01T00:00:00"), "{soon}");
        assert!(renewed.certificate.caution(ends_at).expect("over").contains("has ended"));
        let warned_at = |now| {
            renewed.certificate.look(now).expect("it fits");
            renewed.certificate.watch.lock().expect("ours").warned_at
        };
        assert_eq!(warned_at(before(SOON_MS)), None);
        let first = before(3 * DAY_MS);
        assert_eq!(warned_at(first), Some(first));
        assert_eq!(warned_at(before(2 * DAY_MS + 1)), Some(first));
        assert_eq!(warned_at(before(2 * DAY_MS)), Some(before(2 * DAY_MS)));
    }
}
