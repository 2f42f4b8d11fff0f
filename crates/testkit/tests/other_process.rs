//! What can only be seen from another process: that a killed owner leaves nothing behind, and what
//! a test says or does when its server cannot be had. Each test runs itself again as that process.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use qiang_testkit::servers::redis::Durability;
use qiang_testkit::servers::{Redis, or_skip, redis, shared};

/// Set for the other process, to what it needs to know.
const ROLE: &str = "QIANG_TESTKIT_ROLE";
/// Longer than it takes to end a server.
const PATIENCE: Duration = Duration::from_secs(20);

/// This program, to run just one test.
fn again(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test is a program"));
    command.args([test, "--exact", "--nocapture"]).env(ROLE, role);
    command
}

fn own_a_server(base: PathBuf) {
    let durability = Durability::Always;
    let options = redis::Options { base, durability, ..Default::default() };
    let Some(server) = or_skip(Redis::start(&options)) else { return };
    writeln!(std::io::stdout(), "\nport {}", server.port()).expect("somebody listens");
    std::thread::park();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test fails rather than hangs")]
fn a_killed_owner_leaves_nothing_behind() {
    if let Ok(base) = std::env::var(ROLE) {
        return own_a_server(base.into());
    }
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("owner-{}", std::process::id()));
    fs::create_dir(&base).unwrap();
    let mut command = again("a_killed_owner_leaves_nothing_behind", base.to_str().unwrap());
    let mut owner = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines().map(Result::unwrap);
    let port = lines.find_map(|line| line.strip_prefix("port ")?.parse::<u16>().ok());
    owner.kill().unwrap();
    owner.wait().unwrap();
    if let Some(port) = port {
        // Its keeper removes the folder last, and the folder above can only be removed empty.
        let killed = Instant::now();
        while fs::remove_dir(&base).is_err() {
            assert!(killed.elapsed() < PATIENCE, "{} is not empty", base.display());
            std::thread::yield_now();
        }
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err(), "{port} answers");
    } else {
        fs::remove_dir(&base).unwrap();
    }
}

fn without_valkey(ci: &str) -> Output {
    let mut command = again("what_is_missing_is_said_once_and_fails_in_ci", "ask");
    command.env("CI", ci).env_remove(shared::VALKEY.variable).output().expect("it can run again")
}

#[test]
fn what_is_missing_is_said_once_and_fails_in_ci() {
    if std::env::var(ROLE).is_ok() {
        assert_eq!((shared::valkey(), shared::valkey()), (None, None));
        return;
    }
    let lenient = without_valkey("");
    let said = String::from_utf8_lossy(&lenient.stderr).into_owned();
    assert!(lenient.status.success(), "{said}");
    assert_eq!(said.matches("SKIPPED: Valkey").count(), 1, "{said}");

    let strict = without_valkey("true");
    assert!(!strict.status.success());
    let said = String::from_utf8_lossy(&strict.stderr).into_owned();
    assert!(said.contains("Valkey may not be skipped here"), "{said}");
}
