//! Many at once, on two engines that share one database: nobody gets what is not there, nobody
//! more than their share, and every request has one effect.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use qiang_core::{
    Cents, ClaimRequest, Event, Flow, Outcome, PoolId, Refusal, ReleaseReason, RequestId,
    Settlement, Supply, Terms,
};
use qiang_engine::sql::Engine;
use qiang_sql::{Dialect, on_every_database};
use qiang_testkit::contract::{money, sale, wish};
use tokio::task::JoinSet;

use super::asking::Asking as _;
use super::fixture::{World, events, open_sale, pool, soon};

const STOCK: u32 = 40;
const BUYERS: u32 = 60;

/// Everybody asks three times, twice with the same request, alternating between two engines.
async fn nobody_gets_what_is_not_there(on: Dialect) {
    let world = World::new(on).await;
    let engines = [world.engine().await, world.engine().await];
    let terms = Terms { limit_per_user: 2, ..sale(STOCK, Flow::Order { pay_ms: 1_000 }) };
    engines[0].open_pool(pool(), Arc::new(terms)).await.expect("a new pool");
    let mut tasks = JoinSet::new();
    for attempt in 0..3_u32 {
        for buyer in 0..BUYERS {
            let engine = engines[((attempt + buyer) % 2) as usize].clone();
            let request = if attempt == 0 { "first" } else { "second" };
            let wish = wish(pool(), &format!("u{buyer}"), Some(request));
            tasks.spawn(async move { engine.claim(wish).await.expect("an answer") });
        }
    }
    let (mut granted, mut repeated, mut sold_out) = (BTreeSet::new(), 0, 0);
    for outcome in soon("all answers", tasks.join_all()).await {
        match outcome {
            Outcome::Done(claim) => assert!(granted.insert(claim.id), "{} twice", claim.id),
            Outcome::Replayed(_) => repeated += 1,
            Outcome::Refused(Refusal::SoldOut) => sold_out += 1,
            Outcome::Refused(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(granted.len(), STOCK as usize);
    assert_eq!(granted.len() + repeated + sold_out, 3 * BUYERS as usize);
    let view = engines[1].pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!((view.available, view.tally.ordered, view.claims), (0, STOCK, STOCK));
    let claims = engines[1].claims(pool(), 0, 1_000).await.expect("they can be read");
    let mut had = BTreeMap::<_, BTreeSet<_>>::new();
    for claim in &claims {
        let fresh = had.entry(claim.user.clone()).or_default().insert(claim.request.clone());
        assert!(fresh, "{} got two for one request", claim.user);
    }
    let logged = events(&engines[0]).await;
    let logged: Vec<_> = logged.iter().skip(1).map(event_number).collect();
    assert_eq!(logged, (1..=STOCK).collect::<Vec<_>>(), "the log has each grant once, in order");
}

fn event_number(event: &Event) -> u32 {
    match event {
        Event::Claim(claim) => claim.id.number,
        other => panic!("{other:?}"),
    }
}

/// One user, one unit at a time, from all sides and without request ids.
async fn a_limit_is_exact(on: Dialect) {
    let world = World::new(on).await;
    let engines = [world.engine().await, world.engine().await];
    let terms = Terms { limit_per_user: 5, ..sale(1_000, Flow::Instant) };
    engines[0].open_pool(pool(), Arc::new(terms)).await.expect("a new pool");
    let mut tasks = JoinSet::new();
    for attempt in 0..40 {
        let engine = engines[attempt % 2].clone();
        let quantity = NonZeroU32::new(1 + u32::from(attempt % 7 == 0)).expect("positive");
        let wish = ClaimRequest { quantity, ..wish(pool(), "ann", None) };
        tasks.spawn(async move { engine.claim(wish).await.expect("an answer") });
    }
    let mut units = 0;
    for outcome in soon("all answers", tasks.join_all()).await {
        match outcome {
            Outcome::Done(claim) => units += claim.quantity,
            Outcome::Refused(Refusal::OverLimit { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(units, 5);
    let view = engines[0].pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!(view.available, 995);
}

/// Portions are taken, given back and taken again, each by one at a time.
async fn a_portion_has_one_owner(on: Dialect) {
    let world = World::new(on).await;
    let engines = [world.engine().await, world.engine().await];
    let cut: Box<[Cents]> = (1..=12).map(Cents::new).collect();
    let funded: i64 = cut.iter().map(|value| value.get()).sum();
    let terms = Terms {
        supply: Supply::Portions(cut),
        ..sale(1, Flow::Hold { hold_ms: 1_000, pay_ms: 1_000 })
    };
    engines[0].open_pool(pool(), Arc::new(terms)).await.expect("a new pool");
    let mut tasks = JoinSet::new();
    for buyer in 0..30_usize {
        let engine = engines[buyer % 2].clone();
        tasks.spawn(async move {
            for round in 0..4 {
                let wish = wish(pool(), &format!("u{buyer}"), None);
                let Outcome::Done(claim) = engine.claim(wish).await.expect("an answer") else {
                    continue;
                };
                if round < 3 {
                    let back = engine.release(claim.id, None, ReleaseReason::GaveUp).await;
                    assert!(matches!(back, Ok(Outcome::Done(_))), "{back:?}");
                }
            }
        });
    }
    soon("all of them", tasks.join_all()).await;
    let claims = engines[0].claims(pool(), 0, 10_000).await.expect("they can be read");
    let taken: Vec<_> = claims.iter().filter(|claim| claim.reason.is_none()).collect();
    let places: BTreeSet<_> = taken.iter().filter_map(|claim| claim.portion).collect();
    assert_eq!(places.len(), taken.len(), "no portion has two owners");
    let view = engines[0].pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!(view.available as usize, 12 - taken.len());
    let values: i64 = taken.iter().map(|claim| claim.unit_price.get()).sum();
    let free = (0..12).filter(|place| !places.contains(place));
    let left: i64 = free.map(|place| i64::from(place) + 1).sum();
    assert_eq!(values + left, funded);
}

/// A payment that everybody tells at once, of two orders in each of several pools, pays one order
/// of each.
async fn a_payment_counts_once_in_each_pool(on: Dialect) {
    let world = World::new(on).await;
    let engines = [world.engine().await, world.engine().await];
    let pools: Vec<_> = (1..=6).map(|id| PoolId::new(id).expect("positive")).collect();
    let mut orders = Vec::new();
    for pool in &pools {
        let terms = Arc::new(sale(2, Flow::Order { pay_ms: 1_000 }));
        engines[0].open_pool(*pool, terms).await.expect("a new pool");
        for user in ["ann", "bob"] {
            match engines[0].claim(wish(*pool, user, None)).await {
                Ok(Outcome::Done(claim)) => orders.push(claim.id),
                other => panic!("{other:?}"),
            }
        }
    }
    let positions = engines[0].positions().await.expect("they can be read");
    assert!(positions.iter().all(|seq| *seq > 0), "pools in both partitions: {positions:?}");
    let mut tasks = JoinSet::new();
    for (place, order) in orders.into_iter().enumerate() {
        for attempt in 0..3 {
            let engine = engines[(place + attempt) % 2].clone();
            tasks.spawn(async move { engine.pay(money(order, "P1")).await.expect("an answer") });
        }
    }
    let (mut paid, mut repeated, mut conflicts) = (0, 0, 0);
    for outcome in soon("all answers", tasks.join_all()).await {
        match outcome {
            Outcome::Done(Settlement::Paid(_)) => paid += 1,
            Outcome::Replayed(Settlement::Paid(_)) => repeated += 1,
            Outcome::Refused(Refusal::PaymentConflict) => conflicts += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((paid, repeated, conflicts), (6, 12, 18));
}

/// Claims, orders, payments and deadlines of everybody at once; in the end it adds up.
async fn it_adds_up_in_the_end(on: Dialect) {
    let world = World::new(on).await;
    let engines = [world.engine().await, world.engine().await];
    open_sale(&engines[0], STOCK, Flow::Hold { hold_ms: 50, pay_ms: 50 }).await;
    let mut tasks = JoinSet::new();
    for buyer in 0..BUYERS {
        let engine = engines[(buyer % 2) as usize].clone();
        let clock = Arc::clone(&world.clock);
        tasks.spawn(async move { visit(&engine, buyer, &clock).await });
    }
    soon("all of them", tasks.join_all()).await;
    world.clock.advance_millis(1_000);
    engines[0].expire_due().await.expect("it can");
    let view = engines[1].pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!((view.tally.held, view.tally.ordered), (0, 0));
    assert_eq!(view.available + view.tally.paid, STOCK);
    let claims = engines[1].claims(pool(), 0, 10_000).await.expect("they can be read");
    let paid: BTreeSet<_> = claims.iter().filter_map(|claim| claim.payment.clone()).collect();
    assert_eq!(paid.len(), view.tally.paid as usize);
    for version in claims.iter().map(|claim| claim.version) {
        assert!((1..=3).contains(&version));
    }
}

async fn visit(engine: &Engine, buyer: u32, clock: &qiang_engine::ManualClock) {
    let request = RequestId::new("only").expect("plain");
    let wish = ClaimRequest { request: Some(request), ..wish(pool(), &format!("u{buyer}"), None) };
    let Outcome::Done(claim) = engine.claim(wish).await.expect("an answer") else { return };
    if buyer.is_multiple_of(5) {
        clock.advance_millis(20);
        return;
    }
    engine.order(claim.id, None).await.expect("an answer");
    let paid = engine.pay(money(claim.id, &format!("P{buyer}"))).await.expect("an answer");
    // Its time may have run out on the way: then it was bought anew, or goes back.
    match paid {
        Outcome::Done(_) | Outcome::Refused(Refusal::NotOrdered) => {}
        other => panic!("{other:?}"),
    }
}

on_every_database!(
    nobody_gets_what_is_not_there,
    a_limit_is_exact,
    a_portion_has_one_owner,
    a_payment_counts_once_in_each_pool,
    it_adds_up_in_the_end,
);
