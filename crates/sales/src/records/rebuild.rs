//! Makes the records anew, of all that an engine or a journal at rest still knows.

use std::path::Path;

use qiang_core::{Event, Kind, PoolId};
use qiang_engine::{Engine, Log, LogError};
use qiang_store::{RECORDS, Store};

use qiang_app::consumer::{BATCH, Batch, EMBEDDED, Error, Sink as _};

use super::{Records, Rules};

/// Writes everything an engine knows into the records, where it is newer.
pub(super) async fn everything(engine: &Engine, store: &Store) -> Result<(), Error> {
    for kind in Kind::ALL {
        let mut pools = engine.walk_pools(kind);
        while let Some(page) = pools.next().await? {
            for pool in page {
                pool_with_claims(engine, store, pool.id).await?;
            }
        }
    }
    Ok(())
}

async fn pool_with_claims(engine: &Engine, store: &Store, pool: PoolId) -> Result<(), Error> {
    let state = engine.pool_state(pool).await?;
    upsert(store, state.into_iter().map(Event::Pool)).await?;
    let mut claims = engine.walk_claims(pool);
    while let Some(page) = claims.next().await? {
        upsert(store, page.into_iter().map(Event::Claim)).await?;
    }
    let mut refunds = engine.walk_refunds(pool);
    while let Some(page) = refunds.next().await? {
        upsert(store, page.into_iter().map(Event::Refund)).await?;
    }
    Ok(())
}

async fn upsert(store: &Store, events: impl Iterator<Item = Event>) -> Result<(), Error> {
    let events: Vec<Event> = events.collect();
    Ok(store.upsert(&events).await?)
}

/// Records everything a journal at rest holds, which ends at `end`, and says how many events
/// that were.
pub async fn finish_journal(folder: &Path, end: u64, store: &Store) -> Result<usize, Error> {
    let mut log = Log::of_journal(folder);
    let records = Records { engine: None, store: store.clone(), rules: Rules::default() };
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
        let batch = Batch { log: EMBEDDED, after: position, through, events: &events };
        records.write(&batch).await?;
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
    while let Some(mut events) = batches.recv().await {
        while let Err(error) = store.upsert(&events).await {
            // A sale that was forgotten while the snapshot was written: what is behind the snapshot
            // only says how it ended.
            match error {
                qiang_store::Error::UnknownSale { sale } if sale.is_made() => {
                    events.retain(|event| event.pool() != sale);
                }
                error => return Err(error.into()),
            }
        }
        written += events.len();
    }
    reading.await.map_err(|_| LogError::Cut)?.map_err(LogError::from)?;
    Ok(written)
}
