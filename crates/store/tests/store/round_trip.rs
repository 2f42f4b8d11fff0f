//! What is written comes back equal: terms of every kind, claims in every state, and what follows
//! from them.

use qiang_core::{
    Cents, Claim, Event, Flow, Identity, PaymentId, PoolChange, RefundReason, ReleaseReason,
    RequestId, Supply, Timestamp, UserId,
};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{Order, OrderStatus, Payment, RECORDS, RefundStatus, Sale, SaleState};

use crate::fixtures::{
    Db, HOLD_MS, PAY_MS, all_kinds_of_terms, claim_id, granted, opened, ordered, paid, payment,
    pool_id, refund, released, restocked, terms, then, user,
};

on_every_database!(
    all_terms_come_back_equal,
    a_sale_follows_its_pool_until_it_is_cleared,
    all_claims_come_back_equal,
    an_order_follows_its_claim,
    a_cancelled_order_says_when,
    refunds_of_every_kind_come_back_equal,
    ids_are_told_apart_byte_by_byte,
    records_survive_closing_and_opening,
);

async fn all_terms_come_back_equal(on: Dialect) {
    let db = Db::new(on).await;
    let pools: Vec<_> = (1..).zip(all_kinds_of_terms()).map(|(id, t)| opened(id, t)).collect();
    let events: Vec<Event> = pools.iter().cloned().map(Event::Pool).collect();
    db.store.upsert(&events).await.expect("written");
    for pool in &pools {
        let sale = db.store.sale(pool.id).await.expect("readable").expect("there");
        assert_eq!(sale.terms, *pool.terms);
        assert_eq!(sale, Sale::of(pool));
    }
    let page = db.store.sales_page(None, 1_000).await.expect("readable");
    assert_eq!(page, pools.iter().map(Sale::of).collect::<Vec<_>>());
}

async fn a_sale_follows_its_pool_until_it_is_cleared(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(i64::MAX.unsigned_abs(), terms(Flow::Instant));
    let more = then(&pool, restocked(7));
    let closed = then(&more, PoolChange::Closed);
    let cleared = then(&closed, PoolChange::Cleared);
    let expected = [
        (pool, SaleState::Open, 1_000),
        (more, SaleState::Open, 1_007),
        (closed, SaleState::Closed, 1_007),
        (cleared.clone(), SaleState::Cleared, 1_007),
    ];
    for (pool, state, total) in expected {
        db.store.upsert(&[Event::Pool(pool.clone())]).await.expect("written");
        let sale = db.store.sale(pool.id).await.expect("readable").expect("there");
        assert_eq!((sale.state, sale.total, sale.version), (state, total, pool.version));
    }
    let sale = db.store.sale(cleared.id).await.expect("readable").expect("there");
    assert_eq!((sale.closed_at.is_some(), sale.cleared_at), (true, Some(cleared.at)));
}

async fn all_claims_come_back_equal(on: Dialect) {
    let db = Db::new(on).await;
    let instant = opened(1, terms(Flow::Instant));
    let order = opened(2, terms(Flow::Order { pay_ms: PAY_MS }));
    let hold = opened(3, terms(Flow::Hold { hold_ms: HOLD_MS, pay_ms: PAY_MS }));
    let mut packet = terms(Flow::Instant);
    packet.supply = Supply::Portions([3, 2, 1].map(Cents::new).into());
    let packet = opened(4, packet);

    let plain = granted(&order, 1, "a");
    let full = Claim {
        user: UserId::new(&"用".repeat(21)).expect("63 bytes"),
        identity: Some(Identity::new("id-1").expect("an id")),
        request: Some(RequestId::new(&"r".repeat(128)).expect("128 bytes")),
        quantity: u32::MAX,
        unit_price: Cents::new(2),
        replaces: Some(u32::MAX),
        ..paid(&granted(&order, 2, "b"), "p")
    };
    let full = Claim { payment: Some(PaymentId::new(&"p".repeat(128)).expect("ok")), ..full };
    let held = granted(&hold, 1, "c");
    let mut claims = vec![plain.clone(), full, held.clone(), granted(&instant, 1, "d")];
    claims.extend([2, 3].map(|number| granted(&packet, number, "e")));
    let reasons = [
        ReleaseReason::GaveUp,
        ReleaseReason::Cancelled,
        ReleaseReason::HoldExpired,
        ReleaseReason::PayExpired,
        ReleaseReason::Revoked,
    ];
    for (number, reason) in (10..).zip(reasons) {
        claims.push(released(&granted(&order, number, "f"), reason));
        claims.push(released(&granted(&hold, number, "f"), reason));
    }
    claims.push(Claim { id: claim_id(order.id, u32::MAX), ..plain });
    claims.push(Claim {
        created_at: Timestamp::from_millis(-1),
        id: claim_id(hold.id, 99),
        ..held
    });

    let mut events = [instant, order, hold, packet].map(Event::Pool).to_vec();
    events.extend(claims.iter().cloned().map(Event::Claim));
    db.store.upsert(&events).await.expect("written");
    for claim in &claims {
        let back = db.store.claim(claim.id).await.expect("readable");
        assert_eq!(back.as_ref(), Some(claim));
        let has_order = db.store.order(claim.id).await.expect("readable").is_some();
        assert_eq!(has_order, claim.has_order(), "order of {claim:?}");
    }
    assert_eq!(db.store.claim(claim_id(pool_id(9), 1)).await.expect("readable"), None);
}

async fn an_order_follows_its_claim(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Hold { hold_ms: HOLD_MS, pay_ms: PAY_MS }));
    let held = granted(&pool, 1, "a");
    let pending = ordered(&held);
    let done = paid(&pending, "p-1");
    db.store.upsert(&[Event::Pool(pool.clone()), Event::Claim(held.clone())]).await.expect("ok");
    assert_eq!(db.store.order(held.id).await.expect("readable"), None);

    db.store.upsert(&[Event::Claim(pending.clone())]).await.expect("written");
    let order = db.store.order(held.id).await.expect("readable").expect("there");
    assert_eq!(order.status, OrderStatus::Pending);
    assert_eq!((order.created_at, order.pay_by), (pending.changed_at, pending.pay_by));
    assert_eq!(order.items.len(), 1);
    assert_eq!(
        (order.items[0].sku.as_str(), order.items[0].title.as_str()),
        ("MT-53", "茅台 53° 500 ml")
    );
    assert_eq!(db.store.payment(pool.id, &payment("p-1")).await.expect("readable"), None);

    db.store.upsert(&[Event::Claim(done.clone())]).await.expect("written");
    let order = db.store.order(held.id).await.expect("readable").expect("there");
    assert_eq!(order.status, OrderStatus::Paid);
    assert_eq!((order.created_at, order.paid_at), (pending.changed_at, Some(done.changed_at)));
    assert_eq!(Some(order), Order::of(&done, &pool.terms));
    let paid_by = db.store.payment(pool.id, &payment("p-1")).await.expect("readable");
    assert_eq!(paid_by, Payment::of(&done));
}

async fn a_cancelled_order_says_when(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let gone = released(&granted(&pool, 1, "a"), ReleaseReason::Cancelled);
    db.store.upsert(&[Event::Pool(pool.clone()), Event::Claim(gone.clone())]).await.expect("ok");
    let order = db.store.order(gone.id).await.expect("readable").expect("there");
    assert_eq!((order.status, order.paid_at), (OrderStatus::Cancelled, None));
    assert_eq!((order.created_at, order.cancelled_at), (gone.created_at, Some(gone.changed_at)));
}

async fn refunds_of_every_kind_come_back_equal(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    db.store.upsert(&[Event::Pool(pool.clone())]).await.expect("written");
    let reasons = [RefundReason::Late, RefundReason::AlreadyPaid, RefundReason::AmountMismatch];
    for (number, reason) in (1..).zip(reasons) {
        let mut due = refund(claim_id(pool.id, number), &format!("p-{number}"));
        due.reason = reason;
        db.store.upsert(&[Event::Refund(due.clone())]).await.expect("written");
        let back = db.store.refund(pool.id, &due.payment).await.expect("readable").expect("there");
        assert_eq!((&back.refund, back.status(), back.settled_at), (&due, RefundStatus::Due, None));
    }
}

/// Ids are opaque: neither case, nor accents, nor spaces at the end make two of them one.
async fn ids_are_told_apart_byte_by_byte(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let names = ["a", "A", "a ", " a", "á", "a\u{301}", "ａ", "ß", "ss", "😀"];
    let mut events = vec![Event::Pool(pool.clone())];
    let claims: Vec<Claim> = (1..).zip(names).map(|(n, name)| granted(&pool, n, name)).collect();
    events.extend(claims.iter().map(|claim| Event::Claim(paid(claim, claim.user.as_str()))));
    db.store.upsert(&events).await.expect("written");
    for claim in &claims {
        let orders = db.store.orders_of(&claim.user, None, 10).await.expect("readable");
        assert_eq!(orders.iter().map(|order| order.id).collect::<Vec<_>>(), [claim.id]);
        let paid_by = db.store.payment(pool.id, &payment(claim.user.as_str())).await;
        assert_eq!(paid_by.expect("readable").expect("there").order, claim.id);
    }
    let mut sorted = names;
    sorted.sort_unstable();
    let page = db.store.payments_page(pool.id, None, 100).await.expect("readable");
    let listed: Vec<&str> = page.iter().map(|payment| payment.payment.as_str()).collect();
    assert_eq!(listed, sorted);
}

async fn records_survive_closing_and_opening(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let claim = granted(&pool, 1, "a");
    let events = [Event::Pool(pool), Event::Claim(claim.clone())];
    db.store.project("embedded", 0, 2, &events).await.expect("written");
    db.store.close().await;
    assert!(db.store.ping().await.is_err(), "a closed store answers nothing");

    let again = qiang_store::Store::open(&db.url).await.expect("opens");
    again.ping().await.expect("answers");
    assert_eq!(again.position(RECORDS, "embedded").await.expect("readable"), 2);
    assert_eq!(again.claim(claim.id).await.expect("readable"), Some(claim));
    assert_eq!(again.orders_of(&user("a"), None, 10).await.expect("readable").len(), 1);
}
