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
    let (rounds, seconds) = if stage.quick { (1, 5) } else { (3, 30) };
    let users = RATE * seconds;
    for (name, stock) in [("http_open_loop", users), ("http_open_loop_refused", 1)] {
        let mut runs = Vec::new();
        for _ in 0..rounds {
            let mut load = Command::new(stage.binary);
            load.args(["bench", "--scenario", "sellout", "--json", "-", "--quiet"]);
            load.args(["--rate", &RATE.to_string(), "--duration", &format!("{seconds}s")]);
            load.args(["--users", &users.to_string(), "--stock", &stock.to_string()]);
            let printed = crate::output_of(load.env("TMPDIR", stage.scratch))?;
            runs.push(line(name, &serde_json::from_str(&printed)?)?);
        }
        figures.hear(&least_disturbed(runs).context("no round")?.to_string());
    }
    Ok(())
}

/// The run from which the host took least, with the errors of all of them: what a server does to a
/// crowd shows in the calmest one, but an error is one.
fn least_disturbed(mut runs: Vec<Value>) -> Option<Value> {
    let number = |run: &Value, name: &str| run[name].as_f64().unwrap_or(f64::INFINITY);
    let errors: f64 = runs.iter().map(|run| number(run, "errors")).sum();
    runs.sort_by(|a, b| number(a, "stolen_percent").total_cmp(&number(b, "stolen_percent")));
    let mut least = runs.into_iter().next()?;
    least["errors"] = json!(errors);
    Some(least)
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

    use super::{calm_p99, least_disturbed};

    #[test]
    fn the_calmest_round_counts_and_every_error() {
        let run = |stolen, p99, errors| json!({"stolen_percent": stolen, "p99_ms": p99, "errors": errors});
        let runs = vec![run(12.2, 2_674.0, 1.0), run(0.4, 9.0, 0.0), run(2.6, 46.0, 2.0)];
        assert_eq!(least_disturbed(runs), Some(run(0.4, 9.0, 3.0)));
        assert_eq!(least_disturbed(Vec::new()), None);
    }

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
