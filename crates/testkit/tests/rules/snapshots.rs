//! A snapshot written in pieces, with changes between them, and the log behind its beginning
//! give the book again.

use qiang_core::{Book, Event, SnapshotCursor};
use qiang_testkit::rules::{OnBook, Table};

/// Begins a snapshot after `script`, writes it in parts of `max`, runs one line of `between`
/// before each further part, and rebuilds the book from the parts and the log behind them.
async fn rebuilt(script: &str, max: usize, between: &[&str]) -> (OnBook, Book) {
    let subject = OnBook::default();
    let mut table = Table::new(&subject);
    table.check("the beginning", script).await;
    let base = subject.events_from(0).len();
    let (mut parts, mut cursor) = (Vec::new(), SnapshotCursor::default());
    let mut changes = between.iter();
    loop {
        let mut part: Vec<Event> = Vec::new();
        let last = subject.book().snapshot(&mut cursor, max, &mut |event| part.push(event.clone()));
        assert!(last || !part.is_empty(), "every part brings the end nearer");
        parts.extend(part);
        let line = changes.next();
        if let Some(line) = line {
            table.go_on(line).await;
        }
        if last {
            for line in changes {
                table.go_on(line).await;
            }
            break;
        }
    }
    let mut book = Book::new(9);
    parts.iter().chain(&subject.events_from(base)).for_each(|event| book.store(event));
    book.settle();
    (subject, book)
}

fn assert_same(subject: &OnBook, book: &Book) {
    for pool in subject.book().pools() {
        let again = book.pool(pool.view().id).expect("it is in the snapshot or behind it");
        assert_eq!(again.view(), pool.view());
        for number in 1..=pool.view().claims {
            assert_eq!(again.claim(number), pool.claim(number));
        }
    }
}

const FOUR: &str = "
    pool 1: units=9 limit=9 flow=order(100)
    ann claims
    bob claims
    cyd claims
    dan claims
";

#[tokio::test]
async fn what_changes_between_two_parts_is_in_the_log() {
    for max in 1..8 {
        let (subject, book) = rebuilt(
            FOUR,
            max,
            &[
                "P1 pays 100 for 1",
                "dan gives up 4",
                "eve claims",
                "P2 pays 7 for 2",
                "pool 2: portions=3,4",
                "bob claims in=2",
                "restock 3 req=a",
                "@100",
                "P3 pays 100 for 2",
                "close",
            ],
        )
        .await;
        assert_same(&subject, &book);
    }
}

#[tokio::test]
async fn a_pool_cleared_between_two_parts_is_cleared() {
    for max in 1..8 {
        let (subject, book) = rebuilt(
            FOUR,
            max,
            &["P0 pays 1 for 1", "@100", "fay claims", "P1 pays 100 for 5", "close", "clear"],
        )
        .await;
        assert_same(&subject, &book);
        let cleared = book.pools().all(|pool| pool.view().cleared);
        assert!(cleared);
    }
}

#[tokio::test]
async fn a_pool_cleared_within_a_part_is_cleared() {
    // Everything at once, between the first part and the second.
    for max in 1..8 {
        let (subject, book) = rebuilt(
            FOUR,
            max,
            &[
                "@100; fay claims; P1 pays 100 for 5; P0 pays 1 for 5; close; clear; P1 returns 100 for 5",
            ],
        ).await;
        assert_same(&subject, &book);
    }
}
