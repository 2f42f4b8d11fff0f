//! Claims over RESP and the peer, both driven by Redis's own `redis-benchmark`: the same
//! connections and pipelines, a new user for each request, a fresh server for each round.
//!
//! All take turns, round by round, so that a machine that has a slow minute has it for everybody;
//! the median round of each counts.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use qiang_testkit::servers::REDIS;
use qiang_testkit::servers::redis::Durability;

use super::Stage;
use super::figures::Figures;
use super::product::Product;
use super::redis;
use crate::servers;

pub(super) const CONNECTIONS: u32 = 64;
const PIPELINES: [u32; 2] = [1, 64];
/// Users are drawn from this many, so that hardly any comes twice.
const USERS: u32 = 1_000_000_000;
const STOCK: u64 = 1_000_000_000;

/// Those who take turns.
#[derive(Clone, Copy)]
enum Contestant {
    Script(Durability),
    Ping,
    Claims,
    SoldOut,
}

use Contestant::{Claims, Ping, Script, SoldOut};

const CONTESTANTS: [(&str, Contestant); 6] = [
    ("redis_always", Script(Durability::Always)),
    ("resp_claims", Claims),
    ("redis_memory", Script(Durability::None)),
    ("redis_no", Script(Durability::Kernel)),
    ("redis_ping", Ping),
    ("resp_sold_out", SoldOut),
];

/// Measures everybody at every pipeline, or says that Redis cannot be had.
pub(super) fn measure(stage: &Stage<'_>, figures: &mut Figures) -> Result<()> {
    let Stage { root, binary, scratch, quick } = *stage;
    if !servers::ensure_installed(REDIS)? {
        return Ok(());
    }
    let script = root.join("bench/seckill.lua");
    let rounds = if quick { 1 } else { 5 };
    for pipeline in PIPELINES {
        let mut speeds = CONTESTANTS.map(|_| Vec::new());
        for _ in 0..rounds {
            for ((_, contestant), speeds) in CONTESTANTS.iter().zip(&mut speeds) {
                let load = contestant.load(pipeline, quick);
                speeds.push(match *contestant {
                    Script(durability) => redis::claims(&script, scratch, durability, load)?,
                    Ping => redis::ping(scratch, load)?,
                    Claims => claims(binary, scratch, STOCK, load)?,
                    SoldOut => claims(binary, scratch, 1, load)?,
                });
            }
        }
        for ((name, _), speeds) in CONTESTANTS.iter().zip(speeds) {
            figures.hear(&median(speeds).line(name, pipeline));
        }
    }
    Ok(())
}

impl Contestant {
    /// Enough for some seconds at the speeds of a small machine.
    fn load(self, pipeline: u32, quick: bool) -> Load {
        let requests = match (pipeline, quick) {
            (1, false) => 100_000,
            (1, true) => 20_000,
            (_, false) => 500_000,
            (_, true) => 200_000,
        };
        // So much faster in a pipeline that as many would be over too soon.
        let times = match self {
            _ if pipeline == 1 => 1,
            Script(_) => 1,
            Claims | SoldOut => 4,
            Ping => 8,
        };
        Load { pipeline, requests: requests * times }
    }
}

/// What `redis-benchmark` is told.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pipeline: u32,
    pub(super) requests: u64,
}

impl Load {
    /// Sends a command again and again, and says how fast it was answered.
    pub(super) fn drive(self, host: &str, port: &str, command: &[&str]) -> Result<Speed> {
        let mut load = Command::new("redis-benchmark");
        load.args(["-h", host, "-p", port, "-c", &CONNECTIONS.to_string()]);
        load.args(["-P", &self.pipeline.to_string(), "-n", &self.requests.to_string()]);
        load.args(["-r", &USERS.to_string(), "--csv"]).args(command);
        speed_of(&crate::output_of(&mut load)?)
    }
}

fn claims(binary: &Path, scratch: &Path, stock: u64, load: Load) -> Result<Speed> {
    let data = scratch.join("resp");
    let server = Product::start(binary, &data)?;
    let sale = server.open_sale(stock)?;
    let (host, port) = server.resp.rsplit_once(':').context("an address has a port")?;
    let speed = load.drive(host, port, &["-a", &server.token, "CLAIM", &sale, "__rand_int__"])?;
    let sold = server.ask("GET", &format!("/api/v1/sales/{sale}"), "")?;
    let (paid, left) = (sold["paid"].as_u64(), sold["available"].as_u64());
    let (paid, left) = paid.zip(left).with_context(|| format!("no figures: {sold}"))?;
    // redis-benchmark may send up to one pipeline for each connection more than asked for, and
    // draws a user twice now and then.
    let extra = u64::from(CONNECTIONS * load.pipeline);
    let expected = stock.min(load.requests);
    ensure!(
        paid + left == stock && paid * 100 >= expected * 99 && paid <= expected + extra,
        "{paid} granted and {left} left of {stock} after {} requests",
        load.requests
    );
    drop(server);
    std::fs::remove_dir_all(&data)?;
    Ok(speed)
}

/// What `redis-benchmark` measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Speed {
    per_sec: f64,
    p99_ms: f64,
}

impl Speed {
    /// It as a figure.
    fn line(self, name: &str, pipeline: u32) -> String {
        let Self { per_sec, p99_ms } = self;
        let per_sec = per_sec.round();
        serde_json::json!({"name": name, "pipeline": pipeline, "per_sec": per_sec, "p99_ms": p99_ms})
            .to_string()
    }
}

/// The round in the middle.
fn median(mut speeds: Vec<Speed>) -> Speed {
    speeds.sort_by(|one, other| one.per_sec.total_cmp(&other.per_sec));
    speeds[speeds.len() / 2]
}

/// The last line of the table it prints, by the names in the first. A cell holds no comma.
fn speed_of(csv: &str) -> Result<Speed> {
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
