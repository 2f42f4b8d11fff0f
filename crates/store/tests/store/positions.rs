//! A consumer's position moves by compare-and-set, together with the rows, or not at all.

use qiang_core::{Event, Flow};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::Error;

use crate::fixtures::{Db, PAY_MS, Records, granted, opened, terms};

on_every_database!(
    a_position_moves_only_from_where_it_is,
    a_stale_projector_changes_nothing,
    a_consumer_that_never_began_is_at_zero,
    of_two_projectors_on_one_batch_one_wins,
    a_repair_moves_no_position,
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
