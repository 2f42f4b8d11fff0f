//! Settings keep what was put last, and of several who swap one succeeds.

use qiang_sql::{Dialect, on_every_database};
use tokio::task::JoinSet;

use crate::fixtures::Db;

on_every_database!(
    settings_keep_what_was_put_last,
    a_setting_is_swapped_if_it_is_what_one_thinks,
    of_many_who_swap_one_succeeds,
);

async fn settings_keep_what_was_put_last(on: Dialect) {
    let db = Db::new(on).await;
    assert_eq!(db.store.setting("current_sale").await.expect("readable"), None);
    for value in ["1", "", "a longer value, 中文"] {
        db.store.put_setting("current_sale", value).await.expect("written");
        let back = db.store.setting("current_sale").await.expect("readable");
        assert_eq!(back.as_deref(), Some(value));
    }
    assert_eq!(db.store.setting("other").await.expect("readable"), None);
}

async fn a_setting_is_swapped_if_it_is_what_one_thinks(on: Dialect) {
    let db = Db::new(on).await;
    let swap = async |expected: Option<&str>, new: &str| {
        db.store.swap_setting("map", expected, new).await.expect("works")
    };
    assert!(!swap(Some("1"), "2").await, "it was never put");
    assert!(swap(None, "1").await);
    assert!(!swap(None, "2").await);
    assert!(!swap(Some("1 "), "2").await);
    assert!(swap(Some("1"), "1").await, "to what it is");
    assert!(swap(Some("1"), "A").await);
    assert!(!swap(Some("a"), "2").await);
    assert_eq!(db.store.setting("map").await.expect("readable").as_deref(), Some("A"));
}

async fn of_many_who_swap_one_succeeds(on: Dialect) {
    let db = Db::new(on).await;
    let mut now: Option<String> = None;
    for round in 0..5 {
        let mut swapping = JoinSet::new();
        for one in 0..12 {
            let (store, now) = (db.store.clone(), now.clone());
            swapping.spawn(async move {
                let new = format!("{round}-{one}");
                let swapped = store.swap_setting("map", now.as_deref(), &new).await;
                swapped.expect("works").then_some(new)
            });
        }
        let won: Vec<String> = swapping.join_all().await.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "round {round}");
        now = db.store.setting("map").await.expect("readable");
        assert_eq!(now.as_ref(), won.first());
    }
}
