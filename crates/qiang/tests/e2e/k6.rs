//! `scripts/k6/seckill.js`, run by the real k6 against the real server.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use qiang_testkit::servers::{K6, or_skip};
use serde_json::{Value, json};

use crate::person::Person;
use crate::process::{Process, command, run};
use crate::shop::{changed, terms_of};

fn k6(program: &Path, folder: &Path, settings: &[(&str, &str)]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/k6/seckill.js");
    let mut k6 = Command::new(program);
    // It neither tells anybody about itself nor listens.
    k6.args(["run", "--quiet", "--no-usage-report", "--address", ""]);
    k6.args(["--summary-export", "summary.json"]);
    k6.current_dir(folder).env_clear().env("HOME", folder).env("PWD", folder);
    for (name, value) in settings {
        k6.arg("-e").arg(format!("{name}={value}"));
    }
    k6.arg(script).output().expect("it runs")
}

fn count(folder: &Path, metric: &str) -> u64 {
    let summary = std::fs::read_to_string(folder.join("summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    summary["metrics"][metric]["count"].as_u64().unwrap_or(0)
}

#[tokio::test]
async fn a_crowd_of_k6_gets_all_there_is_and_not_one_more() {
    let Some(program): Option<PathBuf> = or_skip(K6.find().map_err(Into::into)) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    let made = run(folder.path(), &["tokens", "--count", "200", "--out", "tokens.csv"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let admin = run(folder.path(), &["tokens", "--user", "boss", "--role", "admin"]);
    let admin = admin.stdout.trim().to_owned();
    let mut boss = Person::arrive(process.address, Some(admin.clone())).await;
    for id in ["12", "13"] {
        boss.post("/sales", changed(&terms_of(50), &json!({ "id": id }))).await.ok(201);
    }
    let url = format!("http://{}", process.address);
    let base = ("BASE_URL", &*url);
    let settings = [base, ("VOUCHER_ID", "12"), ("RAMP_WINDOW", "1s"), ("ADMIN_TOKEN", &admin)];
    let output = k6(&program, folder.path(), &settings);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(count(folder.path(), "granted"), 50, "{output:?}");
    assert_eq!(count(folder.path(), "sold_out"), 150, "{output:?}");
    // The same crowd again: who has one is told so, by the same key.
    let settings = [base, ("SALE_ID", "12"), ("RAMP_WINDOW", "0s"), ("TOKENS_FILE", "tokens.csv")];
    let output = k6(&program, folder.path(), &settings);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(count(folder.path(), "granted_before"), 50, "{output:?}");
    assert_eq!(count(folder.path(), "granted"), 0, "{output:?}");
    let mut boss = Person::arrive(process.address, Some(admin)).await;
    let sale = boss.get("/sales/12").await.ok(200);
    assert_eq!((&sale["available"], &sale["ordered"]), (&json!(0), &json!(50)));
    // Tokens of nobody are not answers that a sale gives.
    std::fs::write(folder.path().join("bad.csv"), "user_id,token\nu1,x\n").expect("written");
    let settings = [base, ("SALE_ID", "13"), ("RAMP_WINDOW", "0s"), ("TOKENS_FILE", "bad.csv")];
    let output = k6(&program, folder.path(), &settings);
    assert!(!output.status.success(), "{output:?}");
    assert!(process.terminate().0.success());
}
