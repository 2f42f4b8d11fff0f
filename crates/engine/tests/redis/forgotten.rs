//! Of pools whose ids were made nothing stays in Redis once they are cleared, however many there were.

use std::sync::Arc;

use qiang_core::{Flow, Kind, Outcome, PoolId, Refusal, ReleaseReason};
use qiang_engine::redis::Engine;
use qiang_testkit::contract::{money, one_more, packet_of, sale, wish};
use qiang_testkit::servers::shared;

use crate::asking::Asking as _;
use crate::fixture::{granted, node, open, prefix};
use crate::servers::command;

fn made(id: u64) -> PoolId {
    PoolId::new(PoolId::FIRST_MADE + id).expect("it fits")
}

/// A sale with a paid claim, a released one, a refund and a restock, and a packet; both cleared.
async fn lives(engine: &Engine, id: u64) {
    let (goods, packet) = (made(2 * id), made(2 * id + 1));
    open(engine, goods, sale(2, Flow::Hold { hold_ms: 60_000, pay_ms: 60_000 })).await;
    engine.ask(one_more(goods, "more")).await.expect("an answer");
    let ann = granted(engine, wish(goods, "ann", Some("r"))).await.id;
    let bob = granted(engine, wish(goods, "bob", None)).await.id;
    engine.order(ann, None).await.expect("an answer");
    for payment in ["P1", "P2"] {
        engine.pay(money(ann, payment)).await.expect("an answer");
    }
    engine.release(bob, None, ReleaseReason::GaveUp).await.expect("an answer");
    open(engine, packet, packet_of(&[3, 2, 1])).await;
    let grab = qiang_core::ClaimRequest { kind: Kind::Packet, ..wish(packet, "ann", None) };
    granted(engine, grab).await;
    for pool in [goods, packet] {
        engine.close(pool).await.expect("an answer");
        let cleared = engine.clear(pool).await;
        assert!(matches!(&cleared, Ok(Outcome::Done(view)) if view.cleared), "{cleared:?}");
        assert_eq!(engine.pool(pool).await, Ok(None));
        assert_eq!(engine.refunds(pool, 0, 10).await, Ok(Vec::new()));
        assert_eq!(engine.pool_state(pool).await, Ok(None));
    }
}

/// How many keys, and how many members in the lists that the pools of a partition share.
fn kept(url: &str, prefix: &str) -> String {
    let script = "local keys, members = redis.call('KEYS', ARGV[1]), 0 \
                  for _, key in ipairs(keys) do \
                  if redis.call('TYPE', key).ok == 'zset' then \
                  members = members + redis.call('ZCARD', key) end end \
                  return #keys .. ' keys, ' .. members .. ' members'";
    command(url, &["EVAL", script, "0", &format!("{prefix}:*")])
}

#[tokio::test]
async fn keys_do_not_become_more_with_pools_that_were() {
    let Some(url) = shared::redis() else { return };
    let prefix = prefix();
    let engine = node(&url, &prefix).await;
    for id in 0..40 {
        lives(&engine, id).await;
    }
    let before = kept(&url, &prefix);
    for id in 40..120 {
        lives(&engine, id).await;
    }
    assert_eq!(kept(&url, &prefix), before);
    for kind in Kind::ALL {
        assert_eq!(engine.pools(kind, None, 10).await, Ok(Vec::new()));
    }
}

/// Another node has the terms of the pool in memory, and finds that it is gone all the same.
#[tokio::test]
async fn a_node_that_knew_the_pool_hears_that_it_is_gone() {
    let Some(url) = shared::redis() else { return };
    let prefix = prefix();
    let (engine, other) = (node(&url, &prefix).await, node(&url, &prefix).await);
    let pool = made(1);
    open(&engine, pool, sale(2, Flow::Instant)).await;
    let ann = granted(&other, wish(pool, "ann", None)).await.id;
    engine.close(pool).await.expect("an answer");
    engine.clear(pool).await.expect("an answer");
    for engine in [&engine, &other] {
        let again = engine.claim(wish(pool, "bob", None)).await;
        assert_eq!(again, Ok(Outcome::Refused(Refusal::NoSuchPool)));
        let order = engine.order(ann, None).await;
        assert_eq!(order, Ok(Outcome::Refused(Refusal::NoSuchClaim)));
        let paid = engine.pay(money(ann, "P1")).await;
        assert_eq!(paid, Ok(Outcome::Refused(Refusal::NoSuchClaim)));
        assert_eq!(engine.claim_view(ann).await, Ok(None));
        assert_eq!(engine.claims(pool, 0, 10).await, Ok(Vec::new()));
        let again = engine.clear(pool).await;
        assert_eq!(again, Ok(Outcome::Refused(Refusal::NoSuchPool)));
    }
}

/// A pool with buckets is cleared part by part, and keeps its tombstones.
#[tokio::test]
async fn a_pool_with_buckets_keeps_its_tombstone() {
    let Some(url) = shared::redis() else { return };
    let prefix = prefix();
    let engine = node(&url, &prefix).await;
    let (spread, plain) = (made(1), made(2));
    let terms = qiang_core::Terms { buckets: 3, ..sale(9, Flow::Instant) };
    engine.open_pool(spread, Arc::new(terms)).await.expect("an answer");
    open(&engine, plain, sale(9, Flow::Instant)).await;
    // One that an older version has opened is found, and noted.
    engine.finish_transfers().await.expect("they can be finished");
    for pool in [spread, plain] {
        granted(&engine, wish(pool, "ann", None)).await;
        engine.close(pool).await.expect("an answer");
        for _ in 0..2 {
            engine.clear(pool).await.expect("an answer");
        }
    }
    engine.finish_transfers().await.expect("they can be finished");
    let claim = engine.claim(wish(spread, "bob", None)).await;
    assert_eq!(claim, Ok(Outcome::Refused(Refusal::Cleared)));
    let claim = engine.claim(wish(plain, "bob", None)).await;
    assert_eq!(claim, Ok(Outcome::Refused(Refusal::NoSuchPool)));
}
