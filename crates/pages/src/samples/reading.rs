//! What the counters of this process say at a moment, and what happened between two moments.

use qiang_app::App;
use qiang_app::metrics::ClaimCounts;
use qiang_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::Stock;

/// What the kernel counts processor time in; the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// What the kernel counts memory in.
const PAGE_BYTES: u64 = 4096;

/// One second as one process saw it. Two of the same second add up to one of both processes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    /// Which second, since 1970.
    pub(super) second: i64,
    pub(super) covers_ms: u32,
    pub(super) granted: u64,
    pub(super) replayed: u64,
    pub(super) sold_out: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
    /// How many claims took how long: upper bounds in microseconds, ascending, and how many took
    /// longer than the bound before and no longer than this one.
    pub(super) latency: Vec<(u64, u64)>,
    pub(super) memory_bytes: u64,
    pub(super) processor_percent: f64,
    /// What the engine said, if this process was the one to ask.
    pub(super) seen: Option<Seen>,
}

/// What the engine said of this second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) lag_events: u64,
    pub(super) sales: Vec<Stock>,
}

/// The counters at a moment.
#[derive(Debug)]
pub(super) struct Reading {
    at: Timestamp,
    claims: ClaimCounts,
    latency: Vec<(u64, u64)>,
    ticks: f64,
}

impl Reading {
    pub(super) fn of(app: &App) -> Self {
        let micros = |bound: Option<std::time::Duration>| {
            bound.map_or(u64::MAX, |bound| u64::try_from(bound.as_micros()).unwrap_or(u64::MAX))
        };
        let mut below = 0;
        let latency = app.metrics.claim_latency.cumulative().map(|(bound, count)| {
            let inside = count.saturating_sub(below);
            below = count;
            (micros(bound), inside)
        });
        Self {
            at: app.now(),
            claims: app.metrics.claim_counts(),
            latency: latency.collect(),
            ticks: processor_ticks(),
        }
    }

    /// What happened since an earlier reading.
    pub(super) fn since(&self, before: &Self, second: i64, seen: Option<Seen>) -> Part {
        let covers_ms = (self.at.millis() - before.at.millis()).max(1);
        #[expect(clippy::cast_precision_loss, reason = "a few seconds in milliseconds")]
        let seconds = covers_ms as f64 / 1000.0;
        let latency = self.latency.iter().zip(&before.latency);
        let (now, then) = (&self.claims, &before.claims);
        Part {
            second,
            covers_ms: u32::try_from(covers_ms).unwrap_or(u32::MAX),
            granted: now.granted.saturating_sub(then.granted),
            replayed: now.replayed.saturating_sub(then.replayed),
            sold_out: now.sold_out.saturating_sub(then.sold_out),
            refused: now.refused.saturating_sub(then.refused),
            failed: now.failed.saturating_sub(then.failed),
            latency: latency
                .map(|((bound, now), (_, then))| (*bound, now.saturating_sub(*then)))
                .collect(),
            memory_bytes: memory_bytes(),
            processor_percent: ((self.ticks - before.ticks) / TICKS_PER_SECOND / seconds * 100.0)
                .max(0.0),
            seen,
        }
    }
}

impl Part {
    /// Adds what another process saw in the same second.
    pub(super) fn add(&mut self, other: Self) {
        self.covers_ms = self.covers_ms.max(other.covers_ms);
        for (sum, more) in [
            (&mut self.granted, other.granted),
            (&mut self.replayed, other.replayed),
            (&mut self.sold_out, other.sold_out),
            (&mut self.refused, other.refused),
            (&mut self.failed, other.failed),
            (&mut self.memory_bytes, other.memory_bytes),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.processor_percent += other.processor_percent;
        // A process of another version may have other bounds; then ours have to do.
        for (bound, count) in other.latency {
            match self.latency.iter_mut().find(|(own, _)| *own >= bound) {
                Some((_, sum)) => *sum = sum.saturating_add(count),
                None => self.latency.push((bound, count)),
            }
        }
        self.seen = self.seen.take().or(other.seen);
    }

    /// The time within which so many of a thousand claims were answered, as if those between two
    /// bounds were spread evenly; `None` without claims.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of microseconds, below the last bound"
    )]
    pub(super) fn percentile_us(&self, permille: u64) -> Option<u64> {
        let all: u64 = self.latency.iter().map(|(_, count)| count).sum();
        if all == 0 {
            return None;
        }
        let wanted = all.saturating_mul(permille).div_ceil(1000).max(1);
        let (mut lower, mut below) = (0, 0);
        for (bound, count) in &self.latency {
            // What is beyond the last bound is told by that bound.
            if *bound == u64::MAX {
                break;
            }
            if below + count >= wanted {
                let share = (wanted - below) as f64 / *count as f64;
                return Some(lower + ((bound - lower) as f64 * share) as u64);
            }
            (lower, below) = (*bound, below + count);
        }
        Some(lower)
    }
}

/// Processor time of this process; 0 where the kernel does not say.
fn processor_ticks() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program is in brackets and may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum()
}

/// Memory of this process; 0 where the kernel does not say.
fn memory_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    resident.unwrap_or(0).saturating_mul(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(latency: &[(u64, u64)]) -> Part {
        Part { latency: latency.to_vec(), ..Part::default() }
    }

    #[test]
    fn percentiles_lie_between_the_bounds_of_their_bucket() {
        let part = took(&[(10, 50), (100, 49), (u64::MAX, 1)]);
        assert_eq!(part.percentile_us(500), Some(10));
        assert_eq!(part.percentile_us(250), Some(5));
        assert_eq!(part.percentile_us(990), Some(100));
        assert_eq!(part.percentile_us(1000), Some(100), "the last bound there is");
        assert_eq!(took(&[(10, 0), (u64::MAX, 0)]).percentile_us(500), None);
        assert_eq!(took(&[]).percentile_us(500), None);
    }

    #[test]
    fn parts_add_up() {
        let mut sum = Part { granted: 1, ..took(&[(10, 1), (u64::MAX, 0)]) };
        let seen = Some(Seen { lag_events: 7, sales: Vec::new() });
        sum.add(Part { granted: 2, seen: seen.clone(), ..took(&[(10, 2), (u64::MAX, 3)]) });
        assert_eq!((sum.granted, &sum.seen), (3, &seen));
        assert_eq!(sum.latency, [(10, 3), (u64::MAX, 3)]);
    }
}
