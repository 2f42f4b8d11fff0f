//! Events that could not be applied: set aside with the position, tried again once, discarded once.

use std::time::Duration;

use qiang_core::{Event, PoolChange, ReleaseReason};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::jobs::Take;
use qiang_store::retries::{Compensation, Parked, Retry, RetryCounts, RetryState};
use qiang_store::{Blame, RECORDS};

use crate::fixtures::{Db, PAY_MS, granted, opened, ordered, paid, released, terms, then};

on_every_database!(
    events_are_set_aside_in_the_transaction_that_moves_the_position,
    an_attempt_counts_once_whoever_else_tries,
    an_event_that_keeps_failing_is_a_dead_letter,
    a_newer_version_of_the_claim_resolves_it,
    many_are_tried_again_one_after_the_other_and_a_claim_in_its_order,
    a_dead_letter_is_discarded_once,
    what_is_over_is_forgotten_and_what_explains_the_books_is_not,
    what_the_data_is_to_blame_for_is_told_from_everything_else,
);

const RETRIES: u32 = 3;

fn set_aside(event: &Event) -> Parked<'_> {
    Parked { event, bytes: event.id().into_bytes(), error: "it does not fit".into() }
}

/// A sale of holds, and the versions of one claim.
fn story() -> (Event, Vec<Event>) {
    let pool = opened(1, terms(qiang_core::Flow::Hold { hold_ms: 300_000, pay_ms: PAY_MS }));
    let claim = granted(&pool, 1, "ann");
    let then = ordered(&claim);
    let last = paid(&then, "p1");
    (Event::Pool(pool), [claim, then, last].map(Event::Claim).to_vec())
}

async fn due(db: &Db) -> Vec<Retry> {
    db.store.due_retries(RECORDS, Take::Any, 100).await.expect("readable")
}

async fn one(db: &Db, event: &Event) -> Retry {
    let found = db.store.retry(RECORDS, &event.id()).await.expect("readable");
    found.expect("it was set aside")
}

/// Set aside, and a dead letter.
async fn dead(db: &Db, events: &[Event]) {
    let parked: Vec<Parked<'_>> = events.iter().map(set_aside).collect();
    let at = db.store.position(RECORDS, "embedded").await.expect("readable");
    let written = db.store.project_and_park("embedded", at, at + 1, &[], &parked, 0).await;
    written.expect("written");
}

async fn events_are_set_aside_in_the_transaction_that_moves_the_position(on: Dialect) {
    let db = Db::new(on).await;
    let (sale, claims) = story();
    let parked = [set_aside(&claims[1])];
    let good = [sale, claims[0].clone()];
    let write = db.store.project_and_park("embedded", 0, 3, &good, &parked, RETRIES).await;
    write.expect("written");
    assert_eq!(db.store.position(RECORDS, "embedded").await.expect("readable"), 3);
    let retry = one(&db, &claims[1]).await;
    assert_eq!((retry.state, retry.attempts, retry.round), (RetryState::Waiting, 1, 1));
    assert_eq!((retry.kind.as_str(), retry.number, retry.version), ("claim_ordered", 1, 2));
    assert_eq!(retry.bytes, claims[1].id().into_bytes());
    assert_eq!(retry.at.millis() - retry.parked_at.millis(), 1_000);
    // Somebody else has moved: nothing of it happens.
    let parked = [set_aside(&claims[2])];
    db.store.project_and_park("embedded", 0, 3, &[], &parked, RETRIES).await.expect_err("moved");
    assert!(db.store.retry(RECORDS, &claims[2].id()).await.expect("readable").is_none());
}

async fn an_attempt_counts_once_whoever_else_tries(on: Dialect) {
    let db = Db::new(on).await;
    let (sale, claims) = story();
    let parked = [set_aside(&claims[0])];
    db.store.project_and_park("embedded", 0, 2, &[sale], &parked, RETRIES).await.expect("written");
    let retry = due(&db).await.remove(0);
    assert!(db.store.retry_event(&retry, &claims[0]).await.expect("recorded"));
    assert!(!db.store.retry_event(&retry, &claims[0]).await.expect("somebody was first"));
    let late = db.store.fail_retry(&retry, "too late", RETRIES).await.expect("noted");
    assert_eq!(late, None);
    let retry = one(&db, &claims[0]).await;
    assert_eq!((retry.state, retry.attempts), (RetryState::Resolved, 2));
    let Event::Claim(claim) = &claims[0] else { panic!("a claim") };
    assert_eq!(db.store.claim(claim.id).await.expect("readable").as_ref(), Some(claim));
    assert_eq!(due(&db).await, []);
}

async fn an_event_that_keeps_failing_is_a_dead_letter(on: Dialect) {
    let db = Db::new(on).await;
    let (_, claims) = story();
    let parked = [set_aside(&claims[0])];
    db.store.project_and_park("embedded", 0, 1, &[], &parked, RETRIES).await.expect("written");
    for attempt in 2..=4 {
        let retry = due(&db).await.remove(0);
        // Its sale is unknown, and nothing of the attempt stays.
        let failed = db.store.retry_event(&retry, &claims[0]).await.expect_err("unknown sale");
        assert_eq!(failed.blame(), Blame::Data);
        assert_eq!(one(&db, &claims[0]).await, retry);
        let state = db.store.fail_retry(&retry, &failed.to_string(), RETRIES).await;
        let expected = if attempt == 4 { RetryState::Dead } else { RetryState::Waiting };
        assert_eq!(state.expect("noted"), Some(expected));
    }
    let retry = one(&db, &claims[0]).await;
    assert_eq!((retry.state, retry.attempts), (RetryState::Dead, 4));
    assert!(retry.error.contains("never recorded"), "{}", retry.error);
    let counts = db.store.retry_counts().await.expect("readable");
    assert_eq!(counts, RetryCounts { waiting: 0, dead: 1 });
    // A person asks for more.
    assert!(db.store.revive(RECORDS, &claims[0].id()).await.expect("asked"));
    assert!(!db.store.revive(RECORDS, &claims[0].id()).await.expect("it is none any more"));
    let retry = due(&db).await.remove(0);
    assert_eq!((retry.attempts, retry.round), (4, 0));
    let state = db.store.fail_retry(&retry, "again", RETRIES).await.expect("noted");
    assert_eq!(state, Some(RetryState::Waiting));
}

async fn a_newer_version_of_the_claim_resolves_it(on: Dialect) {
    let db = Db::new(on).await;
    let (sale, claims) = story();
    dead(&db, &claims[..2]).await;
    assert_eq!(db.store.resolve_superseded().await.expect("looked"), 0);
    db.store.upsert(&[sale.clone(), claims[0].clone()]).await.expect("recorded");
    assert_eq!(db.store.resolve_superseded().await.expect("looked"), 1);
    assert_eq!(one(&db, &claims[1]).await.state, RetryState::Dead);
    db.store.upsert(&claims[2..]).await.expect("recorded");
    assert_eq!(db.store.resolve_superseded().await.expect("looked"), 1);
    assert_eq!(one(&db, &claims[1]).await.state, RetryState::Resolved);
    // What happened to a sale as a whole is kept change by change, so a newer one is not enough.
    let Event::Pool(pool) = &sale else { panic!("a pool") };
    let closed = then(pool, PoolChange::Closed);
    dead(&db, &[Event::Pool(closed.clone())]).await;
    db.store.upsert(&[Event::Pool(then(&closed, PoolChange::Cleared))]).await.expect("recorded");
    assert_eq!(db.store.resolve_superseded().await.expect("looked"), 0);
}

async fn many_are_tried_again_one_after_the_other_and_a_claim_in_its_order(on: Dialect) {
    let db = Db::new(on).await;
    let (sale, mut claims) = story();
    claims.reverse();
    dead(&db, &claims).await;
    dead(&db, &[sale]).await;
    let apart = Duration::from_millis(10);
    let kind = Some("claim_paid");
    assert_eq!(db.store.revive_all(kind, None, apart).await.expect("asked"), 1);
    let later = one(&db, &claims[0]).await.parked_at.plus_millis(3_600_000);
    assert_eq!(db.store.revive_all(None, Some(later), apart).await.expect("asked"), 0);
    assert_eq!(db.store.revive_all(None, None, apart).await.expect("asked"), 3);
    let due = due(&db).await;
    let rest: Vec<(u32, u32)> =
        due.iter().filter(|r| r.kind != "claim_paid").map(|r| (r.number, r.version)).collect();
    assert_eq!(rest, [(0, 1), (1, 1), (1, 2)]);
    let waits: Vec<i64> =
        due.windows(2).map(|pair| pair[1].at.millis() - pair[0].at.millis()).collect();
    assert!(waits.iter().all(|wait| *wait >= 0) && waits.contains(&10), "{waits:?}");
}

async fn a_dead_letter_is_discarded_once(on: Dialect) {
    let db = Db::new(on).await;
    let (_, claims) = story();
    let id = claims[0].id();
    assert!(db.store.begin_discarding(RECORDS, &id).await.expect("looked").is_none());
    let parked = [set_aside(&claims[0])];
    db.store.project_and_park("embedded", 0, 1, &[], &parked, RETRIES).await.expect("written");
    let begun = db.store.begin_discarding(RECORDS, &id).await.expect("looked");
    assert!(begun.is_none(), "it is still tried");
    dead(&db, &claims[..1]).await;
    let begun = db.store.begin_discarding(RECORDS, &id).await.expect("begun").expect("begun");
    assert_eq!(begun.state, RetryState::Discarding);
    assert!(!db.store.revive(RECORDS, &id).await.expect("nobody tries it any more"));
    // Cut off, and begun again.
    let again = db.store.begin_discarding(RECORDS, &id).await.expect("begun").expect("begun");
    db.store.end_discarding(&again, Compensation::Released).await.expect("noted");
    db.store.end_discarding(&begun, Compensation::Nothing).await.expect("the first word stands");
    let ended = db.store.begin_discarding(RECORDS, &id).await.expect("looked").expect("known");
    assert_eq!((ended.state, ended.outcome), (RetryState::Discarded, Some(Compensation::Released)));
}

async fn what_is_over_is_forgotten_and_what_explains_the_books_is_not(on: Dialect) {
    let db = Db::new(on).await;
    let (sale, claims) = story();
    dead(&db, &claims[..2]).await;
    for event in &claims[..2] {
        let begun = db.store.begin_discarding(RECORDS, &event.id()).await.expect("begun");
        let begun = begun.expect("begun");
        db.store.end_discarding(&begun, Compensation::Released).await.expect("noted");
    }
    assert_eq!(db.store.discarded().await.expect("counted"), 2);
    assert_eq!(db.store.prune_retries(Duration::ZERO).await.expect("pruned"), 0);
    let Event::Claim(claim) = &claims[0] else { panic!("a claim") };
    let end = Event::Claim(released(claim, ReleaseReason::Cancelled));
    db.store.upsert(&[sale, end]).await.expect("recorded");
    assert_eq!(db.store.discarded().await.expect("counted"), 0);
    assert_eq!(db.store.prune_retries(Duration::from_secs(60)).await.expect("pruned"), 0);
    assert_eq!(db.store.prune_retries(Duration::ZERO).await.expect("pruned"), 2);
}

/// The table of errors, on a real database. Nothing of infrastructure may count as the data's.
async fn what_the_data_is_to_blame_for_is_told_from_everything_else(on: Dialect) {
    let db = Db::new(on).await;
    let (sale, claims) = story();
    db.store.upsert(&[sale]).await.expect("recorded");
    let blamed = async || {
        let failed = db.store.upsert(&claims[..1]).await.expect_err("it cannot be written");
        (failed.blame(), chain(&failed))
    };
    // A constraint.
    forbid(&db, on).await;
    let (blame, why) = blamed().await;
    assert_eq!(blame, Blame::Data, "{why}");
    // A table that is not as it should be is nobody's fault that we know of.
    db.tamper("DROP TABLE order_items", &[]).await;
    db.tamper("DROP TABLE orders", &[]).await;
    db.tamper("DROP TABLE claims", &[]).await;
    let (blame, why) = blamed().await;
    assert_eq!(blame, Blame::Unknown, "{why}");
    // A database that is closed, or gone.
    db.store.close().await;
    let failed = db.store.upsert(&claims[..1]).await.expect_err("closed");
    assert_ne!(failed.blame(), Blame::Data, "{failed:?}");
}

/// Nobody called ann is recorded any more.
async fn forbid(db: &Db, on: Dialect) {
    let trigger = match on {
        Dialect::Sqlite => {
            "CREATE TRIGGER no_ann BEFORE INSERT ON claims WHEN NEW.user_id = 'ann'
             BEGIN SELECT RAISE(ABORT, 'no ann'); END"
        }
        Dialect::MySql | Dialect::Postgres => {
            "ALTER TABLE claims ADD CONSTRAINT no_ann CHECK (user_id <> 'ann')"
        }
    };
    db.tamper(trigger, &[]).await;
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
