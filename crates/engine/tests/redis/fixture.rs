//! Engines with keys of their own: on a server for everybody, or on one that a test may kill.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qiang_core::{
    Claim, ClaimRequest, Event, Flow, Outcome, PoolId, PoolView, Refusal, Terms, Timestamp,
};
use qiang_engine::redis::{Engine, Goes, Options, Place, PoolRecord, Time};
use qiang_engine::{LogError, ManualClock};
use qiang_testkit::Proxy;
use qiang_testkit::contract;
use qiang_testkit::proxy::Counts;

pub(crate) use crate::asking::{Asking, granted, open};
use crate::{asking, servers};

/// Logs in tests: few, so that pools meet in them.
pub(crate) const PARTITIONS: u16 = 4;
pub(crate) const EPOCH: &str = "e1";

/// A prefix nobody else uses.
pub(crate) fn prefix() -> String {
    format!("t{}-{}", std::process::id(), number())
}

/// Puts pools back into partitions that nobody works on, which then go on under another epoch behind
/// these positions.
pub(crate) async fn put_back(engine: &Engine, records: &[PoolRecord], epoch: &str, ends: &[u64]) {
    let restore = engine.restore_as(number());
    for partition in 0..engine.partitions() {
        restore.suspend(partition).await.expect("it can be suspended");
    }
    for record in records {
        restore.pool(record).await.expect("it can be put back");
    }
    for (partition, end) in (0..).zip(ends) {
        let resumed = restore.resume(partition, epoch, Goes::OnBehind(*end)).await;
        resumed.expect("it can be resumed");
    }
    engine.set_epoch_of_all(epoch);
}

/// A number nobody else has.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An engine that works on nothing yet.
pub(crate) async fn engine_at(url: &str, prefix: &str, time: Time) -> Engine {
    let more = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{more}prefix={prefix}&partitions={PARTITIONS}");
    let place = Place::parse(&url).expect("a good url");
    let options = Options { place, queue: 65_536, time, node: number() };
    Engine::open(options).await.expect("it is there")
}

/// One node of several, with the time of the server.
pub(crate) async fn node(url: &str, prefix: &str) -> Engine {
    let engine = engine_at(url, prefix, Time::Server).await;
    engine.set_up(EPOCH).await.expect("it can be set up");
    engine.set_epoch_of_all(EPOCH);
    engine
}

pub(crate) type Subjected = asking::Subjected<Engine>;

/// An engine of its own at time 0, with a clock that only the test moves.
pub(crate) async fn fresh(url: &str) -> Subjected {
    let subject = unset(url, Arc::new(ManualClock::new(Timestamp::from_millis(0)))).await;
    subject.engine.set_up(EPOCH).await.expect("it can be set up");
    subject.engine.set_epoch_of_all(EPOCH);
    subject
}

/// The same before it has an epoch.
pub(crate) async fn unset(url: &str, clock: Arc<ManualClock>) -> Subjected {
    let time = Time::Given(Arc::<ManualClock>::clone(&clock));
    Subjected { engine: engine_at(url, &prefix(), time).await, clock }
}

impl Asking for Engine {
    fn any(&self) -> qiang_engine::Engine {
        qiang_engine::Engine::Redis(self.clone())
    }
}

/// Everything in all logs.
pub(crate) async fn events(engine: &Engine) -> Vec<Event> {
    let mut all = Vec::new();
    for partition in 0..engine.partitions() {
        all.extend(events_in(engine, partition).await);
    }
    all
}

/// Everything one log holds.
pub(crate) async fn events_in(engine: &Engine, partition: u16) -> Vec<Event> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        match engine.read_log(partition, after, 1_000).await {
            Ok((_, through)) if through == after => return all,
            Ok((events, through)) => {
                all.extend(events);
                after = through;
            }
            Err(LogError::Trimmed { oldest, .. }) => after = oldest,
            Err(error) => panic!("the log can be read: {error}"),
        }
    }
}

/// All claims of a pool.
pub(crate) async fn claims(engine: &Engine, id: PoolId) -> Vec<Claim> {
    let mut all: Vec<Claim> = Vec::new();
    loop {
        let after = all.last().map_or(0, |claim| claim.id.number);
        let some = engine.claims(id, after, 1_000).await;
        let some = some.unwrap_or_else(|error| panic!("{error}: {:?}", engine.lost()));
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

/// Lets a node die in the middle of what it does, after so many bytes of answers: nothing it has
/// not sent by then is sent any more.
pub(crate) fn dies_after<F: Future<Output = ()> + Send + 'static>(
    (url, prefix): (&str, &str),
    bytes: u64,
    doing: impl FnOnce(Engine) -> F,
) -> Counts {
    let proxy = Proxy::start(servers::port(url)).expect("a proxy");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
    let engine = runtime.block_on(node(&proxy.url(url), prefix));
    let begin = proxy.counts().reply_bytes;
    proxy.cut_after_reply_bytes(bytes);
    proxy.refuse().expect("it refuses");
    let task = runtime.spawn(doing(engine));
    runtime.block_on(async {
        tokio::select! {
            _ = task => {}
            cut = proxy.until(|counts| counts.open == 0) => drop(cut.expect("it is cut")),
        }
    });
    runtime.shutdown_background();
    let mut counts = proxy.counts();
    counts.reply_bytes -= begin;
    counts
}

pub(crate) fn pool(id: u64) -> PoolId {
    PoolId::new(id).expect("positive")
}

/// A day: nothing runs out while a test runs.
pub(crate) const LONG_MS: u64 = 86_400_000;

/// Units that are ordered at once and need not be paid soon.
pub(crate) fn orders(stock: u32) -> Terms {
    contract::sale(stock, Flow::Order { pay_ms: LONG_MS })
}

/// A wish for one unit.
pub(crate) fn wish(id: PoolId, user: &str) -> ClaimRequest {
    contract::wish(id, user, None)
}

pub(crate) fn wish_for(id: PoolId, user: &str, units: u32) -> ClaimRequest {
    ClaimRequest { quantity: NonZeroU32::new(units).expect("positive"), ..wish(id, user) }
}

pub(crate) async fn refused(engine: &Engine, wish: ClaimRequest) -> Refusal {
    match engine.claim(wish).await {
        Ok(Outcome::Refused(refusal)) => refusal,
        other => panic!("it should be refused: {other:?}"),
    }
}

pub(crate) async fn view(engine: &Engine, id: PoolId) -> PoolView {
    engine.pool(id).await.expect("it can be read").expect("it is open")
}

/// Runs the future on a thread of its own, so that seeded worlds can be tried one by one.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}
