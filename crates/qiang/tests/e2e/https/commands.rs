//! The binary with TLS: what it says at its start, SIGHUP, and commands that ask such a server.

use std::process::Command;

use crate::https::Files;
use crate::process::{Ended, Process, command, run};

/// A server that has no terminal, wherever this test runs.
fn serve(files: &Files, args: &[&str]) -> Result<Process, Ended> {
    let server = command(files.folder.path(), args);
    let mut daemon = Command::new("setsid");
    daemon.arg(server.get_program()).args(args).args(["serve", "--listen", "127.0.0.1:0"]);
    daemon.current_dir(files.folder.path()).env_clear().stdin(std::process::Stdio::null());
    daemon.env("QIANG_CONFIG", files.path("qiang.toml"));
    Process::begin(&mut daemon)
}

fn configure(files: &Files) {
    let text = "[http]\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\n";
    std::fs::write(files.path("qiang.toml"), text).expect("written");
}

#[test]
fn sighup_has_certificates_read_again_and_stops_nothing() {
    let files = Files::new();
    configure(&files);
    let process = serve(&files, &[]).expect("it starts");
    let id = process.id().to_string();
    let hangup =
        || assert!(Command::new("kill").args(["-HUP", &id]).status().expect("kill runs").success());
    files.renew();
    hangup();
    let said = process.hear_with("shows the certificate in cert.pem now");
    assert!(said.contains("good until 4096-01-01T00:00:00"), "{said}");
    files.mix_up();
    hangup();
    let said = process.hear_with("goes on with the old certificate");
    assert!(said.contains("ERROR") && said.contains("does not fit"), "{said}");
    let (status, said) = process.terminate();
    assert!(status.success() && said.contains("stopped"), "{status}: {said}");
}

#[test]
fn commands_talk_to_a_server_with_tls() {
    let (files, others) = (Files::new(), Files::new());
    configure(&files);
    let process = serve(&files, &[]).expect("it starts");
    let folder = files.folder.path();
    let ended = run(folder, &["audit"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains(&format!("https://{}", process.address)), "{ended:?}");
    let url = format!("https://localhost:{}", process.address.port());
    let (ca, other) = (files.ca(), others.ca());
    let (ca, other) = (ca.to_str().expect("UTF-8"), other.to_str().expect("UTF-8"));
    assert_eq!(run(folder, &["audit", "--url", &url, "--ca", ca]).code, Some(0));
    // The certificate itself will do, too, whoever has signed it and for whatever name.
    let by_address = format!("https://{}", process.address);
    assert_eq!(run(folder, &["audit", "--url", &by_address, "--ca", "cert.pem"]).code, Some(0));
    for (args, words) in [
        (["--url", &*url, "--ca", other], ["is not trusted", "--ca", "invalid peer certificate"]),
        (["--url", &*url, "--ca", "none.pem"], ["cannot read none.pem", "--ca", "No such file"]),
        (["--url", &*url, "--ca", "key.pem"], ["key.pem has no certificate", "--ca", "PEM file"]),
    ] {
        let ended = run(folder, &[&["audit"][..], &args].concat());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        for word in words {
            assert!(ended.stderr.contains(word), "{word:?} is missing from:\n{}", ended.stderr);
        }
    }
    let plain = format!("http://{}", process.address);
    let ended = run(folder, &["audit", "--url", &plain]);
    assert!(ended.stderr.contains("This port speaks TLS only: write https://"), "{ended:?}");
    let bench = ["bench", "--url", &url, "--ca", ca, "--duration", "500ms", "--rate", "200"];
    let ended = run(folder, &[&bench[..], &["--connections", "4", "--quiet"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(process.terminate().0.success());
}

#[test]
fn what_is_wrong_with_the_files_is_said_at_start_and_by_the_check() {
    let (files, other) = (Files::new(), Files::new());
    let folder = files.folder.path();
    std::fs::write(files.path("empty.pem"), "").expect("written");
    let cert = std::fs::read_to_string(files.path("cert.pem")).expect("text");
    std::fs::write(files.path("cut.pem"), &cert[..200]).expect("written");
    let others = other.text("key.pem");
    for (cert, key, said) in [
        (
            "none.pem",
            "key.pem",
            &["cannot read none.pem", "`tls_cert` in [http]", "No such file"][..],
        ),
        ("cert.pem", "none.pem", &["cannot read none.pem", "`tls_key` in [http]"]),
        (".", "key.pem", &["cannot read .", "Is a directory"]),
        ("empty.pem", "key.pem", &["empty.pem has no certificate in it", "`tls_cert` in [http]"]),
        ("cut.pem", "key.pem", &["cut.pem", "`tls_cert` in [http]"]),
        ("cert.pem", "empty.pem", &["empty.pem has no private key in it", "`tls_key` in [http]"]),
        ("cert.pem", &others, &["does not fit the certificate in cert.pem"]),
    ] {
        let text = format!("[http]\ntls_cert = \"{cert}\"\ntls_key = \"{key}\"\n");
        std::fs::write(files.path("qiang.toml"), text).expect("written");
        let started = match serve(&files, &[]) {
            Ok(_) => panic!("it started with {cert} and {key}"),
            Err(ended) => ended,
        };
        let checked = run(folder, &["config", "check"]);
        assert_eq!(checked.code, Some(2), "{checked:?}");
        assert!(checked.stderr.contains("qiang.toml:2:1: `http.tls_cert`"), "{checked:?}");
        for word in said {
            for ended in [&started, &checked] {
                assert!(ended.stderr.contains(word), "{word:?} is missing from:\n{}", ended.stderr);
            }
        }
        let json = run(folder, &["config", "check", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
        assert_eq!(
            (&json["ok"], &json["faults"][0]["key"]),
            (&false.into(), &"http.tls_cert".into())
        );
        assert!(!folder.join("qiang-data").exists(), "nothing was opened in vain");
    }
    configure(&files);
    assert_eq!(run(folder, &["config", "check"]).code, Some(0));
}
