//! Whoever dies in the middle of something that takes several steps leaves nothing that the next
//! one cannot finish.

use std::sync::Arc;

use qiang_core::{Outcome, Refusal, Reply, Timestamp};
use qiang_engine::Error;
use qiang_engine::redis::{Engine, hash_tag};
use qiang_testkit::contract;
use qiang_testkit::servers::shared;

use crate::asking::Asking as _;
use crate::fixture::{
    block_on, claims, dies_after, granted, node, open, orders, pool, prefix, refused, view, wish,
};
use crate::servers::{available_in, command, transfers};

const BUCKETS: u16 = 2;

/// A spread sale with one unit left, which is not in the bucket of the user who comes next.
async fn one_left_elsewhere(url: &str, prefix: &str) -> (Engine, String) {
    let engine = node(url, prefix).await;
    let id = pool(1);
    let mut terms = orders(4);
    terms.buckets = BUCKETS;
    open(&engine, id, terms).await;
    let mut users = (0..).map(|number| format!("u{number}"));
    for user in users.by_ref().take(3) {
        granted(&engine, wish(id, &user)).await;
    }
    let empty = |bucket: &u16| available_in(url, prefix, &engine, id, *bucket) == 0;
    let empty = (0..BUCKETS).find(empty).expect("three of two and two");
    // Those who claim from a sale of their own show where they belong.
    let probe = pool(1_000_000);
    let mut terms = orders(1_000);
    terms.buckets = BUCKETS;
    open(&engine, probe, terms).await;
    for user in users {
        let number = granted(&engine, wish(probe, &user)).await.id.number;
        if (number - 1) % u32::from(BUCKETS) == u32::from(empty) {
            return (engine, user);
        }
    }
    unreachable!("users never end")
}

#[test]
fn p18_borrowing_that_died_half_way_is_finished() {
    let Some(url) = shared::redis() else { return };
    let claim = |user: String| {
        move |engine: Engine| async move {
            drop(engine.claim(contract::wish(pool(1), &user, Some("r"))).await);
        }
    };
    let all = prefix();
    let (_, user) = block_on(one_left_elsewhere(&url, &all));
    let whole = dies_after((&url, &all), u64::MAX, claim(user)).reply_bytes;
    let mut half_done = 0;
    for step in 0..30 {
        let prefix = prefix();
        let (_, user) = block_on(one_left_elsewhere(&url, &prefix));
        dies_after((&url, &prefix), whole * step / 30, claim(user.clone()));
        half_done += transfers(&url, &prefix);
        block_on(async {
            let engine = node(&url, &prefix).await;
            engine.finish_transfers().await.expect("it answers");
            assert_eq!(transfers(&url, &prefix), 0);
            let taken = view(&engine, pool(1)).await.tally.taken();
            let left = (0..BUCKETS).map(|b| available_in(&url, &prefix, &engine, pool(1), b));
            assert_eq!(left.sum::<u32>() + taken, 4, "step {step}");
            let got = engine.claim(contract::wish(pool(1), &user, Some("r"))).await;
            assert!(matches!(got, Ok(Outcome::Done(_) | Outcome::Replayed(_))), "{got:?}");
            let last = refused(&engine, wish(pool(1), "nobody")).await;
            assert_eq!(last, Refusal::SoldOut, "step {step}");
        });
    }
    assert!(half_done > 2, "{half_done} transfers were half done");
}

#[test]
fn a_sale_that_cannot_be_read_keeps_no_other_from_being_finished() {
    let Some(url) = shared::redis() else { return };
    let claim = |user: String| {
        move |engine: Engine| async move { drop(engine.claim(wish(pool(1), &user)).await) }
    };
    let all = prefix();
    let (_, user) = block_on(one_left_elsewhere(&url, &all));
    let whole = dies_after((&url, &all), u64::MAX, claim(user)).reply_bytes;
    let half_done = (0..30).find_map(|step| {
        let prefix = prefix();
        let (engine, user) = block_on(one_left_elsewhere(&url, &prefix));
        dies_after((&url, &prefix), whole * step / 30, claim(user));
        (transfers(&url, &prefix) > 0)
            .then(|| (prefix, hash_tag(engine.partitions_of(pool(1), 1)[0])))
    });
    let (prefix, tag) = half_done.expect("one of thirty dies at the right moment");
    // The first sale with buckets of the same partition.
    command(&url, &["ZADD", &format!("{prefix}:{{{tag}}}:spread"), "-1", "5"]);
    let partition = block_on(node(&url, &prefix)).partitions_of(pool(5), 1)[0];
    let damaged = format!("{prefix}:{{{}}}:pool:5/0", hash_tag(partition));
    command(&url, &["HSET", &damaged, "terms", "not what we write"]);
    block_on(async {
        let engine = node(&url, &prefix).await;
        assert_eq!(engine.finish_transfers().await, Err(Error::Unavailable));
        assert_eq!(transfers(&url, &prefix), 0);
    });
}

#[test]
fn a_spread_sale_opened_or_closed_half_way_is_finished_by_asking_again() {
    let Some(url) = shared::redis() else { return };
    let id = pool(7);
    let terms = || {
        let mut terms = orders(9);
        terms.buckets = 4;
        Arc::new(terms)
    };
    let opening = move |engine: Engine| async move { drop(engine.open_pool(id, terms()).await) };
    let closing = move |engine: Engine| async move { drop(engine.close(id).await) };
    let clearing = move |engine: Engine| async move { drop(engine.clear(id).await) };
    let all = prefix();
    let open_bytes = dies_after((&url, &all), u64::MAX, opening).reply_bytes;
    let close_bytes = dies_after((&url, &all), u64::MAX, closing).reply_bytes;
    let clear_bytes = dies_after((&url, &all), u64::MAX, clearing).reply_bytes;
    let mut half_cleared = 0;
    for step in 0..12 {
        let prefix = prefix();
        dies_after((&url, &prefix), open_bytes * step / 12, opening);
        let engine = block_on(async {
            let engine = node(&url, &prefix).await;
            open(&engine, id, Arc::unwrap_or_clone(terms())).await;
            for user in 0..9 {
                let claim = granted(&engine, wish(id, &format!("u{user}"))).await;
                let paid = engine.pay(contract::money(claim.id, &format!("p{user}"))).await;
                assert!(matches!(paid, Ok(Outcome::Done(_))), "{paid:?}");
            }
            engine.drop_connections();
            engine
        });
        dies_after((&url, &prefix), close_bytes * step / 12, closing);
        block_on(async {
            let closed = view(&engine, id).await.closed_at.is_some();
            if !closed {
                // Some of it may be closed: nothing of it is dropped.
                let cleared = engine.clear(id).await;
                assert_eq!(cleared, Ok(Outcome::Refused(Refusal::PoolInUse)), "step {step}");
                assert_eq!(claims(&engine, id).await.len(), 9, "step {step}");
            }
            let closed = engine.close(id).await;
            assert!(matches!(closed, Ok(Outcome::Done(_) | Outcome::Replayed(_))), "{closed:?}");
            let more = engine.ask(contract::one_more(id, "r")).await.map(Reply::into_pool);
            assert_eq!(more, Ok(Outcome::Refused(Refusal::Closed)));
            engine.drop_connections();
        });
        dies_after((&url, &prefix), clear_bytes * step / 12, clearing);
        block_on(async {
            // The audit says so instead of missing the claims that are gone.
            let spread = engine.spread(id).await.expect("it answers").expect("it is there");
            half_cleared += u32::from(spread.half_cleared);
            let cleared = engine.clear(id).await;
            assert!(matches!(cleared, Ok(Outcome::Done(_) | Outcome::Replayed(_))), "{cleared:?}");
            let view = view(&engine, id).await;
            assert!(view.cleared && view.tally.taken() == 0, "{view:?}");
            let spread = engine.spread(id).await.expect("it answers").expect("it is there");
            assert!(!spread.half_cleared, "{spread:?}");
            engine.drop_connections();
        });
    }
    assert!(half_cleared > 1, "{half_cleared} sales were half cleared");
}

/// Whoever opened it first died on the way; the next one comes later, and so with another opening time.
#[test]
fn a_spread_sale_opened_half_way_is_finished_by_whoever_comes_with_other_terms() {
    let Some(url) = shared::redis() else { return };
    let id = pool(7);
    let terms = |opens_at| {
        let mut terms = orders(9);
        terms.buckets = 4;
        terms.opens_at = Timestamp::from_millis(opens_at);
        Arc::new(terms)
    };
    let opening = move |engine: Engine| async move { drop(engine.open_pool(id, terms(1)).await) };
    let all = prefix();
    let whole = dies_after((&url, &all), u64::MAX, opening).reply_bytes;
    for step in 0..12 {
        let prefix = prefix();
        dies_after((&url, &prefix), whole * step / 12, opening);
        block_on(async {
            let engine = node(&url, &prefix).await;
            let opened = engine.open_pool(id, terms(2)).await.expect("it answers");
            let first = view(&engine, id).await.terms.opens_at.millis();
            let is_first = matches!(opened, Outcome::Refused(Refusal::PoolExists));
            assert_eq!(first, if is_first { 1 } else { 2 }, "step {step}: {opened:?}");
            for user in 0..9 {
                granted(&engine, wish(id, &format!("u{user}"))).await;
            }
            assert_eq!(refused(&engine, wish(id, "late")).await, Refusal::SoldOut);
        });
    }
}
