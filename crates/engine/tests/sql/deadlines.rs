//! Deadlines: never overtaken, however many there are and whosever clock it is.

use std::sync::Arc;

use qiang_core::{Event, Flow, Kind, Outcome, Refusal, ReleaseReason, State, Timestamp};
use qiang_engine::sql::{Engine, Options};
use qiang_engine::{Clock, ManualClock};
use qiang_sql::{Dialect, on_every_database};
use qiang_testkit::contract::{money, wish};

use super::asking::Asking as _;
use super::fixture::{World, events, grant, open_sale, options, pool, soon};

/// More than one transaction releases: whoever asks next finds all of them released.
async fn all_that_is_overdue_goes_first(on: Dialect) {
    const HOLDERS: u32 = 1_300;
    let world = World::new(on).await;
    let engine = world.engine().await;
    open_sale(&engine, HOLDERS, Flow::Hold { hold_ms: 100, pay_ms: 100 }).await;
    let asked: Vec<_> = (0..HOLDERS)
        .map(|buyer| {
            let (engine, wish) = (engine.clone(), wish(pool(), &format!("u{buyer}"), None));
            tokio::spawn(async move { engine.claim(wish).await })
        })
        .collect();
    for answer in asked {
        assert!(matches!(answer.await, Ok(Ok(Outcome::Done(_)))));
    }
    world.clock.advance_millis(99);
    let early = engine.claim(wish(pool(), "early", None)).await;
    assert_eq!(early, Ok(Outcome::Refused(Refusal::SoldOut)));
    world.clock.advance_millis(1);
    let claim = grant(&engine, "next").await;
    assert_eq!(claim.created_at, Timestamp::from_millis(100));
    let view = engine.pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!((view.available, view.tally.held), (HOLDERS - 1, 1));
    let claims = engine.claims(pool(), 0, HOLDERS).await.expect("they can be read");
    assert!(claims.iter().all(|claim| claim.reason == Some(ReleaseReason::HoldExpired)));
    let log = events(&engine).await;
    let released: Vec<_> = log.iter().filter_map(released).collect();
    assert_eq!(released, (1..=HOLDERS).collect::<Vec<_>>(), "in the order of their deadlines");
    assert!(matches!(log.last(), Some(Event::Claim(last)) if last.id == claim.id));
    // Everybody has their quota back.
    grant(&engine, "u0").await;
}

fn released(event: &Event) -> Option<u32> {
    match event {
        Event::Claim(claim) if claim.state == State::Released => Some(claim.id.number),
        _ => None,
    }
}

/// Looking is enough: what is shown is never overdue.
async fn a_look_sees_nothing_overdue(on: Dialect) {
    let world = World::new(on).await;
    let engine = world.engine().await;
    open_sale(&engine, 3, Flow::Order { pay_ms: 100 }).await;
    let claim = grant(&engine, "ann").await;
    world.clock.advance_millis(100);
    let seen = engine.claim_view(claim.id).await.expect("it can be read").expect("it is there");
    assert_eq!((seen.state, seen.reason), (State::Released, Some(ReleaseReason::PayExpired)));
    let claim = grant(&engine, "bob").await;
    world.clock.advance_millis(100);
    let view = engine.pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!((view.available, view.tally.ordered), (3, 0));
    let late = engine.pay(money(claim.id, "P1")).await.expect("an answer");
    assert!(matches!(late, Outcome::Done(qiang_core::Settlement::Regranted(_))), "{late:?}");
    grant(&engine, "cyd").await;
    world.clock.advance_millis(100);
    let pools = engine.pools(Kind::Sale, None, 10).await.expect("they can be read");
    assert_eq!((pools[0].available, pools[0].tally.paid), (2, 1));
}

/// An engine whose clock is behind decides at the time of the partition, not at its own.
async fn time_never_goes_back_between_engines(on: Dialect) {
    let world = World::new(on).await;
    let ahead = world.engine().await;
    let slow = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
    let behind = Engine::open(world.database().await, options(), Arc::clone(&slow));
    let behind = behind.await.expect("a database that is in use");
    world.clock.advance_millis(1_000);
    open_sale(&ahead, 3, Flow::Order { pay_ms: 100 }).await;
    assert_eq!(grant(&behind, "ann").await.created_at, Timestamp::from_millis(1_000));
    slow.advance_millis(2_000);
    assert_eq!(grant(&behind, "bob").await.created_at, Timestamp::from_millis(2_000));
    assert_eq!(grant(&ahead, "cyd").await.created_at, Timestamp::from_millis(2_000));
    assert_eq!(world.clock.now(), Timestamp::from_millis(1_000));
}

/// While nobody asks, the engine looks at its clock itself; what ran out while there was none is
/// released when the next one opens.
async fn nobody_has_to_ask(on: Dialect) {
    let world = World::new(on).await;
    let tick = std::time::Duration::from_millis(5);
    let engine = world.engine_with(Options { tick, ..options() }).await;
    open_sale(&engine, 3, Flow::Order { pay_ms: 100 }).await;
    grant(&engine, "ann").await;
    let mut durable = engine.durable();
    durable.mark_unchanged();
    world.clock.advance_millis(100);
    soon("a release", durable.changed()).await.expect("the engine lives");
    grant(&engine, "bob").await;
    engine.shut_down().await;
    world.clock.advance_millis(100);
    let next = world.engine().await;
    let released = events(&next).await.iter().filter_map(released).collect::<Vec<_>>();
    assert_eq!(released, [1, 2]);
}

on_every_database!(
    all_that_is_overdue_goes_first,
    a_look_sees_nothing_overdue,
    time_never_goes_back_between_engines,
    nobody_has_to_ask,
);
