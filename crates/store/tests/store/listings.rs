//! Listings come in pages, in their stated order, with nothing twice and nothing left out.

use qiang_core::{Claim, Event, Flow};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{MAX_PAGE, RefundStatus};

use crate::fixtures::{Db, Lcg, PAY_MS, claim_id, granted, history, opened, refund, terms, user};

on_every_database!(
    a_users_orders_come_newest_first,
    orders_of_one_moment_are_all_listed,
    refunds_come_longest_due_first,
    no_page_is_longer_than_the_limit,
);

async fn a_users_orders_come_newest_first(on: Dialect) {
    let db = Db::new(on).await;
    let log = history(&mut Lcg(7), 100);
    db.store.upsert(&log).await.expect("written");
    let buyer = user("user-3");
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let page = db.store.orders_of(&buyer, before, 3).await.expect("readable");
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        before = Some(last.cursor());
        seen.extend(page);
    }
    assert!(seen.len() > 6, "enough for several pages, not {}", seen.len());
    assert!(seen.iter().all(|order| order.user == buyer && order.items.len() == 1));
    let places: Vec<_> = seen.iter().map(|order| (order.created_at, order.id)).collect();
    assert!(places.is_sorted_by(|newer, older| newer > older));
    let mut all = 0;
    for pool in (1..=3).map(crate::fixtures::pool_id) {
        let orders = db.store.orders_page(pool, 0, MAX_PAGE).await.expect("readable");
        all += orders.iter().filter(|order| order.user == buyer).count();
    }
    assert_eq!(seen.len(), all);
}

async fn orders_of_one_moment_are_all_listed(on: Dialect) {
    let db = Db::new(on).await;
    let pools = [1, 2].map(|id| opened(id, terms(Flow::Instant)));
    let mut events = pools.clone().map(Event::Pool).to_vec();
    for (number, pool) in (1..=10).flat_map(|n| pools.iter().map(move |pool| (n, pool))) {
        let at = granted(pool, 1, "a").created_at;
        let claim = granted(pool, number, "a");
        events.push(Event::Claim(Claim { created_at: at, changed_at: at, ..claim }));
    }
    db.store.upsert(&events).await.expect("written");
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let page = db.store.orders_of(&user("a"), before, 3).await.expect("readable");
        let Some(last) = page.last() else { break };
        before = Some(last.cursor());
        seen.extend(page.iter().map(|order| order.id));
    }
    assert_eq!(seen.len(), 20);
    assert!(seen.is_sorted_by(|newer, older| newer > older));
}

async fn refunds_come_longest_due_first(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Order { pay_ms: PAY_MS }));
    let mut events = vec![Event::Pool(pool.clone())];
    for number in 1..=10 {
        let mut due = refund(claim_id(pool.id, number), &format!("p-{:02}", 11 - number));
        due.at = refund(claim_id(pool.id, number / 3), "x").at;
        events.push(Event::Refund(due));
    }
    db.store.upsert(&events).await.expect("written");
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = db.store.refunds(RefundStatus::Due, after.as_ref(), 2).await.expect("readable");
        let Some(last) = page.last() else { break };
        after = Some(last.cursor());
        seen.extend(page.into_iter().map(|record| (record.refund.at, record.refund.payment)));
    }
    assert_eq!(seen.len(), 10);
    assert!(seen.is_sorted_by(|first, second| first < second));
}

async fn no_page_is_longer_than_the_limit(on: Dialect) {
    let db = Db::new(on).await;
    let pool = opened(1, terms(Flow::Instant));
    let mut events = vec![Event::Pool(pool.clone())];
    events.extend((1..=MAX_PAGE + 1).map(|number| Event::Claim(granted(&pool, number, "a"))));
    db.store.upsert(&events).await.expect("written");
    let limit = MAX_PAGE as usize;
    assert_eq!(db.store.claims_page(pool.id, 0, u32::MAX).await.expect("ok").len(), limit);
    assert_eq!(db.store.orders_page(pool.id, 0, u32::MAX).await.expect("ok").len(), limit);
    assert_eq!(db.store.orders_of(&user("a"), None, u32::MAX).await.expect("ok").len(), limit);
    assert_eq!(db.store.claims_page(pool.id, MAX_PAGE, u32::MAX).await.expect("ok").len(), 1);
    assert_eq!(db.store.claims_page(pool.id, 0, 0).await.expect("ok"), []);
}
