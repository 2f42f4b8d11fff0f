//! `qiang config check`, as an operator sees it.

use std::process::{Command, Output};

use serde_json::Value;

fn qiang(folder: &std::path::Path, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qiang"));
    command.current_dir(folder).args(args).env_clear().envs(variables.iter().copied());
    command.output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn shows_what_is_in_effect_and_touches_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("qiang.toml"), "[http]\nlisten = \"0.0.0.0:80\"\n").expect("ok");
    let password = ("QIANG_RESP__PASSWORD", "open sesame, please");
    let variables = [("QIANG_PAYMENTS__SANDBOX", "true"), password];
    let output = qiang(dir.path(), &["config", "check", "--data", "d"], &variables);
    assert!(output.status.success());
    let stdout = text(&output.stdout);
    for line in [
        "data = \"d\"",
        "[resp]",
        "tls_cert = \"\"",
        "# password is set, and hidden",
        "# flag --data",
        "listen = \"0.0.0.0:80\"",
        "# qiang.toml:2:1",
        "sandbox = true",
        "# environment variable QIANG_PAYMENTS__SANDBOX",
    ] {
        assert!(stdout.contains(line), "{line} is missing from\n{stdout}");
    }
    assert!(!stdout.contains("sesame"));
    assert!(text(&output.stderr).starts_with("caution: [payments] sandbox is on"));
    assert!(!dir.path().join("d").exists());
}

#[test]
fn speaks_json_to_programs() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = qiang(dir.path(), &["config", "check", "--json"], &[]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success() && json["ok"] == true);
    let output =
        qiang(dir.path(), &["config", "check", "--json"], &[("QIANG_BUS__URL", "kafka://h")]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(json["faults"][0]["variable"], "QIANG_BUS__URL");
}

#[test]
fn a_mistake_ends_every_command_before_it_begins() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("shop.toml"), "[http]\nlisen = 1\n").expect("writable");
    for command in [&["config", "check"][..], &["tokens", "--user", "u1"]] {
        let args = [command, &["--config", "shop.toml"]].concat();
        let output = qiang(dir.path(), &args, &[]);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert!(output.stdout.is_empty(), "{command:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains("shop.toml:2:1: `http.lisen` is not known"), "{stderr}");
    }
    assert!(!dir.path().join("qiang-data").exists());
    let output = qiang(dir.path(), &["config", "check", "--config", "none.toml"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("none.toml: No such file"));
}

/// What can be told without asking a server is told by both, in the same words.
#[test]
fn what_serve_refuses_is_refused_here_with_the_same_words() {
    let dir = tempfile::tempdir().expect("a folder");
    let (engine, database) = ("QIANG_ENGINE__URL", "QIANG_DATABASE__URL");
    for (variable, url, why) in [
        (engine, "rediss://h?ca=/nowhere/ca.pem", "cannot read /nowhere/ca.pem"),
        (engine, "rediss-cluster://h?cert=/nowhere/c.pem", "cert and key go together"),
        (engine, "redis://h?ca=/nowhere/ca.pem", "rediss://"),
        (engine, "redis-sentinel://h:26379", "which master"),
        (database, "postgres://h/d?sslmode=always", "verify-full"),
        (database, "mysql://h/d?sslmode=verify-ca&sslrootcert=/nowhere/ca.pem", "cannot read"),
        (database, "mysql://h/d?ssl_modus=required", "what it can say about TLS"),
        (database, "postgres://h", "names no database"),
    ] {
        let said = [&["config", "check"][..], &["serve"]].map(|args| {
            let output = qiang(dir.path(), args, &[(variable, url)]);
            assert_eq!(output.status.code(), Some(2), "{url}");
            text(&output.stderr).trim_start_matches("error: ").to_owned()
        });
        assert!(said[0].contains(why), "{url}: {}", said[0]);
        assert_eq!(said[0], said[1], "{url}");
    }
}
