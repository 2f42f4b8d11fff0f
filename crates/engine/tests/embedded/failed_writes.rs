//! A write that fails stops the engine for good; what it had answered is there after a restart.

use std::path::Path;
use std::sync::Arc;

use qiang_core::{Command, Flow, Outcome, Refusal, Reply};
use qiang_engine::{
    Error, Job, JournalError, ManualClock, Poisoned, Question, Replies, SqliteJournal, Writer,
    WriterOptions,
};
use qiang_testkit::contract::{sale, wish};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::asking::Asking as _;
use super::fixture::{claim_id, events, grant, new_engine, open_at, open_sale, pool, soon};

/// Makes every further batch fail in the file itself, as a full disk would.
fn fill_disk(folder: &Path) {
    change(
        folder,
        "CREATE TRIGGER full BEFORE INSERT ON batch
         BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END",
    );
}

fn mend_disk(folder: &Path) {
    change(folder, "DROP TRIGGER full");
}

fn change(folder: &Path, sql: &str) {
    let db = Connection::open(SqliteJournal::path_in(folder)).expect("the journal is there");
    db.execute_batch(sql).expect("it can be changed");
}

#[tokio::test]
async fn a_failed_write_poisons_the_engine() {
    let (folder, engine, _) = new_engine();
    open_sale(&engine, 10, Flow::Instant).await;
    grant(&engine, "ann").await;
    fill_disk(folder.path());
    let unknown = soon("an answer", engine.claim(wish(pool(), "bob", Some("r")))).await;
    assert_eq!(unknown, Err(Error::OutcomeUnknown));
    // Refusals need no disk, and are not given either: nothing is decided any more.
    let refused = soon("an answer", engine.claim(wish(pool(), "ann", None))).await;
    assert!(matches!(refused, Err(Error::Unavailable | Error::OutcomeUnknown)), "{refused:?}");
    engine.shut_down();
    let late = soon("an answer", engine.claim(wish(pool(), "cyd", None))).await;
    assert_eq!(late, Err(Error::Unavailable));
    assert_eq!(soon("an answer", engine.pool(pool())).await, Err(Error::Unavailable));
    let reason = engine.poisoned().expect("it says why");
    assert!(reason.contains("disk is full"), "{reason}");
    assert!(reason.contains("journal.db"), "{reason}");
    assert_eq!(*engine.durable().borrow(), 2, "what failed is not durable");
    mend_disk(folder.path());
    let (again, _) = open_at(folder.path(), 0);
    let view = again.pool(pool()).await.expect("it runs").expect("it is open");
    assert_eq!((view.claims, view.available), (1, 9));
    let retried = again.claim(wish(pool(), "bob", Some("r"))).await;
    assert!(matches!(retried, Ok(Outcome::Done(claim)) if claim.id == claim_id(2)));
}

#[tokio::test]
async fn a_failed_release_poisons_too_and_opening_says_so() {
    let (folder, engine, clock) = new_engine();
    open_sale(&engine, 10, Flow::Hold { hold_ms: 50, pay_ms: 50 }).await;
    grant(&engine, "ann").await;
    fill_disk(folder.path());
    clock.advance_millis(50);
    let answer = soon("an answer", engine.claim(wish(pool(), "bob", None))).await;
    assert!(matches!(answer, Err(Error::OutcomeUnknown | Error::Unavailable)), "{answer:?}");
    engine.shut_down();
    assert!(engine.poisoned().is_some());
    // Opening has to write the release as well, and cannot.
    let clock = ManualClock::new(qiang_core::Timestamp::from_millis(60));
    let opened =
        qiang_engine::embedded::Engine::open(super::fixture::options(folder.path()), clock);
    assert!(opened.is_err());
    mend_disk(folder.path());
    let (again, _) = open_at(folder.path(), 60);
    let view = again.pool(pool()).await.expect("it runs").expect("it is open");
    assert_eq!((view.claims, view.available), (1, 10));
}

#[test]
fn a_file_that_may_not_grow() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = SqliteJournal::open(folder.path()).expect("the folder is fine");
    journal.limit_pages(24).expect("it can be limited");
    let options = WriterOptions { seed: 1, snapshot_bytes: 1 << 30 };
    let clock = ManualClock::new(Default::default());
    let mut writer = Writer::recover(journal, clock, options, Arc::default(), Arc::default())
        .expect("nothing is stored");
    let mut ask = |command: Command| {
        let (to, mut answer) = oneshot::channel();
        let stepped = writer.step(&mut vec![Job::Ask(Question::One(command), to)]);
        (stepped, answer.try_recv().expect("it is answered"))
    };
    let terms = Arc::new(sale(1_000_000, Flow::Instant));
    let (opened, _) = ask(Command::Open { pool: pool(), terms });
    opened.expect("there is room");
    let mut granted = 0;
    let failure = loop {
        let user = format!("{granted:064}");
        let (stepped, answer) = ask(Command::Claim(wish(pool(), &user, None)));
        match (stepped, answer) {
            (Ok(()), Ok(Replies::One(Reply::Claim(Outcome::Done(_))))) => granted += 1,
            (Err(Poisoned(error)), Err(Error::OutcomeUnknown)) => break error,
            other => panic!("{other:?}"),
        }
        assert!(granted < 100_000, "24 pages are never full");
    };
    let JournalError::Sqlite { source, .. } = &failure else { panic!("{failure:?}") };
    assert_eq!(source.sqlite_error_code(), Some(rusqlite::ErrorCode::DiskFull));
    drop(writer);
    let journal = SqliteJournal::open(folder.path()).expect("it can be opened again");
    let clock = ManualClock::new(Default::default());
    let writer = Writer::recover(journal, clock, options, Arc::default(), Arc::default())
        .expect("what was stored can be read");
    assert_eq!(writer.position().seq, u64::from(granted) + 1);
    assert_eq!(writer.book().pool(pool()).expect("it is open").view().claims, granted);
}

#[tokio::test]
async fn p05_a_claim_and_its_event_are_one_write() {
    let (folder, engine, _) = new_engine();
    open_sale(&engine, 10, Flow::Instant).await;
    let told = grant(&engine, "ann").await;
    let mut reader = engine.log_reader().expect("the journal is there");
    assert_eq!(events(&mut reader, 1), [qiang_core::Event::Claim(told.clone())]);
    // The write fails: neither the claim nor its event exists, and nobody was told of one.
    fill_disk(folder.path());
    let unknown = soon("an answer", engine.claim(wish(pool(), "bob", None))).await;
    assert_eq!(unknown, Err(Error::OutcomeUnknown));
    engine.shut_down();
    mend_disk(folder.path());
    let (again, _) = open_at(folder.path(), 0);
    assert_eq!(again.claims(pool(), 0, 10).await, Ok(vec![told.clone()]));
    let mut reader = again.log_reader().expect("the journal is there");
    assert_eq!(events(&mut reader, 1), [qiang_core::Event::Claim(told)]);
}

#[tokio::test]
async fn p06_an_unknown_outcome_is_asked_again_never_undone() {
    let (folder, engine, _) = new_engine();
    open_sale(&engine, 1, Flow::Instant).await;
    fill_disk(folder.path());
    let unknown = soon("an answer", engine.claim(wish(pool(), "ann", Some("r")))).await;
    assert_eq!(unknown, Err(Error::OutcomeUnknown));
    engine.shut_down();
    mend_disk(folder.path());
    let (again, _) = open_at(folder.path(), 0);
    let mut first = None;
    for _ in 0..3 {
        let asked = again.claim(wish(pool(), "ann", Some("r"))).await;
        let Ok(Outcome::Done(claim) | Outcome::Replayed(claim)) = asked else {
            panic!("{asked:?}")
        };
        assert_eq!(*first.get_or_insert(claim.id), claim.id);
    }
    let late = again.claim(wish(pool(), "bob", None)).await;
    assert_eq!(late, Ok(Outcome::Refused(Refusal::SoldOut)));
}
