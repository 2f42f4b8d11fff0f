//! Every command, file, port and setting that the examples name exists. There is no container engine
//! here, so the Dockerfile and the compose file are read, not run.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::origin::{ops, qiang, replaced, root, text_of};

const ALL: [&str; 8] = [
    "qiang.toml",
    "qiang.service",
    "Dockerfile",
    "compose.yaml",
    "nginx.conf",
    "varnish.vcl",
    "prometheus/prometheus.yaml",
    "prometheus/alerts.yaml",
];

/// Where all of them expect the configuration.
const CONFIG: &str = "/etc/qiang/qiang.toml";

/// What `config check` says of the example, with these variables besides.
fn check(variables: &[(&str, &str)]) -> Value {
    let file = ops("qiang.toml");
    let args = ["config", "check", "--json", "--config", file.to_str().expect("UTF-8")];
    let mut command = qiang(&root(), &args);
    let output = command.envs(variables.iter().copied()).output().expect("the binary runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["ok"], true, "{report:#}");
    report
}

fn setting(report: &Value, key: &str) -> String {
    let settings = report["settings"].as_array().expect("a list");
    let found = settings.iter().find(|setting| setting["key"] == key);
    found.unwrap_or_else(|| panic!("no {key}"))["value"].as_str().expect("a text").to_owned()
}

#[test]
fn the_configuration_makes_sense_and_is_what_the_others_rely_on() {
    let report = check(&[]);
    assert_eq!(report["cautions"], serde_json::json!([]));
    let (listen, health) =
        (setting(&report, "http.listen"), setting(&report, "http.health_listen"));
    for (file, piece) in [
        ("nginx.conf", format!("server {listen};")),
        ("varnish.vcl", format!(".port = \"{}\";", listen.rsplit(':').next().expect("a port"))),
        ("prometheus/prometheus.yaml", format!("\"{health}\"")),
    ] {
        assert!(text_of(file).contains(&piece), "{file} has no {piece}");
    }
    let ports: Vec<&str> =
        [&listen, &health].map(|at| at.rsplit(':').next().expect("a port")).into();
    assert!(text_of("Dockerfile").contains(&format!("EXPOSE {}\n", ports.join(" "))));
    assert_eq!(setting(&report, "data"), "/var/lib/qiang");
    assert!(text_of("Dockerfile").contains("VOLUME /var/lib/qiang\n"));
    assert!(text_of("qiang.service").contains("StateDirectory=qiang\n"));
}

#[test]
fn every_setting_that_is_named_exists() {
    let report = check(&[]);
    let keys = report["settings"].as_array().expect("a list").iter();
    let keys: BTreeSet<&str> =
        keys.map(|setting| setting["key"].as_str().expect("a key")).collect();
    let sections: BTreeSet<&str> =
        keys.iter().filter_map(|key| Some(key.split_once('.')?.0)).collect();
    for file in ALL {
        let text = text_of(file);
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "._".contains(c)));
        for word in words.map(|word| word.trim_end_matches('.')) {
            let is_named = word.split_once('.').is_some_and(|(section, key)| {
                sections.contains(section) && key.contains('_') && !key.contains('.')
            });
            assert!(!is_named || keys.contains(word), "{file} names {word}, which is no setting");
        }
    }
}

#[test]
fn the_unit_starts_what_there_is() {
    let unit = text_of("qiang.service");
    let lines = unit.lines().filter_map(|line| line.strip_prefix("ExecStart")?.split_once('='));
    let commands: Vec<&str> = lines.map(|(_, command)| command).collect();
    assert_eq!(commands.len(), 2, "{unit}");
    for command in commands {
        assert!(command.contains(&format!("--config {CONFIG}")), "{command}");
        let example = ops("qiang.toml");
        let command = replaced(command, CONFIG, example.to_str().expect("UTF-8"));
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words[0], "/usr/local/bin/qiang");
        // A command line that is understood shows its help.
        let output =
            qiang(&root(), &[&words[1..], &["--help"]].concat()).output().expect("it runs");
        assert!(output.status.success(), "{command}: {output:?}");
    }
    // What systemd itself thinks, with the program where it is here.
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("qiang.service");
    let here = replaced(&unit, "/usr/local/bin/qiang", env!("CARGO_BIN_EXE_qiang"));
    std::fs::write(&copy, here).expect("written");
    match Command::new("systemd-analyze").arg("verify").arg(&copy).output() {
        Ok(verified) => {
            assert!(verified.status.success() && verified.stderr.is_empty(), "{verified:?}");
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}

#[test]
fn the_image_is_built_of_what_there_is() {
    let docker = text_of("Dockerfile");
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("text");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.expect("a version").trim_matches('"');
    assert!(docker.contains(&format!("FROM rust:{version}-")), "the image has another Rust");
    assert!(manifest.contains("[profile.dist]") && docker.contains("--profile dist -p qiang\n"));
    for line in docker.lines().filter_map(|line| line.strip_prefix("COPY ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["--from=build", from, to] => {
                assert_eq!((from, to), ("/src/target/dist/qiang", "/usr/local/bin/qiang"));
            }
            [from, _] => assert!(root().join(from).exists(), "{from} is not there"),
            _ => panic!("{line}"),
        }
    }
    assert!(docker.contains(&format!("COPY ops/qiang.toml {CONFIG}\n")));
    let command = docker.lines().find_map(|line| line.strip_prefix("CMD ")).expect("a command");
    let words: Vec<String> = serde_json::from_str(command).expect("a list");
    assert_eq!(words, ["serve", "--config", CONFIG]);
}

#[test]
fn the_services_mount_and_set_what_there_is() {
    let compose = text_of("compose.yaml");
    let mounts = compose.lines().filter_map(|line| line.trim().strip_prefix("- ./"));
    let mounts: Vec<(&str, &str)> = mounts.filter_map(|line| line.split_once(':')).collect();
    assert!(mounts.contains(&("qiang.toml", &format!("{CONFIG}:ro"))), "{mounts:?}");
    assert_eq!(mounts.len(), 4, "{mounts:?}");
    for (from, _) in mounts {
        assert!(ops(from).is_file(), "{from} is not there");
    }
    assert!(compose.contains("context: ..\n      dockerfile: ops/Dockerfile\n"));
    let variables = compose.lines().filter_map(|line| line.trim().split_once(": "));
    let variables: Vec<(&str, &str)> =
        variables.filter(|(name, _)| name.starts_with("QIANG_")).collect();
    assert!(!variables.is_empty());
    // A variable that is no setting would be a fault.
    check(&variables);
}

#[test]
fn every_alert_leads_to_a_chapter_of_the_handbook() {
    let handbook = std::fs::read_to_string(root().join("docs/OPERATING.md")).expect("text");
    let anchor = |title: &str| -> String {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-');
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    let headings = handbook.lines().filter(|line| line.starts_with("##"));
    let anchors: BTreeSet<String> =
        headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect();
    let alerts = text_of("prometheus/alerts.yaml");
    let mut links = 0;
    for link in alerts.lines().filter_map(|line| line.trim().strip_prefix("runbook: ")) {
        let link = link.trim_matches('"');
        let chapter = link.strip_prefix("docs/OPERATING.md#").expect("a chapter");
        assert!(anchors.contains(chapter), "{link} leads nowhere");
        links += 1;
    }
    assert_eq!(links, alerts.matches("- alert: ").count());
}
