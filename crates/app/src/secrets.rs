//! The keys this installation signs with, and the file they live in.
//!
//! They are generated from the operating system's randomness on the first start, into
//! `<data>/secrets.toml`, readable by the owner alone; there is no default key, ever. Two
//! processes that start at once agree on one file: it is written aside, synced, and put in
//! place only if there is none yet. A key is never printed, not even by `Debug`.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, Mac as _};
use qiang_store::Store;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::config::Config;

/// The file in the data folder.
pub const FILE_NAME: &str = "secrets.toml";
/// Generated keys have exactly this many bytes; a configured one has at least as many.
pub const KEY_BYTES: usize = 32;
const OWNER_ONLY: u32 = 0o600;
const OTHERS: u32 = 0o077;

/// Bytes nobody may see.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Wraps a key.
    #[must_use]
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The key itself, for the one who signs with it.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Derives a key for one purpose. Nobody can compute this key from that one.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> Self {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        Self::new(mac.chain_update(purpose).finalize().into_bytes().to_vec())
    }

    fn generate() -> Result<Self, Error> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|source| Error::NoRandomness { source })?;
        Ok(Self::new(bytes))
    }

    fn hex(&self) -> String {
        hex::encode(&self.0)
    }

    fn from_hex(text: &str) -> Option<Self> {
        let bytes = hex::decode(text).ok().filter(|bytes| bytes.len() == KEY_BYTES);
        bytes.map(Self::new)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// The keys in use.
#[derive(Debug, Clone)]
pub struct Secrets {
    /// Signs and checks the tokens of users.
    pub jwt_key: Secret,
    /// Signs and checks the callbacks of the payment provider.
    pub callback_key: Secret,
}

impl Secrets {
    /// The keys the configuration names; those it does not name come from the secrets file,
    /// which is made if it is missing.
    pub fn of(config: &Config, callback: Option<&Secret>) -> Result<Self, Error> {
        let jwt = config.auth.jwt_secret.as_ref();
        if let (Some(jwt), Some(callback)) = (jwt, callback) {
            return Ok(Self { jwt_key: jwt.clone(), callback_key: callback.clone() });
        }
        let kept = Self::load_or_create(&config.data)?;
        Ok(Self {
            jwt_key: jwt.cloned().unwrap_or(kept.jwt_key),
            callback_key: callback.cloned().unwrap_or(kept.callback_key),
        })
    }

    /// The key of tokens alone: for commands that make some, and need no other key.
    pub fn jwt_key_of(config: &Config) -> Result<Secret, Error> {
        match &config.auth.jwt_secret {
            Some(configured) => Ok(configured.clone()),
            None => Ok(Self::load_or_create(&config.data)?.jwt_key),
        }
    }

    /// Reads the secrets file of a data folder, or makes both the folder and the file.
    pub fn load_or_create(data: &Path) -> Result<Self, Error> {
        let path = data.join(FILE_NAME);
        match Self::load(&path) {
            Err(Error::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        make_private_folder(data)
            .and_then(|()| Self::generate().map(|fresh| fresh.to_toml()))
            .and_then(|text| put_if_absent(data, &path, &text))?;
        Self::load(&path)
    }

    fn load(path: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
        let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode() & 0o777;
        if mode & OTHERS != 0 {
            return Err(Error::TooOpen { path: path.to_owned(), mode });
        }
        let text = fs::read_to_string(path).map_err(unreadable)?;
        let kept: Kept = toml::from_str(&text)
            .map_err(|fault| Error::corrupt(path, fault.message().to_owned()))?;
        let key = |name: &str, hex: &str| {
            Secret::from_hex(hex).ok_or_else(|| {
                Error::corrupt(path, format!("{name} is not {} hex digits", 2 * KEY_BYTES))
            })
        };
        Ok(Self {
            jwt_key: key("jwt_key", &kept.jwt_key)?,
            callback_key: key("callback_key", &kept.callback_key)?,
        })
    }

    fn generate() -> Result<Self, Error> {
        Ok(Self { jwt_key: Secret::generate()?, callback_key: Secret::generate()? })
    }

    fn to_toml(&self) -> String {
        format!(
            "# The keys of this installation. Whoever has them can be anyone and pay anything.\n\
             jwt_key = \"{}\"\ncallback_key = \"{}\"\n",
            self.jwt_key.hex(),
            self.callback_key.hex()
        )
    }
}

/// Makes sure that all processes that share a database have the same keys: a token given out by one
/// must be good at all of them. Only a fingerprint is stored, of which no key can be made.
pub async fn agree(secrets: &Secrets, store: &Store) -> Result<(), Error> {
    const NAME: &str = "keys_fingerprint";
    let own = secrets.fingerprint();
    if store.swap_setting(NAME, None, &own).await? {
        return Ok(());
    }
    match store.setting(NAME).await? {
        Some(known) if known != own => Err(Error::Disagree),
        _ => Ok(()),
    }
}

impl Secrets {
    fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"qiang keys");
        for key in [&self.jwt_key, &self.callback_key] {
            hash.update(Sha256::digest(key.expose()));
        }
        hex::encode(hash.finalize())
    }
}

/// What can be wrong with the secrets file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is there and cannot be read.
    #[error("cannot read the secrets file {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// It is missing and cannot be made.
    #[error(
        "cannot write the secrets file {}; is the data folder writable? (or set [auth] jwt_secret \
         and [payments] callback_secret, and no file is needed)",
        path.display()
    )]
    Unwritable { path: PathBuf, source: io::Error },
    /// Others than the owner may read it.
    #[error(
        "the secrets file {p} has mode {mode:o}, so others may read the keys: run `chmod 600 {p}`, \
         or delete it to get new keys if someone may have",
        p = path.display()
    )]
    TooOpen {
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not what was written.
    #[error(
        "the secrets file {} is damaged: {reason}; restore it, or delete it to get new keys (all \
         tokens given out become invalid)",
        path.display()
    )]
    Corrupt {
        path: PathBuf,
        /// What is wrong, without the keys themselves.
        reason: String,
    },
    /// Another process that shares the database has other keys.
    #[error(
        "other processes on this database have other keys, so tokens would be good at some of \
         them only: give all the same [auth] jwt_secret and [payments] callback_secret (or \
         QIANG_AUTH__JWT_SECRET and QIANG_PAYMENTS__CALLBACK_SECRET), or the same secrets.toml. \
         To change the keys, stop all, and remove the setting keys_fingerprint from the database"
    )]
    Disagree,
    /// The database does not say which keys the others have.
    #[error(transparent)]
    Store(#[from] qiang_store::Error),
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes to make keys of")]
    NoRandomness { source: getrandom::Error },
}

impl Error {
    fn corrupt(path: &Path, reason: String) -> Self {
        Self::Corrupt { path: path.to_owned(), reason }
    }
}

/// Other keys in the file are left alone: a newer qiang may have put them there.
#[derive(Deserialize)]
struct Kept {
    jwt_key: String,
    callback_key: String,
}

fn make_private_folder(data: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.map_err(|source| Error::Unwritable { path: data.join(FILE_NAME), source })
}

/// Puts the file in place whole and synced, or leaves the one that another process put there.
fn put_if_absent(data: &Path, path: &Path, text: &str) -> Result<(), Error> {
    let aside = data.join(format!(".{FILE_NAME}.{}", &Secret::generate()?.hex()[..16]));
    let placed = write_synced(&aside, text)
        .and_then(|()| match fs::hard_link(&aside, path) {
            Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        })
        .and_then(|()| File::open(data)?.sync_all());
    let removed = match fs::remove_file(&aside) {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    placed.and(removed).map_err(|source| Error::Unwritable { path: path.to_owned(), source })
}

fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = folder();
        let path = dir.path().join(FILE_NAME);
        write_synced(&path, text).expect("the folder is writable");
        (dir, path)
    }

    #[test]
    fn the_first_start_makes_keys_and_the_next_one_finds_them() {
        let dir = folder();
        let data = dir.path().join("deep/data");
        let first = Secrets::load_or_create(&data).expect("made");
        let again = Secrets::load_or_create(&data).expect("read");
        assert_eq!(first.jwt_key.expose().len(), KEY_BYTES);
        assert!(first.jwt_key == again.jwt_key && first.callback_key == again.callback_key);
        assert!(first.jwt_key != first.callback_key);
        let mode = fs::metadata(data.join(FILE_NAME)).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, OWNER_ONLY);
        assert_eq!(fs::read_dir(&data).expect("readable").count(), 1, "nothing is left aside");
    }

    #[test]
    fn processes_that_start_at_once_agree() {
        let dir = folder();
        let keys: Vec<Secret> = std::thread::scope(|scope| {
            let start = |_| scope.spawn(|| Secrets::load_or_create(dir.path()).expect("made"));
            let running: Vec<_> = (0..8).map(start).collect();
            running.into_iter().map(|one| one.join().expect("no panic").jwt_key).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
    }

    #[test]
    fn a_file_others_can_read_is_refused_with_the_remedy() {
        let dir = folder();
        Secrets::load_or_create(dir.path()).expect("made");
        let path = dir.path().join(FILE_NAME);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
        let error = Secrets::load_or_create(dir.path()).expect_err("too open");
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_damaged_file_is_named_and_never_replaced() {
        let good = "a".repeat(64);
        for bad in [
            String::new(),
            "jwt_key".to_owned(),
            format!("jwt_key = \"{good}\""),
            format!("jwt_key = \"{good}\"\ncallback_key = \"{}\"", &good[2..]),
            format!("jwt_key = \"{good}\"\ncallback_key = \"{}\"", "x".repeat(64)),
            format!("jwt_key = \"{good}\"\ncallback_key = \"{}\"", "+1".repeat(32)),
        ] {
            let (dir, path) = written(&bad);
            let error = Secrets::load_or_create(dir.path()).expect_err("damaged");
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
            assert!(!error.to_string().contains(&good), "a key was printed: {error}");
            assert_eq!(fs::read_to_string(path).expect("still there"), bad);
        }
    }

    #[test]
    fn keys_of_a_newer_qiang_are_left_alone() {
        let (jwt, callback) = ("a".repeat(64), "b".repeat(64));
        let text =
            format!("jwt_key = \"{jwt}\"\ncallback_key = \"{callback}\"\nsession_key = \"c\"");
        let (dir, path) = written(&text);
        let read = Secrets::load_or_create(dir.path()).expect("both keys are there");
        assert_eq!((read.jwt_key.hex(), read.callback_key.hex()), (jwt, callback));
        assert_eq!(fs::read_to_string(path).expect("still there"), text);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let (_dir, path) = written("a file, not a folder");
        let error = Secrets::load_or_create(&path.join("data")).expect_err("no folder");
        assert!(error.to_string().contains("secrets.toml/data"), "{error}");
    }

    #[test]
    fn debug_shows_no_key() {
        let dir = folder();
        let secrets = Secrets::load_or_create(dir.path()).expect("made");
        assert_eq!(
            format!("{secrets:?}"),
            "Secrets { jwt_key: Secret(hidden), callback_key: Secret(hidden) }"
        );
    }
}
