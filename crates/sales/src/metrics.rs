//! What is counted of payments and orders.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use qiang_app::metrics::{Label, counters};
use qiang_core::{Outcome, Settlement};
use qiang_store::Store;

/// How long the page waits for the records.
const COUNT_PATIENCE: Duration = Duration::from_secs(1);

/// What becomes of payments, in the order of the counters.
const SETTLEMENTS: [&str; 5] = ["paid", "regranted", "refund_due", "replayed", "refused"];

/// Counters of this domain.
#[derive(Debug)]
pub(crate) struct Metrics {
    by_outcome: Family<Label, Counter>,
    settlements: [Counter; SETTLEMENTS.len()],
    pending_reviews: Gauge<u64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let by_outcome = Family::default();
        let settlements = counters(&by_outcome, "outcome", SETTLEMENTS);
        Self { by_outcome, settlements, pending_reviews: Gauge::default() }
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Payments that arrived, by what became of them";
        registry.register("payments", help, self.by_outcome.clone());
        let help = "Paid orders that a person has to look at";
        registry.register("orders_pending_review", help, self.pending_reviews.clone());
    }

    /// Counts what became of a payment.
    pub(crate) fn settled(&self, outcome: &Outcome<Settlement>) {
        let place = match outcome {
            Outcome::Done(Settlement::Paid(_)) => 0,
            Outcome::Done(Settlement::Regranted(_)) => 1,
            Outcome::Done(Settlement::RefundDue(_)) => 2,
            Outcome::Replayed(_) => 3,
            Outcome::Refused(_) => 4,
        };
        self.settlements[place].inc();
    }

    /// Counts what is in the records. If they cannot be read at this moment, the last count stays.
    pub(crate) async fn look_at(&self, store: &Store) {
        if let Ok(Ok(pending)) = tokio::time::timeout(COUNT_PATIENCE, store.pending_reviews()).await
        {
            self.pending_reviews.set(pending);
        }
    }
}
