//! What was measured: latencies in histograms, outcomes counted, and both cut into slices of time
//! for the plots. Memory does not grow with requests.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::ask::{Answer, Ask, Verb};

/// A longer latency is recorded as this one.
const LONGEST_US: u64 = 3_600_000_000;
/// Of the whole run: a tenth of a percent.
const DIGITS: u8 = 3;
/// Of one slice: one percent is enough for a plot.
const SLICE_DIGITS: u8 = 2;
/// A run has so many slices at most; what comes later is in the last.
pub const MAX_SLICES: usize = 3_600;

/// What an outcome means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It was done.
    Done,
    /// It had been done before.
    Again,
    /// The rules said no.
    Refused,
    /// Something did not work.
    Error,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outcome {
    pub class: Class,
    pub name: &'static str,
}

impl Outcome {
    pub fn of(ask: &Ask, answer: &Answer) -> Self {
        let (class, name) = match *answer {
            Answer::Done { .. } => (Class::Done, ask.verb.done()),
            Answer::Again { .. } => (Class::Again, "had_it_already"),
            Answer::RefundDue => (Class::Refused, "refund_due"),
            Answer::Refused(code) => (Class::Refused, code),
            Answer::Failed(code) => (Class::Error, code),
            Answer::Unknown => (Class::Error, super::ask::fault::OUTCOME_UNKNOWN),
        };
        Self { class, name }
    }

    pub const fn error(name: &'static str) -> Self {
        Self { class: Class::Error, name }
    }
}

/// How many ended how.
pub type Counts = BTreeMap<Outcome, u64>;

/// Latencies, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    pub count: u64,
    pub p50_us: u64,
    pub p90_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile).min(histogram.max());
        Self {
            count: histogram.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max(),
        }
    }
}

/// A part of the run.
#[derive(Debug, Clone)]
pub struct Slice {
    pub from: Duration,
    pub to: Duration,
    pub latency: Percentiles,
    pub outcomes: Counts,
    /// The share of the processors that the host took away; `None` if nobody tells.
    pub stolen: Option<f64>,
}

/// Everything measured so far.
#[derive(Debug)]
pub struct Recorder {
    latency: Histogram<u64>,
    service: Histogram<u64>,
    by_verb: BTreeMap<Verb, Histogram<u64>>,
    outcomes: BTreeMap<Verb, Counts>,
    slice: Histogram<u64>,
    slice_outcomes: Counts,
    slice_from: Duration,
    slices: Vec<Slice>,
    /// Requests that were sent again because an answer did not come.
    pub resent: u64,
}

/// One request and its end.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub verb: Verb,
    pub outcome: Outcome,
    /// From the planned arrival to the answer.
    pub latency: Duration,
    /// From the moment it was sent to the answer.
    pub service: Duration,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            latency: histogram(DIGITS),
            service: histogram(DIGITS),
            by_verb: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            slice: histogram(SLICE_DIGITS),
            slice_outcomes: Counts::new(),
            slice_from: Duration::ZERO,
            slices: Vec::new(),
            resent: 0,
        }
    }

    /// A request ended, with an answer or without; either way it took its time.
    pub fn record(&mut self, sample: &Sample) {
        let us = micros(sample.latency);
        self.latency.saturating_record(us);
        self.slice.saturating_record(us);
        self.service.saturating_record(micros(sample.service));
        let by_verb = self.by_verb.entry(sample.verb).or_insert_with(|| histogram(DIGITS));
        by_verb.saturating_record(us);
        self.count(sample.verb, sample.outcome, 1);
    }

    /// Requests that ended before they were sent: they have no latency.
    pub fn count(&mut self, verb: Verb, outcome: Outcome, count: u64) {
        if count > 0 {
            *self.outcomes.entry(verb).or_default().entry(outcome).or_default() += count;
            *self.slice_outcomes.entry(outcome).or_default() += count;
        }
    }

    /// Ends a slice and begins the next.
    pub fn cut(&mut self, now: Duration, stolen: Option<f64>) {
        if self.slices.len() < MAX_SLICES && now > self.slice_from {
            self.slices.push(Slice {
                from: self.slice_from,
                to: now,
                latency: Percentiles::of(&self.slice),
                outcomes: std::mem::take(&mut self.slice_outcomes),
                stolen,
            });
            self.slice.reset();
            self.slice_from = now;
        }
    }

    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    pub fn slice_from(&self) -> Duration {
        self.slice_from
    }

    pub fn outcomes(&self) -> &BTreeMap<Verb, Counts> {
        &self.outcomes
    }

    pub fn latency(&self) -> Percentiles {
        Percentiles::of(&self.latency)
    }

    pub fn service(&self) -> Percentiles {
        Percentiles::of(&self.service)
    }

    pub fn by_verb(&self) -> BTreeMap<Verb, Percentiles> {
        self.by_verb.iter().map(|(verb, histogram)| (*verb, Percentiles::of(histogram))).collect()
    }
}

fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_US, digits).expect("these bounds are possible")
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ms: u64) -> Sample {
        let latency = Duration::from_millis(ms);
        let outcome = Outcome { class: Class::Done, name: "granted" };
        Sample { verb: Verb::Claim, outcome, latency, service: latency / 2 }
    }

    fn near(value: u64, expected: u64) -> bool {
        value.abs_diff(expected) * 100 <= expected
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut recorder = Recorder::new();
        for ms in 1..=1_000 {
            recorder.record(&sample(ms));
        }
        let all = recorder.latency();
        assert_eq!(all.count, 1_000);
        assert!(near(all.p50_us, 500_000), "{all:?}");
        assert!(near(all.p90_us, 900_000), "{all:?}");
        assert!(near(all.p99_us, 990_000), "{all:?}");
        assert!(near(all.p999_us, 999_000), "{all:?}");
        assert!(near(all.max_us, 1_000_000), "{all:?}");
        assert!(near(recorder.service().p50_us, 250_000));
    }

    #[test]
    fn nothing_measured_is_nothing_and_the_longest_is_bounded() {
        let mut recorder = Recorder::new();
        assert_eq!(recorder.latency(), Percentiles::default());
        recorder.record(&Sample { latency: Duration::MAX, ..sample(1) });
        recorder.record(&Sample { latency: Duration::ZERO, ..sample(1) });
        let all = recorder.latency();
        assert_eq!(all.count, 2);
        assert!(near(all.max_us, LONGEST_US), "{all:?}");
    }

    #[test]
    fn a_slice_holds_what_happened_in_it() {
        let mut recorder = Recorder::new();
        recorder.record(&sample(10));
        recorder.record(&sample(10));
        recorder.cut(Duration::from_secs(1), None);
        recorder.cut(Duration::from_secs(1), None);
        recorder.count(Verb::Claim, Outcome::error("backlog_full"), 3);
        recorder.cut(Duration::from_secs(2), None);
        let slices = recorder.slices();
        assert_eq!(slices.len(), 2);
        assert_eq!((slices[0].latency.count, slices[1].latency.count), (2, 0));
        assert_eq!(slices[0].outcomes.values().sum::<u64>(), 2);
        assert_eq!(slices[1].outcomes[&Outcome::error("backlog_full")], 3);
        assert_eq!(
            (slices[1].from, slices[1].to),
            (Duration::from_secs(1), Duration::from_secs(2))
        );
        let all: u64 = recorder.outcomes()[&Verb::Claim].values().sum();
        assert_eq!(all, 5);
    }
}
