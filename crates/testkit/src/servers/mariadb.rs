//! MariaDB, for what qiang calls `mysql:`.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use super::certificates::Identity;
use super::disk::Disk;
use super::keeper::{LastSignal, Line, Process, patiently};
use super::ports::free_port;
use super::program::{MARIADB, MARIADB_INSTALL};

const READY: &str = "ready for connections";
/// Pools of many tests at once.
const CONNECTIONS: &str = "--max-connections=500";

/// When InnoDB's log is on the disk: `innodb_flush_log_at_trx_commit`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Flush {
    /// With each commit: the durable default.
    #[default]
    EachCommit,
    /// Written with each commit, synced every second: survives a kill of the server.
    EachSecond,
    /// Written every second: for tests that never kill it.
    Lazily,
}

impl Flush {
    fn number(self) -> u8 {
        match self {
            Self::EachCommit => 1,
            Self::EachSecond => 2,
            Self::Lazily => 0,
        }
    }
}

/// How to start one.
#[derive(Debug, Clone)]
pub struct Options {
    /// With each commit unless told otherwise.
    pub flush: Flush,
    /// The folder its folder goes to; the one for temporary files unless told otherwise.
    pub base: PathBuf,
    /// Keeps its data on a disk of its own of so many megabytes, if told to.
    pub disk_megabytes: Option<u32>,
    /// Takes connections with TLS, too, if it has a certificate.
    pub tls: Option<Identity>,
    /// More options: name and value.
    pub settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        let (flush, base) = (Flush::default(), std::env::temp_dir());
        Self { flush, base, disk_megabytes: None, tls: None, settings: Vec::new() }
    }
}

/// A running server; gone, with its folder, once it is dropped. `root` needs no password. It has
/// an empty database `qiang`.
pub struct Mariadb {
    port: u16,
    line: Line,
    disk: Option<Disk>,
    process: Process,
}

impl Mariadb {
    /// Starts one at a free port and returns when it answers.
    pub fn start(options: &Options) -> Result<Self> {
        let (server, install) = (MARIADB.find()?, MARIADB_INSTALL.find()?);
        patiently(|| {
            let port = free_port()?;
            let process = Process::new("mariadb", &options.base, LastSignal::Kill)?;
            let disk = options.disk_megabytes.map(|megabytes| Disk::mount(&process, megabytes));
            let disk = disk.transpose()?;
            let data = disk.as_ref().map_or(process.folder(), Disk::folder).join("data");
            let first = process.folder().join("first.sql");
            fs::write(&first, "CREATE DATABASE IF NOT EXISTS qiang;\n")?;
            let common = |line: Line| {
                let line = line.arg("--no-defaults").arg("--skip-name-resolve");
                let line = line.arg(super::option("--datadir=", &data));
                // It refuses to run as root unless told to; anybody else it takes as it is.
                if super::is_root() { line.arg("--user=root") } else { line }
            };
            let prepare = common(Line::new(&install))
                .args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
            process.prepare(prepare)?;
            let mut line =
                common(Line::new(&server)).args(["--bind-address=127.0.0.1", CONNECTIONS]);
            line = line.arg(format!("--port={port}")).arg(super::option("--init-file=", &first));
            // Relative to the data folder: a whole path may be too long for a socket.
            line = line.args(["--socket=socket", "--pid-file=pid"]);
            line = line.arg(format!("--innodb-flush-log-at-trx-commit={}", options.flush.number()));
            if let Some(Identity { ca, cert, key }) = &options.tls {
                for (name, file) in [("--ssl-ca=", ca), ("--ssl-cert=", cert), ("--ssl-key=", key)]
                {
                    line = line.arg(super::option(name, file));
                }
            }
            line =
                line.args(options.settings.iter().map(|(name, value)| format!("--{name}={value}")));
            process.start(&line, READY)?;
            Ok(Self { port, line, disk, process })
        })
    }

    /// `mysql://root@127.0.0.1:<port>`; a database may be added behind a slash.
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}", self.port)
    }

    /// Where it listens, on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// SIGKILL. Returns when it is gone.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it again in the same folder and at the same port, after killing it if it runs.
    /// Returns when it has recovered and answers.
    pub fn restart(&self) -> Result<()> {
        self.process.restart(&self.line, READY)
    }

    /// Stops it where it stands: connections stay open and nobody answers.
    pub fn pause(&self) -> Result<()> {
        self.process.pause()
    }

    /// Lets it go on after [`Mariadb::pause`].
    pub fn resume(&self) -> Result<()> {
        self.process.resume()
    }

    /// The disk of its own, if it has one.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// Whether it ended by itself, and was not started again since.
    pub fn has_fallen(&self) -> bool {
        self.process.has_fallen()
    }

    /// What its log says.
    pub fn said(&self) -> String {
        self.process.said()
    }
}
