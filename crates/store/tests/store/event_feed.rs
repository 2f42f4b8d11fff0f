//! The feed of events: in the order of the commits, nothing skipped, and what is gone is told.

use std::time::Duration;

use qiang_sql::{Dialect, on_every_database, sql};
use qiang_store::events::{FeedPage, FeedRead};
use qiang_store::events::{Filter, From, NewEvent, Place, append, begin_epoch};
use qiang_store::{Begin, Store, Transaction};

use crate::fixtures::{Db, claim_id, pool_id};

on_every_database!(
    events_are_read_in_order_and_in_pages,
    a_filter_leaves_out_and_skips_nothing,
    nothing_is_skipped_by_commits_that_end_out_of_order,
    a_place_that_was_pruned_is_told,
    a_place_of_another_epoch_is_told,
);

const NAME: &str = "events";

async fn write(store: &Store, log: &str, bodies: &[String], kind: &str) {
    let at = store.position(NAME, log).await.expect("readable");
    let to = at + bodies.len() as u64;
    let pool = pool_id(if log == "sql/0" { 1 } else { 2 });
    let claim = Some(claim_id(pool, 3));
    let events: Vec<NewEvent<'_>> =
        bodies.iter().map(|body| NewEvent { kind, pool, claim, body }).collect();
    let events = &events;
    let add = |mut tx: Transaction| async move {
        append(&mut tx, events).await?;
        Ok((tx, ()))
    };
    store.advance(NAME, log, at, to, add).await.expect("written");
}

fn bodies(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

async fn page(store: &Store, from: From, filter: Filter<'_>, max: u32) -> FeedPage {
    match store.read_feed(from, filter, max).await.expect("readable") {
        FeedRead::Page(page) => page,
        FeedRead::TooOld => panic!("{from:?} is too old"),
    }
}

async fn is_too_old(store: &Store, place: Place) -> bool {
    let read = store.read_feed(From::After(place), Filter::default(), 10).await;
    read.expect("readable") == FeedRead::TooOld
}

/// Everything there is, page by page.
async fn all(store: &Store, filter: Filter<'_>, max: u32) -> Vec<String> {
    let (mut from, mut found) = (From::Start, Vec::new());
    loop {
        let FeedPage { events, next, more } = page(store, from, filter, max).await;
        found.extend(events.into_iter().map(|event| event.body));
        from = From::After(next);
        if !more {
            return found;
        }
    }
}

async fn opened(on: Dialect) -> Db {
    let db = Db::new(on).await;
    db.store.register_consumer(NAME, Begin::WithTheLogs).await.expect("registered");
    db
}

async fn events_are_read_in_order_and_in_pages(on: Dialect) {
    let db = opened(on).await;
    assert_eq!(all(&db.store, Filter::default(), 10).await, Vec::<String>::new());
    write(&db.store, "sql/0", &bodies(0..300), "claim_granted").await;
    write(&db.store, "sql/1", &bodies(300..310), "claim_paid").await;
    assert_eq!(all(&db.store, Filter::default(), 7).await, bodies(0..310));
    let end = page(&db.store, From::End, Filter::default(), 10).await;
    assert_eq!((end.events.len(), end.more), (0, false));
    write(&db.store, "sql/0", &bodies(310..311), "claim_granted").await;
    let more = page(&db.store, From::After(end.next), Filter::default(), 10).await;
    let [event] = &more.events[..] else { panic!("one event") };
    assert_eq!((event.body.as_str(), event.pool, event.number), ("310", pool_id(1), 3));
}

async fn a_filter_leaves_out_and_skips_nothing(on: Dialect) {
    let db = opened(on).await;
    write(&db.store, "sql/0", &bodies(0..50), "claim_granted").await;
    write(&db.store, "sql/1", &bodies(50..60), "claim_paid").await;
    write(&db.store, "sql/1", &bodies(60..70), "claim_granted").await;
    let paid = Filter { kind: Some("claim_paid"), pool: None };
    assert_eq!(all(&db.store, paid, 3).await, bodies(50..60));
    let pool = Filter { kind: None, pool: Some(pool_id(2)) };
    assert_eq!(all(&db.store, pool, 3).await, bodies(50..70));
    let both = Filter { kind: Some("claim_granted"), pool: Some(pool_id(2)) };
    assert_eq!(all(&db.store, both, 100).await, bodies(60..70));
    let none = Filter { kind: Some("refund_due"), pool: None };
    let page = page(&db.store, From::Start, none, 3).await;
    assert_eq!((page.events.len(), page.more, page.next.id), (0, false, 70));
}

/// Many write at once while one reads: it must see every event, those of a log in order.
async fn nothing_is_skipped_by_commits_that_end_out_of_order(on: Dialect) {
    const WRITERS: u32 = 4;
    const ROUNDS: u32 = 12;
    let db = opened(on).await;
    let writing: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = db.store.clone();
            tokio::spawn(async move {
                let log = format!("sql/{writer}");
                for round in 0..ROUNDS {
                    // Of different sizes, so that some commit long after they have begun.
                    let count = if writer == 0 { 200 } else { 3 };
                    let bodies: Vec<String> =
                        (0..count).map(|n| format!("{writer}/{round}/{n}")).collect();
                    write(&store, &log, &bodies, "claim_granted").await;
                }
            })
        })
        .collect();
    let expected = ROUNDS * (200 + 3 * (WRITERS - 1));
    let (mut from, mut found) = (From::Start, Vec::new());
    while found.len() < expected as usize {
        let done = writing.iter().all(tokio::task::JoinHandle::is_finished);
        let FeedPage { events, next, more } = page(&db.store, from, Filter::default(), 64).await;
        assert!(!(done && !more && events.is_empty()), "{} of {expected}", found.len());
        found.extend(events.into_iter().map(|event| event.body));
        from = From::After(next);
    }
    for writing in writing {
        writing.await.expect("written");
    }
    for writer in 0..WRITERS {
        let of_log = |body: &&String| body.starts_with(&format!("{writer}/"));
        let found: Vec<&String> = found.iter().filter(of_log).collect();
        let count = if writer == 0 { 200 } else { 3 };
        let expected: Vec<String> = (0..ROUNDS)
            .flat_map(|round| (0..count).map(move |n| format!("{writer}/{round}/{n}")))
            .collect();
        assert!(found.iter().copied().eq(&expected), "the log of {writer}");
    }
}

async fn a_place_that_was_pruned_is_told(on: Dialect) {
    let db = opened(on).await;
    write(&db.store, "sql/0", &bodies(0..10), "claim_granted").await;
    let middle = page(&db.store, From::Start, Filter::default(), 5).await.next;
    assert_eq!(db.store.prune_feed(Duration::from_secs(3_600)).await.expect("pruned"), 0);
    // Two hours later, as far as the first seven are concerned.
    db.tamper("UPDATE events SET stored_at = stored_at - 7200000 WHERE id <= 7", &[]).await;
    assert_eq!(db.store.prune_feed(Duration::from_secs(3_600)).await.expect("pruned"), 7);
    assert!(is_too_old(&db.store, middle).await);
    assert!(!is_too_old(&db.store, Place { id: 7, ..middle }).await, "nothing behind it is gone");
    assert!(is_too_old(&db.store, Place { id: 11, ..middle }).await, "there is no such event");
    assert_eq!(all(&db.store, Filter::default(), 2).await, bodies(7..10));
}

async fn a_place_of_another_epoch_is_told(on: Dialect) {
    let db = opened(on).await;
    write(&db.store, "sql/0", &bodies(0..10), "claim_granted").await;
    let end = page(&db.store, From::End, Filter::default(), 5).await.next;
    let gap = |mut tx: Transaction| async move {
        begin_epoch(&mut tx).await?;
        Ok((tx, ()))
    };
    db.store.advance(NAME, "sql/0", 10, 20, gap).await.expect("moved");
    assert!(is_too_old(&db.store, end).await, "events may be missing behind it");
    write(&db.store, "sql/0", &bodies(20..23), "claim_granted").await;
    assert_eq!(all(&db.store, Filter::default(), 2).await, bodies(20..23));
    // Also if it begins anew in the same millisecond.
    let again = page(&db.store, From::End, Filter::default(), 5).await.next;
    db.store.begin_feed_epoch().await.expect("begun");
    assert!(is_too_old(&db.store, again).await);
    // All of it goes when nothing is to be kept.
    assert_eq!(db.store.prune_feed(Duration::ZERO).await.expect("pruned"), 13);
    let left = sql!("SELECT COUNT(*) FROM events");
    let row = db.behind.fetch_optional(left, &[]).await.expect("readable").expect("a row");
    assert_eq!(row.int(0).expect("a number"), 0);
}
