//! A refund is sent once: of all who say they have sent it, one is told so.

use qiang_core::{Event, Flow};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{RefundStatus, SettleOutcome};

use crate::fixtures::{Db, PAY_MS, T0, claim_id, opened, payment, refund, terms};

on_every_database!(
    the_second_settlement_learns_of_the_first,
    a_refund_nobody_owes_cannot_be_settled,
    of_many_at_once_one_settles,
);

async fn the_second_settlement_learns_of_the_first(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let due = refund(claim_id(pool.id, 1), "p-1");
    let events = [Event::Pool(pool.clone()), Event::Refund(due.clone())];
    db.store.upsert(&events).await.expect("written");

    let (first, second) = (T0.plus_millis(1), T0.plus_millis(2));
    let outcome = db.store.settle_refund(pool.id, &due.payment, first).await.expect("works");
    assert_eq!(outcome, SettleOutcome::Settled);
    let outcome = db.store.settle_refund(pool.id, &due.payment, second).await.expect("works");
    assert_eq!(outcome, SettleOutcome::AlreadySettled { at: first });

    let record = db.store.refund(pool.id, &due.payment).await.expect("readable").expect("there");
    assert_eq!((record.status(), record.settled_at), (RefundStatus::Settled, Some(first)));
    assert_eq!(record.refund, due);
    let still_due = db.store.refunds(RefundStatus::Due, None, 10).await.expect("readable");
    assert_eq!(still_due, []);
    let settled = db.store.refunds(RefundStatus::Settled, None, 10).await.expect("readable");
    assert_eq!(settled, [record]);
}

async fn a_refund_nobody_owes_cannot_be_settled(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let due = refund(claim_id(pool.id, 1), "p-1");
    db.store.upsert(&[Event::Pool(pool.clone()), Event::Refund(due)]).await.expect("written");
    let other_pool = opened(2, terms(Flow::Instant)).id;
    for (pool, id) in [(pool.id, "p-2"), (other_pool, "p-1")] {
        let outcome = db.store.settle_refund(pool, &payment(id), T0).await.expect("works");
        assert_eq!(outcome, SettleOutcome::NoSuchRefund);
    }
}

async fn of_many_at_once_one_settles(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let due = refund(claim_id(pool.id, 1), "p-1");
    db.store.upsert(&[Event::Pool(pool.clone()), Event::Refund(due)]).await.expect("written");
    let tries: Vec<_> = (0..16)
        .map(|ms| {
            let (store, pool) = (db.store.clone(), pool.id);
            tokio::spawn(async move {
                store.settle_refund(pool, &payment("p-1"), T0.plus_millis(ms)).await
            })
        })
        .collect();
    let mut settled = 0;
    for outcome in tries {
        let outcome = outcome.await.expect("no panic").expect("works");
        settled += u32::from(outcome == SettleOutcome::Settled);
    }
    assert_eq!(settled, 1);
}
