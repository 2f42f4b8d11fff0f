//! What a node remembers of a sale with nothing left: a crowd does not reach Redis, and nobody is
//! told anything that Redis would not say.

use std::sync::Arc;
use std::time::Duration;

use qiang_core::{Claim, Outcome, PoolId, Refusal, ReleaseReason, Timestamp};
use qiang_engine::ManualClock;
use qiang_engine::redis::{Engine, Time};
use qiang_testkit::contract;
use qiang_testkit::servers::Redis;
use qiang_testkit::servers::redis::Durability;

use crate::asking::Asking as _;
use crate::fixture::{
    EPOCH, engine_at, granted, node, number, open, orders, pool, prefix, refused, wish,
};
use crate::servers::{calls, own};

/// How long anything here may take; far more than it does.
const BOUND: Duration = Duration::from_secs(10);
const STOCK: u32 = 20;

fn scripts(server: &Redis) -> u64 {
    calls(server).get("evalsha").copied().unwrap_or(0)
}

/// Sells everything, on one node.
async fn sold_out(engine: &Engine, id: PoolId, buckets: u16) -> Vec<Claim> {
    let mut terms = orders(STOCK);
    terms.buckets = buckets;
    open(engine, id, terms).await;
    let mut claims = Vec::new();
    for user in 0..STOCK {
        claims.push(granted(engine, contract::wish(id, &format!("buyer{user}"), Some("r"))).await);
    }
    claims
}

async fn crowd(engine: &Engine, id: PoolId, people: u32) {
    for _ in 0..people {
        let late = wish(id, &format!("late{}", number()));
        assert_eq!(refused(engine, late).await, Refusal::SoldOut);
    }
}

/// Until most of a crowd is answered from memory.
async fn remembered(server: &Redis, engine: &Engine, id: PoolId) {
    let warm = async {
        loop {
            let before = scripts(server);
            crowd(engine, id, 300).await;
            if scripts(server) - before < 100 {
                return;
            }
        }
    };
    tokio::time::timeout(BOUND, warm).await.expect("it is remembered");
}

/// Until a unit that came back is sold on this node.
async fn sells_again(engine: &Engine, id: PoolId) {
    let sold = async {
        loop {
            let next = wish(id, &format!("next{}", number()));
            match engine.claim(next).await.expect("nothing fails here") {
                Outcome::Done(_) => return,
                Outcome::Refused(Refusal::SoldOut) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(BOUND, sold).await.expect("it is sold again");
}

async fn a_crowd_too_late(buckets: u16) {
    let Some(server) = own(Durability::None) else { return };
    let (url, prefix) = (server.url(), prefix());
    let (one, other) = (node(&url, &prefix).await, node(&url, &prefix).await);
    let id = pool(1);
    let claims = sold_out(&one, id, buckets).await;
    remembered(&server, &one, id).await;
    remembered(&server, &other, id).await;
    for (user, claim) in claims.iter().enumerate() {
        // Whoever has one is told so, and a repeated request gets its claim.
        let name = format!("buyer{user}");
        crowd(&other, id, 5).await;
        let twice = refused(&other, wish(id, &name)).await;
        assert_eq!(twice, Refusal::AlreadyClaimed { claim: claim.id });
        let again = other.claim(contract::wish(id, &name, Some("r"))).await;
        assert_eq!(again, Ok(Outcome::Replayed(claim.clone())));
    }
    for (given, kept) in claims[..3].iter().zip(&claims[10..]) {
        remembered(&server, &other, id).await;
        one.release(given.id, None, ReleaseReason::GaveUp).await.expect("it answers");
        sells_again(&other, id).await;
        assert_eq!(refused(&one, wish(id, &format!("n{}", given.id))).await, Refusal::SoldOut);
        remembered(&server, &other, id).await;
        // On the node that hears of it there is nothing to wait for.
        let again = granted_back(&other, id, kept).await;
        assert!(matches!(again, Outcome::Done(_)), "{again:?}");
    }
}

async fn granted_back(engine: &Engine, id: PoolId, claim: &Claim) -> Outcome<Claim> {
    let released = engine.release(claim.id, None, ReleaseReason::GaveUp).await;
    assert!(matches!(released, Ok(Outcome::Done(_))), "{released:?}");
    engine.claim(wish(id, &format!("back{}", number()))).await.expect("nothing fails here")
}

/// Time stands still, so that what one node remembers would be remembered for ever; then a second
/// goes by.
#[tokio::test]
async fn p17_what_is_released_is_known_to_every_node_within_a_second() {
    let Some(server) = own(Durability::None) else { return };
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
    let (url, prefix) = (server.url(), prefix());
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let time = Time::Given(Arc::<ManualClock>::clone(&clock));
        let engine = engine_at(&url, &prefix, time).await;
        engine.set_up(EPOCH).await.expect("it can be set up");
        engine.set_epoch_of_all(EPOCH);
        nodes.push(engine);
    }
    let id = pool(1);
    let claims = sold_out(&nodes[0], id, 1).await;
    for (claim, node) in claims.iter().zip(&nodes[1..]) {
        remembered(&server, node, id).await;
        nodes[0].release(claim.id, None, ReleaseReason::GaveUp).await.expect("it answers");
        let late = wish(id, &format!("late{}", number()));
        assert_eq!(refused(node, late.clone()).await, Refusal::SoldOut, "it is remembered");
        clock.advance_millis(1_000);
        granted(node, late).await;
    }
}

#[tokio::test]
async fn p17_what_is_released_on_one_node_is_sold_on_the_other() {
    a_crowd_too_late(1).await;
}

#[tokio::test]
async fn p17_what_is_released_in_one_bucket_is_sold_from_all() {
    a_crowd_too_late(4).await;
}
