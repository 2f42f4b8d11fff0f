//! Many commands in one call, many claims in one pool, and values at the edge of what they can be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qiang_core::{
    Cents, Claim, ClaimId, ClaimRequest, Event, Flow, Identity, Kind, LimitBy, Outcome, PayRequest,
    PaymentId, PoolId, PriceStep, RefundReason, Refusal, ReleaseReason, RequestId, Settlement,
    Supply, Terms, Timestamp, UserId,
};
use qiang_engine::redis::Engine;
use qiang_testkit::contract::{Subject as _, sale};
use qiang_testkit::servers::shared;

use crate::asking::Asking as _;
use crate::fixture::{claims, events, fresh, granted, open, pool, refused, view, wish, wish_for};

/// All at once, so that they go along in few calls.
async fn together(engine: &Engine, id: PoolId, users: u32, units: u32) -> Vec<Claim> {
    let asked = (0..users).map(|user| {
        let (engine, wish) = (engine.clone(), wish_for(id, &format!("u{user}"), units));
        tokio::spawn(async move { granted(&engine, wish).await })
    });
    let mut claims = Vec::new();
    for claim in asked.collect::<Vec<_>>() {
        claims.push(claim.await.expect("no panic"));
    }
    claims
}

#[tokio::test]
async fn what_ran_out_gives_quota_back_to_the_very_call_that_noticed() {
    let Some(url) = shared::redis() else { return };
    let subject = fresh(&url).await;
    let (engine, id) = (&subject.engine, pool(1));
    let mut terms = sale(40, Flow::Hold { hold_ms: 10, pay_ms: 10 });
    terms.limit_per_user = 2;
    open(engine, id, terms).await;
    for round in 1..4 {
        // Nobody sweeps: the claims of this round find those of the last one overdue.
        subject.clock.advance_millis(20);
        together(engine, id, 20, 2).await;
        assert_eq!(view(engine, id).await.tally.held, 40, "round {round}");
        let more = refused(engine, wish(id, "u3")).await;
        assert_eq!(more, Refusal::OverLimit { had: 2, limit: 2 }, "round {round}");
    }
}

#[tokio::test]
async fn a_hundred_thousand_claims_are_granted_paged_and_run_out() {
    const CLAIMS: u32 = 100_000;
    let Some(url) = shared::redis() else { return };
    let subject = fresh(&url).await;
    let (engine, id) = (&subject.engine, pool(1));
    open(engine, id, sale(CLAIMS, Flow::Hold { hold_ms: 10, pay_ms: 10 })).await;
    for some in 0..20 {
        let asked = (0..CLAIMS / 20).map(|user| {
            let (engine, wish) = (engine.clone(), wish(id, &format!("u{some}-{user}")));
            tokio::spawn(async move { granted(&engine, wish).await.id.number })
        });
        for number in asked.collect::<Vec<_>>() {
            assert!((1..=CLAIMS).contains(&number.await.expect("no panic")));
        }
    }
    assert_eq!(refused(engine, wish(id, "last")).await, Refusal::SoldOut);
    let numbers = claims(engine, id).await.into_iter().map(|claim| claim.id.number);
    assert!(numbers.eq(1..=CLAIMS));
    subject.set_time(Timestamp::from_millis(10)).await.expect("a clock can be set");
    assert_eq!(view(engine, id).await.available, CLAIMS);
    let (events, expired) = (&engine.stats().events, &engine.stats().expired);
    let counted = [events, expired].map(|count| count.load(Ordering::Relaxed));
    // One event opened the pool.
    assert_eq!(counted, [1 + 2 * u64::from(CLAIMS), CLAIMS.into()]);
}

/// Wishes of all kinds, some of which are refused or repeat another.
fn mixed(id: PoolId) -> Vec<ClaimRequest> {
    let wish = |place: u32| {
        // Some come twice: for the same thing, and for another.
        let user = format!("u{}", if place % 11 == 3 { place - 1 } else { place });
        let mut wish = wish_for(id, &user, 1 + u32::from(place.is_multiple_of(7)));
        wish.identity = Identity::new(&user).ok().filter(|_| !place.is_multiple_of(13));
        wish.request = RequestId::new(&user).ok().filter(|_| place % 3 != 1);
        wish
    };
    (0..200).map(wish).collect()
}

/// Everything that can be asked about its claims says the same.
async fn agrees(engine: &Engine, id: PoolId, expected: &BTreeMap<u32, Claim>) {
    let stored = claims(engine, id).await;
    assert!(stored.iter().eq(expected.values()), "{stored:?}\n{expected:?}");
    for claim in expected.values() {
        assert_eq!(engine.claim_view(claim.id).await, Ok(Some(claim.clone())));
    }
    let record = engine.salvage(id).await.expect("it can be read").expect("it is there");
    assert_eq!(record.claims, stored);
    let mut logged = BTreeMap::new();
    for event in events(engine).await {
        let Event::Claim(claim) = event else { continue };
        let before = logged.insert(claim.id.number, claim.clone());
        assert_eq!(before.map_or(0, |before: Claim| before.version) + 1, claim.version);
    }
    assert!(logged.values().eq(&stored));
}

#[tokio::test]
async fn what_a_crowd_was_told_is_what_is_kept() {
    let Some(url) = shared::redis() else { return };
    let changes: [fn(&mut Terms); 5] = [
        |_| {},
        |terms| terms.limit_by = LimitBy::Identity,
        |terms| terms.buckets = 3,
        |terms| {
            let step = |after_sold, price| PriceStep { after_sold, price: Cents::new(price) };
            terms.price_steps = vec![step(20, 200), step(60, 300)];
        },
        |terms| {
            terms.supply = Supply::Portions((1..=150).map(Cents::new).collect());
        },
    ];
    for change in changes {
        let subject = fresh(&url).await;
        let (engine, id) = (&subject.engine, pool(1));
        let mut terms = sale(150, Flow::Order { pay_ms: 1_000 });
        terms.limit_per_user = 3;
        change(&mut terms);
        open(engine, id, terms).await;
        let asked = mixed(id).into_iter().map(|wish| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.claim(wish).await.expect("it answers") })
        });
        let (mut told, mut replayed) = (BTreeMap::new(), Vec::new());
        for outcome in asked.collect::<Vec<_>>() {
            match outcome.await.expect("no panic") {
                Outcome::Done(claim) => drop(told.insert(claim.id.number, claim)),
                Outcome::Replayed(claim) => replayed.push(claim),
                Outcome::Refused(_) => {}
            }
        }
        assert!(told.len() > 100);
        assert!(!replayed.is_empty());
        replayed.iter().for_each(|claim| assert_eq!(told.get(&claim.id.number), Some(claim)));
        agrees(engine, id, &told).await;
        for number in told.keys().copied().step_by(5).collect::<Vec<_>>() {
            let claim = ClaimId { pool: id, number };
            match engine.release(claim, None, ReleaseReason::Cancelled).await {
                Ok(Outcome::Done(claim)) => drop(told.insert(number, claim)),
                other => panic!("it should be released: {other:?}"),
            }
        }
        agrees(engine, id, &told).await;
    }
}

#[tokio::test]
async fn ids_may_hold_any_text() {
    let Some(url) = shared::redis() else { return };
    let subject = fresh(&url).await;
    let (engine, id) = (&subject.engine, pool(1));
    let mut terms = sale(100, Flow::Order { pay_ms: 1_000 });
    terms.limit_by = LimitBy::Identity;
    open(engine, id, terms).await;
    let long = "x".repeat(UserId::MAX_LEN);
    let names = [
        " ", "a b", "用户", "🎁", "a:b", "1:2", "\"q\"", "'", "{p1}", "a\\0b", "%d", "$1", "*",
        "nil", "0", "-1", "é", "e\u{301}", &long,
    ];
    for (place, name) in names.into_iter().enumerate() {
        let mut wish = wish(id, name);
        wish.identity = Some(Identity::new(name).expect("an id"));
        wish.request = Some(RequestId::new(name).expect("an id"));
        let claim = granted(engine, wish.clone()).await;
        assert_eq!((claim.user.as_str(), claim.id.number as usize), (name, place + 1));
        let again = engine.claim(wish.clone()).await;
        assert_eq!(again, Ok(Outcome::Replayed(claim.clone())), "{name:?}");
        wish.request = None;
        let twice = refused(engine, wish).await;
        assert_eq!(twice, Refusal::AlreadyClaimed { claim: claim.id }, "{name:?}");
        let payment = PaymentId::new(name).expect("an id");
        let pay = PayRequest { order: claim.id, payment, amount: claim.amount() };
        let paid = engine.pay(pay.clone()).await;
        assert!(matches!(paid, Ok(Outcome::Done(Settlement::Paid(_)))), "{name:?}: {paid:?}");
        assert!(matches!(engine.pay(pay).await, Ok(Outcome::Replayed(_))), "{name:?}");
        let by = UserId::new(name).expect("an id");
        let mine = engine.order(claim.id, Some(by)).await;
        assert!(matches!(mine, Ok(Outcome::Replayed(_))), "{name:?}: {mine:?}");
    }
    let stored = claims(engine, id).await;
    assert!(stored.iter().map(|claim| claim.user.as_str()).eq(names));
}

#[tokio::test]
async fn numbers_beyond_what_a_script_holds_exactly_stay_exact() {
    const MANY: u32 = 1 << 31;
    let Some(url) = shared::redis() else { return };
    let subject = fresh(&url).await;
    let engine = &subject.engine;
    for id in [pool((1 << 53) + 1), pool(u64::from(u32::MAX) + 2), pool(i64::MAX.cast_unsigned())] {
        let mut terms = sale(1, Flow::Order { pay_ms: 1_000 });
        terms.supply = Supply::Units(MANY);
        (terms.limit_per_user, terms.price) = (MANY, Cents::new(999_999_999));
        engine.open_pool(id, Arc::new(terms)).await.expect("it answers");
        let claim = granted(engine, wish_for(id, "ann", MANY - 1)).await;
        let amount = 999_999_999 * i64::from(MANY - 1);
        assert_eq!((claim.id.pool, claim.amount()), (id, Cents::new(amount)));
        let pay = |payment: &str, amount| PayRequest {
            order: claim.id,
            payment: PaymentId::new(&format!("{payment}{id}")).expect("an id"),
            amount: Cents::new(amount),
        };
        for (payment, wrong) in [("more", amount + 1), ("less", amount - 1), ("none", 0)] {
            let back = engine.pay(pay(payment, wrong)).await;
            let Ok(Outcome::Done(Settlement::RefundDue(due))) = back else { panic!("{back:?}") };
            assert_eq!((due.amount.get(), due.reason), (wrong, RefundReason::AmountMismatch));
        }
        let paid = engine.pay(pay("right", amount)).await;
        assert!(matches!(paid, Ok(Outcome::Done(Settlement::Paid(_)))), "{paid:?}");
        let view = view(engine, id).await;
        assert_eq!((view.id, view.available, view.tally.paid), (id, 1, MANY - 1));
        let stored = engine.claim_view(ClaimId { pool: id, number: 1 }).await;
        assert_eq!(stored.map(|claim| claim.map(|claim| claim.quantity)), Ok(Some(MANY - 1)));
    }
    let listed = engine.pools(Kind::Sale, None, 10).await.expect("they can be listed");
    assert_eq!(listed.len(), 3);
}
