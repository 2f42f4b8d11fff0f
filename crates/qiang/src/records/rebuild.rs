//! Makes the records anew, of all that an engine or a journal at rest still knows.

use std::path::Path;

use qiang_core::{Event, Kind};
use qiang_engine::{Engine, Log, LogError};
use qiang_store::{RECORDS, Store};

use crate::consumer::{BATCH, EMBEDDED, Error};

/// Claims and refunds read at once.
const PAGE: u32 = 1_000;
/// Pools read at once.
const POOLS: usize = 100;

/// Writes everything an engine knows into the records, where it is newer.
pub(super) async fn everything(engine: &Engine, store: &Store) -> Result<(), Error> {
    let mut skip = 0;
    loop {
        // Only sales are recorded.
        let pools = engine.pools(Kind::Sale, skip, POOLS).await?;
        for pool in &pools {
            let state = engine.pool_state(pool.id).await?;
            let state: Vec<Event> = state.into_iter().map(Event::Pool).collect();
            store.upsert(&state).await?;
            let mut after = 0;
            loop {
                let claims = engine.claims(pool.id, after, PAGE).await?;
                let Some(last) = claims.last().map(|claim| claim.id.number) else { break };
                let events: Vec<Event> = claims.into_iter().map(Event::Claim).collect();
                store.upsert(&events).await?;
                after = last;
            }
            let mut from = 0;
            loop {
                let refunds = engine.refunds(pool.id, from, PAGE as usize).await?;
                let Some((last, _)) = refunds.last() else { break };
                from = last + 1;
                let events: Vec<Event> =
                    refunds.into_iter().map(|(_, refund)| Event::Refund(refund)).collect();
                store.upsert(&events).await?;
            }
        }
        if pools.len() < POOLS {
            return Ok(());
        }
        skip += pools.len();
    }
}

/// Records everything a journal at rest holds, which ends at `end`, and says how many events
/// that were.
pub async fn finish_journal(folder: &Path, end: u64, store: &Store) -> Result<usize, Error> {
    let mut log = Log::of_journal(folder);
    let (mut position, mut carried) = (store.position(RECORDS, EMBEDDED).await?, 0);
    if position > end {
        return Err(Error::Ahead { records: position, log: end });
    }
    loop {
        let (events, through) = match log.read(0, position, BATCH).await {
            Err(LogError::Trimmed { .. }) => {
                carried += write_journal(folder, store).await?;
                (Vec::new(), end)
            }
            read => read?,
        };
        if through == position {
            return Ok(carried);
        }
        store.project(EMBEDDED, position, through, &events).await?;
        (position, carried) = (through, carried + events.len());
    }
}

/// Writes everything a journal holds, snapshot first, into records that are older than its log
/// reaches back.
async fn write_journal(folder: &Path, store: &Store) -> Result<usize, Error> {
    let folder = folder.to_owned();
    let (full, mut batches) = tokio::sync::mpsc::channel(2);
    let reading = tokio::task::spawn_blocking(move || {
        let mut batch = Vec::with_capacity(BATCH);
        let read = qiang_engine::offline_log(&folder, &mut |event| {
            batch.push(event);
            if batch.len() == BATCH {
                // Nobody listens any more only when the records failed.
                let _heard = full.blocking_send(std::mem::take(&mut batch));
            }
        });
        let _heard = full.blocking_send(batch);
        read
    });
    let mut written = 0;
    while let Some(events) = batches.recv().await {
        store.upsert(&events).await?;
        written += events.len();
    }
    reading.await.map_err(|_| LogError::Cut)?.map_err(LogError::from)?;
    Ok(written)
}
