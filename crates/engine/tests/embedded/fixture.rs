//! An engine in a folder that vanishes, and clocks that a test holds in its hand.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use qiang_core::{Claim, ClaimId, Event, Flow, PoolId, Timestamp};
use qiang_engine::embedded::{Engine, Options};
use qiang_engine::{LogReader, ManualClock, SqliteJournal, WriterOptions};
use qiang_testkit::contract::{sale, wish};
use rusqlite::Connection;
use tempfile::TempDir;

use super::asking::{Asking, granted, open};

/// Longer than anything here takes; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pool most tests use.
pub(crate) fn pool() -> PoolId {
    PoolId::new(7).expect("positive")
}

pub(crate) fn options(folder: &Path) -> Options {
    let writer = WriterOptions { seed: 1, snapshot_bytes: 1 << 20 };
    Options { folder: folder.into(), queue: 4_096, writer }
}

/// A new folder and an engine in it whose clock stands at 0.
pub(crate) fn new_engine() -> (TempDir, Engine, Arc<ManualClock>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (engine, clock) = open_at(folder.path(), 0);
    (folder, engine, clock)
}

/// An engine in a folder, whose clock stands at `ms`.
pub(crate) fn open_at(folder: &Path, ms: i64) -> (Engine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(ms)));
    let engine = Engine::open(options(folder), Arc::clone(&clock)).expect("the folder is fine");
    (engine, clock)
}

/// Opens a sale of `stock` units in [`pool`].
pub(crate) async fn open_sale(engine: &Engine, stock: u32, flow: Flow) {
    open(engine, pool(), sale(stock, flow)).await;
}

/// A claim that must be granted.
pub(crate) async fn grant(engine: &Engine, user: &str) -> Claim {
    granted(engine, wish(pool(), user, None)).await
}

impl Asking for Engine {
    fn any(&self) -> qiang_engine::Engine {
        qiang_engine::Engine::Embedded(self.clone())
    }
}

pub(crate) fn claim_id(number: u32) -> ClaimId {
    ClaimId { pool: pool(), number }
}

/// Everything behind a position, to the end.
pub(crate) fn events(reader: &mut LogReader, mut after: u64) -> Vec<Event> {
    let mut all = Vec::new();
    loop {
        let (events, reached) = reader.read(after, 100).expect("the log can be read");
        if events.is_empty() {
            return all;
        }
        assert_eq!(reached - after, events.len() as u64, "every event has a position");
        all.extend(events);
        after = reached;
    }
}

/// Waits for what must happen, and fails when it does not.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: it never happened"),
    }
}

/// Asks once: what was not ready is still under way.
pub(crate) async fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Keeps the journal locked for writing, as a slow disk would: decisions go on, nothing becomes
/// durable, until the gate is opened.
#[derive(Debug)]
pub(crate) struct Gate {
    journal: Connection,
}

impl Gate {
    fn shut(folder: &Path) -> Self {
        let journal = Connection::open(SqliteJournal::path_in(folder)).expect("the journal");
        journal.execute_batch("BEGIN IMMEDIATE").expect("nobody writes at the moment");
        Self { journal }
    }

    pub(crate) fn open(self) {
        self.journal.execute_batch("ROLLBACK").expect("it was locked");
    }
}

/// An engine whose journal waits behind a shut gate, with nothing but one claim of `first` taken.
pub(crate) async fn held_engine(
    folder: &Path,
    queue: usize,
    stock: u32,
) -> (Engine, Gate, tokio::task::JoinHandle<()>) {
    let options = Options { queue, ..options(folder) };
    let clock = ManualClock::new(Timestamp::from_millis(0));
    let engine = Engine::open(options, clock).expect("the folder is fine");
    open_sale(&engine, stock, Flow::Instant).await;
    let gate = Gate::shut(folder);
    let mut first = Box::pin({
        let engine = engine.clone();
        async move {
            grant(&engine, "first").await;
        }
    });
    assert_eq!(poll_once(&mut first).await, None, "it is not durable");
    let taken = async {
        while engine.queue_depth() > 0 {
            tokio::task::yield_now().await;
        }
    };
    soon("the committer takes it", taken).await;
    (engine, gate, tokio::spawn(first))
}
