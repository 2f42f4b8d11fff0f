//! What processes count of a sale's claims adds up, and nothing is added twice.

use qiang_core::Timestamp;
use qiang_sql::{Dialect, on_every_database};
use qiang_store::Counted;

use crate::fixtures::{Db, T0, pool_id};

on_every_database!(
    what_many_writers_count_adds_up,
    what_was_added_is_not_added_again,
    a_writer_that_was_forgotten_begins_anew,
);

fn counted(sale: u64, ms: u64, outcome: &str, times: u64) -> Counted {
    let at = T0.plus_millis(ms);
    Counted { sale: pool_id(sale), at, outcome: outcome.to_owned(), covers_ms: 1_000, times }
}

async fn what_many_writers_count_adds_up(on: Dialect) {
    let db = Db::new(on).await;
    let add = async |writer: &str, seq: u64, counts: &[Counted]| {
        db.store.add_outcomes(writer, seq, counts).await.expect("added");
    };
    let first = [counted(1, 1_000, "sold_out", 5), counted(1, 0, "granted", 2)];
    add("a", 1, &first).await;
    add("b", 1, &first).await;
    add("a", 2, &[counted(1, 1_000, "sold_out", 3), counted(2, 0, "sold_out", 9)]).await;
    let of_one = db.store.sale_outcomes(pool_id(1)).await.expect("readable");
    assert_eq!(of_one, [counted(1, 0, "granted", 4), counted(1, 1_000, "sold_out", 13)]);
    let of_two = db.store.sale_outcomes(pool_id(2)).await.expect("readable");
    assert_eq!(of_two, [counted(2, 0, "sold_out", 9)]);
    assert_eq!(db.store.sale_outcomes(pool_id(3)).await.expect("readable"), []);
}

async fn what_was_added_is_not_added_again(on: Dialect) {
    let db = Db::new(on).await;
    let one = [counted(1, 0, "closed", 7)];
    for seq in [1, 1, 2, 1, 2] {
        db.store.add_outcomes("a", seq, &one).await.expect("added, or known");
    }
    let all = db.store.sale_outcomes(pool_id(1)).await.expect("readable");
    assert_eq!(all, [counted(1, 0, "closed", 14)]);
}

async fn a_writer_that_was_forgotten_begins_anew(on: Dialect) {
    let db = Db::new(on).await;
    let one = [counted(1, 0, "closed", 1)];
    db.store.add_outcomes("a", 4, &one).await.expect("added");
    db.tamper("UPDATE outcome_writers SET at = 0", &[]).await;
    db.store.add_outcomes("b", 1, &one).await.expect("added");
    db.store.add_outcomes("a", 5, &one).await.expect("added");
    let all = db.store.sale_outcomes(pool_id(1)).await.expect("readable");
    assert_eq!(all[0].times, 3);
    assert_eq!(all[0].at, Timestamp::from_millis(T0.millis()));
}
