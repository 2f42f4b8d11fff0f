//! PostgreSQL. It never runs as root: started by root, it becomes a user who owns nothing else.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::certificates::Identity;
use super::disk::Disk;
use super::keeper::{LastSignal, Line, Process, patiently};
use super::ports::free_port;
use super::program::POSTGRES;

const READY: &str = "database system is ready to accept connections";
/// Pools of many tests at once.
const CONNECTIONS: &str = "max_connections=300";
/// Who it becomes when root starts it, the first there is.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// Whether what it writes is on the disk when it says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fsync {
    /// The durable default.
    #[default]
    On,
    /// For tests that never lose the machine: survives a kill of the server.
    Off,
}

/// How to start one.
#[derive(Debug, Clone)]
pub struct Options {
    /// On unless told otherwise.
    pub fsync: Fsync,
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
        let (fsync, base) = (Fsync::default(), std::env::temp_dir());
        Self { fsync, base, disk_megabytes: None, tls: None, settings: Vec::new() }
    }
}

/// A running server; gone, with its folder, once it is dropped. Everybody on this machine is
/// trusted; the superuser is `postgres`.
pub struct Postgres {
    port: u16,
    data: PathBuf,
    line: Line,
    disk: Option<Disk>,
    process: Process,
}

impl Postgres {
    /// Starts one at a free port and returns when it answers.
    pub fn start(options: &Options) -> Result<Self> {
        let server = POSTGRES.find()?;
        let user = if super::is_root() { Some(User::find()?) } else { None };
        let be = |line: Line| match &user {
            Some(user) => line.behind(user.become_it()),
            None => line,
        };
        patiently(|| {
            let port = free_port()?;
            let process = Process::new("postgres", &options.base, LastSignal::Quit)?;
            let disk = options.disk_megabytes.map(|megabytes| Disk::mount(&process, megabytes));
            let disk = disk.transpose()?;
            let data = disk.as_ref().map_or(process.folder(), Disk::folder).join("data");
            fs::create_dir(&data)?;
            if let Some(user) = &user {
                chown(&data, Some(user.uid), Some(user.gid))?;
            }
            let prepare = Line::new(server.with_file_name("initdb")).arg("--pgdata").arg(&data);
            let prepare = prepare.args(["--auth=trust", "--username=postgres", "--no-sync"]);
            process.prepare(be(prepare.args(["--locale=C", "--encoding=UTF8"])))?;
            if let Some(identity) = &options.tls {
                // It wants both to be its own, and the key nobody else's.
                let own = identity.copy_to(&data)?;
                fs::set_permissions(&own.key, fs::Permissions::from_mode(0o600))?;
                for file in [&own.cert, &own.key] {
                    if let Some(user) = &user {
                        chown(file, Some(user.uid), Some(user.gid))?;
                    }
                }
            }
            let mut line = Line::new(&server).arg("-D").arg(&data);
            for setting in settings(port, options) {
                line = line.arg("-c").arg(setting);
            }
            let line = be(line);
            process.start(&line, READY)?;
            Ok(Self { port, data, line, disk, process })
        })
    }

    /// `postgres://postgres@127.0.0.1:<port>/postgres`
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Where it listens, on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets in only those who come with TLS, from the next connection on.
    pub fn allow_only_tls(&self) -> Result<()> {
        let rules = self.data.join("pg_hba.conf");
        fs::write(rules, "hostssl all all all trust\n")?;
        // It reads its rules again when it starts.
        self.restart()
    }

    /// SIGKILL, to all of its processes. Returns when it is gone.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it again in the same folder and at the same port, after killing it if it runs.
    /// Returns when it has recovered and answers.
    pub fn restart(&self) -> Result<()> {
        self.process.restart(&self.line, READY)
    }

    /// Stops all of its processes where they stand: connections stay open and nobody answers.
    pub fn pause(&self) -> Result<()> {
        self.process.pause()
    }

    /// Lets it go on after [`Postgres::pause`].
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

fn settings(port: u16, options: &Options) -> Vec<String> {
    let mut settings = vec![
        format!("port={port}"),
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        CONNECTIONS.to_owned(),
    ];
    if options.fsync == Fsync::Off {
        settings.extend(["fsync=off".to_owned(), "full_page_writes=off".to_owned()]);
    }
    if options.tls.is_some() {
        let tls = ["ssl=on", "ssl_cert_file=server.cert.pem", "ssl_key_file=server.key.pem"];
        settings.extend(tls.map(str::to_owned));
    }
    settings.extend(options.settings.iter().map(|(name, value)| format!("{name}={value}")));
    settings
}

struct User {
    uid: u32,
    gid: u32,
}

impl User {
    fn find() -> Result<Self> {
        for name in USERS {
            if let (Ok(uid), Ok(gid)) = (id("-u", name), id("-g", name)) {
                return Ok(Self { uid, gid });
            }
        }
        bail!("PostgreSQL does not run as root, and there is neither of {USERS:?}")
    }

    fn become_it(&self) -> Line {
        let ids = [format!("--reuid={}", self.uid), format!("--regid={}", self.gid)];
        Line::new("setpriv").args(ids).arg("--clear-groups")
    }
}

fn id(kind: &str, user: &str) -> Result<u32> {
    let output = Command::new("id").args([kind, user]).output().context("cannot run id")?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}
