//! A sale that is spread over buckets: nothing is oversold, nothing is withheld, limits are exact.

use std::collections::{BTreeMap, BTreeSet};

use qiang_core::{
    Claim, ClaimRequest, Event, Outcome, PoolId, Refusal, ReleaseReason, RequestId, State, Terms,
    UserId,
};
use qiang_engine::redis::Engine;
use qiang_testkit::contract::{money, one_more};
use qiang_testkit::servers::shared;
use qiang_testkit::{Random, each_seed};

use crate::asking::Asking as _;
use crate::fixture::{
    PARTITIONS, block_on, claims, events, events_in, granted, node, open, orders, pool, prefix,
    refused, view, wish, wish_for,
};
use crate::servers::available_in;

fn spread(stock: u32, buckets: u16) -> Terms {
    let mut terms = orders(stock);
    terms.buckets = buckets;
    terms
}

#[tokio::test]
async fn p32_a_spread_sale_spreads_its_events() {
    let Some(url) = shared::redis() else { return };
    let engine = node(&url, &prefix()).await;
    let id = pool(5);
    open(&engine, id, spread(100, PARTITIONS)).await;
    let partitions: BTreeSet<u16> = engine.partitions_of(id, PARTITIONS).into_iter().collect();
    assert_eq!(partitions.len(), usize::from(PARTITIONS), "no two buckets in one partition");
    for user in 0..80 {
        granted(&engine, wish(id, &format!("u{user}"))).await;
    }
    for partition in 0..PARTITIONS {
        let events = events_in(&engine, partition).await;
        assert!(events.len() > 5, "{} events in partition {partition}", events.len());
    }
}

#[tokio::test]
async fn p18_sold_out_is_said_only_when_no_bucket_has_any() {
    let Some(url) = shared::redis() else { return };
    let prefix = prefix();
    let (one, other) = (node(&url, &prefix).await, node(&url, &prefix).await);
    let id = pool(5);
    open(&one, id, spread(8, 8)).await;
    let mut last = None;
    for user in 0..8 {
        last = Some(granted(&one, wish(id, &format!("u{user}"))).await);
    }
    for round in 0..24 {
        let (seller, buyer) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        assert_eq!(refused(buyer, wish(id, "nobody")).await, Refusal::SoldOut);
        let claim = last.take().expect("somebody has it");
        let released = seller.release(claim.id, None, ReleaseReason::GaveUp).await;
        assert!(matches!(released, Ok(Outcome::Done(_))), "{released:?}");
        last = Some(granted(buyer, wish(id, &format!("next{round}"))).await);
    }
}

#[tokio::test]
async fn p18_too_few_for_several_is_still_enough_for_one() {
    let Some(url) = shared::redis() else { return };
    let engine = node(&url, &prefix()).await;
    let id = pool(5);
    let mut terms = spread(16, 8);
    terms.limit_per_user = 50;
    open(&engine, id, terms).await;
    // Some buckets are empty then, and some are not.
    for user in 0..4 {
        granted(&engine, wish_for(id, &format!("first{user}"), 2)).await;
    }
    // So many that it is remembered, and many at once that search together.
    for round in 0..60 {
        let greedy = (0..40).map(|user| {
            let engine = engine.clone();
            let wish = wish_for(id, &format!("u{round}-{user}"), 50);
            tokio::spawn(async move { refused(&engine, wish).await })
        });
        for refusal in greedy.collect::<Vec<_>>() {
            assert_eq!(refusal.await.expect("no panic"), Refusal::SoldOut);
        }
    }
    let modest = (0..8).map(|user| {
        let engine = engine.clone();
        let greedy = wish_for(id, &format!("g{user}"), 50);
        let modest = wish(id, &format!("m{user}"));
        tokio::spawn(async move { tokio::join!(engine.claim(greedy), granted(&engine, modest)) })
    });
    for both in modest.collect::<Vec<_>>() {
        let (greedy, _) = both.await.expect("each gets one");
        assert_eq!(greedy, Ok(Outcome::Refused(Refusal::SoldOut)));
    }
}

#[tokio::test]
async fn p18_a_release_returns_to_the_bucket_it_came_from() {
    const BUCKETS: u16 = 4;
    let Some(url) = shared::redis() else { return };
    let prefix = prefix();
    let engine = node(&url, &prefix).await;
    let id = pool(5);
    open(&engine, id, spread(12, BUCKETS)).await;
    let mut all = Vec::new();
    for user in 0..12 {
        all.push(granted(&engine, wish(id, &format!("u{user}"))).await);
    }
    for claim in all {
        let own = u16::try_from((claim.id.number - 1) % u32::from(BUCKETS)).expect("small");
        let before = available_in(&url, &prefix, &engine, id, own);
        engine.release(claim.id, None, ReleaseReason::GaveUp).await.expect("it answers");
        assert_eq!(available_in(&url, &prefix, &engine, id, own), before + 1);
    }
}

/// Random commands of one of several tasks.
async fn shop(engine: Engine, id: PoolId, mut random: Random) -> Vec<Claim> {
    let mut own: Vec<Claim> = Vec::new();
    for turn in 0..25 {
        match random.below(100) {
            0..60 => {
                let user = format!("user{}", random.below(24));
                let request = random.percent(30).then(|| format!("r{}", random.below(3)));
                let wish = ClaimRequest {
                    request: request.map(|id| RequestId::new(&id).expect("a short plain text")),
                    ..wish_for(id, &user, random.between(1, 2))
                };
                match engine.claim(wish).await.expect("nothing fails here") {
                    Outcome::Done(claim) => own.push(claim),
                    Outcome::Replayed(_) | Outcome::Refused(_) => {}
                }
            }
            60..80 if !own.is_empty() => {
                let claim = random.pick(&own).id;
                engine.release(claim, None, ReleaseReason::GaveUp).await.expect("it answers");
            }
            80..95 if !own.is_empty() => {
                let claim = random.pick(&own);
                let payment = format!("pay{}-{turn}", claim.id);
                let mut pay = money(claim.id, &payment);
                pay.amount = claim.amount();
                engine.pay(pay).await.expect("nothing fails here");
            }
            95..97 => {
                engine
                    .ask(one_more(id, &format!("s{}", random.below(3))))
                    .await
                    .expect("it answers");
            }
            _ => {}
        }
    }
    own
}

#[test]
fn a_spread_sale_is_exact_whatever_comes_together() {
    let Some(url) = shared::redis() else { return };
    each_seed(8, |seed| {
        block_on(async {
            let mut random = Random::new(seed);
            let buckets = u16::try_from(random.between(2, 8)).expect("small");
            let prefix = prefix();
            let nodes = [node(&url, &prefix).await, node(&url, &prefix).await];
            let id = pool(u64::from(random.between(1, 100)));
            let mut terms = spread(random.between(buckets.into(), 30), buckets);
            terms.limit_per_user = 3;
            open(&nodes[0], id, terms).await;
            let tasks = (0..8).map(|task| {
                let engine = nodes[task % 2].clone();
                let random = Random::new(seed * 100 + u64::try_from(task).expect("small"));
                tokio::spawn(shop(engine, id, random))
            });
            let mut told = Vec::new();
            for task in tasks.collect::<Vec<_>>() {
                told.extend(task.await.expect("no panic"));
            }
            nodes[0].finish_transfers().await.expect("it answers");
            check(&url, &prefix, &nodes[1], id, &told).await;
        });
    });
}

/// What must be true of a spread sale at rest.
async fn check(url: &str, prefix: &str, engine: &Engine, id: PoolId, told: &[Claim]) {
    let (view, all) = (view(engine, id).await, claims(engine, id).await);
    let standing = |claim: &&Claim| claim.state != State::Released;
    let taken: u32 = all.iter().filter(standing).map(|claim| claim.quantity).sum();
    let left = (0..view.terms.buckets).map(|b| available_in(url, prefix, engine, id, b));
    assert_eq!((taken, left.sum::<u32>()), (view.tally.taken(), view.available));
    assert_eq!(view.available + taken, view.total);
    let mut used = BTreeMap::<&UserId, u32>::new();
    for claim in all.iter().filter(standing) {
        *used.entry(&claim.user).or_default() += claim.quantity;
    }
    assert!(used.values().all(|used| *used <= 3), "{used:?}");
    // Each claim that anybody was told of is there, and its events lead to what it is.
    let stored: BTreeMap<u32, &Claim> = all.iter().map(|claim| (claim.id.number, claim)).collect();
    assert!(told.iter().all(|claim| stored[&claim.id.number].user == claim.user));
    let mut versions = BTreeMap::<u32, Claim>::new();
    for event in events(engine).await {
        if let Event::Claim(claim) = event {
            let before = versions.get(&claim.id.number).map_or(0, |before| before.version);
            assert_eq!(claim.version, before + 1, "{claim:?}");
            versions.insert(claim.id.number, claim);
        }
    }
    assert_eq!(versions.values().collect::<Vec<_>>(), all.iter().collect::<Vec<_>>());
    for last in 0..view.available {
        granted(engine, wish(id, &format!("last{last}"))).await;
    }
    assert_eq!(refused(engine, wish(id, "nobody")).await, Refusal::SoldOut);
}
