//! What the operator decided.
//!
//! Four layers, the later ones stronger: defaults, `qiang.toml`, the environment
//! (`QIANG_HTTP__LISTEN` is `listen` in `[http]`), flags. Everything is read and checked once, at
//! start: a key nobody knows, a value that cannot be, or a combination that makes no sense ends
//! the start with every fault there is, each with its place and what to do. Nothing is parsed
//! and then ignored, and every value remembers where it came from.
//!
//! [`Config`] is what every domain needs to know. A domain takes its own section out of the same
//! [`Layers`]; whatever nobody takes is a mistake.

mod delivery;
mod environment;
mod file;
mod known;
mod layers;
mod origins;
mod url;

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use qiang_store::Store;
use tracing_subscriber::filter::Targets;

pub use delivery::Delivery;
pub use layers::{Fault, Layers, Origin, Setting, Shown, Wrong};
pub use origins::Origins;
pub use url::{BusUrl, DatabaseUrl, EngineUrl};

use crate::secrets::{KEY_BYTES, Secret};

/// The file that is read when none is named, if it is there.
pub const DEFAULT_FILE: &str = "qiang.toml";
/// The data folder when none is named.
pub const DEFAULT_DATA: &str = "./qiang-data";
/// A longer configuration file is a mistake.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What everything in a process works by, whatever its domain.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder everything of this installation lives in.
    pub data: PathBuf,
    /// What this process does.
    pub roles: Roles,
    /// The HTTP front door.
    pub http: Http,
    /// Where claims are decided.
    pub engine: Engine,
    /// Where records are kept.
    pub database: Database,
    /// How events travel.
    pub bus: Bus,
    /// What becomes of events.
    pub delivery: Delivery,
    /// Who is who.
    pub auth: Auth,
    /// What is logged.
    pub log: Log,
}

/// What a process does. One alone does everything; many may share the work, if they share an
/// engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Answers HTTP.
    pub api: bool,
    /// Carries events into the records, releases what is overdue, audits.
    pub worker: bool,
}

impl Roles {
    fn read(text: &str) -> Result<Self, Wrong> {
        let mut roles = Self { api: false, worker: false };
        for role in text.split(',').map(str::trim) {
            match role {
                "api" => roles.api = true,
                "worker" => roles.worker = true,
                other => {
                    return Err(Wrong::new(
                        format!("has the role {other:?}, which is none"),
                        "write api, worker, or api,worker",
                    ));
                }
            }
        }
        Ok(roles)
    }
}

/// `[http]`
#[derive(Debug, Clone)]
pub struct Http {
    /// Where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Where health checks and metrics are answered, too, however many connections there are.
    pub health_listen: Option<SocketAddr>,
    /// Where people reach the pages, if that is not the address listened on: `https://shop.example`.
    pub public_origin: Option<String>,
    /// What the door proves itself with; without, nothing is encrypted.
    pub tls: Option<Tls>,
    /// Whose pages may call from a browser.
    pub cors_origins: Origins,
    /// A larger body is refused.
    pub body_limit_bytes: usize,
    /// The headers of a request must arrive within this time.
    pub header_timeout: Duration,
    /// The body of a request must arrive within this time.
    pub body_timeout: Duration,
    /// After this time a request whose outcome is not known is told so.
    pub request_timeout: Duration,
    /// A client that takes nothing of its answer for this long is closed.
    pub write_timeout: Duration,
    /// How long a shutdown waits for what was accepted.
    pub shutdown_grace: Duration,
    /// More connections than this are not accepted.
    pub max_connections: usize,
}

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Where they are named: `http` or `resp`.
    pub section: &'static str,
    /// The certificate, and those between it and one the clients trust.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// `[engine]`
#[derive(Debug, Clone)]
pub struct Engine {
    /// Which engine.
    pub url: EngineUrl,
    /// More commands than this do not wait; they are refused as `overloaded`.
    pub queue: usize,
    /// A snapshot is begun after so many bytes of new events.
    pub snapshot_bytes: u64,
}

/// `[database]`
#[derive(Debug, Clone)]
pub struct Database {
    /// Which database.
    pub url: DatabaseUrl,
}

/// `[bus]`
#[derive(Debug, Clone)]
pub struct Bus {
    /// Which transport.
    pub url: BusUrl,
}

/// `[auth]`
#[derive(Debug, Clone)]
pub struct Auth {
    /// The key of tokens, where another program issues them too; otherwise from the secrets file.
    pub jwt_secret: Option<Secret>,
    /// How long a token made here is good.
    pub token_ttl: Duration,
    /// How long somebody stays signed in to the pages, at most.
    pub session_ttl: Duration,
    /// Whether people may sign in by naming themselves. Unless told, only while listening on loopback
    /// with no other public origin.
    pub sandbox: bool,
}

/// `[log]`
#[derive(Debug, Clone)]
pub struct Log {
    /// Which events are logged: a level, or levels by module.
    pub filter: Targets,
}

/// Where to read from. The default reads nothing, so that all settings are defaults.
#[derive(Debug, Default)]
pub struct Sources {
    file: Option<PathBuf>,
    environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    flags: Vec<(&'static str, &'static str, String)>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not there or cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// Not TOML, an unknown key, a wrong value, or values that do not go together.
    #[error("{}", list(.0))]
    Invalid(Vec<Fault>),
}

impl Sources {
    /// What the process was started with: the file named, or `./qiang.toml` if it exists, and
    /// the environment.
    #[must_use]
    pub fn of_process(file: Option<PathBuf>) -> Self {
        let usual = || Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists());
        Self {
            file: file.or_else(usual),
            environment: std::env::vars_os().collect(),
            flags: Vec::new(),
        }
    }

    /// Reads this file.
    #[must_use]
    pub fn with_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Looks at this variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Lets a flag of the command line decide a key, if it was given.
    #[must_use]
    pub fn with_flag(
        mut self,
        flag: &'static str,
        key: &'static str,
        value: Option<String>,
    ) -> Self {
        self.flags.extend(value.map(|value| (flag, key, value)));
        self
    }
}

impl Sources {
    /// The file that is read, if one is.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Lays all layers on top of each other.
    pub fn layers(self) -> Result<Layers, Error> {
        let mut layers = Layers::default();
        if let Some(path) = &self.file {
            file::read(path, &read_file(path)?, &mut layers);
        }
        environment::read(self.environment, &mut layers);
        for (flag, key, value) in self.flags {
            layers.put_text(key, Origin::Flag(flag), value);
        }
        Ok(layers)
    }
}

impl Config {
    /// Opens the records, without migrating them.
    pub async fn open_store(&self) -> Result<Store, qiang_store::Error> {
        if let DatabaseUrl::Sqlite { path } = &self.database.url
            && let Some(folder) = path.parent()
            && !matches!(self.engine.url, EngineUrl::Embedded { .. })
        {
            // Nobody else makes the data folder then.
            let _made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        }
        Store::open(&self.database.url.url()).await
    }

    /// Takes what everything works by out of the layers.
    pub fn take(layers: &mut Layers) -> Self {
        let data = layers.text("data", DEFAULT_DATA, folder);
        let roles = layers.text("roles", "api,worker", Roles::read);
        let fail_count = layers.number("force_consume_fail_count", 0, 0..=100);
        let http = Http::take(layers);
        let taken = Self {
            roles,
            engine: Engine::take(layers, &data),
            database: Database { url: url::take_database(layers, &data) },
            bus: Bus { url: layers.text("bus.url", "log:", url::bus) },
            delivery: Delivery::take(layers, fail_count),
            auth: Auth::take(layers, &http),
            http,
            log: Log { filter: layers.text("log.filter", "info", filter) },
            data,
        };
        taken.check_together(layers);
        taken
    }

    fn check_together(&self, layers: &mut Layers) {
        let http = &self.http;
        if http.body_timeout > http.request_timeout {
            layers.fault(
                "http.body_timeout_ms",
                "is longer than `http.request_timeout_ms`, so it could never be reached",
                "make it the shorter of the two",
            );
        }
        if let Some(at) = http.health_listen {
            layers.check_door("http.health_listen", at, http.listen);
        }
        let EngineUrl::Embedded { folder } = &self.engine.url else { return };
        if !(self.roles.api && self.roles.worker) {
            layers.fault(
                "roles",
                "split the work over several processes, which an embedded engine cannot share",
                "leave it out, or choose an engine that is shared: redis://…, redis-cluster://…, redis-sentinel://… or sql:",
            );
        }
        let DatabaseUrl::Sqlite { path } = &self.database.url else { return };
        let taken = ["journal.db", "lock", crate::secrets::FILE_NAME].map(|name| folder.join(name));
        if path == folder || taken.contains(path) {
            layers.fault(
                "database.url",
                "names something else that lives in the engine's folder",
                "name a file of its own, like sqlite:./qiang-data/qiang.db",
            );
        }
    }
}

impl Http {
    /// Whether nobody else can be meant to reach it: it listens on loopback, and no proxy is known to
    /// stand in front of it.
    #[must_use]
    pub fn is_of_own_machine(&self) -> bool {
        self.listen.ip().is_loopback() && self.public_origin.is_none()
    }

    /// Whether browsers reach the pages by `https`, so that cookies must not travel without.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        let public = self.public_origin.as_ref();
        self.tls.is_some() || public.is_some_and(|origin| origin.starts_with("https:"))
    }

    fn take(layers: &mut Layers) -> Self {
        Self {
            listen: layers.text("http.listen", "127.0.0.1:8080", address),
            health_listen: layers.text("http.health_listen", "", address_or_none),
            public_origin: layers.text("http.public_origin", "", origin_or_none),
            tls: Tls::take(layers, "http.tls_cert", "http.tls_key"),
            cors_origins: layers.text("http.cors_origins", "", origins),
            body_limit_bytes: layers.number("http.body_limit_bytes", 16 * 1024, 1024..=16 << 20),
            header_timeout: layers.millis("http.header_timeout_ms", 30_000, 100..=600_000),
            body_timeout: layers.millis("http.body_timeout_ms", 10_000, 100..=600_000),
            request_timeout: layers.millis("http.request_timeout_ms", 15_000, 100..=600_000),
            write_timeout: layers.millis("http.write_timeout_ms", 10_000, 100..=600_000),
            shutdown_grace: layers.millis("http.shutdown_grace_ms", 20_000, 0..=600_000),
            max_connections: layers.number("http.max_connections", 10_000, 1..=1_000_000),
        }
    }
}

impl Tls {
    /// Takes the two keys of a door; without both nothing is encrypted.
    pub fn take(
        layers: &mut Layers,
        cert_key: &'static str,
        key_key: &'static str,
    ) -> Option<Self> {
        let path = |text: &str| match text {
            "" => Ok(None),
            _ if text.contains('\0') => Err(Wrong::new("is not a path", "name a PEM file")),
            _ => Ok(Some(PathBuf::from(text))),
        };
        let cert = layers.text(cert_key, "", path);
        let key = layers.text(key_key, "", path);
        let (alone, problem) = match (cert, key) {
            (Some(cert), Some(key)) => {
                let (section, _) = cert_key.split_once('.').unwrap_or(("", cert_key));
                return Some(Self { section, cert, key });
            }
            (None, None) => return None,
            (Some(_), None) => (cert_key, "is set, and `tls_key` is not"),
            (None, Some(_)) => (key_key, "is set, and `tls_cert` is not"),
        };
        layers.fault(alone, problem, "set both for TLS, or neither");
        None
    }
}

impl Engine {
    fn take(layers: &mut Layers, data: &Path) -> Self {
        Self {
            url: url::take_engine(layers, data),
            queue: layers.number("engine.queue", 65_536, 1..=1 << 22),
            snapshot_bytes: layers.number("engine.snapshot_bytes", 64 << 20, 64 << 10..=1 << 40),
        }
    }
}

impl Auth {
    fn take(layers: &mut Layers, http: &Http) -> Self {
        Self {
            jwt_secret: layers.secret("auth.jwt_secret", KEY_BYTES),
            token_ttl: layers.seconds("auth.token_ttl_secs", 86_400, 60..=366 * 86_400),
            session_ttl: layers.seconds("auth.session_ttl_secs", 43_200, 60..=30 * 86_400),
            sandbox: layers.switch("auth.sandbox", http.is_of_own_machine()),
        }
    }
}

/// Reads an address that may be left out.
pub fn address_or_none(text: &str) -> Result<Option<SocketAddr>, Wrong> {
    if text.is_empty() { Ok(None) } else { address(text).map(Some) }
}

fn origin_or_none(text: &str) -> Result<Option<String>, Wrong> {
    match (text, Origins::read(text)) {
        ("", _) => Ok(None),
        (_, Ok(_)) if !text.contains(',') => Ok(Some(text.to_ascii_lowercase())),
        _ => Err(Wrong::new(
            format!("is {text:?}, which is no origin"),
            "write where browsers find the pages, like https://shop.example",
        )),
    }
}

fn origins(text: &str) -> Result<Origins, Wrong> {
    Origins::read(text).map_err(|other| {
        Wrong::new(
            format!("has {other:?}, which is no origin"),
            "write https://shop.example, several with commas; * is not taken",
        )
    })
}

fn read_file(path: &Path) -> Result<String, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    let len = std::fs::metadata(path).map_err(unreadable)?.len();
    if len > MAX_FILE_BYTES {
        return Err(unreadable(std::io::Error::other("it is longer than 1 MiB")));
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

fn folder(text: &str) -> Result<PathBuf, Wrong> {
    let usable = !text.is_empty() && !text.contains('\0');
    let path = usable.then(|| PathBuf::from(text));
    path.ok_or_else(|| Wrong::new("is not a path", "name a folder, like ./qiang-data"))
}

fn address(text: &str) -> Result<SocketAddr, Wrong> {
    text.parse().map_err(|_| {
        let fix = match text.rsplit_once(':') {
            Some(("localhost", port)) => format!("write 127.0.0.1:{port}"),
            Some(("" | "*", port)) => format!("write 0.0.0.0:{port} to listen on every address"),
            None if text.parse::<std::net::IpAddr>().is_ok() => format!("add a port: {text}:8080"),
            _ => {
                "write it like 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8080 for every address".into()
            }
        };
        Wrong::new(format!("is {text:?}, which is not an address with a port"), fix)
    })
}

fn filter(text: &str) -> Result<Targets, Wrong> {
    match text.parse() {
        Ok(targets) if !text.trim().is_empty() => Ok(targets),
        _ => Err(Wrong::new(
            format!("is {text:?}, which is not a log filter"),
            "write a level (error, warn, info, debug, trace), or like info,qiang_engine=debug",
        )),
    }
}

fn list(faults: &[Fault]) -> String {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
