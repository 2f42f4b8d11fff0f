//! The sums of a sale are those of its rows, also over time.

use qiang_core::{Cents, Claim, Event, Flow, ReleaseReason, State, Terms};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{PaidWithin, SalePart, SaleSums};

use crate::fixtures::{
    Db, Lcg, PAY_MS, Records, T0, claim_id, granted, history, opened, paid, payment, pool_id,
    refund, released, restocked, terms, then,
};

on_every_database!(
    sums_are_those_of_the_rows,
    a_sale_is_sold_out_when_nothing_was_left_for_the_first_time,
    what_happened_is_told_by_time,
    a_sale_that_never_was_comes_to_nothing,
);

async fn sums_are_those_of_the_rows(on: Dialect) {
    let db = Db::new(on).await;
    db.store.upsert(&history(&mut Lcg(7), 100)).await.expect("written");
    db.store
        .settle_refund(pool_id(2), &payment("pay-2-1"), T0)
        .await
        .expect("settled or not there");
    let all = Records::of(&db.store).await;
    for pool in (1..=3).map(pool_id) {
        let sums = db.store.sale_sums(pool).await.expect("readable");
        let claims: Vec<&Claim> = all.claims.iter().filter(|claim| claim.id.pool == pool).collect();
        let units = |state: State| {
            let of_state = claims.iter().filter(|claim| claim.state == state);
            of_state.map(|claim| u64::from(claim.quantity)).sum::<u64>()
        };
        let users: std::collections::BTreeSet<_> = claims.iter().map(|claim| &claim.user).collect();
        assert_eq!((sums.claims, sums.buyers), (claims.len() as u64, users.len() as u64));
        assert_eq!(
            (sums.held, sums.ordered, sums.paid, sums.released + sums.returned),
            (units(State::Held), units(State::Ordered), units(State::Paid), units(State::Released))
        );
        let payments = all.payments.iter().filter(|payment| payment.order.pool == pool);
        let received: i64 = payments.map(|payment| payment.amount.get()).sum();
        assert_eq!(sums.received, Cents::new(received));
        let refunds = all.refunds.iter().filter(|record| record.refund.order.pool == pool);
        let (settled, due): (Vec<_>, Vec<_>) = refunds.partition(|one| one.settled_at.is_some());
        assert_eq!(
            (sums.refunds_settled, sums.refunds_due),
            (settled.len() as u64, due.len() as u64)
        );
        let owed: i64 = due.iter().map(|one| one.refund.amount.get()).sum();
        assert_eq!(sums.due, Cents::new(owed));
        let times = claims.iter().map(|claim| claim.created_at);
        assert_eq!(sums.first_claim_at, times.clone().min());
        assert_eq!(sums.last_claim_at, times.max());
    }
}

/// Three units; number 1 comes back, number 4 takes it.
fn small() -> (qiang_core::PoolState, Vec<Event>) {
    let units =
        Terms { supply: qiang_core::Supply::Units(3), ..terms(Flow::Order { pay_ms: PAY_MS }) };
    let pool = opened(1, units);
    let claim = |number| granted(&pool, number, &format!("user-{number}"));
    let events = vec![
        Event::Pool(pool.clone()),
        Event::Claim(released(&claim(1), ReleaseReason::Cancelled)),
        Event::Claim(paid(&claim(2), "p2")),
        Event::Claim(Claim { created_at: T0.plus_millis(2_500), ..claim(3) }),
        Event::Claim(Claim { created_at: T0.plus_millis(40_000), ..claim(4) }),
        Event::Refund(refund(claim_id(pool.id, 1), "late")),
    ];
    (pool, events)
}

async fn a_sale_is_sold_out_when_nothing_was_left_for_the_first_time(on: Dialect) {
    let db = Db::new(on).await;
    let (pool, events) = small();
    db.store.upsert(&events[..3]).await.expect("written");
    assert_eq!(db.store.sold_out_at(pool.id, 3).await.expect("readable"), None);
    db.store.upsert(&events).await.expect("written");
    // 1 s, 2 s and 2.5 s.
    let third = Some(T0.plus_millis(2_500));
    assert_eq!(db.store.sold_out_at(pool.id, 3).await.expect("readable"), third);
    assert_eq!(db.store.sold_out_at(pool.id, 4).await.expect("readable"), None);
    // A restock after a minute comes too late to change that; one at the opening does not.
    db.store.upsert(&[Event::Pool(then(&pool, restocked(5)))]).await.expect("written");
    assert_eq!(db.store.sold_out_at(pool.id, 3).await.expect("readable"), third);
    db.tamper("UPDATE sale_changes SET changed_at = 0 WHERE kind = 'restocked'", &[]).await;
    assert_eq!(db.store.sold_out_at(pool.id, 3).await.expect("readable"), None);
}

async fn what_happened_is_told_by_time(on: Dialect) {
    let db = Db::new(on).await;
    let (pool, events) = small();
    db.store.upsert(&events).await.expect("written");
    let part = |place, count| SalePart { place, count, units: count };
    let granted = db.store.granted_by_time(pool.id, T0, 2_000, 100).await.expect("readable");
    assert_eq!(granted, [part(0, 1), part(1, 2), part(20, 1)]);
    let released = db.store.released_by_time(pool.id, T0, 1_000, 100).await.expect("readable");
    assert_eq!(released, [part(31, 1)]);
    let paid = db.store.paid_by_time(pool.id, T0, 1_000, 100).await.expect("readable");
    assert_eq!(paid, [part(32, 1)]);
    let later = T0.plus_millis(2_001);
    let rest = db.store.granted_by_time(pool.id, later, 1_000, 1).await.expect("readable");
    assert_eq!(rest, [part(0, 1)], "what came before is left out, and so is what is too much");
    assert_eq!(db.store.busiest_second(pool.id).await.expect("readable"), 2);
    let within = PaidWithin { half_ms: 30_000, most_ms: 30_000, all_ms: 30_000 };
    assert_eq!(db.store.paid_within(pool.id).await.expect("readable"), Some(within));
}

async fn a_sale_that_never_was_comes_to_nothing(on: Dialect) {
    let db = Db::new(on).await;
    let none = pool_id(9);
    assert_eq!(db.store.sale_sums(none).await.expect("readable"), SaleSums::default());
    assert_eq!(db.store.sold_out_at(none, 1).await.expect("readable"), None);
    assert_eq!(db.store.busiest_second(none).await.expect("readable"), 0);
    assert_eq!(db.store.paid_within(none).await.expect("readable"), None);
    assert_eq!(db.store.granted_by_time(none, T0, 1_000, 10).await.expect("readable"), []);
}
