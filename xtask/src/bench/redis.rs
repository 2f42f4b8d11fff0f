//! The peer: Redis with the usual flash-sale script, called once for each claim.
//!
//! Driven by Redis's own `redis-benchmark`, each request from a user of its own, stock that
//! never runs out, a fresh server for each round; the median round counts. After each round
//! the books are compared, so that a script that did nothing is never taken for a fast one.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use qiang_testkit::servers::redis::{Durability, Options};
use qiang_testkit::servers::{REDIS, Redis};

use super::figures::Figures;
use crate::servers;

const MODES: [(&str, Durability); 3] = [
    ("redis_always", Durability::Always),
    ("redis_no", Durability::Kernel),
    ("redis_memory", Durability::None),
];
pub(super) const PIPELINES: [u32; 2] = [1, 64];
pub(super) const CONNECTIONS: u32 = 64;
const STOCK: u64 = 1_000_000_000;
/// Users are drawn from this many, so that hardly any comes twice.
pub(super) const USERS: u32 = 1_000_000_000;
/// Longer than any round, so that every order can be counted afterwards.
const LONGEST_STREAM: u32 = 1_000_000;
/// One hash tag, as a cluster would demand.
const KEYS: [&str; 4] = ["{sale}:stock", "{sale}:req_seq", "{sale}:uid2req", "{sale}:orders"];

/// Measures every mode and pipeline, or says that Redis cannot be had.
pub(super) fn measure(
    root: &Path,
    scratch: &Path,
    quick: bool,
    figures: &mut Figures,
) -> Result<()> {
    if !servers::ensure_installed(REDIS)? {
        return Ok(());
    }
    let script = root.join("bench/seckill.lua");
    let rounds = if quick { 1 } else { 3 };
    for (name, durability) in MODES {
        for pipeline in PIPELINES {
            let requests = requests(pipeline, quick);
            let mut speeds = Vec::new();
            for _ in 0..rounds {
                speeds.push(round(&script, scratch, durability, pipeline, requests)?);
            }
            figures.hear(&median(speeds).line(name, pipeline));
        }
    }
    ping(scratch, rounds, quick, figures)
}

/// What the protocol itself allows: the shortest command there is.
fn ping(scratch: &Path, rounds: usize, quick: bool, figures: &mut Figures) -> Result<()> {
    let options =
        Options { durability: Durability::None, base: scratch.to_owned(), ..Default::default() };
    let server = Redis::start(&options)?;
    for pipeline in PIPELINES {
        let requests = requests(pipeline, quick) * if pipeline > 1 { 8 } else { 1 };
        let mut speeds = Vec::new();
        for _ in 0..rounds {
            let mut load = Command::new("redis-benchmark");
            load.args(["-p", &server.port().to_string(), "-c", &CONNECTIONS.to_string()]);
            load.args(["-P", &pipeline.to_string(), "-n", &requests.to_string(), "--csv", "PING"]);
            speeds.push(speed_of(&crate::output_of(&mut load)?)?);
        }
        figures.hear(&median(speeds).line("redis_ping", pipeline));
    }
    Ok(())
}

/// What `redis-benchmark` measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Speed {
    per_sec: f64,
    p99_ms: f64,
}

impl Speed {
    /// It as a figure.
    pub(super) fn line(self, name: &str, pipeline: u32) -> String {
        let Self { per_sec, p99_ms } = self;
        let per_sec = per_sec.round();
        serde_json::json!({"name": name, "pipeline": pipeline, "per_sec": per_sec, "p99_ms": p99_ms})
            .to_string()
    }
}

/// The round in the middle.
pub(super) fn median(mut speeds: Vec<Speed>) -> Speed {
    speeds.sort_by(|one, other| one.per_sec.total_cmp(&other.per_sec));
    speeds[speeds.len() / 2]
}

/// Enough for some seconds at the speeds of a small machine.
pub(super) fn requests(pipeline: u32, quick: bool) -> u64 {
    match (pipeline, quick) {
        (1, false) => 100_000,
        (1, true) => 20_000,
        (_, false) => 500_000,
        (_, true) => 200_000,
    }
}

fn round(
    script: &Path,
    scratch: &Path,
    durability: Durability,
    pipeline: u32,
    requests: u64,
) -> Result<Speed> {
    let options = Options { durability, base: scratch.to_owned(), ..Default::default() };
    let server = Redis::start(&options)?;
    let text = File::open(script).with_context(|| format!("cannot open {}", script.display()))?;
    let sha = crate::output_of(cli(&server).args(["-x", "SCRIPT", "LOAD"]).stdin(text))?;
    crate::output_of(cli(&server).args(["SET", KEYS[0], &STOCK.to_string()]))?;

    let mut load = Command::new("redis-benchmark");
    load.args(["-p", &server.port().to_string(), "-c", &CONNECTIONS.to_string()]);
    load.args(["-P", &pipeline.to_string(), "-n", &requests.to_string()]);
    load.args(["-r", &USERS.to_string(), "--csv", "EVALSHA", sha.trim(), "4"]).args(KEYS);
    load.args(["__rand_int__", "0", "1700000000000", &LONGEST_STREAM.to_string()]);
    let speed = speed_of(&crate::output_of(&mut load)?)?;

    compare_books(&server, requests)?;
    Ok(speed)
}

/// Every request was a grant or a repetition by the same user, and all four keys agree.
fn compare_books(server: &Redis, requests: u64) -> Result<()> {
    let left = number(server, &["GET", KEYS[0]])?;
    let granted = number(server, &["GET", KEYS[1]])?;
    let users = number(server, &["HLEN", KEYS[2]])?;
    let orders = number(server, &["XLEN", KEYS[3]])?;
    ensure!(
        granted == users && granted == orders && STOCK - left == granted,
        "the books differ: {granted} granted, {users} users, {orders} orders, {left} left"
    );
    // redis-benchmark may send up to one pipeline for each connection more than asked for.
    let extra = u64::from(CONNECTIONS * 64);
    ensure!(
        granted * 100 >= requests * 99 && granted <= requests + extra,
        "{granted} grants for {requests} requests: the load was not what it should be"
    );
    Ok(())
}

fn number(server: &Redis, command: &[&str]) -> Result<u64> {
    let printed = crate::output_of(cli(server).args(command))?;
    printed.trim().parse().with_context(|| format!("{command:?} printed {printed:?}"))
}

fn cli(server: &Redis) -> Command {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port().to_string()]);
    command
}

/// The last line of the table it prints, by the names in the first. A cell holds no comma.
pub(super) fn speed_of(csv: &str) -> Result<Speed> {
    let cells = |line: &str| -> Vec<String> {
        line.split("\",\"").map(|cell| cell.trim_matches('"').to_owned()).collect()
    };
    let head = cells(csv.lines().next().unwrap_or_default());
    let last = cells(csv.lines().last().unwrap_or_default());
    let number = |name: &str| {
        let place = head.iter().position(|cell| cell == name)?;
        last.get(place)?.parse().ok()
    };
    match (number("rps"), number("p99_latency_ms")) {
        (Some(per_sec), Some(p99_ms)) => Ok(Speed { per_sec, p99_ms }),
        _ => bail!("redis-benchmark printed no speed: {csv:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Speed, speed_of};

    #[test]
    fn the_speed_is_read_from_csv() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"p99_latency_ms\"\n\
                   \"EVALSHA 68 4 {s}:a\",\"45666.97\",\"88.774\",\"91.5\"\n";
        assert_eq!(speed_of(csv).unwrap(), Speed { per_sec: 45_666.97, p99_ms: 91.5 });
        assert!(speed_of("\"test\",\"rps\"\n").is_err());
        assert!(speed_of("").is_err());
    }
}
