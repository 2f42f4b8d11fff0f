//! A crowd at a fixed rate, whatever the server does: `qiang bench` against a server of its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::figures::Figures;

const RATE: u64 = 20_000;

/// Claims by a new user each over HTTP: all of them granted, and then all but one refused, which
/// needs no journal. What both have in common is the machine and the generator.
pub(super) fn measure(
    binary: &Path,
    scratch: &Path,
    quick: bool,
    figures: &mut Figures,
) -> Result<()> {
    let seconds = if quick { 5 } else { 30 };
    let users = RATE * seconds;
    for (name, stock) in [("http_open_loop", users), ("http_open_loop_refused", 1)] {
        let mut load = Command::new(binary);
        load.args(["bench", "--scenario", "sellout", "--json", "-", "--quiet"]);
        load.args(["--rate", &RATE.to_string(), "--duration", &format!("{seconds}s")]);
        load.args(["--users", &users.to_string(), "--stock", &stock.to_string()]);
        let run: Value = serde_json::from_str(&crate::output_of(load.env("TMPDIR", scratch))?)?;
        figures.hear(&line(name, &run)?.to_string());
    }
    Ok(())
}

fn line(name: &str, run: &Value) -> Result<Value> {
    let number = |path: &str| run.pointer(path).and_then(Value::as_f64).context(path.to_owned());
    let percent = |path: &str| number(path).map(|share| share * 100.0);
    Ok(json!({"name": name, "rate": RATE, "per_sec": number("/got/per_sec")?,
        "errors": number("/got/errors")?, "p50_ms": number("/latency/p50_us")? / 1e3,
        "p99_ms": number("/latency/p99_us")? / 1e3,
        "busy_percent": percent("/got/processor/busy")?,
        "stolen_percent": percent("/got/processor/stolen")?,
        "stolen_at_worst_percent": percent("/got/processor/stolen_at_worst")?}))
}
