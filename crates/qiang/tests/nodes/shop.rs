//! One shop of several processes: the same engine, the same database, the same keys, each process
//! with a folder of its own.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qiang::secrets::Secret;
use qiang::token::{Key, Principal, Role};
use qiang_core::UserId;
use qiang_engine::{Clock as _, SystemClock};
use qiang_sql::Dialect;
use qiang_sql::scratch::{self, Scratch};
use qiang_store::Store;
use tempfile::TempDir;

/// Logs an engine on Redis writes.
pub(crate) const PARTITIONS: u16 = 4;
/// Longer than anything takes; only what hangs meets it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const JWT_SECRET: &str = "the keys of all processes are the same";
const CALLBACK_SECRET: &str = "and the provider of payments has another";
const TOKEN_TTL_MS: u64 = 3_600_000;

/// What its processes share.
pub(crate) struct Shop {
    engine: String,
    database: String,
    folder: TempDir,
    processes: AtomicU32,
    _scratch: Option<Scratch>,
}

/// A running `qiang serve`. Killed if the test forgets it; if the test fails, what it said is
/// printed.
pub(crate) struct Node {
    child: Child,
    pub(crate) address: SocketAddr,
    said: Arc<Mutex<String>>,
}

/// What a command that ended said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
}

impl Shop {
    /// On an engine (`sql:`, or the URL of a Redis without a question mark) and a database of the
    /// test's own.
    pub(crate) fn new(engine: &str, database: &str) -> Self {
        Self {
            engine: with_own_keys(engine),
            database: database.to_owned(),
            folder: tempfile::tempdir().expect("a folder"),
            processes: AtomicU32::new(0),
            _scratch: None,
        }
    }

    /// The same, in a fresh database of a server that many tests share; `None` where there is no
    /// such server.
    pub(crate) async fn on(engine: &str, dialect: Dialect) -> Option<Self> {
        if !scratch::available(dialect) {
            return None;
        }
        let scratch = Scratch::new(dialect).await;
        let shop = Self::new(engine, scratch.url());
        Some(Self { _scratch: Some(scratch), ..shop })
    }

    /// The same engine with a fresh database.
    pub(crate) async fn on_new_database(&self, dialect: Dialect) -> Self {
        let scratch = Scratch::new(dialect).await;
        let shop = Self::new("", scratch.url());
        Self { engine: self.engine.clone(), _scratch: Some(scratch), ..shop }
    }

    /// The same, with an engine that answers when so many replicas have it.
    pub(crate) fn waiting_for_replicas(self, replicas: u16) -> Self {
        self.with_engine_setting("wait", &replicas.to_string())
    }

    /// The same, with one more setting in the URL of its engine.
    pub(crate) fn with_engine_setting(mut self, name: &str, value: &str) -> Self {
        self.engine.push_str(&format!("&{name}={value}"));
        self
    }

    /// The URL of its engine.
    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    /// The URL of its database.
    pub(crate) fn database(&self) -> &str {
        &self.database
    }

    /// A command of the binary in a folder of its own, with nothing of this process's environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new(env!("CARGO_BIN_EXE_qiang"));
        command.current_dir(self.folder.path()).args(args).env_clear().stdin(Stdio::null());
        command.args(["--data", &format!("data-{number}")]);
        command.env("QIANG_ENGINE__URL", &self.engine).env("QIANG_DATABASE__URL", &self.database);
        command.env("QIANG_AUTH__JWT_SECRET", JWT_SECRET);
        command.env("QIANG_PAYMENTS__CALLBACK_SECRET", CALLBACK_SECRET);
        command
    }

    /// What serves, not started yet.
    pub(crate) fn serving(&self, roles: &str) -> Command {
        self.command(&["serve", "--listen", "127.0.0.1:0", "--roles", roles])
    }

    /// Starts one more process and waits until it is ready.
    pub(crate) fn start(&self, roles: &str) -> Node {
        match Node::start(&mut self.serving(roles)) {
            Ok(node) => node,
            Err(ended) => panic!("it does not start ({:?}): {}", ended.code, ended.stderr),
        }
    }

    /// `qiang audit`, to its end.
    pub(crate) fn audit(&self, args: &[&str]) -> Ended {
        run(&mut self.command(&[&["audit"], args].concat()))
    }

    /// All books agree. Gives what was said.
    #[track_caller]
    pub(crate) fn audit_ok(&self) -> String {
        let ended = self.audit(&[]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("all books agree"), "{}", ended.stderr);
        ended.stderr
    }

    /// Which logs are carried into the records, and by how many.
    pub(crate) async fn carried(&self) -> (usize, usize) {
        let store = Store::open(&self.database).await.expect("the records");
        let leases = store.held_leases("log/").await.expect("readable");
        store.close().await;
        let owners: BTreeSet<&str> = leases.iter().map(|(_, owner)| owner.as_str()).collect();
        (leases.len(), owners.len())
    }

    pub(crate) fn buyer_token(user: &str) -> String {
        token(user, Role::Buyer)
    }

    /// What the provider of payments puts into the headers of a message: its time and signature.
    pub(crate) fn signed(body: &str) -> [(&'static str, String); 2] {
        let key = qiang::signature::Key::new(&Secret::new(CALLBACK_SECRET.as_bytes()));
        let (at, signature) = key.sign(body.as_bytes(), SystemClock.now());
        [("x-qiang-timestamp", at), ("x-qiang-signature", signature)]
    }

    pub(crate) fn admin_token() -> String {
        token("boss", Role::Admin)
    }
}

fn with_own_keys(engine: &str) -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    if !engine.starts_with("redis") {
        return engine.to_owned();
    }
    let (process, made) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    format!("{engine}?prefix=nodes-{process}-{made}&partitions={PARTITIONS}")
}

fn token(user: &str, role: Role) -> String {
    let now = SystemClock.now();
    let user = UserId::new(user).expect("a user id");
    let expires_at = now.plus_millis(TOKEN_TTL_MS);
    let who = Principal { user, role, identity: None, expires_at };
    Key::new(&Secret::new(JWT_SECRET.as_bytes())).mint(&who, now)
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended { code: output.status.code(), stderr: text(output.stderr) + &text(output.stdout) }
}

impl Node {
    /// Starts a server and waits until it is ready, or has ended.
    pub(crate) fn start(command: &mut Command) -> Result<Self, Ended> {
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let said = Arc::<Mutex<String>>::default();
        let (ready, address) = channel();
        let stderr = child.stderr.take().expect("piped");
        let heard = Arc::clone(&said);
        std::thread::spawn(move || listen(stderr, &heard, &ready));
        match heard_address(&address) {
            Some(address) => Ok(Self { child, address, said }),
            None => {
                // It hangs, or has ended; both is a start that failed.
                let _killed = child.kill();
                let code = child.wait().expect("it ended").code();
                Err(Ended { code, stderr: text_of(&said) })
            }
        }
    }

    /// Everything it said so far.
    pub(crate) fn said(&self) -> String {
        text_of(&self.said)
    }

    /// SIGKILL: no warning, no last word.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ended");
    }

    /// SIGTERM, and how it ended.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal("-TERM");
        self.child.wait().expect("it ended")
    }

    /// Stops it where it stands.
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().expect("kill runs");
        assert!(sent.success());
    }
}

impl Drop for Node {
    #[expect(clippy::print_stdout, reason = "shown only if the test failed")]
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
        if std::thread::panicking() {
            println!("{} said:\n{}", self.address, self.said());
        }
    }
}

fn heard_address(address: &Receiver<SocketAddr>) -> Option<SocketAddr> {
    address.recv_timeout(PATIENCE).ok()
}

fn text_of(said: &Mutex<String>) -> String {
    said.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps what a process says until it ends; the pipe must never fill.
fn listen(stderr: ChildStderr, said: &Mutex<String>, ready: &std::sync::mpsc::Sender<SocketAddr>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push_str(&line);
        said.push('\n');
        drop(said);
        let line = line.trim();
        // A worker has no API, but says how it is.
        let url = line.strip_prefix("API ").or(line.strip_prefix("health "));
        let address = url.and_then(|url| url.trim().strip_prefix("http://")?.split('/').next());
        if let Some(address) = address {
            // Nobody waits any more only if the test has ended.
            let _heard = ready.send(address.parse().expect("an address"));
        }
    }
}

/// Waits until something is so that nobody tells us about.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut look = tokio::time::interval(LOOK_EVERY);
    let waiting = async {
        loop {
            look.tick().await;
            if is_so().await {
                break;
            }
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "waited {PATIENCE:?} until {what}");
}
