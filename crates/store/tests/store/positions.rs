//! A consumer's position moves by compare-and-set, together with the rows, or not at all.

use std::sync::Arc;

use qiang_core::{Event, Flow};
use qiang_sql::{Dialect, on_every_database, sql};
use qiang_store::{Begin, Error, RECORDS, Store, Transaction};
use tokio::task::JoinSet;

use crate::fixtures::{Db, Lcg, PAY_MS, Records, granted, history, opened, pool_id, terms};

on_every_database!(
    a_position_moves_only_from_where_it_is,
    a_stale_worker_changes_nothing,
    a_consumer_that_never_began_is_at_zero,
    of_two_workers_on_one_batch_one_wins,
    a_repair_moves_no_position,
    of_many_who_begin_at_once_one_wins,
    two_workers_on_one_log_write_it_once,
    logs_do_not_hinder_each_other,
    positions_are_listed_by_log,
    a_consumer_is_registered_once_and_retired,
    the_floor_is_the_least_position_of_all_consumers,
    a_position_moves_together_with_what_is_written,
    the_furthest_position_is_of_any_consumer,
);

async fn a_position_moves_only_from_where_it_is(on: Dialect) {
    let db = Db::new(on).await;
    assert_eq!(db.store.position(RECORDS, "embedded").await.expect("readable"), 0);
    db.store.project("embedded", 0, 10, &[]).await.expect("moved");
    db.store.project("embedded", 10, 10, &[]).await.expect("moved nowhere");
    db.store.project("embedded", 10, 25, &[]).await.expect("moved");
    assert_eq!(db.store.position(RECORDS, "embedded").await.expect("readable"), 25);
    assert_eq!(db.store.position(RECORDS, "sql/1").await.expect("readable"), 0);
    db.store.project("sql/1", 0, 3, &[]).await.expect("each log has its own");
    assert_eq!(db.store.position(RECORDS, "embedded").await.expect("readable"), 25);
}

async fn a_stale_worker_changes_nothing(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let log = [Event::Pool(pool.clone()), Event::Claim(granted(&pool, 1, "a"))];
    db.store.project("embedded", 0, 2, &log).await.expect("written");
    let before = Records::of(&db.store).await;

    let next = [Event::Claim(granted(&pool, 2, "b"))];
    for (after, through) in [(0, 3), (1, 3), (3, 4), (7, 7)] {
        let refused = db.store.project("embedded", after, through, &next).await;
        let Err(Error::PositionMoved { consumer, log, expected, found }) = refused else {
            panic!("moving from {after} was not refused: {refused:?}");
        };
        assert_eq!((&*consumer, &*log, expected, found), (RECORDS, "embedded", after, 2));
        assert_eq!(Records::of(&db.store).await, before);
        assert_eq!(db.store.position(RECORDS, "embedded").await.expect("readable"), 2);
    }
    db.store.project("embedded", 2, 3, &next).await.expect("the right place still works");
    assert_eq!(Records::of(&db.store).await.claims.len(), 2);
}

async fn a_consumer_that_never_began_is_at_zero(on: Dialect) {
    let db = Db::new(on).await;
    let refused = db.store.project("embedded", 5, 6, &[]).await;
    assert!(matches!(refused, Err(Error::PositionMoved { expected: 5, found: 0, .. })));
    assert_eq!(db.store.position(RECORDS, "embedded").await.expect("readable"), 0);
}

async fn of_two_workers_on_one_batch_one_wins(on: Dialect) {
    let db = Db::new(on).await;
    for round in 0..50_u64 {
        let workers = [0, 1].map(|_| {
            let store = db.store.clone();
            tokio::spawn(async move { store.project("embedded", round, round + 1, &[]).await })
        });
        let mut wins = 0;
        for worker in workers {
            match worker.await.expect("no panic") {
                Ok(()) => wins += 1,
                Err(Error::PositionMoved { .. }) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(wins, 1, "round {round}");
    }
}

async fn a_repair_moves_no_position(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Instant));
    db.store.upsert(&[Event::Pool(pool)]).await.expect("written");
    assert_eq!(db.store.position(RECORDS, "embedded").await.expect("readable"), 0);
}

/// There is no row yet that anybody could wait for.
async fn of_many_who_begin_at_once_one_wins(on: Dialect) {
    let db = Db::new(on).await;
    let nodes = [db.store.clone(), Store::open(&db.url).await.expect("opens")];
    for round in 0..10 {
        let log = format!("sql/{round}");
        let mut beginning = JoinSet::new();
        for through in 1..=6 {
            let (store, log) = (nodes[through % 2].clone(), log.clone());
            let through = through as u64;
            beginning.spawn(async move { (through, store.project(&log, 0, through, &[]).await) });
        }
        let mut won = Vec::new();
        let mut lost = Vec::new();
        for (through, outcome) in beginning.join_all().await {
            match outcome {
                Ok(()) => won.push(through),
                Err(Error::PositionMoved { expected: 0, found, .. }) => lost.push(found),
                Err(other) => panic!("{other:?}"),
            }
        }
        let position = db.store.position(RECORDS, &log).await.expect("readable");
        assert_eq!(won, [position], "round {round}");
        assert_eq!(lost, [position; 5], "everybody learns where it is");
    }
}

/// Both believe the log is theirs, as after a lease that ran out. Each batch is written by one.
async fn two_workers_on_one_log_write_it_once(on: Dialect) {
    let log: Arc<[Event]> = history(&mut Lcg(11), 60).into();
    let db = Db::new(on).await;
    let mut projecting = JoinSet::new();
    for node in 0..2_usize {
        let store = Store::open(&db.url).await.expect("opens");
        let log = Arc::clone(&log);
        projecting.spawn(async move {
            let (mut at, mut written) = (0, 0);
            while at < log.len() {
                let through = log.len().min(at + 7 + node);
                let batch = &log[at..through];
                match store.project("embedded", at as u64, through as u64, batch).await {
                    Ok(()) => {
                        written += batch.len();
                        at = through;
                    }
                    Err(Error::PositionMoved { found, .. }) => {
                        at = usize::try_from(found).expect("a place in the log");
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            written
        });
    }
    let written: usize = projecting.join_all().await.into_iter().sum();
    assert_eq!(written, log.len(), "every event once");
    let both = Records::of(&db.store).await;
    let alone = Db::new(on).await;
    alone.store.upsert(&log).await.expect("written");
    assert_eq!(both, Records::of(&alone.store).await);
}

/// Parts of one log, written at the same time into the same tables, with sales in common.
async fn logs_do_not_hinder_each_other(on: Dialect) {
    const PARTS: u32 = 4;
    let db = Db::new(on).await;
    let pools = [1, 2, 3].map(|id| opened(id, terms(Flow::Order { pay_ms: PAY_MS })));
    let mut projecting = JoinSet::new();
    for part in 0..PARTS {
        let (store, pools) = (db.store.clone(), pools.clone());
        projecting.spawn(async move {
            let log = format!("sql/{part}");
            for round in 0..8_u32 {
                let mut events: Vec<Event> = pools.iter().cloned().map(Event::Pool).collect();
                for (pool, n) in pools.iter().flat_map(|pool| (0..20).map(move |n| (pool, n))) {
                    let number = 1 + (round * 20 + n) * PARTS + part;
                    events.push(Event::Claim(granted(pool, number, "a")));
                }
                let (after, through) = (u64::from(round), u64::from(round) + 1);
                store.project(&log, after, through, &events).await.expect("written");
            }
        });
    }
    projecting.join_all().await;
    let positions = db.store.positions(RECORDS).await.expect("readable");
    assert_eq!(positions.len(), PARTS as usize);
    assert!(positions.iter().all(|(_, at)| *at == 8), "{positions:?}");
    assert_eq!(Records::of(&db.store).await.claims.len(), 3 * 8 * 20 * PARTS as usize);
}

async fn positions_are_listed_by_log(on: Dialect) {
    let db = Db::new(on).await;
    for (seq, log) in (1..).zip(["sql/2", "sql/10", "sql/1", "embedded"]) {
        db.store.project(log, 0, seq, &[]).await.expect("moved");
    }
    let listed = db.store.positions(RECORDS).await.expect("readable");
    let listed: Vec<_> = listed.into_iter().map(|(log, at)| format!("{log}={at}")).collect();
    assert_eq!(listed, ["embedded=4", "sql/1=3", "sql/10=2", "sql/2=1"]);
    assert_eq!(db.store.positions("relay").await.expect("readable"), []);
}

const NEW: Begin = Begin::WithTheLogs;

async fn move_to(store: &Store, consumer: &str, from: u64, to: u64) -> Result<(), Error> {
    store.advance(consumer, "embedded", from, to, async |tx| Ok((tx, ()))).await
}

async fn a_consumer_is_registered_once_and_retired(on: Dialect) {
    let db = Db::new(on).await;
    let names = async || db.store.consumers().await.expect("readable");
    assert_eq!(names().await, [RECORDS]);
    let refused = move_to(&db.store, "relay", 0, 1).await;
    assert!(matches!(refused, Err(Error::NotRegistered { consumer }) if consumer == "relay"));

    let mut registering = JoinSet::new();
    for _ in 0..4 {
        let store = db.store.clone();
        registering
            .spawn(async move { store.register_consumer("relay", NEW).await.expect("works") });
    }
    let new = registering.join_all().await.into_iter().filter(|new| *new).count();
    assert_eq!((new, names().await), (1, vec![RECORDS.to_owned(), "relay".to_owned()]));
    assert!(!db.store.register_consumer(RECORDS, NEW).await.expect("works"));
    move_to(&db.store, "relay", 0, 7).await.expect("moved");

    assert!(db.store.retire_consumer("relay").await.expect("retired"));
    assert!(!db.store.retire_consumer("relay").await.expect("there is none any more"));
    let refused = move_to(&db.store, "relay", 7, 8).await;
    assert!(matches!(refused, Err(Error::NotRegistered { .. })), "{refused:?}");
    assert!(db.store.register_consumer("relay", NEW).await.expect("registered anew"));
    assert_eq!(db.store.position("relay", "embedded").await.expect("readable"), 0);
}

async fn the_floor_is_the_least_position_of_all_consumers(on: Dialect) {
    let db = Db::new(on).await;
    let floor = async |log: &str| db.store.floor(log).await.expect("readable");
    assert_eq!(floor("embedded").await, Some(0), "the records never began");
    move_to(&db.store, RECORDS, 0, 10).await.expect("moved");
    assert_eq!((floor("embedded").await, floor("sql/1").await), (Some(10), Some(0)));
    db.store.register_consumer("relay", Begin::WithARebuild).await.expect("registered");
    assert_eq!(floor("embedded").await, Some(0));
    move_to(&db.store, "relay", 0, 4).await.expect("moved");
    assert_eq!(floor("embedded").await, Some(4));
    move_to(&db.store, "relay", 4, 12).await.expect("moved");
    assert_eq!(floor("embedded").await, Some(10));
    // A new one begins with what is sure not to be trimmed.
    db.store.register_consumer("webhooks", Begin::WithTheLogs).await.expect("registered");
    assert_eq!(db.store.positions("webhooks").await.expect("readable"), [("embedded".into(), 10)]);
    move_to(&db.store, RECORDS, 10, 20).await.expect("moved");
    assert_eq!(floor("embedded").await, Some(10));
    db.store.project("sql/1", 0, 5, &[]).await.expect("moved");
    db.store.register_consumer("later", Begin::WithTheLogs).await.expect("registered");
    assert_eq!(db.store.position("later", "sql/1").await.expect("readable"), 0, "one never began");
    for name in ["relay", "webhooks", "later"] {
        db.store.retire_consumer(name).await.expect("retired");
    }
    assert_eq!(floor("embedded").await, Some(20));
}

async fn a_position_moves_together_with_what_is_written(on: Dialect) {
    let db = Db::new(on).await;
    let insert = sql!("INSERT INTO settings (name, value) VALUES (?, '')");
    let note = |name: &'static str, fails: bool| {
        move |mut tx: Transaction| async move {
            tx.execute(insert, &[name.into()]).await.expect("written");
            if fails { Err(Error::UnknownSale { sale: pool_id(1) }) } else { Ok((tx, name)) }
        }
    };
    let store = &db.store;
    let written = store.advance(RECORDS, "embedded", 0, 3, note("a", false)).await;
    assert_eq!(written.expect("written"), "a");
    let failed = store.advance(RECORDS, "embedded", 3, 5, note("b", true)).await;
    assert!(matches!(failed, Err(Error::UnknownSale { .. })), "{failed:?}");
    let stale = store.advance(RECORDS, "embedded", 0, 5, note("c", false)).await;
    assert!(matches!(stale, Err(Error::PositionMoved { found: 3, .. })), "{stale:?}");
    let names: Vec<_> = store.settings("").await.expect("readable");
    assert_eq!(names, [("a".to_owned(), String::new())]);
    assert_eq!(store.position(RECORDS, "embedded").await.expect("readable"), 3);
}

async fn the_furthest_position_is_of_any_consumer(on: Dialect) {
    let db = Db::new(on).await;
    db.store.register_consumer("relay", NEW).await.expect("registered");
    move_to(&db.store, RECORDS, 0, 3).await.expect("moved");
    move_to(&db.store, "relay", 0, 5).await.expect("moved");
    db.store.project("sql/1", 0, 2, &[]).await.expect("moved");
    let furthest = db.store.furthest().await.expect("readable");
    assert_eq!(furthest, [("embedded".to_owned(), 5), ("sql/1".to_owned(), 2)]);
}
