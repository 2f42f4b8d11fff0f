//! A snapshot written in pieces, with changes between them, and the log behind its beginning
//! give the book again.

use qiang_core::{Book, Event, SnapshotCursor};

use super::script::{Table, check};

/// Begins a snapshot after `script`, writes it in parts of `max`, runs one line of `between`
/// before each further part, and rebuilds the book from the parts and the log behind them.
#[track_caller]
fn rebuilt(script: &str, max: usize, between: &[&str]) -> (Table, Book) {
    let mut table = check(script);
    let base = table.events.len();
    let (mut parts, mut cursor) = (Vec::new(), SnapshotCursor::default());
    let mut changes = between.iter();
    loop {
        let mut part: Vec<Event> = Vec::new();
        let last = table.book.snapshot(&mut cursor, max, &mut |event| part.push(event.clone()));
        assert!(last || !part.is_empty(), "every part brings the end nearer");
        parts.extend(part);
        if let Some(line) = changes.next() {
            table.go_on(line);
        } else if last {
            break;
        }
        if last {
            changes.by_ref().for_each(|line| table.go_on(line));
            break;
        }
    }
    let mut book = Book::new(9);
    parts.iter().chain(&table.events[base..]).for_each(|event| book.store(event));
    book.settle();
    (table, book)
}

#[track_caller]
fn assert_same(table: &Table, book: &Book) {
    for pool in table.book.pools() {
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

#[test]
fn what_changes_between_two_parts_is_in_the_log() {
    for max in 1..8 {
        let (table, book) = rebuilt(
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
        );
        assert_same(&table, &book);
    }
}

#[test]
fn a_pool_cleared_between_two_parts_is_cleared() {
    for max in 1..8 {
        let (table, book) = rebuilt(
            FOUR,
            max,
            &["P0 pays 1 for 1", "@100", "fay claims", "P1 pays 100 for 5", "close", "clear"],
        );
        assert_same(&table, &book);
        let cleared = book.pools().all(|pool| pool.view().cleared);
        assert!(cleared);
    }
}

#[test]
fn a_pool_cleared_within_a_part_is_cleared() {
    // Everything at once, between the first part and the second.
    for max in 1..8 {
        let (table, book) = rebuilt(
            FOUR,
            max,
            &[
                "@100; fay claims; P1 pays 100 for 5; P0 pays 1 for 5; close; clear; P1 returns 100 for 5",
            ],
        );
        assert_same(&table, &book);
    }
}
