//! What this domain counts.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use qiang_store::Store;

/// How long a look at the accounts may take.
const SUM_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    off: Gauge<u64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "1 while the accounts together are not 0, or holds do not add up";
        registry.register("accounts_off", help, self.off.clone());
    }

    /// Adds all accounts up. If they cannot be read at this moment, the last answer stays.
    pub(crate) async fn look_at(&self, store: &Store) {
        if let Ok(Ok(sums)) = tokio::time::timeout(SUM_PATIENCE, store.sums()).await {
            self.off.set(u64::from(!sums.add_up()));
        }
    }
}
