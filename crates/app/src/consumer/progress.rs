//! How far a consumer has come, for whoever waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};

/// How far a consumer has come.
#[derive(Debug, Clone)]
pub struct Progress {
    pub(super) positions: watch::Receiver<Vec<u64>>,
    pub(super) shared: Arc<Shared>,
}

/// What a consumer and those who watch it tell each other.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// How far somebody waits for the consumer to come.
    wanted: Mutex<Vec<u64>>,
    pub(super) raised: Notify,
    failures: AtomicU64,
    /// Why the last batch could not be written; nothing once one could.
    trouble: Mutex<Option<String>>,
}

impl Progress {
    /// For each log the position of the last event that was consumed.
    #[must_use]
    pub fn positions(&self) -> Vec<u64> {
        self.positions.borrow().clone()
    }

    /// Waits until everything up to these positions was consumed.
    pub async fn reached(&self, wanted: &[u64]) {
        let mut here = self.positions.clone();
        if !covers(&here.borrow(), wanted) {
            self.shared.want(wanted);
        }
        if here.wait_for(|here| covers(here, wanted)).await.is_err() {
            // The consumer is gone, and nothing will ever be reached; whoever waits has a limit.
            std::future::pending::<()>().await;
        }
    }

    /// How often a batch could not be written.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// Why nothing can be written at present, if so.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        if self.positions.has_changed().is_err() {
            return Some("the worker has ended; restart the server".into());
        }
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    fn want(&self, positions: &[u64]) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let logs = wanted.len().max(positions.len());
        wanted.resize(logs, 0);
        for (wanted, position) in wanted.iter_mut().zip(positions) {
            *wanted = (*wanted).max(*position);
        }
        drop(wanted);
        self.raised.notify_one();
    }

    /// Whether somebody waits for more than this.
    pub(super) fn is_wanted(&self, here: &[u64]) -> bool {
        !covers(here, &self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts what failed just now.
    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps what is wrong at present.
    pub(super) fn tell(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

fn covers(here: &[u64], wanted: &[u64]) -> bool {
    wanted.iter().enumerate().all(|(log, wanted)| here.get(log).is_some_and(|at| at >= wanted))
}
