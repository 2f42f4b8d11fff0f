//! A server for one run: the same program in a process of its own, on a free port, in a temporary
//! folder that goes with it. Its own process, because a crowd in the same one would take part of
//! its runtime.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use qiang_engine::Stopwatch;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longer than any start on an empty folder takes.
const START: Duration = Duration::from_secs(60);
/// Longer than a stop takes that has to write a few million records.
const STOP: Duration = Duration::from_secs(120);
const ANY_PORT: &str = "127.0.0.1:0";
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Settings of the caller are not those of this server.
const VARIABLES: &str = "QIANG_";

/// A server at work. Dropped without [`Own::stop`], it is killed.
pub(super) struct Own {
    pub(super) address: SocketAddr,
    pub(super) resp: SocketAddr,
    folder: TempDir,
    child: Child,
}

impl Own {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        let log = File::create(log_of(folder.path())).context("cannot write the server's log")?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", ANY_PORT, "--resp", ANY_PORT, "--data"]);
        command.arg(data_of(folder.path()));
        // A group of its own: Ctrl-C is for us, and we end it when we are done.
        command.current_dir(folder.path()).process_group(0);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(VARIABLES) {
                command.env_remove(name);
            }
        }
        // However we end, it does, too: the other end of this is gone then.
        command.arg("--until-stdin-ends").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().context("cannot start a server")?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut own = Self { address: nowhere, resp: nowhere, folder, child };
        (own.address, own.resp) = own.ready().await?;
        Ok(own)
    }

    pub(super) fn data(&self) -> PathBuf {
        data_of(self.folder.path())
    }

    /// Where it speaks HTTP, and where RESP.
    async fn ready(&mut self) -> anyhow::Result<(SocketAddr, SocketAddr)> {
        let watch = Stopwatch::start();
        while watch.elapsed() < START {
            if let Some(status) = self.child.try_wait().context("cannot look after the server")? {
                anyhow::bail!("the server ended at once ({status}): {}", self.said());
            }
            let log = self.log();
            let said = |word: &str| {
                let line = log.lines().find_map(|line| line.trim().strip_prefix(word));
                line.and_then(|rest| rest.split_once("://")?.1.split('/').next()?.parse().ok())
            };
            if let (Some(http), Some(resp)) = (said("API "), said("RESP ")) {
                return Ok((http, resp));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        anyhow::bail!("the server was not ready within {} s: {}", START.as_secs(), self.said())
    }

    /// The last it said.
    fn said(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(log_of(self.folder.path())).unwrap_or_default()
    }

    /// Ends it as Ctrl-C would, and takes its folder away.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            // It may have ended already.
            let _asked = kill_process(id, Signal::TERM);
        }
        let watch = Stopwatch::start();
        loop {
            if let Some(status) = self.child.try_wait().context("cannot look after the server")? {
                anyhow::ensure!(status.success(), "the server ended badly: {}", self.said());
                return Ok(());
            }
            anyhow::ensure!(watch.elapsed() < STOP, "the server does not stop");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn data_of(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("log")
}
