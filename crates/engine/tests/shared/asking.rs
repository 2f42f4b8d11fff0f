//! What the suites of all engines share: questions by their names, and an engine whose clock the test
//! moves. Each suite has a copy of this module, because only so may it say how its engine is asked.

use std::sync::Arc;

use qiang_core::{
    Claim, ClaimId, ClaimRequest, Command, Event, Outcome, PayRequest, PoolId, PoolView,
    ReleaseReason, Reply, Settlement, Terms, Timestamp, UserId,
};
use qiang_engine::{Clock as _, Error, ManualClock};
use qiang_testkit::contract::Subject;

/// An engine, and what tests ask it most.
pub(crate) trait Asking: Sync {
    fn ask(&self, command: Command) -> impl Future<Output = Result<Reply, Error>> + Send;

    fn pool(&self, id: PoolId) -> impl Future<Output = Result<Option<PoolView>, Error>> + Send;

    fn claim_view(&self, id: ClaimId) -> impl Future<Output = Result<Option<Claim>, Error>> + Send;

    fn expire_due(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Everything in all logs.
    fn events(&self) -> impl Future<Output = Vec<Event>> + Send;

    fn open_pool(
        &self,
        pool: PoolId,
        terms: Arc<Terms>,
    ) -> impl Future<Output = Result<Outcome<PoolView>, Error>> + Send {
        async move { Ok(self.ask(Command::Open { pool, terms }).await?.into_pool()) }
    }

    fn claim(
        &self,
        wish: ClaimRequest,
    ) -> impl Future<Output = Result<Outcome<Claim>, Error>> + Send {
        async move { Ok(self.ask(Command::Claim(wish)).await?.into_claim()) }
    }

    fn order(
        &self,
        claim: ClaimId,
        by: Option<UserId>,
    ) -> impl Future<Output = Result<Outcome<Claim>, Error>> + Send {
        async move { Ok(self.ask(Command::Order { claim, by }).await?.into_claim()) }
    }

    fn pay(
        &self,
        pay: PayRequest,
    ) -> impl Future<Output = Result<Outcome<Settlement>, Error>> + Send {
        async move { Ok(self.ask(Command::Pay(pay)).await?.into_settlement()) }
    }

    fn release(
        &self,
        claim: ClaimId,
        by: Option<UserId>,
        reason: ReleaseReason,
    ) -> impl Future<Output = Result<Outcome<Claim>, Error>> + Send {
        async move { Ok(self.ask(Command::Release { claim, by, reason }).await?.into_claim()) }
    }

    fn close(&self, pool: PoolId) -> impl Future<Output = Result<Outcome<PoolView>, Error>> + Send {
        async move { Ok(self.ask(Command::Close { pool }).await?.into_pool()) }
    }

    fn clear(&self, pool: PoolId) -> impl Future<Output = Result<Outcome<PoolView>, Error>> + Send {
        async move { Ok(self.ask(Command::Clear { pool }).await?.into_pool()) }
    }
}

/// Opens a pool; doing so twice is no mistake.
pub(crate) async fn open(engine: &impl Asking, id: PoolId, terms: Terms) {
    let opened = engine.open_pool(id, Arc::new(terms)).await;
    assert!(matches!(opened, Ok(Outcome::Done(_) | Outcome::Replayed(_))), "{opened:?}");
}

/// A claim that must be granted.
pub(crate) async fn granted(engine: &impl Asking, wish: ClaimRequest) -> Claim {
    match engine.claim(wish).await {
        Ok(Outcome::Done(claim)) => claim,
        other => panic!("it should be granted: {other:?}"),
    }
}

/// An engine with a clock that only the test moves.
pub(crate) struct Subjected<E> {
    pub(crate) engine: E,
    pub(crate) clock: Arc<ManualClock>,
}

impl<E: Asking> Subject for Subjected<E> {
    type Error = Error;

    async fn ask(&self, command: Command) -> Result<Reply, Error> {
        self.engine.ask(command).await
    }

    async fn pool(&self, id: PoolId) -> Result<Option<PoolView>, Error> {
        self.engine.pool(id).await
    }

    async fn claim(&self, id: ClaimId) -> Result<Option<Claim>, Error> {
        self.engine.claim_view(id).await
    }

    async fn events(&self) -> Result<Vec<Event>, Error> {
        Ok(self.engine.events().await)
    }

    async fn set_time(&self, now: Timestamp) -> Result<(), Error> {
        self.clock.advance_millis(now.millis() - self.clock.now().millis());
        self.engine.expire_due().await
    }
}
