//! A journal that is not what was written is never guessed at: the engine does not start, says
//! where, and changes nothing.

use std::path::Path;

use qiang_core::Flow;
use qiang_engine::embedded::{Engine, Options};
use qiang_engine::{
    JournalError, LogReader, ManualClock, OpenError, SqliteJournal, WriterOptions, offline_log,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::fixture::{grant, new_engine, open_sale, options};

/// A stopped engine's folder with six batches: positions 1 to 6.
async fn six_batches() -> TempDir {
    let (folder, engine, _) = new_engine();
    open_sale(&engine, 10, Flow::Instant).await;
    for user in ["ann", "bob", "cyd", "dan", "eve"] {
        grant(&engine, user).await;
    }
    engine.shut_down();
    folder
}

fn spoil(folder: &Path, sql: &str) {
    let db = Connection::open(SqliteJournal::path_in(folder)).expect("the journal is there");
    db.execute_batch(sql).expect("it can be spoilt");
}

/// What opening says; the file is the same before and after.
#[track_caller]
fn refusal(folder: &Path) -> OpenError {
    let path = SqliteJournal::path_in(folder);
    let before = std::fs::read(&path).expect("it is there");
    let opened = Engine::open(options(folder), ManualClock::new(Default::default()));
    let Err(error) = opened else { panic!("it was opened") };
    assert_eq!(std::fs::read(&path).expect("it is there"), before, "nothing was changed");
    assert!(error.to_string().contains(&path.display().to_string()), "{error} names the file");
    error
}

#[track_caller]
fn assert_corrupt(folder: &Path, place: &str, what: &str) {
    let error = refusal(folder);
    let OpenError::Journal(JournalError::Corrupt { place: at, what: found, .. }) = &error else {
        panic!("{error:?}")
    };
    assert_eq!((at.as_str(), found.as_str()), (place, what));
    assert!(error.to_string().contains(place), "{error} says where");
    assert!(matches!(offline_log(folder, &mut |_| {}), Err(JournalError::Corrupt { .. })));
}

#[tokio::test]
async fn a_flipped_bit() {
    for byte in 1..=20 {
        let folder = six_batches().await;
        let flipped = format!(
            "UPDATE batch SET events = substr(events, 1, {byte} - 1)
             || CAST(char((unicode(CAST(substr(events, {byte}, 1) AS TEXT)) + 1) % 127) AS BLOB)
             || substr(events, {byte} + 1) WHERE first_seq = 4"
        );
        spoil(folder.path(), &flipped);
        assert_corrupt(folder.path(), "batch 4 to 4", "its checksum does not fit");
        let mut reader = LogReader::open(folder.path()).expect("its head is fine");
        let read = reader.read(0, 100);
        assert!(matches!(read, Err(JournalError::Corrupt { .. })), "{read:?}");
    }
}

#[tokio::test]
async fn a_changed_checksum_or_position() {
    let folder = six_batches().await;
    spoil(folder.path(), "UPDATE batch SET crc = crc + 1 WHERE first_seq = 2");
    assert_corrupt(folder.path(), "batch 2 to 2", "its checksum does not fit");
    let folder = six_batches().await;
    spoil(folder.path(), "UPDATE batch SET last_seq = 7 WHERE first_seq = 6");
    assert_corrupt(folder.path(), "batch 6 to 7", "its checksum does not fit");
    let folder = six_batches().await;
    spoil(folder.path(), "UPDATE batch SET last_seq = 5 WHERE first_seq = 6");
    assert_corrupt(folder.path(), "batch 6 to 5", "an event with position 6 should stand here");
}

#[tokio::test]
async fn a_missing_batch_in_the_middle() {
    let folder = six_batches().await;
    spoil(folder.path(), "DELETE FROM batch WHERE first_seq IN (3, 4)");
    let what = "an event with position 3 should stand here";
    assert_corrupt(folder.path(), "batch 5 to 5", what);
    let mut reader = LogReader::open(folder.path()).expect("its head is fine");
    assert!(reader.read(2, 100).is_err(), "a reader does not step over the gap");
}

#[tokio::test]
async fn a_missing_beginning() {
    let folder = six_batches().await;
    spoil(folder.path(), "DELETE FROM batch WHERE first_seq = 1");
    let what = "an event with position 1 should stand here";
    assert_corrupt(folder.path(), "batch 2 to 2", what);
}

#[tokio::test]
async fn a_truncated_batch() {
    let folder = six_batches().await;
    let sql = "UPDATE batch SET events = substr(events, 1, length(events) - 1) WHERE first_seq = 6";
    spoil(folder.path(), sql);
    assert_corrupt(folder.path(), "batch 6 to 6", "its checksum does not fit");
}

#[tokio::test]
async fn batches_that_changed_places() {
    let folder = six_batches().await;
    let sql = "UPDATE batch SET first_seq = 30, last_seq = 30 WHERE first_seq = 3;
               UPDATE batch SET first_seq = 3, last_seq = 3 WHERE first_seq = 4;
               UPDATE batch SET first_seq = 4, last_seq = 4 WHERE first_seq = 30;";
    spoil(folder.path(), sql);
    assert_corrupt(folder.path(), "batch 3 to 3", "its checksum does not fit");
}

#[tokio::test]
async fn a_snapshot_with_a_hole_or_a_scratch() {
    let scratched = "UPDATE snapshot SET events = substr(events, 1, length(events) - 2) || x'0000'";
    let cases = [
        (scratched, "part 0", "its checksum does not fit"),
        ("UPDATE snapshot SET part = part + 1", "part 1", "part 0 should stand here"),
        ("UPDATE snapshot SET base_seq = base_seq + 1", "part 0", "its checksum does not fit"),
    ];
    for (sql, place, what) in cases {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let writer = WriterOptions { seed: 1, snapshot_bytes: 1 };
        let options = Options { writer, ..options(folder.path()) };
        let engine = Engine::open(options, ManualClock::new(Default::default()));
        let engine = engine.expect("the folder is fine");
        open_sale(&engine, 10, Flow::Instant).await;
        for user in ["ann", "bob", "cyd", "dan"] {
            grant(&engine, user).await;
        }
        engine.shut_down();
        spoil(folder.path(), sql);
        let id: u64 = Connection::open(SqliteJournal::path_in(folder.path()))
            .and_then(|db| db.query_row("SELECT max(id) FROM snapshot", [], |row| row.get(0)))
            .expect("there is a snapshot");
        assert_corrupt(folder.path(), &format!("snapshot {id}, {place}"), what);
    }
}

#[tokio::test]
async fn events_that_make_no_sense() {
    // The bytes of a kind of event that does not exist, under a checksum that fits.
    let folder = six_batches().await;
    let bytes = [9_u8];
    let mut crc = crc32fast::Hasher::new();
    for part in [&7_u64.to_le_bytes()[..], &7_u64.to_le_bytes(), &bytes] {
        crc.update(part);
    }
    let db = Connection::open(SqliteJournal::path_in(folder.path())).expect("it is there");
    db.execute("INSERT INTO batch VALUES (7, 7, ?1, ?2)", (crc.finalize(), &bytes[..]))
        .expect("it can be spoilt");
    drop(db);
    let error = refusal(folder.path());
    let OpenError::Journal(JournalError::Undecodable { place, .. }) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(place, "batch 7 to 7");
}

#[tokio::test]
async fn a_newer_format() {
    let folder = six_batches().await;
    spoil(folder.path(), "UPDATE meta SET value = 2 WHERE key = 'format'");
    let error = refusal(folder.path());
    let OpenError::Journal(JournalError::NewerFormat { found: 2, known: 1, .. }) = error else {
        panic!("{error:?}")
    };
    assert!(LogReader::open(folder.path()).is_err());
}

#[test]
fn a_file_that_is_no_database() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(SqliteJournal::path_in(folder.path()), "not a database at all\n".repeat(500))
        .expect("it can be written");
    let error = refusal(folder.path());
    assert!(matches!(error, OpenError::Journal(JournalError::Sqlite { .. })), "{error:?}");
}

#[test]
fn a_database_of_somebody_else() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    spoil(folder.path(), "CREATE TABLE theirs (id INTEGER); INSERT INTO theirs VALUES (1);");
    assert_corrupt(folder.path(), "its head", "it is not a journal of qiang");
}

#[tokio::test]
async fn a_mended_journal_opens_again() {
    let folder = six_batches().await;
    spoil(folder.path(), "UPDATE batch SET crc = crc + 1 WHERE first_seq = 2");
    refusal(folder.path());
    spoil(folder.path(), "UPDATE batch SET crc = crc - 1 WHERE first_seq = 2");
    let opened = Engine::open(options(folder.path()), ManualClock::new(Default::default()));
    assert_eq!(opened.expect("it is whole again").position().await, Ok(6));
}
