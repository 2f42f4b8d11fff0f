//! What is counted at the one way in, and how our own histograms reach Prometheus.
//!
//! Every domain has handles to its counters and registers them under `qiang_`; counting is one
//! addition to an atomic number.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use qiang_core::{Outcome, Refusal};
use qiang_engine::Histogram;

/// Outcomes of a claim, in the order of the counters.
pub const CLAIM_OUTCOMES: [&str; 13] = [
    "granted",
    "replayed",
    "no_such_sale",
    "not_open_yet",
    "closed",
    "not_eligible",
    "already_claimed",
    "over_limit",
    "sold_out",
    "failed",
    "released",
    "idempotency_key_reused",
    "sale_cleared",
];

/// Their places in the list: there is no such sale; nothing was decided.
pub(crate) const NO_SUCH_SALE: usize = 2;
pub(crate) const FAILED: usize = 9;

/// One label with one of a few values.
pub type Label = [(&'static str, &'static str); 1];

/// One counter for each value of a label, each with a handle of its own.
pub fn counters<const N: usize>(
    family: &Family<Label, Counter>,
    label: &'static str,
    values: [&'static str; N],
) -> [Counter; N] {
    values.map(|value| family.get_or_create(&[(label, value)]).clone())
}

/// How long something takes; a copy counts into the same histogram.
#[derive(Debug, Clone, Default)]
pub struct Latency(Arc<Histogram>);

/// Claims since the start, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClaimCounts {
    /// Granted.
    pub granted: u64,
    /// Granted before, and asked for again.
    pub replayed: u64,
    /// Too late.
    pub sold_out: u64,
    /// Refused for anything else.
    pub refused: u64,
    /// No answer of the rules.
    pub failed: u64,
}

/// Counters of the one way in; the engine counts for itself.
#[derive(Debug)]
pub struct Metrics {
    by_outcome: Family<Label, Counter>,
    claims: [Counter; CLAIM_OUTCOMES.len()],
    /// How long a claim took, from the question to the engine to the durable answer.
    pub claim_latency: Latency,
    /// What admins did that is in the log instead of the records.
    pub actions_unwritten: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let by_outcome = Family::default();
        let claims = counters(&by_outcome, "outcome", CLAIM_OUTCOMES);
        let (claim_latency, actions_unwritten) = (Latency::default(), Counter::default());
        Self { by_outcome, claims, claim_latency, actions_unwritten }
    }
}

impl Metrics {
    /// Shows the counters.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("claims", "Claims asked for, by outcome", self.by_outcome.clone());
        let help = "From the question to the durable answer";
        registry.register("claim_seconds", help, self.claim_latency.clone());
        let help = "Changes of admins that are in the log only, because the records were away";
        registry.register("actions_unwritten", help, self.actions_unwritten.clone());
    }

    /// What the counters say at this moment.
    #[must_use]
    pub fn claim_counts(&self) -> ClaimCounts {
        let mut counts = ClaimCounts::default();
        for (outcome, counter) in CLAIM_OUTCOMES.iter().zip(&self.claims) {
            let place = match *outcome {
                "granted" => &mut counts.granted,
                "replayed" => &mut counts.replayed,
                "sold_out" => &mut counts.sold_out,
                "failed" => &mut counts.failed,
                _ => &mut counts.refused,
            };
            *place += counter.get();
        }
        counts
    }

    /// Counts the answer to a claim; `None` is anything that was no answer of the rules. Says which
    /// of [`CLAIM_OUTCOMES`] it was.
    pub fn claimed<T>(&self, outcome: Option<&Outcome<T>>) -> usize {
        let place = match outcome {
            Some(Outcome::Done(_)) => 0,
            Some(Outcome::Replayed(_)) => 1,
            Some(Outcome::Refused(refusal)) => match refusal {
                Refusal::NoSuchPool => NO_SUCH_SALE,
                Refusal::NotOpenYet { .. } => 3,
                Refusal::Closed => 4,
                Refusal::NotEligible => 5,
                Refusal::AlreadyClaimed { .. } => 6,
                Refusal::OverLimit { .. } => 7,
                Refusal::SoldOut => 8,
                Refusal::Released => 10,
                Refusal::RequestConflict => 11,
                Refusal::Cleared => 12,
                _ => FAILED,
            },
            None => FAILED,
        };
        self.claims[place].inc();
        place
    }
}

impl std::ops::Deref for Latency {
    type Target = Histogram;

    fn deref(&self) -> &Histogram {
        &self.0
    }
}

impl EncodeMetric for Latency {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        encode_histogram(&self.0, encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Writes a histogram of ours as Prometheus reads it.
pub fn encode_histogram(histogram: &Histogram, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    let (mut buckets, mut below) = (Vec::new(), 0);
    for (bound, cumulative) in histogram.cumulative() {
        let bound = bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64());
        buckets.push((bound, cumulative - below));
        below = cumulative;
    }
    let sum = histogram.sum().as_secs_f64();
    encoder.encode_histogram::<prometheus_client::encoding::NoLabelSet>(sum, below, &buckets, None)
}
