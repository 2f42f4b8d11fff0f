//! Snapshots and trimming on a real file: the journal stays short, and nothing is lost.

use std::path::Path;
use std::sync::atomic::Ordering;

use qiang_core::{Claim, Event, Flow, Outcome};
use qiang_engine::embedded::{Engine, Options};
use qiang_engine::{JournalError, ManualClock, SqliteJournal, WriterOptions, offline_log};
use qiang_testkit::contract::wish;
use rusqlite::Connection;
use tokio::task::JoinSet;

use super::asking::Asking as _;
use super::fixture::{events, open_sale, options, pool};

/// An engine that takes a snapshot after every few kilobytes.
fn open(folder: &Path) -> Engine {
    let writer = WriterOptions { seed: 1, snapshot_bytes: 4_096 };
    let options = Options { writer, ..options(folder) };
    Engine::open(options, ManualClock::new(Default::default())).expect("the folder is fine")
}

/// Claims for users `from..to`, `together` at a time.
async fn crowd(engine: &Engine, from: u32, to: u32, together: u32) {
    for first in (from..to).step_by(together as usize) {
        let mut tasks = JoinSet::new();
        for user in first..to.min(first + together) {
            let engine = engine.clone();
            tasks.spawn(
                async move { engine.claim(wish(pool(), &format!("user{user}"), None)).await },
            );
        }
        while let Some(claimed) = tasks.join_next().await {
            let claimed = claimed.expect("nobody panics");
            assert!(matches!(claimed, Ok(Outcome::Done(_))), "{claimed:?}");
        }
    }
}

fn oldest_batch(folder: &Path) -> u64 {
    let db = Connection::open(SqliteJournal::path_in(folder)).expect("the journal is there");
    let oldest = db.query_row("SELECT min(first_seq) FROM batch", [], |row| row.get(0));
    oldest.expect("there is a batch")
}

async fn all_claims(engine: &Engine) -> Vec<Claim> {
    engine.claims(pool(), 0, 100_000).await.expect("it runs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claims_are_found_again_from_a_trimmed_journal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engine = open(folder.path());
    open_sale(&engine, 100_000, Flow::Instant).await;
    let mut reader = engine.log_reader().expect("the journal is there");
    let mut consumed = 0;
    // More claims than one part of a snapshot holds.
    for round in 0..12 {
        crowd(&engine, round * 1_000, (round + 1) * 1_000, 250).await;
        consumed += events(&mut reader, consumed).len() as u64;
        engine.consumed(consumed);
    }
    crowd(&engine, 12_000, 12_020, 1).await;
    assert!(engine.stats().snapshots.load(Ordering::Relaxed) > 1);
    let (claims, view) = (all_claims(&engine).await, engine.pool(pool()).await);
    let position = engine.position().await.expect("it runs");
    assert_eq!((claims.len(), position), (12_020, 12_021));
    engine.shut_down();
    assert!(oldest_batch(folder.path()) > 1, "old batches are gone");
    let mut stored = 0;
    let end = offline_log(folder.path(), &mut |_| stored += 1).expect("it can be read");
    assert_eq!(end.seq, position);
    assert!(end.snapshot_seq > 0 && stored >= 12_021);
    let again = open(folder.path());
    assert_eq!(all_claims(&again).await, claims);
    assert_eq!(again.pool(pool()).await, view);
    assert_eq!(again.position().await, Ok(position));
    crowd(&again, 12_020, 12_030, 5).await;
}

#[tokio::test]
async fn p03_only_what_every_consumer_has_read_is_trimmed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engine = open(folder.path());
    open_sale(&engine, 100_000, Flow::Instant).await;
    let mut reader = engine.log_reader().expect("the journal is there");
    // Nobody has read anything: many snapshots later the first event is still there.
    crowd(&engine, 0, 1_000, 25).await;
    assert!(engine.stats().snapshots.load(Ordering::Relaxed) >= 2);
    assert_eq!(oldest_batch(folder.path()), 1);
    let all = events(&mut reader, 0);
    assert_eq!(all.len(), 1_001);
    // A consumer that stands in the middle of a batch keeps that batch.
    let slow = 500;
    engine.consumed(slow);
    crowd(&engine, 1_000, 2_000, 25).await;
    let oldest = oldest_batch(folder.path());
    assert!(oldest > 1 && oldest <= slow + 1, "{oldest}");
    let unread = events(&mut reader, slow);
    assert_eq!(unread.len(), 2_001 - 500);
    assert_eq!(unread[..501], all[500..]);
    // What is gone is said to be gone, never skipped.
    match reader.read(0, 10) {
        Err(JournalError::Trimmed { after: 0, oldest: told }) => assert_eq!(told, oldest - 1),
        other => panic!("{other:?}"),
    }
    // After a restart nothing is trimmed before the consumer has spoken again.
    engine.shut_down();
    let again = open(folder.path());
    crowd(&again, 2_000, 2_500, 25).await;
    assert_eq!(oldest_batch(folder.path()), oldest);
    let numbers: Vec<u32> = events(&mut again.log_reader().expect("it is there"), slow)
        .iter()
        .map(|event| match event {
            Event::Claim(claim) => claim.id.number,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, (500..=2_500).collect::<Vec<_>>());
}
