//! Walks over everything that an engine knows, a page at a time.
//!
//! What is opened or granted meanwhile shifts nothing; whether it is met is not said.

use qiang_core::{Claim, Kind, Opened, PoolId, PoolView, Refund};

use crate::{Engine, Error};

/// Pools on a page.
const POOLS: usize = 100;
/// Claims or refunds on a page.
const PAGE: u32 = 1_000;

/// The pools of a kind, newest first.
#[derive(Debug)]
pub struct Pools<'a> {
    engine: &'a Engine,
    kind: Kind,
    before: Option<Opened>,
}

/// The claims of a pool, in the order of their numbers.
#[derive(Debug)]
pub struct Claims<'a> {
    engine: &'a Engine,
    pool: PoolId,
    after: u32,
}

/// What a pool owes back.
#[derive(Debug)]
pub struct Refunds<'a> {
    engine: &'a Engine,
    pool: PoolId,
    from: usize,
}

impl Engine {
    /// Walks over the pools of a kind.
    #[must_use]
    pub fn walk_pools(&self, kind: Kind) -> Pools<'_> {
        Pools { engine: self, kind, before: None }
    }

    /// Walks over the claims of a pool.
    #[must_use]
    pub fn walk_claims(&self, pool: PoolId) -> Claims<'_> {
        Claims { engine: self, pool, after: 0 }
    }

    /// Walks over what a pool owes back.
    #[must_use]
    pub fn walk_refunds(&self, pool: PoolId) -> Refunds<'_> {
        Refunds { engine: self, pool, from: 0 }
    }
}

impl Pools<'_> {
    /// The next page; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<PoolView>>, Error> {
        let page = self.engine.pools(self.kind, self.before, POOLS).await?;
        self.before = page.last().map(PoolView::opened);
        Ok(self.before.is_some().then_some(page))
    }
}

impl Claims<'_> {
    /// The next page; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<Claim>>, Error> {
        let page = self.engine.claims(self.pool, self.after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(None) };
        self.after = last.id.number;
        Ok(Some(page))
    }
}

impl Refunds<'_> {
    /// The next page; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<Refund>>, Error> {
        let page = self.engine.refunds(self.pool, self.from, PAGE as usize).await?;
        let Some((last, _)) = page.last() else { return Ok(None) };
        self.from = last + 1;
        Ok(Some(page.into_iter().map(|(_, refund)| refund).collect()))
    }
}
