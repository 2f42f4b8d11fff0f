//! Private servers for tests and benchmarks: found or installed, started on a free port in a
//! folder of their own, stopped when dropped.
//!
//! A server lives no longer than the process that started it, however that ends: a small shell
//! holds the other end of a pipe and stops the server when the pipe closes. Nothing that is
//! already running on the machine is ever touched.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::stopwatch::Stopwatch;

/// How long a server may take to answer for the first time.
const START_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// Runs its arguments until its input closes, then stops them and waits for them.
const KEEPER: &str = r#""$@" & server=$!; read -r _; kill "$server"; wait "$server" 2>&-"#;

/// A program and the Debian package that brings it.
pub struct Program {
    /// The executable.
    pub name: &'static str,
    /// What `apt-get install` calls it.
    pub package: &'static str,
}

/// Redis, and beside it in the same package its load generator and its shell.
pub const REDIS: Program = Program { name: "redis-server", package: "redis-server" };

impl Program {
    /// Makes sure the program can be run. `false`, after saying so, when it cannot be had here;
    /// an error instead where nothing may be skipped.
    pub fn ensure(&self) -> Result<bool> {
        let Err(error) = self.find_or_install() else { return Ok(true) };
        if crate::in_ci() {
            return Err(error);
        }
        println!("SKIPPED: {} ({error:#})", self.name);
        Ok(false)
    }

    fn find_or_install(&self) -> Result<()> {
        let Self { name, package } = self;
        if is_installed(name) {
            return Ok(());
        }
        let advice = format!("`{name}` is missing; install it: sudo apt-get install {package}");
        let is_root = crate::output_of(Command::new("id").arg("-u"))?.trim() == "0";
        if !is_root || !is_installed("apt-get") {
            bail!(advice);
        }
        eprintln!("installing {package} …");
        let mut apt = Command::new("apt-get");
        crate::output_of(apt.args(["update", "-qq"])).context(advice.clone())?;
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt.args(["install", "-y", "-qq", "--no-install-recommends", package]);
        crate::output_of(&mut apt).context(advice.clone())?;
        if is_installed(name) { Ok(()) } else { bail!(advice) }
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// How Redis keeps what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Append-only file, synced before each answer: what qiang's engine promises too.
    Always,
    /// Append-only file, synced when the kernel likes.
    Kernel,
    /// Memory only.
    None,
}

impl Durability {
    fn config(self) -> [&'static str; 4] {
        match self {
            Self::Always => ["--appendonly", "yes", "--appendfsync", "always"],
            Self::Kernel => ["--appendonly", "yes", "--appendfsync", "no"],
            Self::None => ["--appendonly", "no", "--appendfsync", "no"],
        }
    }
}

/// A running server and its folder; both are gone once it is dropped.
pub struct Server {
    port: u16,
    folder: PathBuf,
    keeper: Child,
}

impl Server {
    /// Starts Redis in a new folder under `base` and waits until it answers.
    pub fn redis(base: &Path, durability: Durability) -> Result<Self> {
        let port = free_port()?;
        let folder = base.join(format!("redis-{port}"));
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder:?}"))?;
        let mut command = kept(REDIS.name);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--auto-aof-rewrite-percentage", "0"]).args(durability.config());
        command.arg("--dir").arg(&folder);
        let log = fs::File::create(folder.join("log"))?;
        command.stderr(log.try_clone()?).stdout(log);
        let keeper = command.spawn().context("cannot start redis-server")?;
        let server = Self { port, folder, keeper };
        server.wait_until(answers_ping)?;
        Ok(server)
    }

    /// Where it listens, on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn wait_until(&self, answers: impl Fn(u16) -> bool) -> Result<()> {
        let clock = Stopwatch::start();
        while !answers(self.port) {
            if clock.elapsed() > START_LIMIT {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                bail!("the server did not answer within {START_LIMIT:?}; it says:\n{log}");
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        stop(&mut self.keeper);
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("cannot remove {}: {error}", self.folder.display());
        }
    }
}

/// `program`, to be run by the keeper; arguments are added by the caller.
fn kept(program: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", KEEPER, "keeper", program]).stdin(Stdio::piped());
    command
}

/// Closes the pipe and waits until the server has gone.
fn stop(keeper: &mut Child) {
    drop(keeper.stdin.take());
    if let Err(error) = keeper.wait() {
        eprintln!("cannot wait for a server to stop: {error}");
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

fn answers_ping(port: u16) -> bool {
    let ping = || -> std::io::Result<bool> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG")
    };
    ping().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::path::Path;
    use std::process::Stdio;

    #[test]
    fn a_server_ends_with_the_one_who_started_it() {
        let mut command = super::kept("sh");
        command.args(["-c", "echo $$; exec tail -f /dev/null"]).stdout(Stdio::piped());
        let mut keeper = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let process = format!("/proc/{}", line.trim());
        assert!(Path::new(&process).exists(), "{process}");
        super::stop(&mut keeper);
        assert!(!Path::new(&process).exists(), "{process} survived");
    }

    #[test]
    fn what_is_not_installed_is_not_found() {
        assert!(super::is_installed("sh"));
        assert!(!super::is_installed("no-such-program-anywhere"));
    }
}
