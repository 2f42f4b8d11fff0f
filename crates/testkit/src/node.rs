//! Processes of the built binary: one that serves until it is told or killed, and one that runs
//! to its end.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longer than a start takes; only one that hangs meets it.
pub const START_LIMIT: Duration = Duration::from_secs(60);

/// A running `qiang serve`. Killed when it is dropped; if that happens in a test that fails, what
/// it said is printed.
pub struct Node {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    said: Arc<Mutex<String>>,
}

/// What a command that ended said.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code, if it was not killed.
    pub code: Option<i32>,
    /// Its error output, and behind it its output.
    pub stderr: String,
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Ended {
    let output = command.output().expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { code: output.status.code(), stderr: text(output.stderr) + &text(output.stdout) }
}

impl Node {
    /// Starts a server and waits until it is ready, or has ended.
    pub fn start(command: &mut Command) -> Result<Self, Ended> {
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let said = Arc::<Mutex<String>>::default();
        let (ready, address) = channel();
        let stderr = child.stderr.take().expect("piped");
        let heard = Arc::clone(&said);
        std::thread::spawn(move || listen(stderr, &heard, &ready));
        match address.recv_timeout(START_LIMIT) {
            Ok(address) => Ok(Self { child, address, said }),
            Err(_) => {
                // It hangs, or has ended; both is a start that failed.
                let _killed = child.kill();
                let code = child.wait().expect("it ended").code();
                Err(Ended { code, stderr: text_of(&said) })
            }
        }
    }

    /// Everything it said so far.
    pub fn said(&self) -> String {
        text_of(&self.said)
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("ours")
    }

    /// SIGKILL: no warning, no last word.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ended");
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal("-TERM");
        self.child.wait().expect("it ended")
    }

    /// Stops it where it stands.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().expect("kill runs");
        assert!(sent.success(), "no {signal} for {id}");
    }
}

impl Drop for Node {
    #[expect(clippy::print_stdout, reason = "shown only if the test failed")]
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
        if std::thread::panicking() {
            println!("{} said:\n{}", self.address, self.said());
        }
    }
}

fn text_of(said: &Mutex<String>) -> String {
    said.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps what a process says until it ends; the pipe must never fill.
fn listen(stderr: ChildStderr, said: &Mutex<String>, ready: &Sender<SocketAddr>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push_str(&line);
        said.push('\n');
        drop(said);
        let line = line.trim();
        // A worker has no API, but says how it is.
        let url = line.strip_prefix("API ").or(line.strip_prefix("health "));
        let address = url.and_then(|url| url.split_once("://")?.1.split('/').next());
        if let Some(address) = address {
            // Nobody waits any more only if the test has ended.
            let _heard = ready.send(address.parse().expect("an address"));
        }
    }
}
