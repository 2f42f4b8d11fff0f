//! `qiang tokens`: what it prints is what the server will accept.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use qiang_app::secrets::{FILE_NAME, Secret, Secrets};
use qiang_app::token::{Key, Principal, Role};
use qiang_engine::{Clock as _, SystemClock};

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qiang"));
    command.current_dir(folder).arg("tokens").args(args).env_clear();
    command
}

fn tokens(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("the binary runs")
}

fn one_token(output: &Output) -> &str {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).expect("UTF-8").trim_end()
}

fn verify(folder: &Path, token: &str) -> Principal {
    let secrets = Secrets::load_or_create(&folder.join("qiang-data")).expect("made by the command");
    Key::new(&secrets.jwt_key).verify(token, SystemClock.now()).expect("a good token")
}

#[test]
fn one_token_says_who_it_was_made_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let buyer = verify(dir.path(), one_token(&tokens(dir.path(), &["--user", "用户-7"])));
    assert_eq!((buyer.user.as_str(), buyer.role, buyer.identity), ("用户-7", Role::Buyer, None));
    let args = ["--user", "a", "--role", "admin", "--identity", "p1", "--ttl-secs", "60"];
    let admin = verify(dir.path(), one_token(&tokens(dir.path(), &args)));
    assert_eq!((admin.role, admin.identity.expect("given").as_str()), (Role::Admin, "p1"));
    let left_ms = admin.expires_at.millis() - SystemClock.now().millis();
    assert!((0..=60_000).contains(&left_ms), "{left_ms}");
}

#[test]
fn a_configured_key_needs_no_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let (jwt, callback) = ("j".repeat(32), "c".repeat(32));
    let output = command(dir.path(), &["--user", "u1"])
        .env("QIANG_AUTH__JWT_SECRET", &jwt)
        .env("QIANG_PAYMENTS__CALLBACK_SECRET", &callback)
        .output()
        .expect("the binary runs");
    let key = Key::new(&Secret::new(jwt.as_bytes()));
    assert!(key.verify(one_token(&output), SystemClock.now()).is_ok());
    assert!(!dir.path().join("qiang-data").exists());
}

#[test]
fn a_crowd_goes_to_a_private_file_or_into_a_pipe() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = tokens(dir.path(), &["--count", "25", "--out", "crowd.csv"]);
    assert!(output.status.success() && output.stdout.is_empty());
    let file = dir.path().join("crowd.csv");
    let csv = std::fs::read_to_string(&file).expect("written");
    let mode = std::fs::metadata(&file).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("user_id,token"));
    let mut users = 0;
    for line in lines {
        users += 1;
        let (user, token) = line.split_once(',').expect("two columns");
        assert_eq!(user, format!("u{users}"));
        assert_eq!(verify(dir.path(), token).user.as_str(), user);
    }
    assert_eq!(users, 25);
    let piped = tokens(dir.path(), &["--count", "2", "--out", "-"]);
    assert_eq!(one_token(&piped).lines().count(), 3);
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("readable").collect();
    assert_eq!(left.len(), 2, "only the file and the data folder: {left:?}");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_word() {
    let dir = tempfile::tempdir().expect("a folder");
    for args in [
        &[][..],
        &["--user", ""],
        &["--user", "a\nb"],
        &["--user", "u1", "--count", "2", "--out", "-"],
        &["--count", "2"],
        &["--count", "0", "--out", "-"],
        &["--count", "2", "--out", "-", "--role", "admin"],
        &["--user", "u1", "--role", "root"],
        &["--user", "u1", "--ttl-secs", "0"],
    ] {
        let output = tokens(dir.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
    assert!(!dir.path().join("qiang-data").exists());
    let output = tokens(dir.path(), &["--count", "2", "--out", "no/such/folder.csv"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("cannot write no/such/folder.csv: No such file"), "{stderr}");
}

#[test]
fn processes_that_start_at_once_sign_with_one_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let running: Vec<_> = (0..6)
        .map(|_| {
            let mut command = command(dir.path(), &["--user", "u1"]);
            command.stdout(Stdio::piped()).spawn().expect("the binary runs")
        })
        .collect();
    for child in running {
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(verify(dir.path(), one_token(&output)).user.as_str(), "u1");
    }
}

#[test]
fn a_secrets_file_others_can_read_is_not_used() {
    let dir = tempfile::tempdir().expect("a folder");
    assert!(tokens(dir.path(), &["--user", "u1"]).status.success());
    let path = dir.path().join("qiang-data").join(FILE_NAME);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("ours");
    let output = tokens(dir.path(), &["--user", "u1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("chmod 600"));
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut child = command(dir.path(), &["--count", "20000", "--out", "-"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
}
