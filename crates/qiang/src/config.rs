//! What the operator decided.
//!
//! Four layers, the later ones stronger: defaults, `qiang.toml`, the environment
//! (`QIANG_HTTP__LISTEN` is `listen` in `[http]`), flags. Everything is read and checked once, at
//! start: a key nobody knows, a value that cannot be, or a combination that makes no sense ends
//! the start with every fault there is, each with its place and what to do. Nothing is parsed
//! and then ignored, and every value remembers where it came from.

mod environment;
mod file;
mod known;
mod layers;
mod report;
mod url;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use layers::{Layers, Wrong};
use tracing_subscriber::EnvFilter;

pub use layers::{Fault, Origin, Setting, Shown};
pub use report::Report;
pub use url::{BusUrl, DatabaseUrl, EngineUrl};

use crate::http::cors::Origins;
use crate::secrets::{KEY_BYTES, Secret};

/// Open files besides connections: the journal, the records, health checks, connections to servers.
const OTHER_FILES: u64 = 128;
/// The file that is read when none is named, if it is there.
pub const DEFAULT_FILE: &str = "qiang.toml";
/// The data folder when none is named.
pub const DEFAULT_DATA: &str = "./qiang-data";
/// A shorter password is guessed too soon.
const MIN_PASSWORD_BYTES: usize = 16;
/// A longer configuration file is a mistake.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The whole configuration, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder everything of this installation lives in.
    pub data: PathBuf,
    /// What this process does.
    pub roles: Roles,
    /// The HTTP front door.
    pub http: Http,
    /// The RESP front door.
    pub resp: Resp,
    /// Where claims are decided.
    pub engine: Engine,
    /// Where records are kept.
    pub database: Database,
    /// How events travel.
    pub bus: Bus,
    /// Who is who.
    pub auth: Auth,
    /// How money is announced.
    pub payments: Payments,
    /// The audit in the background.
    pub audit: Audit,
    /// What is logged.
    pub log: Log,
    /// Every setting as it came out, and where it came from.
    pub settings: Vec<Setting>,
    /// The file that was read, if one was.
    pub file: Option<PathBuf>,
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

/// `[resp]`
#[derive(Debug, Clone)]
pub struct Resp {
    /// Where to listen, if anywhere; port 0 takes any free one.
    pub listen: Option<SocketAddr>,
    /// What a client may sign in with, besides a token.
    pub password: Option<Secret>,
    /// What it proves itself with; without, nothing is encrypted.
    pub tls: Option<Tls>,
    /// More connections than this are not accepted.
    pub max_connections: usize,
}

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
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
}

/// `[payments]`
#[derive(Debug, Clone)]
pub struct Payments {
    /// Whether orders can be paid without money. Unless told, only while listening on loopback.
    pub sandbox: bool,
    /// The key of callbacks, shared with the provider; otherwise from the secrets file.
    pub callback_secret: Option<Secret>,
    /// How far a callback's timestamp may be from our clock.
    pub callback_window: Duration,
}

/// `[audit]`
#[derive(Debug, Clone)]
pub struct Audit {
    /// How often the books are compared; `None` is never.
    pub every: Option<Duration>,
}

/// `[log]`
#[derive(Debug, Clone)]
pub struct Log {
    /// Which events are logged, in the syntax of `tracing`'s `EnvFilter`.
    pub filter: String,
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
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
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

impl Config {
    /// Reads all layers, and either understands everything in them or says what it does not.
    pub fn load(sources: Sources) -> Result<Self, Error> {
        let mut layers = Layers::default();
        if let Some(path) = &sources.file {
            file::read(path, &read_file(path)?, &mut layers);
        }
        environment::read(sources.environment, &mut layers);
        for (flag, key, value) in sources.flags {
            layers.put_text(key, Origin::Flag(flag), value);
        }
        Self::of_layers(layers, sources.file)
    }

    fn of_layers(mut layers: Layers, file: Option<PathBuf>) -> Result<Self, Error> {
        let data = layers.text("data", DEFAULT_DATA, folder);
        let roles = layers.text("roles", "api,worker", Roles::read);
        let http = Http::take(&mut layers);
        let resp = Resp::take(&mut layers);
        let engine = Engine::take(&mut layers, &data);
        let database = Database { url: url::take_database(&mut layers, &data) };
        let bus = Bus { url: layers.text("bus.url", "log:", url::bus) };
        let auth = Auth::take(&mut layers);
        let payments = Payments::take(&mut layers, &http);
        let audit = Audit::take(&mut layers);
        let log = Log { filter: layers.text("log.filter", "info", filter) };
        check_together(&http, &resp, &engine, &database, roles, &mut layers);
        check_secrets_differ(&auth, &payments, &mut layers);
        let settings = layers.finish().map_err(Error::Invalid)?;
        Ok(Self {
            data,
            roles,
            http,
            resp,
            engine,
            database,
            bus,
            auth,
            payments,
            audit,
            log,
            settings,
            file,
        })
    }

    /// What is allowed and should still be said aloud at start.
    #[must_use]
    pub fn cautions(&self) -> Vec<String> {
        let public = !self.http.listen.ip().is_loopback();
        let open_sandbox = public && self.payments.sandbox;
        let caution = format!(
            "[payments] sandbox is on while listening on {}: everyone who can reach it can pay \
             orders without money",
            self.http.listen
        );
        let sandbox = open_sandbox.then_some(caution);
        let open = self.resp.listen.filter(|at| !at.ip().is_loopback() && self.resp.tls.is_none());
        let unsealed = open.map(|at| {
            format!(
                "[resp] listens on {at} without TLS: passwords and tokens can be read on the way; \
                 set `tls_cert` and `tls_key`, or let only a network you trust reach it"
            )
        });
        sandbox.into_iter().chain(unsealed).collect()
    }

    /// Takes fewer connections where there are not enough open files for all of them, so that files
    /// never run out, and says so.
    pub fn fit_connections(&mut self, open_files: u64) -> Option<String> {
        let resp = self.resp.listen.map_or(0, |_| self.resp.max_connections);
        let all = self.http.max_connections.saturating_add(resp);
        let wanted = all as u64 + OTHER_FILES;
        if open_files >= wanted {
            return None;
        }
        let room = usize::try_from(open_files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
        for max in [&mut self.http.max_connections, &mut self.resp.max_connections] {
            *max = (max.saturating_mul(room) / all).max(1);
        }
        Some(format!(
            "{open_files} open files are allowed, which is not enough for {all} connections \
             (max_connections): no more than {room} are taken. Allow {wanted} (`ulimit -n`, or \
             LimitNOFILE in the systemd unit), or lower max_connections"
        ))
    }
}

impl Http {
    fn take(layers: &mut Layers) -> Self {
        Self {
            listen: layers.text("http.listen", "127.0.0.1:8080", address),
            health_listen: layers.text("http.health_listen", "", address_or_none),
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

impl Resp {
    fn take(layers: &mut Layers) -> Self {
        Self {
            listen: layers.text("resp.listen", "", address_or_none),
            password: layers.password("resp.password", MIN_PASSWORD_BYTES),
            tls: Tls::take(layers),
            max_connections: layers.number("resp.max_connections", 10_000, 1..=1_000_000),
        }
    }
}

impl Tls {
    fn take(layers: &mut Layers) -> Option<Self> {
        let path = |text: &str| match text {
            "" => Ok(None),
            _ if text.contains('\0') => Err(Wrong::new("is not a path", "name a PEM file")),
            _ => Ok(Some(PathBuf::from(text))),
        };
        let cert = layers.text("resp.tls_cert", "", path);
        let key = layers.text("resp.tls_key", "", path);
        match (cert, key) {
            (Some(cert), Some(key)) => Some(Self { cert, key }),
            (None, None) => None,
            (Some(_), None) => {
                let problem = "is set, and `tls_key` is not";
                layers.fault("resp.tls_cert", problem, "set both for TLS, or neither");
                None
            }
            (None, Some(_)) => {
                let problem = "is set, and `tls_cert` is not";
                layers.fault("resp.tls_key", problem, "set both for TLS, or neither");
                None
            }
        }
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
    fn take(layers: &mut Layers) -> Self {
        Self {
            jwt_secret: layers.secret("auth.jwt_secret", KEY_BYTES),
            token_ttl: layers.seconds("auth.token_ttl_secs", 86_400, 60..=366 * 86_400),
        }
    }
}

impl Payments {
    fn take(layers: &mut Layers, http: &Http) -> Self {
        Self {
            sandbox: layers.switch("payments.sandbox", http.listen.ip().is_loopback()),
            callback_secret: layers.secret("payments.callback_secret", KEY_BYTES),
            callback_window: layers.seconds("payments.callback_window_secs", 300, 1..=86_400),
        }
    }
}

impl Audit {
    fn take(layers: &mut Layers) -> Self {
        let every = layers.seconds("audit.every_secs", 300, 0..=30 * 86_400);
        Self { every: (!every.is_zero()).then_some(every) }
    }
}

fn address_or_none(text: &str) -> Result<Option<SocketAddr>, Wrong> {
    if text.is_empty() { Ok(None) } else { address(text).map(Some) }
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

fn check_together(
    http: &Http,
    resp: &Resp,
    engine: &Engine,
    database: &Database,
    roles: Roles,
    layers: &mut Layers,
) {
    if http.body_timeout > http.request_timeout {
        layers.fault(
            "http.body_timeout_ms",
            "is longer than `http.request_timeout_ms`, so it could never be reached",
            "make it the shorter of the two",
        );
    }
    let others = [("http.health_listen", http.health_listen), ("resp.listen", resp.listen)];
    for (key, _) in others.iter().filter(|(_, at)| *at == Some(http.listen)) {
        if http.listen.port() == 0 {
            continue;
        }
        layers.fault(
            key,
            "is the address of `http.listen`, and one address has one door",
            "give it another port, like 127.0.0.1:6380",
        );
    }
    let EngineUrl::Embedded { folder } = &engine.url else { return };
    if !(roles.api && roles.worker) {
        layers.fault(
            "roles",
            "split the work over several processes, which an embedded engine cannot share",
            "leave it out, or choose an engine that is shared: redis://…, redis-cluster://…, redis-sentinel://… or sql:",
        );
    }
    let DatabaseUrl::Sqlite { path } = &database.url else { return };
    let taken = ["journal.db", "lock", crate::secrets::FILE_NAME].map(|name| folder.join(name));
    if path == folder || taken.contains(path) {
        layers.fault(
            "database.url",
            "names something else that lives in the engine's folder",
            "name a file of its own, like sqlite:./qiang-data/qiang.db",
        );
    }
}

/// Whoever sends callbacks must not be able to issue tokens.
fn check_secrets_differ(auth: &Auth, payments: &Payments, layers: &mut Layers) {
    if auth.jwt_secret.is_some() && auth.jwt_secret == payments.callback_secret {
        layers.fault(
            "payments.callback_secret",
            "is the same as `auth.jwt_secret`, so the payment provider could issue tokens",
            "use another",
        );
    }
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

fn filter(text: &str) -> Result<String, Wrong> {
    match EnvFilter::try_new(text) {
        Ok(_) if !text.trim().is_empty() => Ok(text.to_owned()),
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

#[cfg(test)]
mod tests;
