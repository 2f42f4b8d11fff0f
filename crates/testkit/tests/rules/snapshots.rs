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
    assert_eq!(book.len(), subject.book().len());
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

#[tokio::test]
async fn a_pool_forgotten_between_two_parts_or_before_its_own_is_forgotten() {
    const BEFORE: &str = "
        pool 1: units=3
        ann claims
        pool m1: units=9 limit=9 flow=order(100)
        ann claims in=m1
        bob claims in=m1
        cyd claims in=m1
        dan claims in=m1
        pool m2: units=3
        ann claims in=m2
    ";
    const END: [&str; 4] =
        ["P1 pays 100 for m1-4; P2 pays 100 for m1-3", "@100", "close in=m1", "clear in=m1"];
    for max in 1..12 {
        // What happens at once, and what happens before it.
        for quiet in 0..8 {
            let mut between = vec!["stock"; quiet];
            between.extend(END);
            between.extend(["pool m3: units=1", "bob claims in=m3", "bob claims in=m2"]);
            let (subject, book) = rebuilt(BEFORE, max, &between).await;
            assert_same(&subject, &book);
            assert_eq!(book.len(), 3, "the other two, and one that came since");
        }
        let at_once = END.join(";");
        let (subject, book) = rebuilt(BEFORE, max, &["stock", &at_once]).await;
        assert_same(&subject, &book);
        assert_eq!(book.len(), 2);
    }
}

#[tokio::test]
#[should_panic(expected = "are missing")]
async fn events_of_a_made_pool_that_was_neither_opened_nor_cleared_are_no_book() {
    let subject = OnBook::default();
    let mut table = Table::new(&subject);
    table.check("a pool", "\n pool m1: units=3 \n ann claims in=m1").await;
    let mut book = Book::new(9);
    subject.events_from(1).iter().for_each(|event| book.store(event));
    book.settle();
}

/// Whoever goes on from a snapshot goes on at the time of the last decision, also if that was about a
/// pool of which nothing is left.
#[tokio::test]
async fn a_snapshot_tells_when_the_last_pool_was_forgotten() {
    let subject = OnBook::default();
    let mut table = Table::new(&subject);
    let script = "
        pool 1: units=3
        @70
        pool m1: units=3
        @80
        close in=m1
        clear in=m1 -> 0 of 3 left, cleared
    ";
    table.check("two pools", script).await;
    let (mut events, mut cursor) = (Vec::new(), SnapshotCursor::default());
    let mut log = |event: &Event| events.push(event.clone());
    while !subject.book().snapshot(&mut cursor, 1, &mut log) {}
    assert_eq!(events.iter().map(|event| event.at().millis()).max(), Some(80));
    let mut book = Book::new(9);
    events.iter().for_each(|event| book.store(event));
    book.settle();
    assert_eq!(book.len(), 1);
    let (mut again, mut cursor) = (Vec::new(), SnapshotCursor::default());
    while !book.snapshot(&mut cursor, 1, &mut |event| again.push(event.clone())) {}
    assert_eq!(again, events, "and so does the next one");
}
