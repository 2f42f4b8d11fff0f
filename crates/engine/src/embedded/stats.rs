//! What an engine counts about itself, readable without asking it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the latency buckets, in microseconds.
const BUCKETS_US: [u64; 14] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000,
];

/// Counters that only rise.
#[derive(Debug, Default)]
pub struct Stats {
    /// Batches made durable.
    pub batches: AtomicU64,
    /// Events made durable.
    pub events: AtomicU64,
    /// Claims released because their time was up.
    pub expired: AtomicU64,
    /// Requests turned away because too many waited.
    pub overloaded: AtomicU64,
    /// Snapshots completed.
    pub snapshots: AtomicU64,
    /// Questions asked again because their answer got lost, or the server was not ready.
    pub retries: AtomicU64,
    /// How long a batch took to become durable.
    pub commit: Histogram,
}

/// Durations by bucket.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_US.partition_point(|bound| *bound < us);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// For each bucket its upper bound and how many lie at or below it; the last has no bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let bounds = BUCKETS_US.iter().map(|us| Some(Duration::from_micros(*us)));
        let mut below = 0;
        bounds.chain([None]).zip(&self.counts).map(move |(bound, count)| {
            below += count.load(Ordering::Relaxed);
            (bound, below)
        })
    }

    /// The sum of all durations.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us.load(Ordering::Relaxed))
    }
}
