//! What runs out at T is released at T, without anybody asking; after downtime, at once.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use qiang_core::{Claim, Event, Flow, Outcome, ReleaseReason, State};
use qiang_engine::SystemClock;
use qiang_engine::embedded::Engine;
use qiang_testkit::contract::{money, wish};

use super::asking::Asking as _;
use super::fixture::{claim_id, events, grant, open_at, open_sale, options, pool, soon};

/// Follows the log until it holds `count` events, asking the writer nothing.
async fn follow(engine: &Engine, count: u64) -> Vec<Event> {
    let mut durable = engine.durable();
    soon("the deadline", durable.wait_for(|seq| *seq >= count)).await.expect("the writer runs");
    events(&mut engine.log_reader().expect("the journal is there"), 0)
}

fn released(event: &Event) -> &Claim {
    match event {
        Event::Claim(claim) if claim.state == State::Released => claim,
        other => panic!("{other:?} is no release"),
    }
}

#[tokio::test]
async fn a_hold_runs_out_by_itself_and_not_before_its_time() {
    for hold_ms in [1, 20, 50] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let engine = Engine::open(options(folder.path()), SystemClock).expect("it is fine");
        open_sale(&engine, 5, Flow::Hold { hold_ms, pay_ms: 60_000 }).await;
        let claim = grant(&engine, "ann").await;
        let log = follow(&engine, 3).await;
        let gone = released(&log[2]);
        assert_eq!((gone.id, gone.reason), (claim.id, Some(ReleaseReason::HoldExpired)));
        assert!(gone.changed_at >= claim.hold_until.expect("it is held"), "not before its time");
        assert_eq!(engine.stats().expired.load(Ordering::Relaxed), 1);
        engine.shut_down();
    }
}

#[tokio::test]
async fn deadlines_of_many_claims_come_one_after_the_other() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engine = Engine::open(options(folder.path()), SystemClock).expect("it is fine");
    open_sale(&engine, 50, Flow::Order { pay_ms: 10 }).await;
    let mut numbers = BTreeSet::new();
    for user in 0..30 {
        numbers.insert(grant(&engine, &format!("user{user}")).await.id.number);
    }
    let log = follow(&engine, 1 + 30 + 30).await;
    let gone = log.iter().filter_map(|event| match event {
        Event::Claim(claim) if claim.state == State::Released => Some(claim),
        _ => None,
    });
    for claim in gone {
        assert!(numbers.remove(&claim.id.number), "each once");
        assert!(claim.changed_at >= claim.pay_by.expect("it was ordered"));
        assert_eq!(claim.reason, Some(ReleaseReason::PayExpired));
    }
    assert!(numbers.is_empty());
}

#[tokio::test]
async fn a_later_claim_with_an_earlier_deadline_is_not_kept_waiting() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engine = Engine::open(options(folder.path()), SystemClock).expect("it is fine");
    open_sale(&engine, 5, Flow::Hold { hold_ms: 3_600_000, pay_ms: 5 }).await;
    grant(&engine, "ann").await;
    grant(&engine, "bob").await;
    engine.order(claim_id(2), None).await.expect("it runs");
    let log = follow(&engine, 5).await;
    assert_eq!(released(&log[4]).id, claim_id(2));
}

#[tokio::test]
async fn what_ran_out_during_downtime_is_released_on_opening() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (engine, _) = open_at(folder.path(), 0);
    open_sale(&engine, 5, Flow::Hold { hold_ms: 50, pay_ms: 100 }).await;
    for user in ["ann", "bob", "cyd"] {
        grant(&engine, user).await;
    }
    engine.order(claim_id(2), None).await.expect("it runs");
    engine.order(claim_id(3), None).await.expect("it runs");
    engine.pay(money(claim_id(3), "P1")).await.expect("it runs");
    engine.shut_down();
    // A millisecond before the deadline nothing happens; at it, before anybody can ask.
    let (early, _) = open_at(folder.path(), 49);
    assert_eq!(*early.durable().borrow(), 7);
    early.shut_down();
    let (late, _) = open_at(folder.path(), 100);
    assert_eq!(*late.durable().borrow(), 9, "both are released and durable");
    let log = events(&mut late.log_reader().expect("it is there"), 7);
    let gone: Vec<_> =
        log.iter().map(|event| (released(event).id.number, released(event).reason)).collect();
    assert_eq!(gone, [(1, Some(ReleaseReason::HoldExpired)), (2, Some(ReleaseReason::PayExpired))]);
    let again = late.claim(wish(pool(), "ann", None)).await;
    assert!(matches!(again, Ok(Outcome::Done(_))), "units and quota are back");
}

#[tokio::test]
async fn a_clock_set_back_brings_nothing_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (engine, clock) = open_at(folder.path(), 1_000);
    open_sale(&engine, 5, Flow::Hold { hold_ms: 50, pay_ms: 100 }).await;
    clock.advance_millis(500);
    let later = grant(&engine, "ann").await;
    assert_eq!(later.created_at.millis(), 1_500);
    clock.advance_millis(-1_400);
    let claim = grant(&engine, "bob").await;
    assert_eq!(claim.created_at.millis(), 1_500, "time never goes back");
    engine.shut_down();
    let (again, _) = open_at(folder.path(), 200);
    let claim = grant(&again, "cyd").await;
    assert_eq!(claim.created_at.millis(), 1_500, "not even over a restart");
    assert_eq!(claim.hold_until.map(|at| at.millis()), Some(1_550));
}
