//! What the records lack because its event could not be recorded: known, and no difference.
//!
//! Such an event waits for another attempt or for a person, or a person has given it up. The report
//! counts them apart.

use qiang_core::{ClaimId, Event, PoolView, Refund};
use qiang_store::Store;
use qiang_store::retries::{Retry, RetryState};

use super::{Error, Report};

/// Whether the records lack the newest version of a claim for that reason.
pub(super) async fn explains_claim(
    store: &Store,
    claim: ClaimId,
    version: u32,
) -> Result<bool, Error> {
    let retries = store.retries_of(claim.pool, claim.number).await?;
    Ok(retries
        .iter()
        .any(|retry| is_open(retry) && retry.version == version && retry.kind.starts_with("claim")))
}

/// Whether the records lack the newest version of a sale for that reason.
pub(super) async fn explains_sale(store: &Store, pool: &PoolView) -> Result<bool, Error> {
    let retries = store.retries_of(pool.id, 0).await?;
    Ok(retries.iter().any(|retry| is_open(retry) && retry.version == pool.version))
}

/// Whether the records lack a refund for that reason: because of its own event, or of that of the claim
/// it follows from.
pub(super) async fn explains_refund(store: &Store, refund: &Refund) -> Result<bool, Error> {
    let event = Event::Refund(refund.clone()).id();
    let retries = store.retries_of(refund.order.pool, refund.order.number).await?;
    Ok(retries
        .iter()
        .any(|retry| is_open(retry) && (retry.event_id == event || retry.kind == "claim_released")))
}

/// Whether the event is not on record.
fn is_open(retry: &Retry) -> bool {
    retry.state != RetryState::Resolved
}

/// Counts them for the report.
pub(super) async fn count(store: &Store, report: &mut Report) -> Result<(), Error> {
    let counts = store.retry_counts().await?;
    report.pending_retries = counts.waiting;
    report.dead_letters = counts.dead;
    report.discarded = store.discarded().await?;
    Ok(())
}
