//! An engine on a database that exists for one test.

use std::sync::Arc;
use std::time::Duration;

use qiang_core::{Claim, Event, Flow, PoolId, Timestamp};
use qiang_engine::ManualClock;
use qiang_engine::sql::{Engine, Options};
use qiang_sql::scratch::{Scratch, available};
use qiang_sql::{Database, Dialect, Limits};
use qiang_testkit::contract::{sale, wish};
use qiang_testkit::each_seed;

use super::asking::{Asking, granted, open};

/// Longer than anything here takes; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database, for as long as the test runs.
pub(crate) struct World {
    pub(crate) scratch: Scratch,
    pub(crate) clock: Arc<ManualClock>,
}

impl World {
    pub(crate) async fn new(on: Dialect) -> Self {
        let scratch = Scratch::new(on).await;
        Self { scratch, clock: Arc::new(ManualClock::new(Timestamp::from_millis(0))) }
    }

    pub(crate) async fn database(&self) -> Database {
        let limits = Limits { connections: 6, patience: Duration::from_secs(20) };
        Database::open_with(self.scratch.url(), limits).await.expect("it was just made")
    }

    /// One more engine on the same database, with connections of its own.
    pub(crate) async fn engine(&self) -> Engine {
        self.engine_with(options()).await
    }

    pub(crate) async fn engine_with(&self, options: Options) -> Engine {
        let clock = Arc::clone(&self.clock);
        Engine::open(self.database().await, options, clock).await.expect("a fresh database")
    }
}

/// Two partitions, so that pools meet and do not meet; no ticks but those a test makes.
pub(crate) fn options() -> Options {
    Options {
        partitions: 2,
        queue: 4_096,
        patience: Duration::from_secs(30),
        tick: Duration::from_secs(3_600),
    }
}

/// Runs seeded worlds one by one, each in a runtime of its own.
pub(crate) fn each_world<F: Future<Output = ()>>(
    on: Dialect,
    runs: u64,
    world: impl Fn(Dialect, u64) -> F,
) {
    if !available(on) {
        return;
    }
    each_seed(runs, |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(soon("a world", world(on, seed)));
    });
}

/// Waits for what must happen, and fails when it does not.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: it never happened"),
    }
}

impl Asking for Engine {
    fn any(&self) -> qiang_engine::Engine {
        qiang_engine::Engine::Sql(self.clone())
    }
}

/// All events of all partitions.
pub(crate) async fn events(engine: &Engine) -> Vec<Event> {
    let mut all = Vec::new();
    for partition in 0..engine.partitions() {
        let mut after = 0;
        loop {
            let read = engine.read_log(partition, after, 100).await;
            let (events, reached) = read.expect("the log can be read");
            assert_eq!(reached - after, events.len() as u64, "every event has a position");
            if events.is_empty() {
                break;
            }
            all.extend(events);
            after = reached;
        }
    }
    all
}

/// The pool most tests use.
pub(crate) fn pool() -> PoolId {
    PoolId::new(7).expect("positive")
}

/// Opens a sale of `stock` units in [`pool`].
pub(crate) async fn open_sale(engine: &Engine, stock: u32, flow: Flow) {
    open(engine, pool(), sale(stock, flow)).await;
}

/// A claim that must be granted.
pub(crate) async fn grant(engine: &Engine, user: &str) -> Claim {
    granted(engine, wish(pool(), user, None)).await
}
