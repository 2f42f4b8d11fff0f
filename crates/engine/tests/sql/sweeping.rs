//! What is left of a pool that was cleared: its refunds, its name, and nothing else; of one whose id was
//! made, nothing at all.

use std::sync::Arc;

use qiang_core::{
    Cents, Command, Flow, Kind, Outcome, PoolId, RefundReason, Refusal, ReleaseReason, Reply,
    Settlement, Supply, Terms,
};
use qiang_engine::sql::Engine;
use qiang_sql::{Database, Dialect, Statement, on_every_database};
use qiang_testkit::contract::{money, one_more, sale, wish};

use super::asking::Asking as _;
use super::fixture::{World, pool};

/// A pool with a paid claim, a released one, a refund and a restock, cleared.
async fn cleared(engine: &Engine) {
    cleared_pool(engine, pool()).await;
}

async fn cleared_pool(engine: &Engine, id: PoolId) {
    let pool = || id;
    let opened = engine.open_pool(pool(), Arc::new(sale(2, Flow::Order { pay_ms: 1_000 }))).await;
    assert!(matches!(opened, Ok(Outcome::Done(_))));
    engine.ask(one_more(pool(), "more")).await.expect("an answer");
    for (user, payment) in [("ann", "P1"), ("bob", "P2")] {
        let claim = match engine.claim(wish(pool(), user, Some("r"))).await {
            Ok(Outcome::Done(claim)) => claim,
            other => panic!("{other:?}"),
        };
        let paid = engine.pay(money(claim.id, payment)).await.expect("an answer");
        assert!(matches!(paid, Outcome::Done(Settlement::Paid(_))));
        let twice = engine.pay(money(claim.id, &format!("{payment} again"))).await;
        assert!(matches!(twice, Ok(Outcome::Done(Settlement::RefundDue(_)))));
    }
    let Ok(Outcome::Done(cyd)) = engine.claim(wish(pool(), "cyd", None)).await else { panic!() };
    engine.release(cyd.id, None, ReleaseReason::GaveUp).await.expect("an answer");
    engine.close(pool()).await.expect("an answer");
    assert!(matches!(engine.clear(pool()).await, Ok(Outcome::Done(view)) if view.cleared));
}

async fn rows(database: &Database, table: &str) -> i64 {
    let count = Statement::built(format!("SELECT COUNT(*) FROM {table}"));
    let row = database.fetch_optional(&count, &[]).await.expect("it can be counted");
    row.expect("a count").int(0).expect("a number")
}

/// Before the rows are deleted and after it, the answers are the same.
async fn nothing_shows_whether_it_was_swept(on: Dialect) {
    let world = World::new(on).await;
    let (engine, database) = (world.engine().await, world.database().await);
    cleared(&engine).await;
    assert_eq!(rows(&database, "engine_claims").await, 3);
    for round in ["not swept", "swept"] {
        let view = engine.pool(pool()).await.expect("it can be read").expect("it is there");
        assert_eq!((view.claims, view.payments, view.available), (0, 2, 0), "{round}");
        assert_eq!(engine.claims(pool(), 0, 10).await, Ok(Vec::new()), "{round}");
        let refunds = engine.refunds(pool(), 0, 10).await.expect("they can be read");
        let reasons: Vec<_> = refunds.iter().map(|(_, refund)| refund.reason).collect();
        assert_eq!(reasons, [RefundReason::AlreadyPaid; 2], "{round}");
        let (first, _) = refunds[0];
        assert_eq!(engine.refunds(pool(), first + 1, 10).await, Ok(refunds[1..].to_vec()));
        let again = engine.claim(wish(pool(), "ann", Some("r"))).await;
        assert_eq!(again, Ok(Outcome::Refused(Refusal::Cleared)), "{round}");
        let restocked = engine.ask(one_more(pool(), "more")).await.map(Reply::into_pool);
        assert!(matches!(restocked, Ok(Outcome::Replayed(_))), "{round}");
        engine.sweep().await.expect("it can");
    }
    for (table, left) in [
        ("engine_claims", 0),
        ("engine_buyers", 0),
        ("engine_payments", 2),
        ("engine_restocks", 1),
        ("engine_pools", 1),
    ] {
        assert_eq!(rows(&database, table).await, left, "{table}");
    }
}

/// A payment that paid in a pool that is gone is forgotten, whether or not its row is.
async fn a_payment_of_a_cleared_pool_is_forgotten(on: Dialect) {
    let world = World::new(on).await;
    let engine = world.engine().await;
    cleared(&engine).await;
    let other = PoolId::new(8).expect("positive");
    engine.open_pool(other, Arc::new(sale(5, Flow::Order { pay_ms: 1_000 }))).await.expect("new");
    let Ok(Outcome::Done(ann)) = engine.claim(wish(other, "ann", None)).await else { panic!() };
    let Ok(Outcome::Done(bob)) = engine.claim(wish(other, "bob", None)).await else { panic!() };
    let paid = engine.pay(money(ann.id, "P1")).await;
    assert!(matches!(paid, Ok(Outcome::Done(Settlement::Paid(_)))), "{paid:?}");
    // The records are asked first who was paid; what they do not know goes back.
    let order = qiang_core::ClaimId { pool: pool(), number: 1 };
    let back = engine.ask(Command::Refund(money(order, "P1"))).await.map(Reply::into_settlement);
    assert!(matches!(back, Ok(Outcome::Done(Settlement::RefundDue(_)))), "{back:?}");
    engine.sweep().await.expect("it can");
    let back = engine.ask(Command::Refund(money(order, "P1"))).await.map(Reply::into_settlement);
    assert!(matches!(back, Ok(Outcome::Replayed(Settlement::RefundDue(_)))), "{back:?}");
    let paid = engine.pay(money(bob.id, "P2")).await;
    assert!(matches!(paid, Ok(Outcome::Done(Settlement::Paid(_)))), "{paid:?}");
    let again = engine.pay(money(ann.id, "P1")).await;
    assert!(matches!(again, Ok(Outcome::Replayed(Settlement::Paid(_)))), "{again:?}");
    // Money that comes for the cleared pool goes back, once.
    for seen in [Outcome::Done, Outcome::Replayed] {
        let back = engine
            .ask(Command::Refund(money(order, "P3")))
            .await
            .map(Reply::into_settlement)
            .expect("an answer");
        let (Outcome::Done(due) | Outcome::Replayed(due)) = &back else { panic!("{back:?}") };
        assert_eq!(back, seen(due.clone()));
    }
}

/// Before the rows are deleted and after it, the pool is not there; then no row is either.
async fn nothing_is_left_of_a_pool_with_a_made_id(on: Dialect) {
    let world = World::new(on).await;
    let (engine, database) = (world.engine().await, world.database().await);
    let made = |id| PoolId::new(PoolId::FIRST_MADE + id).expect("it fits");
    for id in 1..=3 {
        cleared_pool(&engine, made(id)).await;
    }
    assert_eq!(rows(&database, "engine_pools").await, 3);
    let order = qiang_core::ClaimId { pool: made(1), number: 1 };
    for round in ["not swept", "swept"] {
        assert_eq!(engine.pool(made(1)).await, Ok(None), "{round}");
        assert_eq!(engine.pools(Kind::Sale, None, 10).await, Ok(Vec::new()), "{round}");
        assert_eq!(engine.refunds(made(1), 0, 10).await, Ok(Vec::new()), "{round}");
        let again = engine.claim(wish(made(1), "ann", Some("r"))).await;
        assert_eq!(again, Ok(Outcome::Refused(Refusal::NoSuchPool)), "{round}");
        let paid = engine.pay(money(order, "P1")).await;
        assert_eq!(paid, Ok(Outcome::Refused(Refusal::NoSuchClaim)), "{round}");
        engine.sweep().await.expect("it can");
    }
    for table in [
        "engine_claims",
        "engine_buyers",
        "engine_payments",
        "engine_restocks",
        "engine_terms",
        "engine_pools",
    ] {
        assert_eq!(rows(&database, table).await, 0, "{table}");
    }
}

/// Many rows go in steps.
async fn a_large_pool_is_swept_whole(on: Dialect) {
    let world = World::new(on).await;
    let (engine, database) = (world.engine().await, world.database().await);
    let cut: Box<[Cents]> = (1..=1_500).map(Cents::new).collect();
    let terms = Terms { supply: Supply::Portions(cut), ..sale(1, Flow::Instant) };
    engine.open_pool(pool(), Arc::new(terms)).await.expect("a new pool");
    let asked: Vec<_> = (0..1_500)
        .map(|buyer| {
            let (engine, wish) = (engine.clone(), wish(pool(), &format!("u{buyer}"), None));
            tokio::spawn(async move { engine.claim(wish).await })
        })
        .collect();
    for answer in asked {
        assert!(matches!(answer.await, Ok(Ok(Outcome::Done(_)))));
    }
    engine.close(pool()).await.expect("an answer");
    engine.clear(pool()).await.expect("an answer");
    for table in ["engine_claims", "engine_buyers", "engine_portions"] {
        assert_eq!(rows(&database, table).await, 1_500, "{table}");
    }
    engine.sweep().await.expect("it can");
    for table in ["engine_claims", "engine_buyers", "engine_portions"] {
        assert_eq!(rows(&database, table).await, 0, "{table}");
    }
}

on_every_database!(
    nothing_shows_whether_it_was_swept,
    a_payment_of_a_cleared_pool_is_forgotten,
    a_large_pool_is_swept_whole,
    nothing_is_left_of_a_pool_with_a_made_id,
);
