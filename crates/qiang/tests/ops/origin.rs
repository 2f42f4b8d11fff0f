//! A server in a folder of its own, and a plain client for whatever stands in front of it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use qiang_testkit::node::Node;
use qiang_testkit::servers::wait;
use serde_json::Value;

/// Only what hangs meets it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A file of `ops/`.
pub(crate) fn ops(path: &str) -> PathBuf {
    root().join("ops").join(path)
}

/// Its text.
pub(crate) fn text_of(path: &str) -> String {
    let path = ops(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A text with one piece replaced, which must be there.
#[track_caller]
pub(crate) fn replaced(text: &str, piece: &str, by: &str) -> String {
    assert!(text.contains(piece), "{piece:?} is no longer there");
    text.replace(piece, by)
}

/// A command of the binary, in a folder, with nothing of this process's environment.
pub(crate) fn qiang(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qiang"));
    command.current_dir(folder).args(args).env_clear().stdin(Stdio::null());
    command
}

/// A server at work.
pub(crate) struct Origin {
    pub(crate) node: Node,
    pub(crate) folder: tempfile::TempDir,
}

impl Origin {
    /// With these variables of the environment.
    pub(crate) fn start(variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = qiang(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
        let node = Node::start(command.envs(variables.iter().copied())).expect("it starts");
        Self { node, folder }
    }

    pub(crate) fn token(&self, args: &[&str]) -> String {
        let mut command = qiang(self.folder.path(), &["tokens"]);
        let output = command.args(args).output().expect("the binary runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: Vec<String>,
    pub(crate) body: String,
}

impl Answer {
    /// A header, by its name in small letters; empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        let named = |line: &'_ &String| {
            line.split_once(':').is_some_and(|(is, _)| is.eq_ignore_ascii_case(name))
        };
        self.head
            .iter()
            .find(named)
            .map_or("", |line| line.split_once(':').expect("found").1.trim())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A connection that is kept open.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self(BufReader::new(stream))
    }

    pub(crate) fn ask(&mut self, request: &str, headers: &[&str], body: &str) -> Answer {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = match body {
            "" => String::new(),
            _ => format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()),
        };
        let text =
            format!("{request} HTTP/1.1\r\nHost: shop.example\r\n{headers}{length}\r\n{body}");
        self.0.get_mut().write_all(text.as_bytes()).expect("sent");
        self.answer()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).expect("it answers") > 0, "it closed");
        line.trim_end().to_owned()
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).expect("a whole body");
        bytes
    }

    fn answer(&mut self) -> Answer {
        let status = self.line();
        let mut head = Vec::new();
        loop {
            match self.line() {
                line if line.is_empty() => break,
                line => head.push(line),
            }
        }
        let status = status.get(9..12).and_then(|code| code.parse().ok()).expect("a status");
        let mut answer = Answer { status, head, body: String::new() };
        let mut body = Vec::new();
        if answer.header("transfer-encoding") == "chunked" {
            loop {
                let length = usize::from_str_radix(&self.line(), 16).expect("a length");
                body.extend(self.bytes(length));
                self.line();
                if length == 0 {
                    break;
                }
            }
        } else if let Ok(length) = answer.header("content-length").parse() {
            body = self.bytes(length);
        }
        answer.body = String::from_utf8(body).expect("UTF-8");
        answer
    }
}

/// One question on a connection of its own.
pub(crate) fn ask(port: u16, request: &str, headers: &[&str], body: &str) -> Answer {
    Client::connect(port).ask(request, headers, body)
}

/// Looks again and again until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let look = || if is_so() { Ok(()) } else { Err(anyhow::anyhow!("it is not")) };
    wait(what, PATIENCE, look).unwrap_or_else(|error| panic!("{error:#}"));
}
