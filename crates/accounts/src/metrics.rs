//! What this domain counts.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use qiang_app::metrics::{Label, Latency, counters};
use qiang_app::problem::{Code, Problem};
use qiang_core::Cents;
use qiang_store::accounts::Sums;

use crate::packets::grab::Granted;

/// What becomes of grabs, in the order of the counters.
const GRABS: [&str; 11] = [
    "granted",
    "replayed",
    "already_claimed",
    "sold_out",
    "closed",
    "not_eligible",
    "wrong_password",
    "too_many_attempts",
    "not_open_yet",
    "no_such_packet",
    "failed",
];

#[derive(Debug)]
pub(crate) struct Metrics {
    off: Gauge<u64, AtomicU64>,
    packets: Counter,
    sent_cents: Counter,
    by_outcome: Family<Label, Counter>,
    grabs: [Counter; GRABS.len()],
    recycled: Counter,
    recycled_cents: Counter,
    time_to_empty: Latency,
    /// Grabs whose user's account could not take more.
    pub(crate) waiting: Gauge<u64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let by_outcome = Family::default();
        let grabs = counters(&by_outcome, "outcome", GRABS);
        Self {
            off: Gauge::default(),
            packets: Counter::default(),
            sent_cents: Counter::default(),
            by_outcome,
            grabs,
            recycled: Counter::default(),
            recycled_cents: Counter::default(),
            time_to_empty: Latency::default(),
            waiting: Gauge::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "1 while the accounts together are not 0, or holds do not add up";
        registry.register("accounts_off", help, self.off.clone());
        registry.register("packets", "Packets sent", self.packets.clone());
        registry.register("packet_sent_cents", "Cents in packets sent", self.sent_cents.clone());
        let help = "Portions asked for, by outcome";
        registry.register("packet_grabs", help, self.by_outcome.clone());
        registry.register("packets_recycled", "Packets that are over", self.recycled.clone());
        let help = "Cents that went back to those who sent them";
        registry.register("packet_recycled_cents", help, self.recycled_cents.clone());
        let help = "From the moment a packet was open until it was empty";
        registry.register("packet_empty_seconds", help, self.time_to_empty.clone());
        let help = "Grabs that wait until the account of their user can take them";
        registry.register("packet_grabs_waiting", help, self.waiting.clone());
    }

    pub(crate) fn sent(&self, total: Cents) {
        self.packets.inc();
        self.sent_cents.inc_by(cents(total));
    }

    /// Counts what came of a grab.
    pub(crate) fn grabbed(&self, outcome: &Result<Granted, Problem>) {
        let place = match outcome {
            Ok(Granted::Now(_)) => 0,
            Ok(Granted::Before(_)) => 1,
            Ok(Granted::Had(_)) => 2,
            Err(problem) => match problem.code() {
                Code::AlreadyClaimed => 2,
                Code::SoldOut => 3,
                Code::Closed => 4,
                Code::NotEligible => 5,
                Code::WrongPassword => 6,
                Code::TooManyAttempts => 7,
                Code::NotOpenYet => 8,
                Code::NoSuchPacket => 9,
                _ => 10,
            },
        };
        self.grabs[place].inc();
    }

    pub(crate) fn recycled(&self, refunded: Cents) {
        self.recycled.inc();
        self.recycled_cents.inc_by(cents(refunded));
    }

    pub(crate) fn emptied(&self, took: Duration) {
        self.time_to_empty.record(took);
    }

    /// Notes what all accounts add up to.
    pub(crate) fn added_up(&self, sums: &Sums) {
        self.off.set(u64::from(!sums.add_up()));
    }
}

fn cents(amount: Cents) -> u64 {
    u64::try_from(amount.get()).unwrap_or(0)
}
