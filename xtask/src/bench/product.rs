//! The product as it is shipped: built like a release, started as a process of its own, with its
//! data on the disk of the build.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// An answer that takes longer is none.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A server at work; it ends with this.
pub(super) struct Product {
    child: Child,
    /// Host and port of the HTTP door.
    pub(super) http: String,
    /// Host and port of the RESP door.
    pub(super) resp: String,
    /// An admin's token.
    pub(super) token: String,
}

/// Builds the binary, and says where it is.
pub(super) fn build(root: &Path) -> Result<PathBuf> {
    let mut command = crate::cargo()?;
    // With the peer, so that what was built for it is not built again.
    command.args(["build", "--locked", "--profile", "bench", "-p", "qiang"]);
    command.args(["--bin", "qiang", "--bench", "noop"]);
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join("release/qiang"))
}

/// The token of an admin with this name, for a data folder.
pub(super) fn token(binary: &Path, data: &Path, user: &str) -> Result<String> {
    let mut command = Command::new(binary);
    command.args(["tokens", "--user", user, "--role", "admin", "--data"]).arg(data);
    Ok(crate::output_of(&mut command)?.trim().to_owned())
}

impl Product {
    /// Starts a server on a data folder.
    pub(super) fn start(binary: &Path, data: &Path) -> Result<Self> {
        Self::start_with(binary, data, token(binary, data, "bench")?, &[])
    }

    /// Starts a server on a data folder whose token is known, with settings as variables.
    pub(super) fn start_with(
        binary: &Path,
        data: &Path,
        token: String,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let mut child = Command::new(binary)
            .envs(settings.iter().copied())
            .args(["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let said = child.stderr.take().context("its words were piped")?;
        let mut said = BufReader::new(said);
        let (mut http, mut resp) = (None, None);
        let mut line = String::new();
        while http.is_none() || resp.is_none() {
            line.clear();
            if said.read_line(&mut line)? == 0 {
                bail!("the server ended before it said where it listens");
            }
            let word = line.split_whitespace().last().unwrap_or_default();
            if let Some(rest) = word.strip_prefix("http://") {
                http = http.or(rest.split('/').next().map(str::to_owned));
            } else if let Some(rest) = word.strip_prefix("redis://") {
                resp = Some(rest.to_owned());
            }
        }
        // Whatever it says later is read, so that it never waits for a reader.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let (http, resp) = (http.context("no HTTP door")?, resp.context("no RESP door")?);
        Ok(Self { child, http, resp, token })
    }

    /// The server's process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens a sale of so many units, one for each user, paid at once; its id.
    pub(super) fn open_sale(&self, stock: u64) -> Result<String> {
        let sale = json!({"title": "bench", "sku": "bench", "stock": stock, "price_cents": 100,
            "limit_per_user": 1, "flow": "instant"});
        let opened = self.ask("POST", "/api/v1/sales", &sale.to_string())?;
        let id = opened["id"].as_str().with_context(|| format!("no sale was opened: {opened}"))?;
        Ok(id.to_owned())
    }

    /// Asks for something over HTTP, as an admin.
    pub(super) fn ask(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.ask_text(method, path, body)?)?)
    }

    /// The same, for what is no JSON.
    pub(super) fn ask_text(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.http)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.http,
            self.token,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        let first = head.lines().next().unwrap_or_default();
        ensure!(first.contains(" 2"), "{method} {path} was answered {first}: {body}");
        Ok(body.to_owned())
    }

    /// Memory in use, in bytes.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS")?;
        Ok(kib.trim().parse::<u64>()? << 10)
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}
