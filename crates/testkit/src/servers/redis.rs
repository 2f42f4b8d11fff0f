//! Redis, or Valkey, which speaks the same and is kept the same way.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::keeper::{LastSignal, Line, Process, State, patiently};
use super::ports::free_port;
use super::program::{Program, REDIS, VALKEY};
use super::resp::{self, Value};

/// What both say when they listen and everything is loaded.
const READY: &str = "Ready to accept connections";

/// Which of the two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Redis.
    #[default]
    Redis,
    /// Valkey.
    Valkey,
}

impl Flavour {
    fn program(self) -> Program {
        match self {
            Self::Redis => REDIS,
            Self::Valkey => VALKEY,
        }
    }
}

/// How it keeps what it was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Memory only.
    #[default]
    None,
    /// Append-only file, synced before each answer: what qiang's engine promises too.
    Always,
    /// Append-only file, synced every second.
    EverySecond,
    /// Append-only file, synced when the kernel likes.
    Kernel,
}

impl Durability {
    fn config(self) -> [&'static str; 4] {
        match self {
            Self::None => ["--appendonly", "no", "--appendfsync", "no"],
            Self::Always => ["--appendonly", "yes", "--appendfsync", "always"],
            Self::EverySecond => ["--appendonly", "yes", "--appendfsync", "everysec"],
            Self::Kernel => ["--appendonly", "yes", "--appendfsync", "no"],
        }
    }
}

/// How to start one.
#[derive(Debug, Clone)]
pub struct Options {
    /// Redis unless told otherwise.
    pub flavour: Flavour,
    /// Memory only unless told otherwise.
    pub durability: Durability,
    /// None unless told otherwise.
    pub password: Option<String>,
    /// The folder its folder goes to; the one for temporary files unless told otherwise.
    pub base: PathBuf,
    /// More lines of its configuration: name and value.
    pub settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            flavour: Flavour::default(),
            durability: Durability::default(),
            password: None,
            base: std::env::temp_dir(),
            settings: Vec::new(),
        }
    }
}

impl Options {
    /// The same with one more line of configuration.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.push((name.to_owned(), value.into()));
        self
    }
}

/// A running server; gone, with its folder, once it is dropped.
pub struct Redis {
    port: u16,
    password: Option<String>,
    line: Line,
    process: Process,
}

impl Redis {
    /// Starts one at a free port and returns when it answers.
    pub fn start(options: &Options) -> Result<Self> {
        patiently(|| Self::start_at(free_port()?, options))
    }

    pub(super) fn start_at(port: u16, options: &Options) -> Result<Self> {
        let program = options.flavour.program();
        let path = program.find()?;
        let process = Process::new(program.name, &options.base, LastSignal::Kill)?;
        let mut line = Line::new(path).args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        line = line.args(["--save", "", "--auto-aof-rewrite-percentage", "0"]);
        line = line.args(["--enable-debug-command", "local"]).args(options.durability.config());
        line = line.arg("--dir").arg(process.folder());
        if let Some(password) = &options.password {
            line = line.args(["--requirepass", password, "--masterauth", password]);
        }
        for (name, value) in &options.settings {
            line = line.arg(format!("--{name}")).arg(value);
        }
        process.start(&line, READY)?;
        Ok(Self { port, password: options.password.clone(), line, process })
    }

    /// `redis://127.0.0.1:<port>`, with the password if there is one.
    pub fn url(&self) -> String {
        let user = self.password.as_ref().map(|password| format!(":{password}@"));
        format!("redis://{}127.0.0.1:{}", user.unwrap_or_default(), self.port)
    }

    /// Where it listens, on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// SIGKILL. Returns when it is gone; what it had not written is lost.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it again in the same folder and at the same port, after killing it if it runs.
    /// Returns when it has read its append-only file and answers.
    pub fn restart(&self) -> Result<()> {
        self.process.restart(&self.line, READY)
    }

    /// Stops it where it stands: connections stay open and nobody answers.
    pub fn pause(&self) -> Result<()> {
        self.process.pause()
    }

    /// Lets it go on after [`Redis::pause`].
    pub fn resume(&self) -> Result<()> {
        self.process.resume()
    }

    /// Whether it can answer: started, neither killed nor paused since.
    pub fn is_running(&self) -> bool {
        self.process.state() == State::Running
    }

    /// Forgets every key, as an operator's mistake would.
    pub fn flush(&self) -> Result<()> {
        self.command(&["FLUSHALL", "SYNC"]).map(drop)
    }

    /// Forgets every cached script, as a failover would.
    pub fn flush_scripts(&self) -> Result<()> {
        self.command(&["SCRIPT", "FLUSH", "SYNC"]).map(drop)
    }

    /// Closes every connection of its clients.
    pub fn disconnect_clients(&self) -> Result<()> {
        self.command(&["CLIENT", "KILL", "TYPE", "normal"]).map(drop)
    }

    /// Answers nobody for a while, with everything that arrives waiting: a long script, a slow
    /// disk. Returns when it is over.
    pub fn block(&self, time: Duration) -> Result<()> {
        self.command(&["DEBUG", "SLEEP", &time.as_secs_f64().to_string()]).map(drop)
    }

    /// Any command, on a connection of its own. An error reply is an error.
    pub fn command(&self, command: &[&str]) -> Result<Value> {
        resp::ask(self.port, self.password.as_deref(), command)
    }
}
