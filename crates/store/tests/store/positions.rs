//! A consumer's position moves by compare-and-set, together with the rows, or not at all.

use std::sync::Arc;

use qiang_core::{Event, Flow};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{Error, Store};
use tokio::task::JoinSet;

use crate::fixtures::{Db, Lcg, PAY_MS, Records, granted, history, opened, terms};

on_every_database!(
    a_position_moves_only_from_where_it_is,
    a_stale_projector_changes_nothing,
    a_consumer_that_never_began_is_at_zero,
    of_two_projectors_on_one_batch_one_wins,
    a_repair_moves_no_position,
    of_many_who_begin_at_once_one_wins,
    two_projectors_on_one_log_write_it_once,
    consumers_do_not_hinder_each_other,
    positions_are_listed_by_prefix,
);

async fn a_position_moves_only_from_where_it_is(on: Dialect) {
    let db = Db::new(on).await;
    assert_eq!(db.store.position("records").await.expect("readable"), 0);
    db.store.project("records", 0, 10, &[]).await.expect("moved");
    db.store.project("records", 10, 10, &[]).await.expect("moved nowhere");
    db.store.project("records", 10, 25, &[]).await.expect("moved");
    assert_eq!(db.store.position("records").await.expect("readable"), 25);
    assert_eq!(db.store.position("webhooks").await.expect("readable"), 0);
    db.store.project("webhooks", 0, 3, &[]).await.expect("each consumer has its own");
    assert_eq!(db.store.position("records").await.expect("readable"), 25);
}

async fn a_stale_projector_changes_nothing(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let log = [Event::Pool(pool.clone()), Event::Claim(granted(&pool, 1, "a"))];
    db.store.project("records", 0, 2, &log).await.expect("written");
    let before = Records::of(&db.store).await;

    let next = [Event::Claim(granted(&pool, 2, "b"))];
    for (after, through) in [(0, 3), (1, 3), (3, 4), (7, 7)] {
        let refused = db.store.project("records", after, through, &next).await;
        let Err(Error::PositionMoved { consumer, expected, found }) = refused else {
            panic!("moving from {after} was not refused: {refused:?}");
        };
        assert_eq!((consumer.as_str(), expected, found), ("records", after, 2));
        assert_eq!(Records::of(&db.store).await, before);
        assert_eq!(db.store.position("records").await.expect("readable"), 2);
    }
    db.store.project("records", 2, 3, &next).await.expect("the right place still works");
    assert_eq!(Records::of(&db.store).await.claims.len(), 2);
}

async fn a_consumer_that_never_began_is_at_zero(on: Dialect) {
    let db = Db::new(on).await;
    let refused = db.store.project("records", 5, 6, &[]).await;
    assert!(matches!(refused, Err(Error::PositionMoved { expected: 5, found: 0, .. })));
    assert_eq!(db.store.position("records").await.expect("readable"), 0);
}

async fn of_two_projectors_on_one_batch_one_wins(on: Dialect) {
    let db = Db::new(on).await;
    for round in 0..50_u64 {
        let projectors = [0, 1].map(|_| {
            let store = db.store.clone();
            tokio::spawn(async move { store.project("records", round, round + 1, &[]).await })
        });
        let mut wins = 0;
        for projector in projectors {
            match projector.await.expect("no panic") {
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
    assert_eq!(db.store.position("records").await.expect("readable"), 0);
}

/// There is no row yet that anybody could wait for.
async fn of_many_who_begin_at_once_one_wins(on: Dialect) {
    let db = Db::new(on).await;
    let nodes = [db.store.clone(), Store::open(&db.url).await.expect("opens")];
    for round in 0..10 {
        let consumer = format!("records/{round}");
        let mut beginning = JoinSet::new();
        for through in 1..=6 {
            let (store, consumer) = (nodes[through % 2].clone(), consumer.clone());
            let through = through as u64;
            beginning
                .spawn(async move { (through, store.project(&consumer, 0, through, &[]).await) });
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
        let position = db.store.position(&consumer).await.expect("readable");
        assert_eq!(won, [position], "round {round}");
        assert_eq!(lost, [position; 5], "everybody learns where it is");
    }
}

/// Both believe the log is theirs, as after a lease that ran out. Each batch is written by one.
async fn two_projectors_on_one_log_write_it_once(on: Dialect) {
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
                match store.project("records", at as u64, through as u64, batch).await {
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
async fn consumers_do_not_hinder_each_other(on: Dialect) {
    const PARTS: u32 = 4;
    let db = Db::new(on).await;
    let pools = [1, 2, 3].map(|id| opened(id, terms(Flow::Order { pay_ms: PAY_MS })));
    let mut projecting = JoinSet::new();
    for part in 0..PARTS {
        let (store, pools) = (db.store.clone(), pools.clone());
        projecting.spawn(async move {
            let consumer = format!("records/{part}");
            for round in 0..8_u32 {
                let mut events: Vec<Event> = pools.iter().cloned().map(Event::Pool).collect();
                for (pool, n) in pools.iter().flat_map(|pool| (0..20).map(move |n| (pool, n))) {
                    let number = 1 + (round * 20 + n) * PARTS + part;
                    events.push(Event::Claim(granted(pool, number, "a")));
                }
                let (after, through) = (u64::from(round), u64::from(round) + 1);
                store.project(&consumer, after, through, &events).await.expect("written");
            }
        });
    }
    projecting.join_all().await;
    let positions = db.store.positions("records/").await.expect("readable");
    assert_eq!(positions.len(), PARTS as usize);
    assert!(positions.iter().all(|(_, at)| *at == 8), "{positions:?}");
    assert_eq!(Records::of(&db.store).await.claims.len(), 3 * 8 * 20 * PARTS as usize);
}

async fn positions_are_listed_by_prefix(on: Dialect) {
    let db = Db::new(on).await;
    for (seq, consumer) in (1..).zip(["b/2", "b/10", "b/1", "a/1", "B/1", "b%", "b_1", "中/1"]) {
        db.store.project(consumer, 0, seq, &[]).await.expect("moved");
    }
    let listed = async |prefix: &str| {
        let listed = db.store.positions(prefix).await.expect("readable");
        listed.into_iter().map(|(consumer, at)| format!("{consumer}={at}")).collect::<Vec<_>>()
    };
    assert_eq!(listed("b/").await, ["b/1=3", "b/10=2", "b/2=1"]);
    assert_eq!(listed("b%").await, ["b%=6"]);
    assert_eq!(listed("中").await, ["中/1=8"]);
    assert_eq!(listed("c").await, [""; 0]);
    assert_eq!(listed("").await.len(), 8);
}
