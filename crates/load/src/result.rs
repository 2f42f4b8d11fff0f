//! All there is to say about a run, as data: what was wanted, what happened, whether it was exact.
//! The JSON of `qiang bench --json`, and what the page is made of.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::processor::Processor;
use super::record::{Class, Percentiles, Recorder, Slice};
use super::schedule::Spacing;
use super::tally::{Books, Verdict};
use super::wire::Protocol;
use super::{Pace, Plan, Scenario};

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    pub version: &'static str,
    pub started_at: String,
    pub command: String,
    pub machine: Machine,
    pub wanted: Wanted,
    pub got: Got,
    pub outcomes: Vec<Ended>,
    /// From the planned arrival to the answer.
    pub latency: Percentiles,
    /// From the moment a request was sent to the answer.
    pub service: Percentiles,
    pub latency_by_request: BTreeMap<&'static str, Percentiles>,
    pub series: Vec<Point>,
    pub stock: Vec<Level>,
    /// What the server says of the sale; `null` if it says nothing any more.
    pub books: Option<Books>,
    /// Its audit; `null` likewise.
    pub audit: Option<Audit>,
    pub verdict: Verdict,
}

/// What the server's audit of all its books found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Audit {
    pub ok: bool,
    pub sales: u64,
    pub claims: u64,
    pub orders: u64,
    pub payments: u64,
    pub refunds: u64,
    pub difference_count: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
    pub took_ms: u64,
}

/// One thing on which two books of the server disagree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Difference {
    pub sale_id: String,
    pub claim_id: Option<String>,
    pub book: String,
    pub what: String,
}

/// Where it ran.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    pub cores: usize,
    pub cpu: String,
    pub system: String,
}

/// What was asked for.
#[derive(Debug, Clone, Serialize)]
pub struct Wanted {
    /// The server, or `null` for one of its own.
    pub url: Option<String>,
    pub protocol: Protocol,
    pub scenario: Scenario,
    /// Arrivals a second; `null` in a closed loop.
    pub rate: Option<f64>,
    pub arrivals: Option<Spacing>,
    pub duration_secs: f64,
    pub connections: usize,
    pub pipeline: usize,
    pub users: u32,
    pub stock: u32,
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Got {
    pub sale_id: String,
    pub took_secs: f64,
    /// Requests that ended, one way or another.
    pub requests: u64,
    /// Of these, errors of any kind.
    pub errors: u64,
    /// Ended without an error, for each second.
    pub per_sec: f64,
    /// Sent again, because an answer did not come.
    pub resent: u64,
    /// What this machine did meanwhile; `null` if it does not tell.
    pub processor: Option<Processor>,
}

/// How many requests of a kind ended in which way.
#[derive(Debug, Clone, Serialize)]
pub struct Ended {
    pub request: &'static str,
    pub outcome: &'static str,
    pub class: Class,
    pub count: u64,
}

/// One slice of the run.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    pub from_secs: f64,
    pub to_secs: f64,
    pub per_sec: f64,
    pub errors_per_sec: f64,
    pub latency: Percentiles,
    pub outcomes: BTreeMap<&'static str, u64>,
    /// The share of this machine's processors that its host took away meanwhile.
    pub stolen: Option<f64>,
}

/// What was left at a moment.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Level {
    pub at_secs: f64,
    pub available: u64,
}

impl Wanted {
    pub fn of(plan: &Plan, url: Option<String>, protocol: Protocol, stock: u32) -> Self {
        let (rate, arrivals) = match plan.pace {
            Pace::Open { per_sec, spacing } => (Some(per_sec), Some(spacing)),
            Pace::Closed => (None, None),
        };
        Self {
            url,
            protocol,
            scenario: plan.scenario,
            rate,
            arrivals,
            duration_secs: plan.duration.as_secs_f64(),
            connections: plan.connections,
            pipeline: plan.depth,
            users: plan.users,
            stock,
            seed: plan.seed,
        }
    }
}

impl Got {
    pub fn of(
        recorder: &Recorder,
        sale_id: &str,
        took: Duration,
        processor: Option<Processor>,
    ) -> Self {
        let ends = recorder.outcomes().values().flatten();
        let (mut requests, mut errors) = (0, 0);
        for (outcome, count) in ends {
            requests += count;
            errors += if outcome.class == Class::Error { *count } else { 0 };
        }
        Self {
            sale_id: sale_id.to_owned(),
            took_secs: took.as_secs_f64(),
            requests,
            errors,
            per_sec: rate(requests - errors, took),
            resent: recorder.resent,
            processor,
        }
    }
}

/// How the requests ended, the most frequent first in each kind.
pub fn ended(recorder: &Recorder) -> Vec<Ended> {
    let mut all = Vec::new();
    for (verb, counts) in recorder.outcomes() {
        let mut of_verb: Vec<Ended> = counts
            .iter()
            .map(|(outcome, count)| Ended {
                request: verb.word(),
                outcome: outcome.name,
                class: outcome.class,
                count: *count,
            })
            .collect();
        of_verb.sort_by_key(|ended| (ended.class, std::cmp::Reverse(ended.count)));
        all.append(&mut of_verb);
    }
    all
}

impl From<&Slice> for Point {
    fn from(slice: &Slice) -> Self {
        let took = slice.to.saturating_sub(slice.from);
        let errors = slice.outcomes.iter().filter(|(outcome, _)| outcome.class == Class::Error);
        let errors: u64 = errors.map(|(_, count)| count).sum();
        let all: u64 = slice.outcomes.values().sum();
        Self {
            from_secs: slice.from.as_secs_f64(),
            to_secs: slice.to.as_secs_f64(),
            per_sec: rate(all - errors, took),
            errors_per_sec: rate(errors, took),
            latency: slice.latency,
            outcomes: slice.outcomes.iter().map(|(outcome, n)| (outcome.name, *n)).collect(),
            stolen: slice.stolen,
        }
    }
}

impl Machine {
    /// As far as it tells.
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let release = read("/proc/sys/kernel/osrelease");
        let system = format!("{} {}", std::env::consts::OS, release.trim());
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: model.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned(),
            system: system.trim().to_owned(),
        }
    }
}

fn rate(count: u64, took: Duration) -> f64 {
    let secs = took.as_secs_f64();
    if secs > 0.0 { count as f64 / secs } else { 0.0 }
}
