//! The journal as a SQLite file: WAL, one synced transaction for each step.
//!
//! A batch is a row with its positions, a checksum over positions and bytes, and the encoded
//! events; a gap or a flipped bit is found when it is read. Copying the write-ahead log back into
//! the file is done by a thread of its own, off the committer's path.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use qiang_core::Event;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::codec::Decoder;
use super::files::Files;
use super::journal::{Batch, Journal, Part, Recovered, Write};
use super::wal;
use crate::JournalError;

/// The newest format this code reads and writes.
const FORMAT: i64 = 1;
/// The file's name in the data folder.
const FILE: &str = "journal.db";
/// Old batches dropped in one step, so that no step takes long.
const TRIM_BATCHES: i64 = 4;
/// Pages written to the write-ahead log between two checkpoints: 4 MiB.
const CHECKPOINT_PAGES: usize = 1_024;
/// With more than this the committer itself finishes the checkpoint, so that the log starts over:
/// syncing what lies over old pages takes half as long as syncing a file that grows.
const WAL_LIMIT_PAGES: usize = 2_048;
const PAGE_BYTES: usize = 4_096;
/// Pages a row changes beside those its bytes fill: the leaf, its parent, the list of free pages.
const ROW_PAGES: usize = 3;
const BUSY_MS: u64 = 10_000;

const SCHEMA: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE batch (
        first_seq INTEGER PRIMARY KEY,
        last_seq  INTEGER NOT NULL,
        crc       INTEGER NOT NULL,
        events    BLOB NOT NULL
    );
    CREATE TABLE snapshot (
        id       INTEGER NOT NULL,
        part     INTEGER NOT NULL,
        base_seq INTEGER NOT NULL,
        last     INTEGER NOT NULL,
        crc      INTEGER NOT NULL,
        events   BLOB NOT NULL,
        UNIQUE (id, part)
    );";

/// The journal of one data folder.
#[derive(Debug)]
pub struct SqliteJournal {
    path: PathBuf,
    db: Connection,
    checkpointer: Checkpointer,
    /// The newest snapshot whose parts are all there; 0 is none.
    complete: u64,
    /// Everything in it was read and understood.
    recovered: bool,
    /// Pages written since a checkpoint was asked for.
    fresh_pages: usize,
    /// Pages written since the write-ahead log started over, or so.
    wal_pages: usize,
    /// The files it is in.
    files: Option<Files>,
}

impl SqliteJournal {
    /// Opens the journal in a folder, or begins one.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let path = Self::path_in(folder);
        wal::check(&path)?;
        let db = connect(&path, OpenFlags::default())?;
        let failed = |action| move |source| failure(&path_of(folder), action, source);
        // Looked at before anything is set: a file that is not ours is left as it is.
        let format = format_of(&db, &path)?;
        format.map_or(Ok(()), |found| check_format(found, &path))?;
        db.pragma_update(None, "journal_mode", "wal").map_err(failed("opened"))?;
        db.pragma_update(None, "synchronous", "full").map_err(failed("opened"))?;
        db.pragma_update(None, "wal_autocheckpoint", 0).map_err(failed("opened"))?;
        db.pragma_update(None, "cache_size", -8_192).map_err(failed("opened"))?;
        if format.is_none() {
            db.execute_batch(&format!(
                "BEGIN IMMEDIATE; {SCHEMA} INSERT INTO meta VALUES ('format', {FORMAT}); COMMIT;"
            ))
            .map_err(failed("created"))?;
        }
        let checkpointer = Checkpointer::start(&path)?;
        Ok(Self {
            path,
            db,
            checkpointer,
            complete: 0,
            recovered: false,
            fresh_pages: 0,
            wal_pages: 0,
            files: None,
        })
    }

    /// Opens a journal that somebody else may be writing, only to read it.
    pub fn open_read_only(folder: &Path) -> Result<Connection, JournalError> {
        let path = Self::path_in(folder);
        let db = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        match format_of(&db, &path)? {
            None => Err(corrupt(&path, "its head", "it is not a journal")),
            Some(found) => check_format(found, &path).map(|()| db),
        }
    }

    /// Looks for damage in what a crash left behind. Only for those who have the folder's lock:
    /// a log that is being written looks damaged.
    pub fn check_at_rest(folder: &Path) -> Result<(), JournalError> {
        wal::check(&path_of(folder))
    }

    /// The file in a folder.
    #[must_use]
    pub fn path_in(folder: &Path) -> PathBuf {
        path_of(folder)
    }

    /// Makes every write fail once the file has this many pages, as a full disk does.
    pub fn limit_pages(&self, pages: u32) -> Result<(), JournalError> {
        let limited = self.db.pragma_update(None, "max_page_count", pages);
        limited.map_err(|source| failure(&self.path, "limited", source))
    }

    fn write(&mut self, write: &Write<'_>) -> Result<(), rusqlite::Error> {
        let step = self.db.transaction()?;
        if let Some(Batch { first_seq, last_seq, events }) = write.batch {
            let crc = checksum(first_seq, last_seq, events);
            step.prepare_cached("INSERT INTO batch VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![first_seq, last_seq, crc, events])?;
        }
        if let Some(Part { snapshot, base_seq, number, last, events }) = write.part {
            let crc = checksum(base_seq, number, events);
            step.prepare_cached("INSERT INTO snapshot VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                .execute(params![snapshot, number, base_seq, last, crc, events])?;
            if last {
                self.complete = snapshot;
            }
            // What was replaced, or begun before a crash and never finished, goes piece by piece.
            // The whole one between them is never walked over.
            let mut drop_between = step.prepare_cached(
                "DELETE FROM snapshot WHERE rowid IN
                 (SELECT rowid FROM snapshot WHERE id > ?1 AND id < ?2 LIMIT ?3)",
            )?;
            drop_between.execute(params![0, self.complete, TRIM_BATCHES])?;
            drop_between.execute(params![self.complete, snapshot, TRIM_BATCHES])?;
        }
        if write.trim_through > 0 {
            step.prepare_cached(
                "DELETE FROM batch WHERE first_seq IN (SELECT first_seq FROM batch
                 WHERE first_seq <= ?1 AND last_seq <= ?1 ORDER BY first_seq LIMIT ?2)",
            )?
            .execute(params![write.trim_through, TRIM_BATCHES])?;
        }
        step.commit()
    }

    /// Asks for a checkpoint after enough was written; finishes it here when the log is long.
    fn checkpoint(&mut self, pages: usize) {
        self.fresh_pages += pages;
        self.wal_pages += pages;
        if self.fresh_pages > CHECKPOINT_PAGES && self.checkpointer.ask() {
            self.fresh_pages = 0;
        }
        if self.wal_pages > WAL_LIMIT_PAGES && self.fresh_pages < CHECKPOINT_PAGES / 4 {
            self.wal_pages = 0;
            checkpoint(&self.db, &self.path, "PASSIVE");
        }
    }
}

impl Drop for SqliteJournal {
    /// Leaves one file: whoever copies it has everything. A journal that could not be understood
    /// is left as it was.
    fn drop(&mut self) {
        if self.recovered {
            checkpoint(&self.db, &self.path, "TRUNCATE");
        }
    }
}

impl Journal for SqliteJournal {
    fn recover(&mut self, event: &mut dyn FnMut(Event)) -> Result<Recovered, JournalError> {
        let mut end = replay(&self.db, &self.path, event)?;
        self.complete = end.snapshot;
        let begun =
            self.db.query_row("SELECT coalesce(max(id), 0) FROM snapshot", [], |row| row.get(0));
        end.snapshot = begun.map_err(|source| failure(&self.path, "read", source))?;
        self.recovered = true;
        // What a crash left in the write-ahead log is of unknown length; begin without it.
        checkpoint(&self.db, &self.path, "PASSIVE");
        self.files = Files::of(&self.path);
        Ok(end)
    }

    fn append(&mut self, write: &Write<'_>) -> Result<(), JournalError> {
        self.write(write).map_err(|source| failure(&self.path, "written", source))?;
        let pages = |events: &[u8]| events.len() / PAGE_BYTES + ROW_PAGES;
        let batch = write.batch.map_or(0, |batch| pages(batch.events));
        self.checkpoint(batch + write.part.map_or(0, |part| pages(part.events)));
        Ok(())
    }

    /// SQLite goes on writing to files that have no name any more, and a restart would not find
    /// them.
    fn look(&mut self) -> Result<(), JournalError> {
        match &self.files {
            Some(files) if !files.are_there() => {
                let saved = files.save(&self.db);
                Err(JournalError::Gone { path: self.path.clone(), saved })
            }
            _ => Ok(()),
        }
    }
}

/// Hands over the newest complete snapshot and every batch behind it.
pub(super) fn replay(
    db: &Connection,
    path: &Path,
    event: &mut dyn FnMut(Event),
) -> Result<Recovered, JournalError> {
    let failed = |source| failure(path, "read", source);
    let mut end = Recovered::default();
    let newest = db
        .query_row(
            "SELECT id, base_seq, part FROM snapshot WHERE last ORDER BY id DESC LIMIT 1",
            [],
            |row| Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?, row.get::<_, u64>(2)?)),
        )
        .optional()
        .map_err(failed)?;
    if let Some((id, base_seq, last_part)) = newest {
        let mut parts = db
            .prepare("SELECT part, base_seq, crc, events FROM snapshot WHERE id = ?1 ORDER BY part")
            .map_err(failed)?;
        let mut rows = parts.query([id]).map_err(failed)?;
        let mut expected = 0;
        while let Some(row) = rows.next().map_err(failed)? {
            let part: u64 = row.get(0).map_err(failed)?;
            let place = format!("snapshot {id}, part {part}");
            if part != expected {
                let what = format!("part {expected} should stand here");
                return Err(corrupt(path, &place, &what));
            }
            let stored = (row.get(1).map_err(failed)?, part, row.get(2).map_err(failed)?);
            let bytes = row.get_ref(3).map_err(failed)?.as_blob().unwrap_or_default();
            end.snapshot_bytes += bytes.len() as u64;
            decode(path, &place, stored, bytes, &mut end, event)?;
            expected += 1;
        }
        if expected != last_part + 1 {
            return Err(corrupt(path, &format!("snapshot {id}"), "its last part is missing"));
        }
        (end.seq, end.snapshot_seq, end.snapshot) = (base_seq, base_seq, id);
    }
    let mut batches = db
        .prepare("SELECT first_seq, last_seq, crc, events FROM batch ORDER BY first_seq")
        .map_err(failed)?;
    let mut rows = batches.query([]).map_err(failed)?;
    let mut reached = None;
    while let Some(row) = rows.next().map_err(failed)? {
        let (first, last): (u64, u64) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        let place = format!("batch {first} to {last}");
        // The first batch kept may lie before the snapshot; it may not begin behind it.
        let expected = reached.map_or(first.min(end.seq + 1), |seq: u64| seq + 1);
        if first != expected || last < first {
            let what = format!("an event with position {expected} should stand here");
            return Err(corrupt(path, &place, &what));
        }
        reached = Some(last);
        let bytes = row.get_ref(3).map_err(failed)?.as_blob().unwrap_or_default();
        if last <= end.seq {
            continue;
        }
        let stored = (first, last, row.get(2).map_err(failed)?);
        let count = decode(path, &place, stored, bytes, &mut end, event)?;
        if count != last - first + 1 {
            return Err(corrupt(path, &place, &format!("it holds {count} events")));
        }
        end.log_bytes += bytes.len() as u64;
        end.seq = last;
    }
    Ok(end)
}

fn decode(
    path: &Path,
    place: &str,
    (one, two, crc): (u64, u64, u32),
    bytes: &[u8],
    end: &mut Recovered,
    event: &mut dyn FnMut(Event),
) -> Result<u64, JournalError> {
    if checksum(one, two, bytes) != crc {
        return Err(corrupt(path, place, "its checksum does not fit"));
    }
    let mut count = 0;
    for decoded in Decoder::new(bytes) {
        let decoded = decoded.map_err(|source| JournalError::Undecodable {
            path: path.into(),
            place: place.into(),
            source,
        })?;
        end.at = end.at.max(decoded.at());
        count += 1;
        event(decoded);
    }
    Ok(count)
}

pub(super) fn checksum(one: u64, two: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&one.to_le_bytes());
    hasher.update(&two.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

pub(super) fn failure(path: &Path, action: &'static str, source: rusqlite::Error) -> JournalError {
    JournalError::Sqlite { path: path.into(), action, source }
}

pub(super) fn corrupt(path: &Path, place: &str, what: &str) -> JournalError {
    JournalError::Corrupt { path: path.into(), place: place.into(), what: what.into() }
}

fn path_of(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, JournalError> {
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    let db = db.map_err(|source| failure(path, "opened", source))?;
    db.busy_timeout(std::time::Duration::from_millis(BUSY_MS))
        .map_err(|source| failure(path, "opened", source))?;
    Ok(db)
}

/// The format of the file; `None` is an empty one.
fn format_of(db: &Connection, path: &Path) -> Result<Option<i64>, JournalError> {
    let failed = |source| failure(path, "read", source);
    let tables: i64 =
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if tables == 0 {
        return Ok(None);
    }
    db.query_row("SELECT value FROM meta WHERE key = 'format'", [], |row| row.get(0))
        .map(Some)
        .map_err(|_| corrupt(path, "its head", "it is not a journal of qiang"))
}

fn check_format(found: i64, path: &Path) -> Result<(), JournalError> {
    if found <= FORMAT {
        return Ok(());
    }
    Err(JournalError::NewerFormat { path: path.into(), found, known: FORMAT })
}

/// Copies the write-ahead log into the file. It may fail without harm: the log is only longer then.
fn checkpoint(db: &Connection, path: &Path, mode: &str) {
    let pragma = format!("PRAGMA wal_checkpoint({mode})");
    if let Err(error) = db.query_row(&pragma, [], |_| Ok(())) {
        tracing::warn!(%error, path = %path.display(), "the journal could not be checkpointed");
    }
}

/// Checkpoints on a thread and a connection of its own, off the committer's path.
#[derive(Debug)]
struct Checkpointer {
    ask: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    fn start(path: &Path) -> Result<Self, JournalError> {
        let db = connect(path, OpenFlags::default())?;
        let (ask, asked): (_, Receiver<()>) = sync_channel(1);
        let path = path.to_owned();
        let run = move || asked.iter().for_each(|()| checkpoint(&db, &path, "PASSIVE"));
        let thread = std::thread::Builder::new().name("qiang-checkpoint".into()).spawn(run);
        Ok(Self { ask: Some(ask), thread: thread.ok() })
    }

    /// Whether the request was taken; one may wait behind the one that runs.
    fn ask(&self) -> bool {
        self.ask.as_ref().is_some_and(|ask| ask.try_send(()).is_ok())
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        drop(self.ask.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there was reported by the thread itself.
            let _ended = thread.join();
        }
    }
}
