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
const PIPELINES: [u32; 2] = [1, 64];
const CONNECTIONS: u32 = 64;
const STOCK: u64 = 1_000_000_000;
/// Users are drawn from this many, so that hardly any comes twice.
const USERS: u32 = 1_000_000_000;
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
            speeds.sort_by(f64::total_cmp);
            let median = speeds[speeds.len() / 2].round();
            let line = serde_json::json!({"name": name, "pipeline": pipeline, "per_sec": median});
            figures.hear(&line.to_string());
        }
    }
    Ok(())
}

/// Enough for some seconds at the speeds of a small machine.
fn requests(pipeline: u32, quick: bool) -> u64 {
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
) -> Result<f64> {
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
    let speed = requests_per_sec(&crate::output_of(&mut load)?)?;

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

/// The second column of the last line. The first repeats the command and holds no comma.
fn requests_per_sec(csv: &str) -> Result<f64> {
    let line = csv.lines().last().unwrap_or_default();
    let cell = line.split("\",\"").nth(1).map(|cell| cell.trim_matches('"'));
    match cell.and_then(|cell| cell.parse().ok()) {
        Some(speed) => Ok(speed),
        None => bail!("redis-benchmark printed no speed: {csv:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::requests_per_sec;

    #[test]
    fn the_speed_is_read_from_csv() {
        let csv =
            "\"test\",\"rps\",\"avg_latency_ms\"\n\"EVALSHA 68 4 {s}:a\",\"45666.97\",\"88.774\"\n";
        assert_eq!(requests_per_sec(csv).unwrap(), 45_666.97);
        assert!(requests_per_sec("\"test\",\"rps\"\n").is_err());
        assert!(requests_per_sec("").is_err());
    }
}
