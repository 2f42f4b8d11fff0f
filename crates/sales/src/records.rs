//! The consumer that writes the records.

mod rebuild;

use qiang_core::Event;
use qiang_engine::Engine;
use qiang_store::{Begin, Store};

pub use self::rebuild::finish_journal;
use qiang_app::consumer::{Batch, Consumer, Error, Gap, Sink};

/// Writes events into the records.
#[derive(Debug)]
pub struct Records {
    engine: Engine,
    store: Store,
}

impl Records {
    /// Of an engine, in a store.
    #[must_use]
    pub fn new(engine: &Engine, store: &Store) -> Self {
        Self { engine: engine.clone(), store: store.clone() }
    }
}

/// Brings the records up to date with an engine, and says how many events that were.
pub async fn catch_up(engine: &Engine, store: &Store) -> Result<u64, Error> {
    let records = Records::new(engine, store);
    Consumer::new(engine.clone(), store.clone(), records).await?.finish().await
}

impl Sink for Records {
    const NAME: &'static str = qiang_store::RECORDS;
    const BEGIN: Begin = Begin::WithARebuild;

    /// Claims of a bucket may come before their sale, which is told by the log of its first bucket,
    /// and that may wait for a sale of this log in turn; then the engine is asked.
    async fn write(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let Batch { log, after, through, events } = *batch;
        let mut asked = None;
        loop {
            let unknown = match self.store.project(log, after, through, events).await {
                Err(qiang_store::Error::UnknownSale { sale }) => sale,
                written => return Ok(written?),
            };
            let state = match asked.replace(unknown) {
                // It was asked about, and is still not there.
                Some(before) if before == unknown => None,
                _ => self.engine.pool_state(unknown).await.ok().flatten(),
            };
            match state {
                Some(state) => self.store.upsert(&[Event::Pool(state)]).await?,
                None => return Err(qiang_store::Error::UnknownSale { sale: unknown }.into()),
            }
        }
    }

    /// The records were replaced by older ones or removed: writes everything the engine still
    /// knows. What happened since the log's end was read is in the log, and newer.
    async fn recover(&self, gap: &Gap<'_>) -> Result<u64, Error> {
        rebuild::everything(&self.engine, &self.store).await?;
        self.store.project(gap.log, gap.after, gap.end, &[]).await?;
        Ok(gap.end)
    }
}
