//! What somebody else has changed becomes again what the engine says.

use qiang_core::{Event, Flow};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::RECORDS;

use crate::fixtures::{Db, Lcg, Records, T0, history, opened, pool_id, refund, terms};

on_every_database!(whatever_was_changed_is_as_it_was, a_settled_refund_stays_settled,);

async fn whatever_was_changed_is_as_it_was(on: Dialect) {
    let db = Db::new(on).await;
    let log = history(&mut Lcg(3), 20);
    db.store.project("embedded", 0, log.len() as u64, &log).await.expect("written");
    let before = Records::of(&db.store).await;
    for damage in [
        "UPDATE sales SET title = 'Nothing', units = 1, total = 1, version = 99, opens_at = 1,
            price_cents = 1, limit_per_user = 9, flow = 'instant', buckets = 7",
        "UPDATE claims SET version = 99, state = 'held', user_id = 'thief', quantity = 9",
        "UPDATE orders SET version = 99, status = 'PAID', user_id = 'thief', amount_cents = 0",
        "UPDATE order_items SET sku = 'x', quantity = 9",
        "UPDATE payments SET amount_cents = 0",
        "UPDATE refunds SET amount_cents = 0, number = 9",
        "DELETE FROM claims WHERE number = 2",
        "DELETE FROM orders WHERE number = 3",
        "DELETE FROM order_items WHERE number = 4",
    ] {
        db.tamper(damage, &[]).await;
    }
    assert_ne!(Records::of(&db.store).await, before);
    db.store.upsert(&log).await.expect("written");
    assert_ne!(Records::of(&db.store).await, before, "what claims to be newer stays");
    db.store.rewrite(&log).await.expect("mended");
    assert_eq!(Records::of(&db.store).await, before);
    assert_eq!(db.store.position(RECORDS, "embedded").await.expect("readable"), log.len() as u64);
}

async fn a_settled_refund_stays_settled(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Instant));
    let due = refund(qiang_core::ClaimId { pool: pool_id(1), number: 1 }, "p-1");
    let log = [Event::Pool(pool.clone()), Event::Refund(due.clone())];
    db.store.upsert(&log).await.expect("written");
    db.store.settle_refund(pool.id, &due.payment, T0).await.expect("settled");
    let before = Records::of(&db.store).await;
    db.store.rewrite(&log).await.expect("mended");
    assert_eq!(Records::of(&db.store).await, before);
}
