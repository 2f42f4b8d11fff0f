//! What was read out of one Redis and put into another goes on as if nothing had happened.

use std::sync::Arc;

use qiang_core::{Command, Outcome, Reply, Timestamp};
use qiang_engine::redis::{Engine, hash_tag};
use qiang_testkit::contract::{Subject as _, money};
use qiang_testkit::servers::shared;
use qiang_testkit::{Generator, Oracle, each_seed};

use crate::asking::Asking as _;
use crate::fixture::{
    Subjected, block_on, events, fresh, granted, node, open, orders, pool, prefix, put_back,
    refused, unset, view, wish,
};

/// Moves everything to keys of its own under another epoch, as a repair does.
async fn moved(from: &Subjected, url: &str, epoch: &str) -> Subjected {
    let to = unset(url, Arc::clone(&from.clock)).await;
    carry(&from.engine, &to.engine, epoch).await;
    to
}

async fn carry(from: &Engine, to: &Engine, epoch: &str) {
    let mut records = Vec::new();
    for partition in 0..from.partitions() {
        for pool in from.pools_in(partition).await.expect("pools can be listed") {
            let record = from.salvage(pool).await.expect("it can be read").expect("it is there");
            records.push(record);
        }
    }
    let ends = from.positions().await.expect("positions can be read");
    put_back(to, &records, epoch, &ends).await;
}

async fn go_on(
    subject: &Subjected,
    generator: &mut Generator,
    oracle: &mut Oracle,
    clock: &mut Timestamp,
) {
    for _ in 0..40 {
        *clock = generator.tick(oracle, *clock).max(*clock);
        oracle.expire(*clock);
        subject.set_time(*clock).await.expect("a clock can be set");
        let command = generator.command(oracle);
        let wanted = oracle.handle(&command, *clock);
        let got = subject.ask(command.clone()).await.expect("nothing fails here");
        assert_eq!(got, wanted, "{command:?}");
    }
    let mut by_pool: Vec<_> = events(&subject.engine).await;
    let mut wanted = oracle.take_log();
    by_pool.sort_by_key(qiang_core::Event::pool);
    wanted.sort_by_key(qiang_core::Event::pool);
    assert_eq!(by_pool, wanted);
    for pool in oracle.pools() {
        assert_eq!(subject.pool(pool).await.expect("it can be read"), oracle.view(pool));
    }
}

#[test]
fn a_restored_state_answers_as_the_oracle() {
    let Some(url) = shared::redis() else { return };
    each_seed(15, |seed| {
        block_on(async {
            let mut subject = fresh(&url).await;
            let (mut generator, mut oracle) = (Generator::new(seed), Oracle::default());
            let mut clock = Timestamp::from_millis(0);
            for epoch in ["e2", "e3", "e4"] {
                go_on(&subject, &mut generator, &mut oracle, &mut clock).await;
                subject = moved(&subject, &url, epoch).await;
            }
            go_on(&subject, &mut generator, &mut oracle, &mut clock).await;
        });
    });
}

#[tokio::test]
async fn a_large_spread_sale_is_put_back_whole() {
    const CLAIMS: u32 = 3_000;
    let Some(url) = shared::redis() else { return };
    let from = node(&url, &prefix()).await;
    let id = pool(9);
    let mut terms = orders(CLAIMS + 7);
    terms.buckets = 4;
    open(&from, id, terms).await;
    let claims: Vec<_> = (0..CLAIMS)
        .map(|user| {
            let from = from.clone();
            tokio::spawn(async move { granted(&from, wish(id, &format!("u{user}"))).await })
        })
        .collect();
    let mut paid = Vec::new();
    for (place, claim) in claims.into_iter().enumerate() {
        let claim = claim.await.expect("no panic");
        if place % 3 == 0 {
            let pay = money(claim.id, &format!("p{place}"));
            assert!(matches!(from.pay(pay.clone()).await, Ok(Outcome::Done(_))));
            paid.push(pay);
        }
    }
    let before = view(&from, id).await;
    let to = crate::fixture::engine_at(&url, &prefix(), qiang_engine::redis::Time::Server).await;
    carry(&from, &to, "e2").await;
    assert_eq!(view(&to, id).await, before);
    assert_eq!(before.tally.taken(), CLAIMS);
    for pay in paid {
        let again = to.pay(pay).await;
        assert!(matches!(again, Ok(Outcome::Replayed(_))), "{again:?}");
    }
    for user in 0..7 {
        granted(&to, wish(id, &format!("late{user}"))).await;
    }
    assert_eq!(refused(&to, wish(id, "last")).await, qiang_core::Refusal::SoldOut);
    let again = to.ask(Command::Claim(wish(id, "u1"))).await;
    assert!(matches!(again, Ok(Reply::Claim(Outcome::Refused(_)))), "{again:?}");
}

/// A pool whose first bucket lies in a lost partition is not forgotten: the others hold claims.
#[tokio::test]
async fn the_claims_of_other_buckets_are_salvaged_without_the_first() {
    let Some(url) = shared::redis() else { return };
    let prefix = prefix();
    let engine = node(&url, &prefix).await;
    let id = pool(3);
    let mut terms = orders(40);
    terms.buckets = 4;
    open(&engine, id, terms).await;
    for user in 0..20 {
        granted(&engine, wish(id, &format!("u{user}"))).await;
    }
    let whole = engine.salvage(id).await.expect("it can be read").expect("it is there");
    let head = engine.partitions_of(id, 4)[0];
    crate::servers::forget(&url, &format!("{prefix}:{{{}}}:*", hash_tag(head)));
    let rest = engine.salvage(id).await.expect("it can be read").expect("it is there");
    let others = |claim: &&qiang_core::Claim| !(claim.id.number - 1).is_multiple_of(4);
    let wanted: Vec<_> = whole.claims.iter().filter(others).cloned().collect();
    assert!(!wanted.is_empty());
    assert_eq!((rest.claims, rest.history.len()), (wanted, 0));
}
