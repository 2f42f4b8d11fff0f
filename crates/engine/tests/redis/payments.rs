//! A payment counts once in a sale, whichever buckets and nodes hear of it, and late money finds stock wherever
//! it is.

use std::sync::Arc;

use qiang_core::{
    Cents, ClaimId, Command, Flow, Outcome, PayRequest, RefundReason, Refusal, ReleaseReason,
    Reply, Settlement,
};
use qiang_testkit::contract::{Subject as _, money, sale};
use qiang_testkit::servers::shared;

use crate::asking::Asking as _;
use crate::fixture::{fresh, granted, node, open, orders, pool, prefix, view, wish};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_told_to_many_buckets_at_once_counts_in_one() {
    const BUCKETS: usize = 3;
    const PAYMENTS: usize = 30;
    let Some(url) = shared::redis() else { return };
    let prefix = prefix();
    let nodes = [node(&url, &prefix).await, node(&url, &prefix).await];
    let mut terms = orders(300);
    terms.buckets = 3;
    open(&nodes[0], pool(1), terms).await;
    let mut orders_of: [Vec<ClaimId>; BUCKETS] = Default::default();
    for user in 0.. {
        if orders_of.iter().all(|of| of.len() >= PAYMENTS) {
            break;
        }
        let claim = granted(&nodes[0], wish(pool(1), &format!("u{user}"))).await.id;
        orders_of[(claim.number as usize - 1) % BUCKETS].push(claim);
    }
    for payment in 0..PAYMENTS {
        let told = (0..6).map(|teller: usize| {
            let engine = nodes[teller % 2].clone();
            let order = orders_of[teller % BUCKETS].get(payment).expect("there are as many");
            let pay = money(*order, &format!("p{payment}"));
            tokio::spawn(async move { engine.pay(pay).await })
        });
        let (mut done, mut replayed) = (Vec::new(), Vec::new());
        for answer in told.collect::<Vec<_>>() {
            match answer.await.expect("no panic").expect("nothing fails here") {
                Outcome::Done(Settlement::Paid(claim)) => done.push(claim.id),
                Outcome::Replayed(Settlement::Paid(claim)) => replayed.push(claim.id),
                Outcome::Refused(Refusal::PaymentConflict) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(done.len(), 1, "payment {payment}");
        assert_eq!(replayed, done, "payment {payment}");
    }
    assert_eq!(view(&nodes[0], pool(1)).await.tally.paid as usize, PAYMENTS);
}

/// A sale asks no other sale's server about a payment; the records compare them.
#[tokio::test]
async fn a_payment_of_one_sale_says_nothing_about_another() {
    let Some(url) = shared::redis() else { return };
    let engine = node(&url, &prefix()).await;
    for id in [pool(1), pool(2)] {
        open(&engine, id, orders(3)).await;
        let claim = granted(&engine, wish(id, "ann")).await;
        let paid = engine.pay(money(claim.id, "P")).await;
        assert!(matches!(paid, Ok(Outcome::Done(Settlement::Paid(_)))), "{paid:?}");
    }
}

#[tokio::test]
async fn a_payment_counts_once_among_the_buckets_of_a_sale() {
    let Some(url) = shared::redis() else { return };
    let engine = node(&url, &prefix()).await;
    let mut terms = orders(60);
    terms.buckets = 3;
    open(&engine, pool(1), terms).await;
    let mut claims = Vec::new();
    for user in 0..12 {
        claims.push(granted(&engine, wish(pool(1), &format!("u{user}"))).await.id);
    }
    let bucket = |claim: &ClaimId| (claim.number - 1) % 3;
    let other = claims.iter().find(|claim| bucket(claim) != bucket(&claims[0]));
    let other = *other.expect("twelve are not all in one bucket");
    // An order that is not there keeps nothing from one that is.
    let nobody = ClaimId { number: other.number + 3_000, ..other };
    let refused = engine.pay(money(nobody, "P")).await;
    assert_eq!(refused, Ok(Outcome::Refused(Refusal::NoSuchClaim)));
    let paid = engine.pay(money(claims[0], "P")).await;
    assert!(matches!(paid, Ok(Outcome::Done(Settlement::Paid(_)))), "{paid:?}");
    let twice = engine.pay(money(other, "P")).await;
    assert_eq!(twice, Ok(Outcome::Refused(Refusal::PaymentConflict)));
    let again = engine.pay(money(claims[0], "P")).await;
    assert!(matches!(again, Ok(Outcome::Replayed(Settlement::Paid(_)))), "{again:?}");
    assert_eq!(view(&engine, pool(1)).await.tally.paid, 1);
}

/// Two orders of one bucket, and a user for whom that bucket has nothing left.
#[tokio::test]
async fn late_money_is_not_owed_back_while_another_bucket_has_stock() {
    let Some(url) = shared::redis() else { return };
    let subject = fresh(&url).await;
    let (engine, id) = (&subject.engine, pool(1));
    let mut terms = sale(8, Flow::Order { pay_ms: 100 });
    terms.buckets = 4;
    open(engine, id, terms).await;
    let mut late = Vec::new();
    for user in 0..8 {
        late.push(granted(engine, wish(id, &format!("u{user}"))).await);
    }
    subject.set_time(qiang_core::Timestamp::from_millis(100)).await.expect("it can be set");
    // All units are in the buckets they were claimed from; the first six who come take them.
    for user in 0..6 {
        granted(engine, wish(id, &format!("quick{user}"))).await;
    }
    let mut settled = Vec::new();
    for claim in &late {
        let told = engine.pay(money(claim.id, &format!("p{}", claim.id))).await;
        match told.expect("nothing fails here") {
            Outcome::Done(Settlement::Regranted(anew)) => {
                assert_eq!((anew.replaces, &anew.user), (Some(claim.id.number), &claim.user));
                settled.push(true);
            }
            Outcome::Done(Settlement::RefundDue(due)) => {
                assert_eq!(due.reason, RefundReason::Late);
                settled.push(false);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(settled, [true, true, false, false, false, false, false, false]);
    assert_eq!(view(engine, id).await.available, 0);
}

/// Two nodes take from one pool while late money looks for stock: what is brought may be snatched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_money_competes_with_a_crowd() {
    let Some(url) = shared::redis() else { return };
    let prefix = prefix();
    let (engine, other) = (node(&url, &prefix).await, node(&url, &prefix).await);
    let id = pool(1);
    let mut terms = orders(30);
    terms.buckets = 6;
    open(&engine, id, terms).await;
    let mut late = Vec::new();
    for user in 0..10 {
        let claim = granted(&engine, wish(id, &format!("u{user}"))).await;
        engine.release(claim.id, None, ReleaseReason::Cancelled).await.expect("it answers");
        late.push(claim.id);
    }
    let crowd = (0..25).map(|user| {
        let (other, wish) = (other.clone(), wish(id, &format!("crowd{user}")));
        tokio::spawn(async move { matches!(other.claim(wish).await, Ok(Outcome::Done(_))) })
    });
    let crowd: Vec<_> = crowd.collect();
    let engine = Arc::new(engine);
    let paid = late.into_iter().map(|order| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            match engine.pay(money(order, &format!("p{order}"))).await {
                Ok(Outcome::Done(Settlement::Regranted(_))) => true,
                Ok(Outcome::Done(Settlement::RefundDue(_))) => false,
                other => panic!("{other:?}"),
            }
        })
    });
    let mut sold = 0;
    for task in paid.collect::<Vec<_>>().into_iter().chain(crowd) {
        sold += u32::from(task.await.expect("no panic"));
    }
    assert_eq!(sold, 30, "35 want one of 30");
    assert_eq!(view(&engine, id).await.available, 0);
}

/// What is owed back in one bucket of a sale is not owed again in another, also after it was cleared.
#[tokio::test]
async fn a_refund_is_owed_once_among_the_buckets_of_a_cleared_sale() {
    let Some(url) = shared::redis() else { return };
    let engine = node(&url, &prefix()).await;
    let mut terms = orders(60);
    terms.buckets = 3;
    open(&engine, pool(1), terms).await;
    let mut claims = Vec::new();
    for user in 0..12 {
        claims.push(granted(&engine, wish(pool(1), &format!("u{user}"))).await.id);
    }
    // A name that must not be taken for a note about the other one.
    for payment in ["P", "left:P"] {
        let wrong = PayRequest { amount: Cents::new(1), ..money(claims[0], payment) };
        let owed = engine.pay(wrong).await;
        assert!(matches!(owed, Ok(Outcome::Done(Settlement::RefundDue(_)))), "{owed:?}");
    }
    for claim in &claims {
        engine.release(*claim, None, ReleaseReason::Cancelled).await.expect("it answers");
    }
    assert!(matches!(engine.close(pool(1)).await, Ok(Outcome::Done(_))));
    assert!(matches!(engine.clear(pool(1)).await, Ok(Outcome::Done(_))));
    let other = claims.iter().find(|claim| (claim.number - 1) % 3 != (claims[0].number - 1) % 3);
    let other = *other.expect("twelve are not all in one bucket");
    for payment in ["P", "left:P"] {
        let again =
            engine.ask(Command::Refund(money(other, payment))).await.map(Reply::into_settlement);
        assert_eq!(again, Ok(Outcome::Refused(Refusal::PaymentConflict)), "{payment}");
    }
}
