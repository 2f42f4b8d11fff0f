//! A crowd at a fixed rate, whatever the server does: `qiang bench` against a server of its own.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Stage;
use super::figures::Figures;

const RATE: u64 = 20_000;
/// A smaller share than the kernel counts in a second is nothing.
const CALM: f64 = 0.01;

/// Claims by a new user each over HTTP: all of them granted, and then all but one refused, which
/// needs no journal. What both have in common is the machine and the generator.
pub(super) fn measure(stage: &Stage<'_>, figures: &mut Figures) -> Result<()> {
    let seconds = if stage.quick { 5 } else { 30 };
    let users = RATE * seconds;
    for (name, stock) in [("http_open_loop", users), ("http_open_loop_refused", 1)] {
        let mut load = Command::new(stage.binary);
        load.args(["bench", "--scenario", "sellout", "--json", "-", "--quiet"]);
        load.args(["--rate", &RATE.to_string(), "--duration", &format!("{seconds}s")]);
        load.args(["--users", &users.to_string(), "--stock", &stock.to_string()]);
        let run: Value =
            serde_json::from_str(&crate::output_of(load.env("TMPDIR", stage.scratch))?)?;
        figures.hear(&line(name, &run)?.to_string());
    }
    Ok(())
}

/// Of the p99 of each slice in which the host took nothing of the machine away, the one in the
/// middle; nothing if there was no such slice.
fn calm_p99(run: &Value) -> Option<f64> {
    let calm = |point: &&Value| point["stolen"].as_f64().is_some_and(|share| share < CALM);
    let series = run["series"].as_array()?.iter().filter(calm);
    let mut all: Vec<f64> =
        series.filter_map(|point| point["latency"]["p99_us"].as_f64()).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).map(|p99_us| p99_us / 1e3)
}

fn line(name: &str, run: &Value) -> Result<Value> {
    let number = |path: &str| run.pointer(path).and_then(Value::as_f64).context(path.to_owned());
    let percent = |path: &str| number(path).map(|share| share * 100.0);
    Ok(json!({"name": name, "rate": RATE, "per_sec": number("/got/per_sec")?,
        "errors": number("/got/errors")?, "p50_ms": number("/latency/p50_us")? / 1e3,
        "p99_ms": number("/latency/p99_us")? / 1e3, "calm_p99_ms": calm_p99(run),
        "busy_percent": percent("/got/processor/busy")?,
        "stolen_percent": percent("/got/processor/stolen")?,
        "stolen_at_worst_percent": percent("/got/processor/stolen_at_worst")?}))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::calm_p99;

    #[test]
    fn seconds_that_were_disturbed_do_not_count() {
        let point = |stolen, us| json!({"stolen": stolen, "latency": {"p99_us": us}});
        let calm = [point(0.0, 7_000), point(0.005, 9_000), point(0.0, 8_000)];
        let rough = [point(0.2, 300_000), json!({"stolen": null, "latency": {"p99_us": 1}})];
        let all = [&calm[..], &rough[..]].concat();
        assert_eq!(calm_p99(&json!({"series": all})), Some(8.0));
        assert_eq!(calm_p99(&json!({"series": rough})), None);
    }
}
