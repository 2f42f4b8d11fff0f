//! One shop of several processes: the same engine, the same database, the same keys, each process
//! with a folder of its own.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use qiang_app::secrets::Secret;
use qiang_app::token::{Key, Principal, Role};
use qiang_core::UserId;
use qiang_engine::{Clock as _, SystemClock};
use qiang_sql::Dialect;
use qiang_sql::scratch::{self, Scratch};
use qiang_store::Store;
pub(crate) use qiang_testkit::node::{Ended, Node, run};
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
        let key = qiang_sales::signature::Key::new(&Secret::new(CALLBACK_SECRET.as_bytes()));
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
