//! A search finds what fits, all of it, newest first, on every database.

use qiang_core::{Claim, State, Timestamp};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{Cursor, MAX_PAGE, Order, OrderStatus, Search};

use crate::fixtures::{Db, Lcg, T0, claim_id, history, pool_id, user};

on_every_database!(claims_are_found, orders_are_found, the_bounds_of_time_are_kept);

const CLAIMS_OF_EACH: u32 = 100;

async fn filled(on: Dialect) -> Db {
    let db = Db::new(on).await;
    db.store.upsert(&history(&mut Lcg(7), CLAIMS_OF_EACH)).await.expect("written");
    db
}

/// All pages of a search, each of three.
async fn claims(db: &Db, search: Search<State>) -> Vec<Claim> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let search = Search { before, max: 3, ..search.clone() };
        let page = db.store.search_claims(&search).await.expect("readable");
        let Some(last) = page.last() else { return all };
        before = Some(Cursor { at: last.created_at, id: last.id });
        all.extend(page);
    }
}

async fn orders(db: &Db, search: Search<OrderStatus>) -> Vec<Order> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let search = Search { before, max: 3, ..search.clone() };
        let page = db.store.search_orders(&search).await.expect("readable");
        let Some(last) = page.last() else { return all };
        before = Some(last.cursor());
        all.extend(page);
    }
}

async fn claims_are_found(on: Dialect) {
    let db = filled(on).await;
    let mut every = Vec::new();
    for pool in (1..=3).map(pool_id) {
        every.extend(db.store.claims_page(pool, 0, MAX_PAGE).await.expect("readable"));
    }
    every.sort_by_key(|claim| std::cmp::Reverse((claim.created_at, claim.id)));
    let (ann, from, to) = (user("user-3"), T0.plus_millis(20_000), T0.plus_millis(60_000));
    let all = Search::default();
    type Fits<'a> = &'a dyn Fn(&Claim) -> bool;
    let in_time = |claim: &Claim| (from..to).contains(&claim.created_at);
    let cases: [(Search<State>, Fits<'_>); 8] = [
        (all.clone(), &|_| true),
        (Search { user: Some(ann.clone()), ..all.clone() }, &|claim| claim.user == ann),
        (Search { sale: Some(pool_id(2)), ..all.clone() }, &|claim| claim.id.pool == pool_id(2)),
        (Search { state: Some(State::Released), ..all.clone() }, &|claim| {
            claim.state == State::Released
        }),
        (Search { from: Some(from), to: Some(to), ..all.clone() }, &in_time),
        (
            Search {
                user: Some(ann.clone()),
                sale: Some(pool_id(3)),
                state: Some(State::Paid),
                from: Some(T0),
                ..all.clone()
            },
            &|claim| claim.user == ann && claim.id.pool == pool_id(3) && claim.state == State::Paid,
        ),
        (Search { id: Some(claim_id(pool_id(2), 5)), ..all.clone() }, &|claim| {
            claim.id == claim_id(pool_id(2), 5)
        }),
        (Search { id: Some(claim_id(pool_id(2), 5)), sale: Some(pool_id(1)), ..all }, &|_| false),
    ];
    for (search, fits) in cases {
        let expected: Vec<_> = every.iter().filter(|claim| fits(claim)).cloned().collect();
        let found = claims(&db, search.clone()).await;
        assert_eq!(found, expected, "{search:?}");
    }
    assert!(every.iter().any(|claim| claim.state == State::Released && claim.user == ann));
}

async fn orders_are_found(on: Dialect) {
    let db = filled(on).await;
    let mut every = Vec::new();
    for pool in (1..=3).map(pool_id) {
        every.extend(db.store.orders_page(pool, 0, MAX_PAGE).await.expect("readable"));
    }
    every.sort_by_key(|order| std::cmp::Reverse((order.created_at, order.id)));
    let ann = user("user-3");
    let all = Search::default();
    type Fits<'a> = &'a dyn Fn(&Order) -> bool;
    let cases: [(Search<OrderStatus>, Fits<'_>); 4] = [
        (all.clone(), &|_| true),
        (Search { user: Some(ann.clone()), sale: Some(pool_id(2)), ..all.clone() }, &|order| {
            order.user == ann && order.id.pool == pool_id(2)
        }),
        (Search { state: Some(OrderStatus::Cancelled), ..all.clone() }, &|order| {
            order.status == OrderStatus::Cancelled
        }),
        (Search { id: Some(claim_id(pool_id(1), 7)), ..all }, &|order| {
            order.id == claim_id(pool_id(1), 7)
        }),
    ];
    for (search, fits) in cases {
        let expected: Vec<_> = every.iter().filter(|order| fits(order)).cloned().collect();
        assert!(!expected.is_empty(), "{search:?}");
        let found = orders(&db, search.clone()).await;
        assert_eq!(found, expected, "{search:?}");
    }
}

async fn the_bounds_of_time_are_kept(on: Dialect) {
    let db = filled(on).await;
    let first = db.store.claim(claim_id(pool_id(1), 1)).await.expect("readable").expect("there");
    let at = first.created_at;
    let later = |ms: i64| Timestamp::from_millis(at.millis() + ms);
    for (from, to, found) in [(0, 1, true), (1, 2, false), (-1, 0, false), (-1, 1, true)] {
        let (from, to) = (Some(later(from)), Some(later(to)));
        let search = Search { sale: Some(pool_id(1)), from, to, ..Search::default() };
        assert_eq!(!claims(&db, search.clone()).await.is_empty(), found, "{search:?}");
    }
}
