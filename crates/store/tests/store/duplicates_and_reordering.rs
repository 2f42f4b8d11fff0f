//! However often and in whatever order events come, the tables end up the same.

use qiang_core::{Claim, Event, Flow, PoolChange, PoolState};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{Error, Order, Payment, RECORDS, Sale};

use crate::fixtures::{
    Db, Lcg, PAY_MS, Records, T0, granted, history, opened, paid, pool_id, refund, released, terms,
    then,
};

on_every_database!(
    the_log_in_order_gives_the_expected_tables,
    any_order_and_any_repetition_gives_the_same_tables,
    an_older_version_never_replaces_a_newer_one,
    p12_records_follow_events_and_hold_no_stock,
    a_due_event_never_reopens_a_settled_refund,
    events_of_an_unknown_sale_write_nothing,
    a_batch_may_be_of_any_size,
    a_batch_may_speak_of_many_sales,
);

/// The tables by definition: the newest version of everything, and what follows from it.
fn expected(log: &[Event]) -> Records {
    let mut records = Records {
        sales: Vec::new(),
        claims: Vec::new(),
        orders: Vec::new(),
        payments: Vec::new(),
        refunds: Vec::new(),
    };
    let pools = || log.iter().filter_map(|e| if let Event::Pool(p) = e { Some(p) } else { None });
    for first in pools().filter(|pool| pool.version == 1) {
        let of_this = |pool: &&PoolState| pool.id == first.id;
        let newest = pools().filter(of_this).max_by_key(|pool| pool.version).expect("itself");
        records.sales.push(Sale::of(newest));
    }
    let claims = || log.iter().filter_map(|e| if let Event::Claim(c) = e { Some(c) } else { None });
    for first in claims().filter(|claim| claim.version == 1) {
        let of_this = |claim: &&Claim| claim.id == first.id;
        let newest = claims().filter(of_this).max_by_key(|claim| claim.version).expect("itself");
        let sale = records.sales.iter().find(|sale| sale.id == newest.id.pool).expect("known");
        records.orders.extend(Order::of(newest, &sale.terms));
        let paid = claims().filter(of_this).find(|claim| claim.payment.is_some());
        records.payments.extend(paid.and_then(Payment::of));
        records.claims.push(newest.clone());
    }
    for event in log {
        let refund = match event {
            Event::Refund(refund) => Some(refund.clone()),
            Event::Claim(claim) => claim.revoked(),
            Event::Pool(_) => None,
        };
        if let Some(refund) = refund {
            records.refunds.push(qiang_store::RefundRecord { refund, settled_at: None });
        }
    }
    records.claims.sort_by_key(|claim| claim.id);
    records.orders.sort_by_key(|order| order.id);
    records.payments.sort_by_key(|payment| (payment.order.pool, payment.payment.clone()));
    records.refunds.sort_by_key(|r| (r.refund.order.pool, r.refund.payment.clone()));
    records
}

async fn the_log_in_order_gives_the_expected_tables(on: Dialect) {
    let log = history(&mut Lcg(1), 300);
    let db = Db::new(on).await;
    db.store.project("embedded", 0, log.len() as u64, &log).await.expect("written");
    let records = Records::of(&db.store).await;
    assert_eq!(records, expected(&log));
    assert!(records.orders.len() > 300 && records.payments.len() > 50);
    assert!(records.refunds.len() > 50, "the history has something of everything");
}

async fn any_order_and_any_repetition_gives_the_same_tables(on: Dialect) {
    let db = Db::new(on).await;
    let seeds = if on == Dialect::Sqlite { 25 } else { 8 };
    for seed in 0..seeds {
        db.clear().await;
        let mut dice = Lcg(seed);
        let log = history(&mut dice, 40);
        // The log has a sale before anything that happens in it; everything else may be late.
        let (firsts, mut rest): (Vec<Event>, Vec<Event>) = log
            .iter()
            .cloned()
            .partition(|event| matches!(event, Event::Pool(pool) if pool.version == 1));
        db.store.upsert(&firsts).await.expect("written");
        rest.extend(
            (0..rest.len() / 2).map(|_| rest[dice.below(rest.len())].clone()).collect::<Vec<_>>(),
        );
        rest.extend(firsts);
        dice.shuffle(&mut rest);
        let mut rest = rest.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + dice.below(rest.len()));
            db.store.upsert(now).await.expect("written");
            if dice.below(3) == 0 {
                db.store.upsert(now).await.expect("written again");
            }
            rest = later;
        }
        assert_eq!(Records::of(&db.store).await, expected(&log), "seed {seed}");
    }
}

async fn an_older_version_never_replaces_a_newer_one(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let closed = then(&pool, PoolChange::Closed);
    let first = granted(&pool, 1, "a");
    let last = paid(&first, "p-1");
    db.store.upsert(&[Event::Pool(closed), Event::Claim(last)]).await.expect("written");
    let before = Records::of(&db.store).await;
    db.store.upsert(&[Event::Claim(first), Event::Pool(pool)]).await.expect("written");
    assert_eq!(Records::of(&db.store).await, before);
}

/// Whatever is taken or comes back, a sale's row stays as it is: there is no number in it that
/// could be copied late over a newer one, and what is older than the row is not taken over.
async fn p12_records_follow_events_and_hold_no_stock(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let more = then(&pool, crate::fixtures::restocked(7));
    db.store.upsert(&[Event::Pool(more.clone())]).await.expect("written");
    let before = Records::of(&db.store).await.sales;
    assert_eq!(before, [Sale::of(&more)]);
    let first = granted(&pool, 1, "a");
    let second = granted(&pool, 2, "b");
    let gone = released(&second, qiang_core::ReleaseReason::PayExpired);
    for event in [
        Event::Claim(first.clone()),
        Event::Claim(gone.clone()),
        Event::Claim(second),
        Event::Claim(paid(&first, "p-1")),
        Event::Pool(pool),
        Event::Claim(first),
    ] {
        db.store.upsert(&[event]).await.expect("written");
        assert_eq!(Records::of(&db.store).await.sales, before);
    }
    let claims = Records::of(&db.store).await.claims;
    assert_eq!(claims[1], gone, "late news of its grant does not bring it back");
    assert_eq!((claims[0].version, claims.len()), (2, 2));
}

async fn a_due_event_never_reopens_a_settled_refund(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let gone = released(&granted(&pool, 1, "a"), qiang_core::ReleaseReason::PayExpired);
    let due = refund(gone.id, "p-1");
    let log = [Event::Pool(pool.clone()), Event::Claim(gone), Event::Refund(due.clone())];
    db.store.upsert(&log).await.expect("written");
    db.store.settle_refund(pool.id, &due.payment, T0).await.expect("settled");
    let before = Records::of(&db.store).await;
    db.store.upsert(&log).await.expect("written again");
    assert_eq!(Records::of(&db.store).await, before);
    assert_eq!(before.refunds[0].settled_at, Some(T0));
}

async fn events_of_an_unknown_sale_write_nothing(on: Dialect) {
    let db = Db::new(on).await;
    let known = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let unknown = opened(2, terms(Flow::Order { pay_ms: PAY_MS }));
    let strays = [
        Event::Claim(granted(&unknown, 1, "a")),
        Event::Refund(refund(granted(&unknown, 1, "a").id, "p-1")),
    ];
    for stray in strays {
        let events = [Event::Pool(known.clone()), Event::Claim(granted(&known, 1, "a")), stray];
        let refused = db.store.project("embedded", 0, 3, &events).await;
        assert!(matches!(refused, Err(Error::UnknownSale { sale }) if sale == pool_id(2)));
        assert_eq!(Records::of(&db.store).await.sales, []);
        assert_eq!(db.store.position(RECORDS, "embedded").await.expect("readable"), 0);
    }
}

async fn a_batch_may_be_of_any_size(on: Dialect) {
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let db = Db::new(on).await;
    for claims in [0, 1, 2, 255, 256, 257, 511, 12_345] {
        db.clear().await;
        let mut log = vec![Event::Pool(pool.clone())];
        log.extend((1..=claims).map(|n| Event::Claim(granted(&pool, n, &format!("u{n}")))));
        db.store.project("embedded", 0, log.len() as u64, &log).await.expect("written");
        let mut count = 0;
        while let Some(last) =
            db.store.orders_page(pool.id, count, u32::MAX).await.expect("readable").last()
        {
            count = last.id.number;
        }
        assert_eq!(count, claims);
    }
}

async fn a_batch_may_speak_of_many_sales(on: Dialect) {
    let db = Db::new(on).await;
    let pools: Vec<PoolState> = (1..=1_200).map(|id| opened(id, terms(Flow::Instant))).collect();
    let sales: Vec<Event> = pools.iter().cloned().map(Event::Pool).collect();
    db.store.upsert(&sales).await.expect("written");
    let claims: Vec<Event> = pools.iter().map(|pool| Event::Claim(granted(pool, 1, "a"))).collect();
    db.store.upsert(&claims).await.expect("written");
    for pool in [&pools[0], &pools[600], &pools[1_199]] {
        let order = db.store.order(granted(pool, 1, "a").id).await.expect("readable");
        assert_eq!(order, Order::of(&granted(pool, 1, "a"), &pool.terms));
    }
}
