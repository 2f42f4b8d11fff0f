//! An engine with keys of its own on a shared server, and a clock that only the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qiang_core::{Claim, ClaimId, Command, Event, PoolId, PoolView, Reply, Timestamp};
use qiang_engine::redis::{Engine, Options, Place, Time};
use qiang_engine::{Clock, Error, ManualClock};
use qiang_testkit::contract::Subject;

/// Servers the same tests run on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Server {
    Redis,
    Cluster,
    Valkey,
}

impl Server {
    pub(crate) fn url(self) -> Option<String> {
        let (name, variable) = match self {
            Self::Redis => ("redis", "QIANG_TEST_REDIS"),
            Self::Cluster => ("redis cluster", "QIANG_TEST_REDIS_CLUSTER"),
            Self::Valkey => ("valkey", "QIANG_TEST_VALKEY"),
        };
        let url = std::env::var(variable).ok();
        if url.is_none() {
            assert!(std::env::var_os("CI").is_none(), "{name} is needed: set {variable}");
            println!("SKIPPED: {name}");
        }
        url
    }
}

/// A prefix nobody else uses.
pub(crate) fn prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) struct Subjected {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<ManualClock>,
}

pub(crate) async fn engine_at(url: &str, prefix: &str, node: u64, clock: Time) -> Engine {
    let place = Place::parse(&format!("{url}?prefix={prefix}&partitions=4")).expect("a good url");
    let options = Options { place, queue: 65_536, time: clock, node };
    Engine::open(options).await.expect("it is there")
}

/// A fresh engine at time 0.
pub(crate) async fn fresh(url: &str) -> Subjected {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
    let time = Time::Given(Arc::<ManualClock>::clone(&clock));
    let engine = engine_at(url, &prefix(), 1, time).await;
    engine.set_up("e1").await.expect("it can be set up");
    engine.set_epoch("e1");
    Subjected { engine, clock }
}

impl Subject for Subjected {
    type Error = Error;

    async fn ask(&self, command: Command) -> Result<Reply, Error> {
        let engine = &self.engine;
        match command {
            Command::Open { pool, terms } => engine.open_pool(pool, terms).await.map(Reply::Pool),
            Command::Claim(wish) => engine.claim(wish).await.map(Reply::Claim),
            Command::Order { claim, by } => engine.order(claim, by).await.map(Reply::Claim),
            Command::Pay(pay) => engine.pay(pay).await.map(Reply::Settlement),
            Command::Release { claim, by, reason } => {
                engine.release(claim, by, reason).await.map(Reply::Claim)
            }
            Command::Restock { pool, units, request } => {
                engine.restock(pool, units, request).await.map(Reply::Pool)
            }
            Command::Close { pool } => engine.close(pool).await.map(Reply::Pool),
            Command::Clear { pool } => engine.clear(pool).await.map(Reply::Pool),
            Command::Refund(pay) => engine.refund(pay).await.map(Reply::Settlement),
        }
    }

    async fn pool(&self, id: PoolId) -> Result<Option<PoolView>, Error> {
        self.engine.pool(id).await
    }

    async fn claim(&self, id: ClaimId) -> Result<Option<Claim>, Error> {
        self.engine.claim_view(id).await
    }

    async fn events(&self) -> Result<Vec<Event>, Error> {
        Ok(events(&self.engine).await)
    }

    async fn set_time(&self, now: Timestamp) -> Result<(), Error> {
        self.clock.advance_millis(now.millis() - self.clock.now().millis());
        self.engine.expire_due().await
    }
}

/// Everything in all logs.
pub(crate) async fn events(engine: &Engine) -> Vec<Event> {
    let mut all = Vec::new();
    for partition in 0..engine.partitions() {
        let mut after = 0;
        loop {
            let (events, through) =
                engine.read_log(partition, after, 1_000).await.expect("the log can be read");
            if events.is_empty() {
                break;
            }
            all.extend(events);
            after = through;
        }
    }
    all
}

/// Runs the future on a thread of its own, so that seeded worlds can be tried one by one.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}
