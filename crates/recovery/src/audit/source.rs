//! The book that is believed: the running engine's, or one replayed from a journal at rest.

use qiang_core::{Book, Claim, ClaimId, Kind, Opened, PoolId, PoolState, PoolView, Refund};
use qiang_engine::Engine;
use qiang_engine::redis::Spread;
use qiang_store::Store;

use super::{Error, caught_up};
use qiang_app::consumer::Progress;
use qiang_sales::records;

/// Where the truth is read from.
#[derive(Debug)]
pub enum Source<'a> {
    /// A running engine, and how far the records follow it.
    Engine {
        /// The engine.
        engine: &'a Engine,
        /// What follows it.
        projection: &'a Progress,
    },
    /// An engine that others may work with; the records are brought up to date as needed.
    At {
        /// The engine.
        engine: &'a Engine,
        /// The records.
        store: &'a Store,
    },
    /// A book nobody changes any more.
    Book(&'a Book),
}

impl Source<'_> {
    /// The sales that were opened before `before`, newest first. Pools of another kind have no records
    /// to be compared with.
    pub(super) async fn sales(
        &self,
        before: Option<Opened>,
        max: usize,
    ) -> Result<Vec<PoolView>, Error> {
        Ok(match self {
            Self::Engine { engine, .. } | Self::At { engine, .. } => {
                engine.pools(Kind::Sale, before, max).await?
            }
            Self::Book(book) => {
                let newest = book.newest(Kind::Sale, before).take(max);
                newest.map(qiang_core::Pool::view).collect()
            }
        })
    }

    pub(super) async fn claims(
        &self,
        pool: PoolId,
        after: u32,
        max: u32,
    ) -> Result<Vec<Claim>, Error> {
        Ok(match self {
            Self::Engine { engine, .. } | Self::At { engine, .. } => {
                engine.claims(pool, after, max).await?
            }
            Self::Book(book) => {
                let numbers = after.saturating_add(1)..=after.saturating_add(max);
                numbers.map_while(|number| book.claim(ClaimId { pool, number })).collect()
            }
        })
    }

    pub(super) async fn claim(&self, id: ClaimId) -> Result<Option<Claim>, Error> {
        Ok(match self {
            Self::Engine { engine, .. } | Self::At { engine, .. } => engine.claim_view(id).await?,
            Self::Book(book) => book.claim(id),
        })
    }

    pub(super) async fn pool_state(&self, id: PoolId) -> Result<Option<PoolState>, Error> {
        Ok(match self {
            Self::Engine { engine, .. } | Self::At { engine, .. } => engine.pool_state(id).await?,
            Self::Book(book) => book.pool(id).map(|pool| pool.state().clone()),
        })
    }

    pub(super) async fn refunds(
        &self,
        pool: PoolId,
        from: usize,
        max: usize,
    ) -> Result<Vec<(usize, Refund)>, Error> {
        Ok(match self {
            Self::Engine { engine, .. } | Self::At { engine, .. } => {
                engine.refunds(pool, from, max).await?
            }
            Self::Book(book) => {
                let pool = book.pool(pool);
                pool.map(|pool| pool.refunds_from(from).take(max).collect()).unwrap_or_default()
            }
        })
    }

    /// What the parts of a pool hold together, where it has parts; `None` while they move.
    pub(super) async fn spread(&self, pool: PoolId) -> Result<Option<Spread>, Error> {
        match self {
            Self::Engine { engine: Engine::Redis(engine), .. }
            | Self::At { engine: Engine::Redis(engine), .. } => Ok(engine.spread(pool).await?),
            Self::Engine { .. } | Self::At { .. } | Self::Book(_) => Ok(None),
        }
    }

    /// A pool as it is now.
    pub(super) async fn pool(&self, id: PoolId) -> Result<Option<PoolView>, Error> {
        Ok(match self {
            Self::Engine { engine, .. } | Self::At { engine, .. } => engine.pool(id).await?,
            Self::Book(book) => book.pool(id).map(qiang_core::Pool::view),
        })
    }

    /// Waits until the records hold everything that could be read here so far.
    pub(super) async fn recorded(&self) -> Result<(), Error> {
        match self {
            Self::Engine { engine, projection } => {
                caught_up(projection, &engine.positions().await?).await
            }
            Self::At { engine, store } => {
                let caught_up = records::catch_up(engine, store).await;
                caught_up.map(drop).map_err(|error| Error::Recording(Box::new(error)))
            }
            Self::Book(_) => Ok(()),
        }
    }
}
