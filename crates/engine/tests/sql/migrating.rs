//! Tables of the first release are brought up to date with what is in them.

use std::sync::Arc;

use qiang_core::{Flow, Kind, Timestamp, decide};
use qiang_engine::Encoder;
use qiang_sql::{Dialect, Migrations, Step, on_every_database, sql};
use qiang_testkit::contract::sale;

use super::fixture::{World, grant, pool};

const fn first(sql: &'static str) -> Step {
    Step { version: 1, name: "engine", sql }
}

static FIRST: Migrations = Migrations {
    table: "engine_migrations",
    sqlite: &[first(include_str!("../../migrations/sqlite/0001_engine.sql"))],
    mysql: &[first(include_str!("../../migrations/mysql/0001_engine.sql"))],
    postgres: &[first(include_str!("../../migrations/postgres/0001_engine.sql"))],
};

async fn payments_of_the_first_release_are_kept(on: Dialect) {
    let world = World::new(on).await;
    let database = world.database().await;
    database.migrate(&FIRST).await.expect("migrates");
    let insert = sql!(
        "INSERT INTO engine_payments
            (payment_id, pool_id, place, order_number, claim, amount_cents, reason, at)
         VALUES ('P1', 7, 0, 1, NULL, 100, 'late', 5), ('P2', 7, 1, 2, 2, NULL, NULL, NULL)"
    );
    database.execute(insert, &[]).await.expect("written");
    let engine = world.engine().await;
    assert_eq!(pool().get(), 7);
    let refunds = engine.refunds(pool(), 0, 10).await.expect("they can be read");
    let [(0, refund)] = refunds.as_slice() else { panic!("{refunds:?}") };
    assert_eq!((refund.payment.as_str(), refund.amount.get()), ("P1", 100));
    // The same id in another pool.
    let insert = sql!(
        "INSERT INTO engine_payments (payment_id, pool_id, place, order_number, claim)
         VALUES ('P2', 8, 0, 1, 1)"
    );
    database.execute(insert, &[]).await.expect("it fits");
    let again = sql!(
        "INSERT INTO engine_payments (payment_id, pool_id, place, order_number, claim)
         VALUES ('P2', 8, 1, 2, 2)"
    );
    assert!(database.execute(again, &[]).await.expect_err("not twice in one").is_duplicate());
}

async fn pools_of_the_first_release_are_sales(on: Dialect) {
    let world = World::new(on).await;
    let database = world.database().await;
    database.migrate(&FIRST).await.expect("migrates");
    let insert = sql!(
        "INSERT INTO engine_pools (id, version, last_change, total, available, held, ordered, paid,
            claims, payments, refunds, next_place, fresh_portion, opened_at, changed_at, to_sweep)
         VALUES (7, 1, 'opened', 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 5, 5, 0)"
    );
    database.execute(insert, &[]).await.expect("written");
    let terms = Arc::new(sale(3, Flow::Instant));
    let mut opened = Encoder::default();
    opened.push(&decide::opening(pool(), &terms, Timestamp::from_millis(5)));
    let insert = sql!("INSERT INTO engine_terms (pool_id, opened) VALUES (7, ?)");
    database.execute(insert, &[opened.bytes().into()]).await.expect("written");
    let engine = world.engine().await;
    let sales = engine.pools(Kind::Sale, None, 10).await.expect("they can be listed");
    assert_eq!(sales.iter().map(|sale| sale.id).collect::<Vec<_>>(), [pool()]);
    assert_eq!(engine.pools(Kind::Packet, None, 10).await.expect("they can be listed"), []);
    grant(&engine, "ann").await;
}

on_every_database!(payments_of_the_first_release_are_kept, pools_of_the_first_release_are_sales,);
