//! A job is enqueued with what wants it done, taken by one worker at a time, and never lost.

use std::collections::BTreeSet;
use std::time::Duration;

use qiang_sql::{Dialect, on_every_database};
use qiang_store::Store;
use qiang_store::jobs::{self, Job, JobState, NewJob, Take};
use tokio::task::JoinSet;

use crate::fixtures::Db;

on_every_database!(
    a_job_is_there_if_the_transaction_is,
    the_same_key_is_the_same_job,
    a_job_is_taken_when_it_is_due,
    two_workers_never_get_the_same_job,
    a_worker_that_died_loses_its_job,
    a_failed_job_is_due_again_or_dead,
    a_dead_letter_is_retried_or_discarded,
    what_is_over_is_forgotten,
    a_job_is_done_in_the_transaction_of_its_work,
);

const LONG: Duration = Duration::from_secs(3_600);
const KIND: &str = "greet_v1";

fn greeting(key: &str) -> NewJob<'_> {
    NewJob { kind: KIND, key, payload: "{\"to\":\"中\"}", delay: Duration::ZERO }
}

async fn enqueue(db: &Db, jobs: &[NewJob<'_>]) {
    let mut tx = db.behind.begin().await.expect("begun");
    jobs::enqueue(&mut tx, jobs).await.expect("enqueued");
    tx.commit().await.expect("committed");
}

async fn take(store: &Store, which: Take, owner: &str, lease: Duration) -> Vec<Job> {
    store.take_jobs(&[KIND], which, owner, lease, 100).await.expect("works")
}

async fn state(db: &Db, key: &str) -> Option<JobState> {
    db.store.job(KIND, key).await.expect("readable").map(|job| job.state)
}

async fn a_job_is_there_if_the_transaction_is(on: Dialect) {
    let db = Db::new(on).await;
    let mut tx = db.behind.begin().await.expect("begun");
    jobs::enqueue(&mut tx, &[greeting("a")]).await.expect("enqueued");
    tx.rollback().await.expect("rolled back");
    assert_eq!(state(&db, "a").await, None);
    let mut tx = db.behind.begin().await.expect("begun");
    jobs::enqueue(&mut tx, &[greeting("a")]).await.expect("enqueued");
    drop(tx);
    assert_eq!(state(&db, "a").await, None);
    enqueue(&db, &[greeting("a")]).await;
    assert_eq!(state(&db, "a").await, Some(JobState::Waiting));
}

async fn the_same_key_is_the_same_job(on: Dialect) {
    let db = Db::new(on).await;
    enqueue(&db, &[greeting("a"), greeting("b"), greeting("a")]).await;
    enqueue(&db, &[NewJob { payload: "another", ..greeting("a") }]).await;
    enqueue(&db, &[NewJob { kind: "greet_v2", ..greeting("a") }]).await;
    let taken = take(&db.store, Take::Due, "w", LONG).await;
    let keys: BTreeSet<&str> = taken.iter().map(|job| job.key.as_str()).collect();
    assert_eq!((taken.len(), keys), (2, BTreeSet::from(["a", "b"])));
    assert!(taken.iter().all(|job| job.payload == greeting("a").payload && job.attempts == 1));
    for job in &taken {
        assert!(db.store.complete_job(job).await.expect("works"));
    }
    enqueue(&db, &[greeting("a")]).await;
    assert_eq!(state(&db, "a").await, Some(JobState::Done), "done is done");
    assert_eq!(take(&db.store, Take::Any, "w", LONG).await, []);
}

async fn a_job_is_taken_when_it_is_due(on: Dialect) {
    let db = Db::new(on).await;
    enqueue(&db, &[NewJob { delay: LONG, ..greeting("late") }, greeting("now")]).await;
    let taken = take(&db.store, Take::Due, "w", LONG).await;
    assert_eq!(taken.iter().map(|job| job.key.as_str()).collect::<Vec<_>>(), ["now"]);
    let taken = take(&db.store, Take::Any, "w", LONG).await;
    assert_eq!(taken.iter().map(|job| job.key.as_str()).collect::<Vec<_>>(), ["late"]);
    assert!(taken[0].at.millis() - taken[0].created_at.millis() >= 3_600_000);
    let none = db.store.take_jobs(&[], Take::Any, "w", LONG, 9).await.expect("works");
    assert_eq!(none, []);
}

async fn two_workers_never_get_the_same_job(on: Dialect) {
    let db = Db::new(on).await;
    let keys: Vec<String> = (0..60).map(|n| format!("job-{n}")).collect();
    enqueue(&db, &keys.iter().map(|key| greeting(key)).collect::<Vec<_>>()).await;
    let mut workers = JoinSet::new();
    for worker in 0..4 {
        let store = Store::open(&db.url).await.expect("opens");
        workers.spawn(async move {
            let (owner, mut got) = (format!("worker-{worker}"), Vec::new());
            loop {
                let jobs = store.take_jobs(&[KIND], Take::Due, &owner, LONG, 5).await;
                match jobs {
                    Ok(jobs) if jobs.is_empty() => return got,
                    Ok(jobs) => got.extend(jobs.into_iter().map(|job| job.key)),
                    Err(error) => assert!(error.is_transient(), "{error:?}"),
                }
            }
        });
    }
    let got: Vec<String> = workers.join_all().await.into_iter().flatten().collect();
    assert_eq!(got.len(), keys.len(), "each is taken once");
    assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), keys.into_iter().collect());
}

async fn a_worker_that_died_loses_its_job(on: Dialect) {
    let db = Db::new(on).await;
    enqueue(&db, &[greeting("a")]).await;
    let first = take(&db.store, Take::Due, "first", LONG).await;
    assert_eq!(take(&db.store, Take::Any, "second", LONG).await, [], "it has a lease");
    db.tamper("UPDATE jobs SET at = 0", &[]).await;
    let second = take(&db.store, Take::Due, "second", LONG).await;
    assert_eq!((second.len(), second[0].attempts), (1, 2));
    assert!(!db.store.complete_job(&first[0]).await.expect("works"), "it came too late");
    assert!(!db.store.fail_job(&first[0], "late", None).await.expect("works"));
    assert!(db.store.complete_job(&second[0]).await.expect("works"));
    assert!(!db.store.complete_job(&second[0]).await.expect("works"), "once");
    assert_eq!(state(&db, "a").await, Some(JobState::Done));
}

async fn a_failed_job_is_due_again_or_dead(on: Dialect) {
    let db = Db::new(on).await;
    enqueue(&db, &[greeting("a")]).await;
    let job = &take(&db.store, Take::Due, "w", LONG).await[0];
    assert!(db.store.fail_job(job, "no answer", Some(LONG)).await.expect("works"));
    assert_eq!(take(&db.store, Take::Due, "w", LONG).await, [], "not yet");
    let job = &take(&db.store, Take::Any, "w", LONG).await[0];
    assert_eq!((job.attempts, job.error.as_deref()), (2, Some("no answer")));
    assert!(db.store.fail_job(job, &"中".repeat(4_000), None).await.expect("works"));
    assert_eq!(take(&db.store, Take::Any, "w", LONG).await, []);
    let dead = db.store.dead_jobs(10).await.expect("readable");
    assert_eq!((dead.len(), dead[0].state, dead[0].attempts), (1, JobState::Dead, 2));
    let error = dead[0].error.as_deref().expect("why it died");
    assert!(error.len() <= 4_096 && error.starts_with('中'));
    assert!(dead[0].at >= dead[0].created_at);
}

async fn a_dead_letter_is_retried_or_discarded(on: Dialect) {
    let db = Db::new(on).await;
    enqueue(&db, &[greeting("a"), greeting("b")]).await;
    assert!(!db.store.retry_job(KIND, "a").await.expect("works"), "it is not dead");
    assert!(!db.store.discard_job(KIND, "a").await.expect("works"), "it is not dead");
    for job in take(&db.store, Take::Due, "w", LONG).await {
        assert!(db.store.fail_job(&job, "no", None).await.expect("works"));
    }
    assert!(db.store.retry_job(KIND, "a").await.expect("works"));
    assert!(db.store.discard_job(KIND, "b").await.expect("works"));
    let again = take(&db.store, Take::Due, "w", LONG).await;
    assert_eq!((again.len(), again[0].key.as_str(), again[0].attempts), (1, "a", 1));
    assert_eq!(state(&db, "b").await, Some(JobState::Discarded));
    assert_eq!(db.store.dead_jobs(10).await.expect("readable"), []);
}

async fn what_is_over_is_forgotten(on: Dialect) {
    let db = Db::new(on).await;
    enqueue(&db, &["done", "dead", "discarded", "waiting"].map(greeting)).await;
    for job in take(&db.store, Take::Due, "w", LONG).await {
        match job.key.as_str() {
            "done" => assert!(db.store.complete_job(&job).await.expect("works")),
            "waiting" => {
                assert!(db.store.fail_job(&job, "", Some(LONG)).await.expect("works"));
            }
            _ => assert!(db.store.fail_job(&job, "", None).await.expect("works")),
        }
    }
    assert!(db.store.discard_job(KIND, "discarded").await.expect("works"));
    assert_eq!(db.store.prune_jobs(LONG).await.expect("works"), 0, "too young");
    assert_eq!(db.store.prune_jobs(Duration::ZERO).await.expect("works"), 2);
    assert_eq!((state(&db, "done").await, state(&db, "discarded").await), (None, None));
    assert_eq!(state(&db, "dead").await, Some(JobState::Dead));
    assert_eq!(state(&db, "waiting").await, Some(JobState::Waiting));
}

async fn a_job_is_done_in_the_transaction_of_its_work(on: Dialect) {
    let db = Db::new(on).await;
    enqueue(&db, &[greeting("a")]).await;
    let job = &take(&db.store, Take::Due, "w", LONG).await[0];
    let mut tx = db.behind.begin().await.expect("begun");
    assert!(jobs::complete(&mut tx, job).await.expect("works"));
    tx.rollback().await.expect("rolled back");
    assert_eq!(state(&db, "a").await, Some(JobState::Waiting));
    let mut tx = db.behind.begin().await.expect("begun");
    assert!(jobs::complete(&mut tx, job).await.expect("works"));
    tx.commit().await.expect("committed");
    assert_eq!(state(&db, "a").await, Some(JobState::Done));
}
