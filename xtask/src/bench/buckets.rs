//! `cargo xtask bench buckets`: from which rate on a hot sale is better off in buckets.
//!
//! A cluster of three masters that keep nothing on disk, one node, and `qiang bench` over RESP at several
//! rates, each with one bucket and with six. What a sale can reach is what its busiest master can, so that
//! is what counts: the share of its core that the same rate takes. Unlike a rate of its own it says the
//! same on a machine whose cores the masters share with everybody else.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use qiang_testkit::servers::redis::{self, Durability};
use qiang_testkit::servers::{Cluster, POSTGRES, Postgres, REDIS, cluster, postgres};
use serde_json::Value;

use super::product::{self, Product};
use super::{built, empty_scratch};
use crate::servers::{install, or_skip};
use crate::stopwatch::Stopwatch;

const RATES: [u64; 6] = [500, 1_000, 2_000, 5_000, 10_000, 20_000];
const QUICK_RATES: [u64; 2] = [1_000, 10_000];
const BUCKETS: [u16; 2] = [1, 6];
/// So many rounds at each rate, the two in turn.
const ROUNDS: usize = 3;
const SECONDS: u64 = 6;
/// Between two looks at the masters.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Of a busy second: less than that was not the load, but what comes before and after it.
const UNDER_LOAD: f64 = 0.5;

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    rates: Vec<u64>,
    rounds: usize,
    binary: Option<PathBuf>,
}

/// Measures, and prints a table.
pub(super) fn run(args: &[String]) -> Result<ExitCode> {
    let mut options = parse(args)?;
    let clock = Stopwatch::start();
    let root = crate::root()?;
    let scratch = empty_scratch(&root)?;
    install([REDIS, POSTGRES]);
    let node = redis::Options {
        durability: Durability::None,
        base: scratch.clone(),
        ..Default::default()
    };
    let cluster = Cluster::start(&cluster::Options { node, ..Default::default() });
    let Some(cluster) = or_skip("Redis Cluster", cluster)? else { return Ok(ExitCode::SUCCESS) };
    let database =
        Postgres::start(&postgres::Options { base: scratch.clone(), ..Default::default() });
    let Some(database) = or_skip("PostgreSQL", database)? else { return Ok(ExitCode::SUCCESS) };
    let binary = built(&root, &mut options.binary)?;
    let (engine_url, database_url, data) = (cluster.url(), database.url(), scratch.join("buckets"));
    let token = product::token(binary, &data, "bench")?;
    let settings = [
        ("QIANG_ENGINE__URL", engine_url.as_str()),
        ("QIANG_DATABASE__URL", database_url.as_str()),
    ];
    let product = Product::start_with(binary, &data, token, &settings)?;
    let stage = Stage { cluster: &cluster, product: &product, binary, scratch: &scratch };
    println!(
        "| claims a second | buckets | p50 | p99 | busiest master | its time for a claim | claims in a call |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for rate in &options.rates {
        let mut all = BUCKETS.map(|_| Vec::new());
        for _ in 0..options.rounds {
            for (buckets, runs) in BUCKETS.into_iter().zip(&mut all) {
                runs.push(stage.measure(*rate, buckets)?);
            }
        }
        for (buckets, runs) in BUCKETS.into_iter().zip(&all) {
            println!("{}", row(buckets, runs));
        }
    }
    println!("measured in {clock}");
    Ok(ExitCode::SUCCESS)
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options { rounds: ROUNDS, ..Options::default() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => {
                options.rounds = 1;
                options.rates.extend(QUICK_RATES);
            }
            "--rate" => options.rates.push(args.next().context("--rate takes a number")?.parse()?),
            "--binary" => {
                let file = args.next().context("--binary takes a file")?;
                let file = std::fs::canonicalize(file).with_context(|| format!("no {file}"))?;
                options.binary = Some(file);
            }
            other => bail!("bench buckets does not know `{other}`; see `cargo xtask help`"),
        }
    }
    if options.rates.is_empty() {
        options.rates.extend(RATES);
    }
    Ok(options)
}

struct Stage<'a> {
    cluster: &'a Cluster,
    product: &'a Product,
    binary: &'a Path,
    scratch: &'a Path,
}

/// Counters at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
struct Look {
    at_secs: f64,
    claims: f64,
    /// Of each master: seconds its main thread has worked, and calls of the script.
    masters: Vec<(f64, f64)>,
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Got {
    per_sec: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Of the busiest master: the share of its core, and for each claim of the sale, microseconds.
    share: f64,
    claim_us: f64,
    /// Claims in one call of the script.
    batch: f64,
}

impl Stage<'_> {
    fn measure(&self, rate: u64, buckets: u16) -> Result<Got> {
        let users = rate * SECONDS;
        // Not a pipe, which nobody would read while the masters are looked at.
        let file = self.scratch.join("run.json");
        let mut load = Command::new(self.binary);
        load.args([
            "bench",
            "--quiet",
            "--json",
            &file.to_string_lossy(),
            "--protocol",
            "resp",
            "--connections",
            "256",
        ]);
        load.args([
            "--url",
            &format!("http://{}", self.product.http),
            "--resp",
            &self.product.resp,
        ]);
        load.args(["--token", &self.product.token, "--buckets", &buckets.to_string()]);
        load.args(["--rate", &rate.to_string(), "--duration", &format!("{SECONDS}s")]);
        // Twice as many as are sold: no bucket has to borrow.
        load.args(["--users", &users.to_string(), "--stock", &(users * 2).to_string()]);
        let clock = Stopwatch::start();
        load.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = load.spawn().context("cannot start the load")?;
        let mut looks = Vec::new();
        while child.try_wait()?.is_none() {
            looks.push(self.look(clock.elapsed().as_secs_f64())?);
            std::thread::sleep(LOOK_EVERY);
        }
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{load:?} ended with {}: {said}", output.status);
        let run: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        let number =
            |path: &str| run.pointer(path).and_then(Value::as_f64).context(path.to_owned());
        ensure!(number("/got/errors")? == 0.0, "there were errors: {}", run["got"]);
        let (p50_ms, p99_ms) = (number("/latency/p50_us")? / 1e3, number("/latency/p99_us")? / 1e3);
        busiest(&looks, rate as f64, p50_ms, p99_ms)
    }

    fn look(&self, at_secs: f64) -> Result<Look> {
        let metrics = self.product.ask_text("GET", "/metrics", "")?;
        let granted = metrics.lines().filter(|line| line.starts_with("qiang_claims_total{"));
        let granted = granted.filter(|line| line.contains("\"granted\""));
        let claims = granted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        let mut masters = Vec::new();
        for master in self.cluster.nodes() {
            let info = master.command(&["INFO", "cpu", "commandstats"])?.text();
            let value = |name: &str| {
                let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.map(str::trim).unwrap_or_default().to_owned()
            };
            let seconds = |name: &str| value(name).parse::<f64>().context("no processor time");
            let busy = seconds("used_cpu_user_main_thread")? + seconds("used_cpu_sys_main_thread")?;
            // A server that was never called does not list it.
            let calls = value("cmdstat_evalsha");
            let calls = calls.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
            masters.push((busy, calls.and_then(|calls| calls.parse().ok()).unwrap_or(0.0)));
        }
        Ok(Look { at_secs, claims, masters })
    }
}

/// What the busiest master did while the load was on, from looks at it.
fn busiest(looks: &[Look], rate: f64, p50_ms: f64, p99_ms: f64) -> Result<Got> {
    let busy = |pair: &&[Look]| {
        pair[1].claims - pair[0].claims >= rate * UNDER_LOAD * (pair[1].at_secs - pair[0].at_secs)
    };
    let under_load: Vec<&[Look]> = looks.windows(2).filter(busy).collect();
    ensure!(under_load.len() > 2, "the load was never on: {looks:?}");
    // The first and the last are only partly under load.
    let inner = &under_load[1..under_load.len() - 1];
    let sum = |of: &dyn Fn(&Look) -> f64| -> f64 {
        inner.iter().map(|pair| of(&pair[1]) - of(&pair[0])).sum()
    };
    let (secs, claims) = (sum(&|look| look.at_secs), sum(&|look| look.claims));
    let masters = 0..looks[0].masters.len();
    let busiest = masters.clone().map(|at| sum(&|look| look.masters[at].0)).fold(0.0, f64::max);
    let calls: f64 = masters.map(|at| sum(&|look| look.masters[at].1)).sum();
    Ok(Got {
        per_sec: claims / secs,
        p50_ms,
        p99_ms,
        share: busiest / secs,
        claim_us: busiest * 1e6 / claims,
        batch: claims / calls,
    })
}

fn row(buckets: u16, runs: &[Got]) -> String {
    let median = |of: fn(&Got) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    format!(
        "| {:.0} | {buckets} | {:.2} ms | {:.2} ms | {:.1} % | {:.1} µs | {:.1} |",
        median(|got| got.per_sec),
        median(|got| got.p50_ms),
        median(|got| got.p99_ms),
        median(|got| got.share * 100.0),
        median(|got| got.claim_us),
        median(|got| got.batch),
    )
}

#[cfg(test)]
mod tests {
    use super::{Look, busiest, parse};

    #[test]
    fn only_what_happened_under_load_counts() {
        // Two masters; opening the sale and comparing the books keep the second one busy, too.
        let steps = [
            (0.0, 9.0),
            (0.0, 9.0),
            (50.0, 0.5),
            (100.0, 0.1),
            (100.0, 0.1),
            (60.0, 0.5),
            (0.0, 9.0),
        ];
        let mut looks = vec![Look { masters: vec![(0.0, 0.0); 2], ..Look::default() }];
        for (claims, second) in steps {
            let last = looks.last().unwrap().clone();
            looks.push(Look {
                at_secs: last.at_secs + 1.0,
                claims: last.claims + claims,
                masters: vec![
                    (last.masters[0].0 + 0.2, last.masters[0].1 + 10.0),
                    (last.masters[1].0 + second, last.masters[1].1 + 10.0),
                ],
            });
        }
        let got = busiest(&looks, 100.0, 1.0, 2.0).unwrap();
        let near =
            |got: f64, wanted: f64| assert!((got - wanted).abs() < 1e-9, "{got}, not {wanted}");
        near(got.per_sec, 100.0);
        near(got.share, 0.2);
        near(got.claim_us, 2_000.0);
        near(got.batch, 5.0);
        assert!(busiest(&looks[..3], 100.0, 1.0, 2.0).is_err());
    }

    #[test]
    fn arguments_are_understood_or_refused() {
        let parse =
            |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("--rate 300 --rate 900").unwrap().rates, [300, 900]);
        assert_eq!(parse("--quick").unwrap().rounds, 1);
        assert_eq!(parse("").unwrap().rates, super::RATES);
        for bad in ["--rate", "--rate many", "--binary", "--binary no-such-file", "--slow"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
