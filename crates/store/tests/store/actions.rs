//! Who did what is kept as it was written, found by who, what and when, and forgotten in time.

use qiang_core::Timestamp;
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{Action, ActionFilter};

use crate::fixtures::{Db, user};

on_every_database!(
    an_action_reads_back_as_written,
    the_same_action_is_noted_once,
    actions_are_found_newest_first,
    old_actions_are_forgotten,
);

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn action(id: u64, ms: i64, who: &str, thing: Option<&str>) -> Action {
    Action {
        id,
        at: at(ms),
        user: user(who),
        role: "admin".to_owned(),
        method: "POST".to_owned(),
        route: "/api/v1/sales/{sale_id}/close".to_owned(),
        thing: thing.map(str::to_owned),
        status: Some(200),
        code: None,
        request: None,
        note: None,
    }
}

async fn an_action_reads_back_as_written(on: Dialect) {
    let db = Db::new(on).await;
    let plain = action(1, 5, "安", None);
    let whole = Action {
        status: None,
        code: Some("sale_in_use".to_owned()),
        request: Some("k".to_owned()),
        note: Some("到货破损".to_owned()),
        ..action(u64::MAX >> 1, 6, "ann", Some("12/pay-1"))
    };
    for one in [&plain, &whole] {
        db.store.add_action(one).await.expect("noted");
    }
    let all = db.store.actions(&ActionFilter::default(), 10).await.expect("readable");
    assert_eq!(all, [whole, plain]);
}

async fn the_same_action_is_noted_once(on: Dialect) {
    let db = Db::new(on).await;
    let one = action(1, 5, "ann", Some("12"));
    db.store.add_action(&one).await.expect("noted");
    db.store.add_action(&Action { status: Some(409), ..one.clone() }).await.expect("known");
    assert_eq!(db.store.actions(&ActionFilter::default(), 10).await.expect("readable"), [one]);
}

async fn actions_are_found_newest_first(on: Dialect) {
    let db = Db::new(on).await;
    for id in 1..=20 {
        let who = if id % 3 == 0 { "ben" } else { "ann" };
        let thing = if id % 2 == 0 { Some("12") } else { None };
        // Two at each time.
        let ms = i64::try_from(id / 2).expect("small");
        db.store.add_action(&action(id, ms, who, thing)).await.expect("noted");
    }
    let ids = async |filter: ActionFilter| {
        let (mut ids, mut before) = (Vec::new(), None);
        loop {
            let page = db.store.actions(&ActionFilter { before, ..filter.clone() }, 3).await;
            let page = page.expect("readable");
            let Some(last) = page.last() else { return ids };
            before = Some(last.moment());
            ids.extend(page.iter().map(|one| one.id));
        }
    };
    let all = ActionFilter::default();
    assert_eq!(ids(all.clone()).await, (1..=20).rev().collect::<Vec<u64>>());
    let of_ben = ActionFilter { user: Some(user("ben")), ..all.clone() };
    assert_eq!(ids(of_ben).await, [18, 15, 12, 9, 6, 3]);
    let of_12 = ActionFilter { thing: Some("12".to_owned()), ..all.clone() };
    assert_eq!(ids(of_12).await, [20, 18, 16, 14, 12, 10, 8, 6, 4, 2]);
    let then = ActionFilter { from: Some(at(4)), to: Some(at(6)), ..all };
    assert_eq!(ids(then).await, [11, 10, 9, 8]);
}

async fn old_actions_are_forgotten(on: Dialect) {
    let db = Db::new(on).await;
    for id in 1..=5 {
        let ms = i64::try_from(id).expect("small");
        db.store.add_action(&action(id, ms, "ann", None)).await.expect("noted");
    }
    assert_eq!(db.store.forget_actions(at(4)).await.expect("done"), 3);
    assert_eq!(db.store.forget_actions(at(4)).await.expect("done"), 0);
    let left = db.store.actions(&ActionFilter::default(), 10).await.expect("readable");
    assert_eq!(left.iter().map(|one| one.id).collect::<Vec<_>>(), [5, 4]);
}
