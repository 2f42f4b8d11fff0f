//! A crowd at a fixed rate, whatever the server does: `qiang bench` against a server of its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::figures::Figures;

const RATE: u64 = 20_000;

/// Claims by a new user each, all of them granted, over HTTP.
pub(super) fn measure(
    binary: &Path,
    scratch: &Path,
    quick: bool,
    figures: &mut Figures,
) -> Result<()> {
    let seconds = if quick { 5 } else { 30 };
    let users = (RATE * seconds).to_string();
    let mut load = Command::new(binary);
    load.args(["bench", "--scenario", "sellout", "--json", "-", "--quiet"]);
    load.args(["--rate", &RATE.to_string(), "--duration", &format!("{seconds}s")]);
    load.args(["--users", &users, "--stock", &users]).env("TMPDIR", scratch);
    let run: Value = serde_json::from_str(&crate::output_of(&mut load)?)?;
    let number = |path: &str| run.pointer(path).and_then(Value::as_f64).context(path.to_owned());
    let line = json!({"name": "http_open_loop", "rate": RATE, "per_sec": number("/got/per_sec")?,
        "errors": number("/got/errors")?, "p50_ms": number("/latency/p50_us")? / 1e3,
        "p99_ms": number("/latency/p99_us")? / 1e3});
    figures.hear(&line.to_string());
    Ok(())
}
