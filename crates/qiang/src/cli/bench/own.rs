//! A server for one run: the same program in a process of its own, on a free port, in a temporary
//! folder that goes with it. Its own process, because a crowd in the same one would take part of
//! its runtime.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use axum::http::{Method, StatusCode};
use bytes::Bytes;
use qiang_engine::Stopwatch;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::Client;
use crate::running;

/// Longer than any start on an empty folder takes.
const START: Duration = Duration::from_secs(60);
/// Longer than a stop takes that has to write a few million records.
const STOP: Duration = Duration::from_secs(120);
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
        let resp = free_address().context("no free port for RESP")?;
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        let log = File::create(log_of(folder.path())).context("cannot write the server's log")?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data_of(folder.path()));
        command.current_dir(folder.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(VARIABLES) {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().context("cannot start a server")?;
        let mut own = Self { address: resp, resp, folder, child };
        own.address = own.ready().await?;
        Ok(own)
    }

    pub(super) fn data(&self) -> PathBuf {
        data_of(self.folder.path())
    }

    async fn ready(&mut self) -> anyhow::Result<SocketAddr> {
        let watch = Stopwatch::start();
        while watch.elapsed() < START {
            if let Some(status) = self.child.try_wait().context("cannot look after the server")? {
                anyhow::bail!("the server ended at once ({status}): {}", self.said());
            }
            if let Some(address) = running::address(&self.data())
                && let Ok(mut client) = Client::connect(address).await
                && client
                    .send(Method::GET, "/readyz", &[], Bytes::new())
                    .await
                    .is_ok_and(|answer| answer.status == StatusCode::OK)
            {
                return Ok(address);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        anyhow::bail!("the server was not ready within {} s: {}", START.as_secs(), self.said())
    }

    /// The last it said.
    fn said(&self) -> String {
        let log = std::fs::read_to_string(log_of(self.folder.path())).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
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

/// Free at this moment; nobody else is likely to take it before the server does.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
