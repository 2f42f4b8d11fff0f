//! A row that cannot be read is an error that names it, never a panic and never a guess.

use qiang_core::{Event, Flow};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{Error, RECORDS, RefundStatus};

use crate::fixtures::{
    Db, PAY_MS, claim_id, granted, opened, paid, payment, pool_id, refund, terms, user,
};

on_every_database!(
    damaged_claims_are_named,
    damaged_sales_are_named,
    damaged_orders_payments_refunds_and_positions_are_named,
    a_settled_refund_without_a_date_is_damaged,
);

async fn filled(on: Dialect) -> Db {
    let db = Db::new(on).await;
    fill(&db).await;
    db
}

async fn fill(db: &Db) {
    db.clear().await;
    let pool = opened(7, terms(Flow::Order { pay_ms: PAY_MS }));
    let claim = paid(&granted(&pool, 1, "a"), "p-1");
    let due = refund(claim.id, "p-2");
    let events = [Event::Pool(pool), Event::Claim(claim), Event::Refund(due)];
    db.store.project("embedded", 0, 3, &events).await.expect("written");
}

fn check<T: std::fmt::Debug>(read: Result<T, Error>, row: (&str, &str, &str)) {
    match read {
        Err(Error::Corrupt { table, key, column, .. }) => {
            assert_eq!((table, key.as_str(), column.as_str()), row);
        }
        other => panic!("{row:?} was read as {other:?}"),
    }
}

async fn damaged_claims_are_named(on: Dialect) {
    let id = claim_id(pool_id(7), 1);
    let mut damages = vec![
        ("UPDATE claims SET state = 'lost'", "state"),
        ("UPDATE claims SET reason = 'whim'", "reason"),
        ("UPDATE claims SET quantity = -1", "quantity"),
        ("UPDATE claims SET version = 4294967296", "version"),
        ("UPDATE claims SET user_id = ''", "user_id"),
        ("UPDATE claims SET payment_id = '\n'", "payment_id"),
    ];
    // Only SQLite puts anything anywhere.
    if on == Dialect::Sqlite {
        damages.push(("UPDATE claims SET created_at = 'yesterday'", "created_at"));
        damages.push(("UPDATE claims SET pay_by = x'00'", "pay_by"));
    }
    let db = Db::new(on).await;
    for (damage, column) in damages {
        fill(&db).await;
        db.tamper(damage, &[]).await;
        check(db.store.claim(id).await, ("claims", "7-1", column));
        check(db.store.claims_page(id.pool, 0, 10).await, ("claims", "7-1", column));
    }
}

async fn damaged_sales_are_named(on: Dialect) {
    let db = Db::new(on).await;
    for (damage, column) in [
        ("UPDATE sales SET state = 'ajar'", "state"),
        ("UPDATE sales SET units = NULL", "portions"),
        ("UPDATE sales SET units = NULL, portions = '[1,'", "portions"),
        ("UPDATE sales SET price_steps = '{}'", "price_steps"),
        ("UPDATE sales SET limit_by = 'mood'", "limit_by"),
        ("UPDATE sales SET flow = 'ebb'", "flow"),
        ("UPDATE sales SET flow = 'order', pay_ms = NULL", "flow"),
        ("UPDATE sales SET flow = 'hold'", "hold_ms"),
        ("UPDATE sales SET reclaim = 'maybe'", "reclaim"),
    ] {
        fill(&db).await;
        db.tamper(damage, &[]).await;
        check(db.store.sale(pool_id(7)).await, ("sales", "7", column));
        check(db.store.sales_page(None, 10).await, ("sales", "7", column));
    }
}

async fn damaged_orders_payments_refunds_and_positions_are_named(on: Dialect) {
    let db = filled(on).await;
    for damage in [
        "UPDATE orders SET status = 'SHIPPED'",
        "UPDATE payments SET number = -1",
        "UPDATE refunds SET reason = 'why not'",
        "UPDATE consumer_positions SET seq = -3",
    ] {
        db.tamper(damage, &[]).await;
    }
    let pool = pool_id(7);
    check(db.store.order(claim_id(pool, 1)).await, ("orders", "7-1", "status"));
    check(db.store.orders_of(&user("a"), None, 1).await, ("orders", "7-1", "status"));
    check(db.store.payment(pool, &payment("p-1")).await, ("payments", "7-p-1", "number"));
    check(db.store.refund(pool, &payment("p-2")).await, ("refunds", "7-p-2", "reason"));
    check(db.store.refunds(RefundStatus::Due, None, 1).await, ("refunds", "7-p-2", "reason"));
    check(
        db.store.position(RECORDS, "embedded").await,
        ("consumer_positions", "records-embedded", "seq"),
    );
}

async fn a_settled_refund_without_a_date_is_damaged(on: Dialect) {
    let db = filled(on).await;
    db.tamper("UPDATE refunds SET status = 'settled'", &[]).await;
    let pool = pool_id(7);
    check(db.store.refund(pool, &payment("p-2")).await, ("refunds", "7-p-2", "settled_at"));
}
