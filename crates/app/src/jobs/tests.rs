//! Jobs are run once each, whatever their handlers and workers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use qiang_sql::scratch::Scratch;
use qiang_sql::{Database, Dialect, on_every_database};
use qiang_store::Store;
use qiang_store::jobs::{JobState, NewJob, enqueue};
use tokio::sync::{Barrier, Notify};
use tokio_util::sync::CancellationToken;

use super::{Jobs, MAX_AT_ONCE, Retries, Runner};
use crate::consumer::Stop;
use crate::workers::{Board, Workers};

on_every_database!(
    what_is_enqueued_is_run_until_nothing_is_left,
    what_fails_or_panics_is_tried_again_and_set_aside,
    a_worker_that_is_killed_is_replaced,
    so_many_at_once_and_no_more,
);

const KIND: &str = "greet_v1";
const TWICE: Retries =
    Retries { attempts: 2, first: Duration::from_secs(3_600), longest: Duration::from_secs(3_600) };

struct Db {
    store: Store,
    database: Database,
    _scratch: Scratch,
}

impl Db {
    async fn new(on: Dialect) -> Self {
        let scratch = Scratch::new(on).await;
        let store = Store::open(scratch.url()).await.expect("opens");
        store.migrate().await.expect("migrates");
        let database = Database::open(scratch.url()).await.expect("opens");
        Self { store, database, _scratch: scratch }
    }

    async fn enqueue(&self, key: &str) {
        put(&self.database, key).await;
    }

    async fn state(&self, key: &str) -> JobState {
        self.store.job(KIND, key).await.expect("readable").expect("there is one").state
    }

    fn runner(&self, jobs: Jobs) -> Runner {
        Runner::new(self.store.clone(), "worker", jobs)
    }
}

async fn put(database: &Database, key: &str) {
    let mut tx = database.begin().await.expect("begun");
    let job = NewJob { kind: KIND, key, payload: "", delay: Duration::ZERO };
    enqueue(&mut tx, &[job]).await.expect("enqueued");
    tx.commit().await.expect("committed");
}

async fn what_is_enqueued_is_run_until_nothing_is_left(on: Dialect) {
    let db = Db::new(on).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let mut jobs = Jobs::default();
    let (counter, database) = (Arc::clone(&ran), db.database.clone());
    jobs.register(KIND, Retries::default(), move |job| {
        let (counter, database) = (Arc::clone(&counter), database.clone());
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            // Each of the first generation wants another done.
            if !job.key.contains("again") {
                put(&database, &format!("{} again", job.key)).await;
            }
            Ok(())
        }
    });
    for key in ["a", "b", "c"] {
        db.enqueue(key).await;
    }
    let runner = db.runner(jobs);
    assert_eq!(runner.run_until_empty().await.expect("works"), 6);
    assert_eq!((ran.load(Ordering::SeqCst), db.state("c again").await), (6, JobState::Done));
    assert_eq!(runner.run_until_empty().await.expect("works"), 0);
}

async fn what_fails_or_panics_is_tried_again_and_set_aside(on: Dialect) {
    let db = Db::new(on).await;
    let mut jobs = Jobs::default();
    jobs.register(KIND, TWICE, |job| async move {
        match (job.key.as_str(), job.attempts) {
            ("fails once" | "panics once", 2) => Ok(()),
            ("panics" | "panics once", _) => panic!("no {}", job.key),
            _ => Err("nobody answers".into()),
        }
    });
    for key in ["fails", "fails once", "panics", "panics once"] {
        db.enqueue(key).await;
    }
    let runner = db.runner(jobs);
    assert_eq!(runner.run_until_empty().await.expect("works"), 8);
    assert_eq!(db.state("fails once").await, JobState::Done);
    assert_eq!(db.state("panics once").await, JobState::Done);
    let dead = db.store.dead_jobs(10).await.expect("readable");
    let mut dead: Vec<_> = dead.iter().map(|job| (&*job.key, job.error.as_deref())).collect();
    dead.sort_unstable();
    let panicked = Some("it panicked: no panics");
    assert_eq!(dead, [("fails", Some("nobody answers")), ("panics", panicked)]);

    assert!(db.store.retry_job(KIND, "panics").await.expect("works"));
    assert_eq!(runner.run_until_empty().await.expect("works"), 2, "it has all its attempts again");
    assert_eq!(db.state("panics").await, JobState::Dead);
}

async fn a_worker_that_is_killed_is_replaced(on: Dialect) {
    let db = Db::new(on).await;
    db.enqueue("a").await;
    let begun = Arc::new(Notify::new());
    let runner = |hangs: bool| {
        let (begun, mut jobs) = (Arc::clone(&begun), Jobs::default());
        jobs.register(KIND, TWICE, move |_| {
            let begun = Arc::clone(&begun);
            async move {
                begun.notify_one();
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        });
        // A lease that is over at once, so that nobody has to wait for its end.
        Runner { lease: Duration::ZERO, ..db.runner(jobs) }
    };
    let run_and_kill = async || {
        let token = CancellationToken::new();
        let report = Workers::new(token.clone(), Board::default()).report("jobs");
        let stop = Stop { token, grace: Duration::ZERO };
        let killed = tokio::spawn(runner(true).follow(stop, report));
        begun.notified().await;
        killed.abort();
        assert!(killed.await.expect_err("it was killed").is_cancelled());
    };
    run_and_kill().await;
    run_and_kill().await;
    // It was run as often as it may be, and nobody knows what came of it.
    runner(false).run_until_empty().await.expect("works");
    assert_eq!(db.state("a").await, JobState::Dead);
    assert!(db.store.retry_job(KIND, "a").await.expect("works"));
    run_and_kill().await;
    runner(false).run_until_empty().await.expect("works");
    assert_eq!(db.state("a").await, JobState::Done);
}

async fn so_many_at_once_and_no_more(on: Dialect) {
    let db = Db::new(on).await;
    for key in 0..MAX_AT_ONCE * 2 {
        db.enqueue(&key.to_string()).await;
    }
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // All of a full house are at work at the same time.
    let (together, mut jobs) = (Arc::new(Barrier::new(MAX_AT_ONCE)), Jobs::default());
    let counted = Arc::clone(&most);
    jobs.register(KIND, Retries::default(), move |_| {
        let (running, most, together) =
            (Arc::clone(&running), Arc::clone(&counted), Arc::clone(&together));
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            together.wait().await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    assert_eq!(db.runner(jobs).run_until_empty().await.expect("works"), MAX_AT_ONCE * 2);
    assert_eq!(most.load(Ordering::SeqCst), MAX_AT_ONCE);
}
