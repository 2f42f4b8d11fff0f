//! A reply that is lost on the way is asked for again; what was asked takes effect once.

use std::sync::Arc;
use std::time::Duration;

use qiang_core::{ClaimId, Event, Flow, Outcome, PoolId, ReleaseReason, Reply, Settlement};
use qiang_engine::Error;
use qiang_engine::redis::Engine;
use qiang_testkit::Proxy;
use qiang_testkit::contract::{self, money, one_more, wish};
use qiang_testkit::servers::shared;

use crate::asking::Asking as _;
use crate::fixture::{LONG_MS, events, node, open, orders, pool, prefix};
use crate::servers::port;

async fn through_a_proxy(url: &str) -> (Proxy, Engine) {
    let proxy = Proxy::start(port(url)).expect("a proxy");
    let engine = node(&proxy.url(url), &prefix()).await;
    (proxy, engine)
}

/// A whole sale; before each step, `disturb` is called.
async fn sale(engine: &Engine, id: PoolId, disturb: impl Fn()) {
    let terms = contract::sale(3, Flow::Hold { hold_ms: LONG_MS, pay_ms: LONG_MS });
    disturb();
    let opened = engine.open_pool(id, Arc::new(terms)).await;
    assert!(matches!(opened, Ok(Outcome::Done(_))), "{opened:?}");
    let claim = |number| ClaimId { pool: id, number };
    for (number, request) in [(1, None), (2, Some("r"))] {
        disturb();
        let got = engine.claim(wish(id, &format!("u{number}"), request)).await;
        assert!(matches!(&got, Ok(Outcome::Done(c)) if c.id.number == number), "{got:?}");
    }
    disturb();
    let ordered = engine.order(claim(1), None).await;
    assert!(matches!(ordered, Ok(Outcome::Done(_))), "{ordered:?}");
    disturb();
    let paid = engine.pay(money(claim(1), &format!("pay{id}"))).await;
    assert!(matches!(paid, Ok(Outcome::Done(Settlement::Paid(_)))), "{paid:?}");
    disturb();
    let released = engine.release(claim(2), None, ReleaseReason::GaveUp).await;
    assert!(matches!(released, Ok(Outcome::Done(_))), "{released:?}");
    disturb();
    let restocked = engine.ask(one_more(id, "more")).await.map(Reply::into_pool);
    assert!(matches!(&restocked, Ok(Outcome::Done(view)) if view.total == 4), "{restocked:?}");
    disturb();
    let closed = engine.close(id).await;
    assert!(matches!(closed, Ok(Outcome::Done(_))), "{closed:?}");
    disturb();
    let cleared = engine.clear(id).await;
    assert!(matches!(cleared, Ok(Outcome::Done(_))), "{cleared:?}");
}

#[tokio::test]
async fn p06_a_swallowed_reply_is_asked_for_again_and_takes_effect_once() {
    let Some(url) = shared::redis() else { return };
    let (proxy, engine) = through_a_proxy(&url).await;
    // Before the first byte, within the reply, and within the reply behind it.
    for (number, bytes) in (1..).zip([0, 1, 30, 60, 90, 200]) {
        let id = pool(number);
        sale(&engine, id, || proxy.cut_after_reply_bytes(bytes)).await;
        proxy.deliver_replies();
        let events = events(&engine).await;
        let own = events.iter().filter(|event| event.pool() == id);
        assert_eq!(
            own.map(Event::name).collect::<Vec<_>>(),
            [
                "pool_opened",
                "claim_granted",
                "claim_granted",
                "claim_ordered",
                "claim_paid",
                "claim_released",
                "pool_restocked",
                "pool_closed",
                "pool_cleared",
            ],
            "cut after {bytes} bytes"
        );
    }
    assert!(proxy.counts().cut > 30, "{:?}", proxy.counts());
}

#[tokio::test]
async fn p06_a_reply_that_comes_too_late_is_asked_for_again() {
    let Some(url) = shared::redis() else { return };
    let (proxy, engine) = through_a_proxy(&url).await;
    let id = pool(1);
    open(&engine, id, orders(2)).await;
    let before = proxy.counts().connections;
    proxy.delay_replies(Duration::from_secs(60));
    let heal = async {
        let again = proxy.until(move |counts| counts.connections > before).await;
        again.expect("it connects again");
        proxy.delay_replies(Duration::ZERO);
        // What is delayed already stays so.
        proxy.cut();
    };
    let (claim, ()) = tokio::join!(engine.claim(wish(id, "ann", None)), heal);
    assert!(matches!(claim, Ok(Outcome::Done(_))), "{claim:?}");
    let view = engine.pool(id).await.expect("it can be read").expect("it is open");
    assert_eq!((view.claims, view.available), (1, 1));
}

#[tokio::test]
async fn p06_what_nobody_knows_is_said_and_can_be_found_out() {
    let Some(url) = shared::redis() else { return };
    let ((deaf, one), (closed, other)) = tokio::join!(through_a_proxy(&url), through_a_proxy(&url));
    let id = pool(1);
    for engine in [&one, &other] {
        open(engine, id, orders(2)).await;
        let first = engine.claim(wish(id, "first", None)).await;
        assert!(matches!(first, Ok(Outcome::Done(_))), "{first:?}");
    }
    deaf.swallow_replies();
    closed.refuse().expect("it refuses");
    closed.cut();
    other.drop_connections();
    let ask = |engine: Engine| async move { engine.claim(wish(id, "ann", Some("r"))).await };
    let (unknown, nothing) = tokio::join!(ask(one.clone()), ask(other.clone()));
    assert_eq!(unknown, Err(Error::OutcomeUnknown));
    assert_eq!(nothing, Err(Error::Unavailable), "nothing was sent, so nothing happened");
    deaf.heal().expect("it behaves");
    closed.heal().expect("it behaves");
    let again = ask(one.clone()).await;
    assert!(matches!(&again, Ok(Outcome::Replayed(c)) if c.id.number == 2), "{again:?}");
    let first = ask(other.clone()).await;
    assert!(matches!(&first, Ok(Outcome::Done(c)) if c.id.number == 2), "{first:?}");
}
