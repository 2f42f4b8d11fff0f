//! The rules alone, without anything around them: the tables on the book in memory, and what only the
//! book can be asked.

mod ids;
mod snapshots;
mod terms;

use qiang_testkit::rules::{self, OnBook};

#[tokio::test]
async fn the_book_keeps_the_rules() {
    rules::hold_on(&OnBook::default()).await;
}
