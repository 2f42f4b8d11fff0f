//! The real binary, in a process of its own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than any start takes; only a process that hangs meets it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `qiang serve`. Killed if the test forgets it.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
    rest: Receiver<String>,
}

/// What a command that ended said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A command of the binary, in a folder, with nothing of this process's environment.
pub(crate) fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qiang"));
    command.current_dir(folder).args(args).env_clear().stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) fn run(folder: &Path, args: &[&str]) -> Ended {
    Ended::from(command(folder, args).output().expect("the binary runs"))
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

impl Process {
    /// Starts a server on a free port and waits until it is ready, or has ended.
    pub(crate) fn start(command: &mut Command) -> Result<Self, Ended> {
        Self::begin(command.args(["serve", "--listen", "127.0.0.1:0"]))
    }

    /// The same, with the command line as it is.
    pub(crate) fn begin(command: &mut Command) -> Result<Self, Ended> {
        Self::wait(Self::spawn(command))
    }

    fn spawn(command: &mut Command) -> Child {
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs")
    }

    fn wait(mut child: Child) -> Result<Self, Ended> {
        let stderr = child.stderr.take().expect("piped");
        let (lines, said) = channel();
        std::thread::spawn(move || tell(stderr, &lines));
        let mut heard = String::new();
        while let Ok(line) = said.recv_timeout(PATIENCE) {
            let address = line.trim().strip_prefix("API ").map(str::trim);
            let address = address.and_then(|url| url.split_once("://")?.1.strip_suffix("/api/v1"));
            if let Some(address) = address {
                let address = address.parse().expect("an address");
                return Ok(Self { child, address, rest: said });
            }
            heard.push_str(&line);
            heard.push('\n');
        }
        let status = child.wait().expect("it ended");
        Err(Ended { code: status.code(), stdout: String::new(), stderr: heard })
    }

    /// Waits for a line that begins with a word, and gives the rest of it.
    pub(crate) fn hear(&self, word: &str) -> String {
        loop {
            let line = self.rest.recv_timeout(PATIENCE).expect("it is said");
            if let Some(rest) = line.trim().strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Waits for a line with some words in it.
    pub(crate) fn hear_with(&self, words: &str) -> String {
        loop {
            let line = self.rest.recv_timeout(PATIENCE).expect("it is said");
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Starts a server and kills it when it has said so many lines, or nothing yet.
    pub(crate) fn start_and_kill(command: &mut Command, lines: usize) {
        let mut child = Self::spawn(command.args(["serve", "--listen", "127.0.0.1:0"]));
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let _heard = stderr.lines().take(lines).count();
        child.kill().expect("it runs");
        child.wait().expect("it ended");
    }

    /// SIGKILL: no warning, no last word.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ended");
    }

    /// SIGTERM, and what it said until it ended.
    pub(crate) fn terminate(self) -> (ExitStatus, String) {
        self.end("-TERM")
    }

    /// A signal, and what it said until it ended.
    pub(crate) fn end(self, signal: &str) -> (ExitStatus, String) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().expect("kill runs");
        assert!(sent.success());
        self.ended()
    }

    /// Waits until it ends by itself, and says what it said.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("it ended");
        (status, self.rest.iter().collect::<Vec<_>>().join("\n"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Passes lines on until the process ends; the pipe must never fill.
fn tell(stderr: ChildStderr, lines: &std::sync::mpsc::Sender<String>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = String::new();
    while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {
        if lines.send(line.trim_end().to_owned()).is_err() {
            break;
        }
        line.clear();
    }
    let _rest = stderr.read_to_end(&mut Vec::new());
}
