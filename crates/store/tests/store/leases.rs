//! A lease is one owner's at a time, by the clock of the database.

use std::collections::BTreeSet;
use std::time::Duration;

use qiang_sql::{Dialect, on_every_database};
use qiang_store::Store;
use tokio::task::JoinSet;

use crate::fixtures::Db;

on_every_database!(
    a_lease_is_one_owners_until_it_ends,
    what_is_not_mine_is_not_given_up,
    of_many_at_once_one_gets_it,
    a_lease_that_ran_out_goes_to_one_of_many,
    numbers_are_taken_from_the_lowest_on,
    of_many_at_once_each_gets_a_number_of_its_own,
);

const LONG: Duration = Duration::from_secs(3_600);

async fn a_lease_is_one_owners_until_it_ends(on: Dialect) {
    let db = Db::new(on).await;
    let take = async |name: &str, owner: &str, ttl| {
        db.store.take_lease(name, owner, ttl).await.expect("works")
    };
    assert!(take("projector", "a", LONG).await);
    assert!(!take("projector", "b", LONG).await);
    assert!(take("projector", "a", LONG).await, "renewed");
    assert!(take("projector ", "b", LONG).await, "another name");
    assert!(take("Projector", "b", LONG).await, "another name");
    assert!(!take("projector", "A", LONG).await, "another owner");
    assert!(take("projector", "a", Duration::ZERO).await, "renewed, and over at once");
    assert!(take("projector", "b", LONG).await);
    assert!(!take("projector", "a", LONG).await, "the old owner is not the owner");
}

async fn what_is_not_mine_is_not_given_up(on: Dialect) {
    let db = Db::new(on).await;
    assert!(db.store.take_lease("x", "a", LONG).await.expect("works"));
    db.store.give_up_lease("x", "b").await.expect("does nothing");
    assert!(!db.store.take_lease("x", "b", LONG).await.expect("works"));
    db.store.give_up_lease("x", "a").await.expect("works");
    assert!(db.store.take_lease("x", "b", LONG).await.expect("works"));
    db.store.give_up_lease("never taken", "a").await.expect("does nothing");
}

/// Every one of `owners` asks at the same time; those who got it.
async fn winners(db: &Db, name: &'static str, owners: usize) -> Vec<usize> {
    let mut asking = JoinSet::new();
    for owner in 0..owners {
        let store = db.store.clone();
        asking.spawn(async move {
            let got = store.take_lease(name, &format!("owner-{owner}"), LONG).await;
            got.expect("works").then_some(owner)
        });
    }
    asking.join_all().await.into_iter().flatten().collect()
}

async fn of_many_at_once_one_gets_it(on: Dialect) {
    let db = Db::new(on).await;
    for name in ["one", "two", "three", "four", "five"] {
        assert_eq!(winners(&db, name, 24).await.len(), 1, "{name}");
    }
}

async fn a_lease_that_ran_out_goes_to_one_of_many(on: Dialect) {
    let db = Db::new(on).await;
    for name in ["one", "two", "three"] {
        let taken = db.store.take_lease(name, "gone", Duration::ZERO).await;
        assert!(taken.expect("works"));
        assert_eq!(winners(&db, name, 24).await.len(), 1, "{name}");
    }
}

async fn numbers_are_taken_from_the_lowest_on(on: Dialect) {
    let db = Db::new(on).await;
    let number =
        async |owner: &str| db.store.lease_number("node", 3, owner, LONG).await.expect("works");
    assert_eq!(number("a").await, Some(0));
    assert_eq!(number("b").await, Some(1));
    assert_eq!(number("a").await, Some(0), "the same again");
    assert_eq!(number("c").await, Some(2));
    assert_eq!(number("d").await, None);
    db.store.give_up_lease("node/1", "b").await.expect("works");
    assert_eq!(number("d").await, Some(1));
    assert!(db.store.take_lease("node/0", "a", Duration::ZERO).await.expect("works"));
    assert_eq!(number("e").await, Some(0), "what ran out is free");
    let other = db.store.lease_number("nod", 3, "e", LONG).await.expect("works");
    assert_eq!(other, Some(0), "another prefix");
}

async fn of_many_at_once_each_gets_a_number_of_its_own(on: Dialect) {
    const NUMBERS: u16 = 10;
    let db = Db::new(on).await;
    let mut asking = JoinSet::new();
    for owner in 0..NUMBERS {
        let store: Store = db.store.clone();
        asking.spawn(async move {
            // Everybody sees the same free number at first; who loses it asks again.
            loop {
                let owner = format!("owner-{owner}");
                let got = store.lease_number("node", NUMBERS, &owner, LONG).await;
                if let Some(number) = got.expect("works") {
                    return number;
                }
            }
        });
    }
    let numbers: BTreeSet<u16> = asking.join_all().await.into_iter().collect();
    assert_eq!(numbers, (0..NUMBERS).collect());
}
