//! Redis, or Valkey, which speaks the same and is kept the same way.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::certificates::Identity;
use super::disk::Disk;
use super::keeper::{LastSignal, Line, Process, State, patiently};
use super::or_skip;
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

    /// What the program is called when it is to check an append-only file.
    fn checker(self) -> &'static str {
        match self {
            Self::Redis => "redis-check-aof",
            Self::Valkey => "valkey-check-aof",
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
    /// Keeps its files on a disk of its own of so many megabytes, if told to.
    pub disk_megabytes: Option<u32>,
    /// Listens with TLS, too, at another port, if it has a certificate.
    pub tls: Option<Identity>,
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
            disk_megabytes: None,
            tls: None,
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
    tls_port: Option<u16>,
    password: Option<String>,
    line: Line,
    checker: PathBuf,
    disk: Option<Disk>,
    process: Process,
}

/// One that a test may kill, pause or fill; `None`, and said, where there is no Redis.
pub fn own(durability: Durability) -> Option<Redis> {
    or_skip(Redis::start(&Options { durability, ..Options::default() }))
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
        // Not every package brings it under that name.
        let checker = process.folder().join(options.flavour.checker());
        std::os::unix::fs::symlink(&path, &checker)?;
        let mut line = Line::new(path).args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        line = line.args(["--save", "", "--auto-aof-rewrite-percentage", "0"]);
        line = line.args(["--enable-debug-command", "local"]).args(options.durability.config());
        let disk = options.disk_megabytes.map(|megabytes| Disk::mount(&process, megabytes));
        let disk = disk.transpose()?;
        line = line.arg("--dir").arg(disk.as_ref().map_or(process.folder(), Disk::folder));
        if let Some(password) = &options.password {
            line = line.args(["--requirepass", password, "--masterauth", password]);
        }
        let mut tls_port = None;
        if let Some(Identity { ca, cert, key }) = &options.tls {
            let port = free_port()?;
            tls_port = Some(port);
            line = line.args(["--tls-port", &port.to_string(), "--tls-auth-clients", "optional"]);
            line = line.arg("--tls-ca-cert-file").arg(ca);
            line = line.arg("--tls-cert-file").arg(cert).arg("--tls-key-file").arg(key);
        }
        for (name, value) in &options.settings {
            line = line.arg(format!("--{name}")).arg(value);
        }
        process.start(&line, READY)?;
        let password = options.password.clone();
        Ok(Self { port, tls_port, password, line, checker, disk, process })
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

    /// Where it listens with TLS, if it does.
    pub fn tls_port(&self) -> Option<u16> {
        self.tls_port
    }

    /// SIGKILL. Returns when it is gone; what it had not written is lost.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it again in the same folder and at the same port, after killing it if it runs. What
    /// the kill left half written in its append-only file is cut off before, as operators are told
    /// to do. Returns when it has read the file and answers.
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        if let Some(file) = self.append_only_file()? {
            let check = Line::new("sh").args(["-c", r#"echo y | "$0" --fix "$1""#]);
            self.process.prepare(check.arg(&self.checker).arg(file))?;
        }
        self.restart_unchecked()
    }

    /// The same, and what to do about half a call in its append-only file is left to it.
    pub fn restart_unchecked(&self) -> Result<()> {
        self.process.restart(&self.line, READY)
    }

    /// Kills it as a machine dies that loses power: the last bytes of its append-only file are gone.
    pub fn tear(&self, bytes: u64) -> Result<()> {
        self.kill()?;
        let path = self.append_only_file()?.context("it keeps nothing")?;
        let file = std::fs::File::options().write(true).open(path)?;
        Ok(file.set_len(file.metadata()?.len().saturating_sub(bytes))?)
    }

    /// The file it appends to, if it has one.
    fn append_only_file(&self) -> Result<Option<PathBuf>> {
        let home = self.disk.as_ref().map_or(self.process.folder(), Disk::folder);
        let folder = home.join("appendonlydir");
        if !folder.exists() {
            return Ok(None);
        }
        let mut last = None;
        for entry in folder.read_dir()? {
            let path = entry?.path();
            let is_appended_to = path.to_string_lossy().ends_with(".incr.aof");
            last = last.max(is_appended_to.then_some(path));
        }
        Ok(last)
    }

    /// Stops it where it stands: connections stay open and nobody answers.
    pub fn pause(&self) -> Result<()> {
        self.process.pause()
    }

    /// Lets it go on after [`Redis::pause`].
    pub fn resume(&self) -> Result<()> {
        self.process.resume()
    }

    /// What its log says.
    pub fn said(&self) -> String {
        self.process.said()
    }

    /// The disk of its own, if it has one.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// Whether it ended by itself, and was not started again since.
    pub fn has_fallen(&self) -> bool {
        self.process.has_fallen()
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
