//! What the suites of all engines share: questions by their names, and an engine whose clock the test
//! moves. Each suite has a copy of this module, because only so may it say how its engine is asked.

use std::sync::Arc;

use qiang_core::{
    Claim, ClaimId, ClaimRequest, Command, Event, Kind, Outcome, PayRequest, PoolId, PoolView,
    ReleaseReason, Reply, Settlement, Terms, Timestamp, UserId,
};
use qiang_engine::{Clock as _, Engine as Any, Error, ManualClock};
use qiang_testkit::contract::Subject;

/// An engine, and what tests ask it most.
pub(crate) trait Asking: Sync {
    /// The engine as the product has it.
    fn any(&self) -> Any;

    fn open_pool(
        &self,
        pool: PoolId,
        terms: Arc<Terms>,
    ) -> impl Future<Output = Result<Outcome<PoolView>, Error>> + Send {
        async move { Ok(self.any().ask(Command::Open { pool, terms }).await?.into_pool()) }
    }

    fn claim(
        &self,
        wish: ClaimRequest,
    ) -> impl Future<Output = Result<Outcome<Claim>, Error>> + Send {
        async move { Ok(self.any().ask(Command::Claim(wish)).await?.into_claim()) }
    }

    fn order(
        &self,
        claim: ClaimId,
        by: Option<UserId>,
    ) -> impl Future<Output = Result<Outcome<Claim>, Error>> + Send {
        async move { Ok(self.any().ask(Command::Order { claim, by }).await?.into_claim()) }
    }

    fn pay(
        &self,
        pay: PayRequest,
    ) -> impl Future<Output = Result<Outcome<Settlement>, Error>> + Send {
        async move { Ok(self.any().ask(Command::Pay(pay)).await?.into_settlement()) }
    }

    fn release(
        &self,
        claim: ClaimId,
        by: Option<UserId>,
        reason: ReleaseReason,
    ) -> impl Future<Output = Result<Outcome<Claim>, Error>> + Send {
        async move { Ok(self.any().ask(Command::Release { claim, by, reason }).await?.into_claim()) }
    }

    fn close(&self, pool: PoolId) -> impl Future<Output = Result<Outcome<PoolView>, Error>> + Send {
        async move { Ok(self.any().ask(Command::Close { pool }).await?.into_pool()) }
    }

    fn clear(&self, pool: PoolId) -> impl Future<Output = Result<Outcome<PoolView>, Error>> + Send {
        async move { Ok(self.any().ask(Command::Clear { pool }).await?.into_pool()) }
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

/// All pools, and all claims that are in the engine.
pub(crate) async fn everything(engine: &impl Asking) -> (Vec<PoolView>, Vec<Claim>) {
    let (engine, mut pools, mut claims) = (engine.any(), Vec::new(), Vec::new());
    for kind in Kind::ALL {
        pools.extend(engine.pools(kind, None, 100).await.expect("they can be read"));
    }
    for pool in &pools {
        for number in 1..=pool.claims {
            let id = ClaimId { pool: pool.id, number };
            claims.extend(engine.claim_view(id).await.expect("it can be read"));
        }
    }
    (pools, claims)
}

/// Pools on one page: few, so that there are several.
const PAGE: usize = 3;

/// An engine with a clock that only the test moves.
pub(crate) struct Subjected<E> {
    pub(crate) engine: E,
    pub(crate) clock: Arc<ManualClock>,
}

impl<E: Asking> Subject for Subjected<E> {
    type Error = Error;

    async fn ask(&self, command: Command) -> Result<Reply, Error> {
        self.engine.any().ask(command).await
    }

    async fn pool(&self, id: PoolId) -> Result<Option<PoolView>, Error> {
        self.engine.any().pool(id).await
    }

    async fn claim(&self, id: ClaimId) -> Result<Option<Claim>, Error> {
        self.engine.any().claim_view(id).await
    }

    async fn pools(&self, kind: Kind) -> Result<Vec<PoolView>, Error> {
        let (engine, mut all, mut before) = (self.engine.any(), Vec::<PoolView>::new(), None);
        loop {
            let page = engine.pools(kind, before, PAGE).await?;
            assert!(page.len() <= PAGE);
            let Some(last) = page.last() else { return Ok(all) };
            before = Some(last.opened());
            all.extend(page);
        }
    }

    async fn events(&self) -> Result<Vec<Event>, Error> {
        let engine = self.engine.any();
        let (mut log, mut all) = (engine.log(), Vec::new());
        for partition in 0..engine.partitions() {
            let mut after = 0;
            loop {
                let read = log.read(partition, after, 1_000).await;
                let (events, through) = read.expect("the log can be read");
                all.extend(events);
                if through == after {
                    break;
                }
                after = through;
            }
        }
        Ok(all)
    }

    async fn set_time(&self, now: Timestamp) -> Result<(), Error> {
        self.clock.advance_millis(now.millis() - self.clock.now().millis());
        self.engine.any().expire_due().await
    }
}
