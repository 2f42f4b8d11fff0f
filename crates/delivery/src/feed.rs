//! The consumer that writes the feed of public events, and what forgets the old ones.
//!
//! The engine trims its log once all consumers have passed, so what others may read later is kept in a
//! table: written in the transaction that moves the consumer's position, and pruned after the time that
//! is configured. A shop that keeps no events has no such consumer, and pays nothing.

use std::time::Duration;

use qiang_app::consumer::{Batch, Error, Gap, Sink};
use qiang_app::workers::Turn;
use qiang_store::events::{self, NewEvent};
use qiang_store::{Begin, Store, Transaction};

use crate::public::{self, PublicEvent};

/// How often old events are looked for.
pub(crate) const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Writes events into the feed.
#[derive(Debug)]
pub struct Feed {
    store: Store,
    source: String,
}

impl Feed {
    /// In a store, of the shop that `source` names.
    #[must_use]
    pub fn new(store: &Store, source: String) -> Self {
        Self { store: store.clone(), source }
    }

    /// Has a feed that is new, or was off for a while, begin where nobody can go on from before.
    pub async fn switch_on(store: &Store) -> Result<(), qiang_store::Error> {
        if !store.consumers().await?.iter().any(|name| name == Self::NAME) {
            store.begin_feed_epoch().await?;
        }
        Ok(())
    }

    /// Lets the logs go on without it.
    pub async fn switch_off(store: &Store) -> Result<(), qiang_store::Error> {
        if store.retire_consumer(Self::NAME).await? {
            tracing::info!("events are no longer kept ([delivery] keep_events_hours)");
        }
        Ok(())
    }
}

impl Sink for Feed {
    const NAME: &'static str = "events";
    const BEGIN: Begin = Begin::WithTheLogs;

    async fn write(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let Batch { log, after, through, events } = *batch;
        let told: Vec<PublicEvent> =
            events.iter().flat_map(|event| public::of(event, &self.source)).collect();
        let new = told.iter().map(|PublicEvent { kind, pool, claim, json }| NewEvent {
            kind,
            pool: *pool,
            claim: *claim,
            body: json,
        });
        let told = &new.collect::<Vec<_>>();
        let write = |mut tx: Transaction| async move {
            events::append(&mut tx, told).await?;
            Ok((tx, ()))
        };
        Ok(self.store.advance(Self::NAME, log, after, through, write).await?)
    }

    /// What is no longer in the log cannot be told any more. Whoever reads the feed hears that
    /// something is missing.
    async fn recover(&self, gap: &Gap<'_>) -> Result<u64, Error> {
        let begin = |mut tx: Transaction| async move {
            events::begin_epoch(&mut tx).await?;
            Ok((tx, ()))
        };
        self.store.advance(Self::NAME, gap.log, gap.after, gap.end, begin).await?;
        Ok(gap.end)
    }
}

/// Forgets what is older than this, a part at a time.
pub(crate) async fn prune(store: Store, age: Duration) -> Turn {
    while store.prune_feed(age).await? > 0 {}
    Ok(())
}
