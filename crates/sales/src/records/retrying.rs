//! Events that were set aside are tried again when they are due.

use std::time::Duration;

use qiang_app::consumer::Error;
use qiang_app::parked;
use qiang_app::workers::Turn;
use qiang_core::Event;
use qiang_store::jobs::Take;
use qiang_store::retries::{Retry, RetryCounts, RetryState};
use qiang_store::{Blame, RECORDS};

use super::{FORCED, Records};

/// How often it is looked for what is due.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Events that are tried in one turn.
const MAX_AT_ONCE: u32 = 200;
/// Rows that are over are looked for so often.
const TURNS_FOR_PRUNING: u32 = 1_000;

impl Records {
    /// Tries what is due, and says how many attempts that were. Fails only when nothing can be written
    /// at all; then nothing was counted.
    pub async fn retry_due(&self, which: Take) -> Result<u64, Error> {
        if self.store.retry_counts().await? == RetryCounts::default() {
            return Ok(0);
        }
        self.store.resolve_superseded().await?;
        let due = self.store.due_retries(RECORDS, which, MAX_AT_ONCE).await?;
        for retry in &due {
            self.attempt(retry).await?;
        }
        Ok(due.len() as u64)
    }

    async fn attempt(&self, retry: &Retry) -> Result<(), Error> {
        if self.rules.forces(retry.attempts + 1) {
            return self.failed(retry, FORCED).await;
        }
        let event = match parked::event(&retry.bytes) {
            Ok(event) => event,
            Err(error) => return self.failed(retry, &qiang_engine::chain(&error)).await,
        };
        match self.apply(retry, &event).await {
            Ok(applied) => {
                if applied {
                    let (id, attempts) = (&retry.event_id, retry.attempts + 1);
                    tracing::info!(id, attempts, "an event that was set aside is recorded");
                }
                Ok(())
            }
            Err(error) => {
                let why = qiang_engine::chain(&error);
                match error.blame() {
                    Blame::Data => self.failed(retry, &why).await,
                    Blame::Infrastructure => Err(error),
                    // It may be only this one's, so that the others are tried all the same.
                    Blame::Unknown => {
                        tracing::error!(
                            id = retry.event_id,
                            "an event waits, nobody knows why: {why}"
                        );
                        Ok(self.store.postpone_retry(retry, &why).await?)
                    }
                }
            }
        }
    }

    async fn apply(&self, retry: &Retry, event: &Event) -> Result<bool, Error> {
        self.knowing_sales(|| self.store.retry_event(retry, event)).await
    }

    async fn failed(&self, retry: &Retry, why: &str) -> Result<(), Error> {
        let (id, attempts) = (&retry.event_id, retry.attempts + 1);
        match self.store.fail_retry(retry, why, self.rules.retries).await? {
            Some(RetryState::Dead) => tracing::error!(
                id,
                attempts,
                "a dead letter, see `qiang dlq` and /api/v1/admin/dead-letters: {why}"
            ),
            Some(_) => tracing::warn!(id, attempts, "an event could not be recorded: {why}"),
            None => {}
        }
        Ok(())
    }

    /// One turn of the worker, the `round`th.
    pub(crate) async fn turn(self, round: u32, keep: Duration) -> Turn {
        self.retry_due(Take::Due).await?;
        if round.is_multiple_of(TURNS_FOR_PRUNING) {
            self.store.prune_retries(keep).await?;
        }
        Ok(())
    }
}
