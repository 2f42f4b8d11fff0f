//! Reading the journal beside the committer: for projectors while it runs, for the audit when
//! it does not.

use std::path::{Path, PathBuf};

use qiang_core::Event;
use rusqlite::{Connection, OptionalExtension, params};

use super::codec::Decoder;
use super::journal::Recovered;
use super::sqlite::{SqliteJournal, checksum, corrupt, failure, replay};
use crate::JournalError;

/// Batches looked at in one query; reading stops with the one that brings enough events.
const MAX_BATCHES: u32 = 4_096;

/// Reads durable events in order. It has a connection of its own and never holds up the committer.
#[derive(Debug)]
pub struct LogReader {
    path: PathBuf,
    db: Connection,
}

impl LogReader {
    /// A reader of the journal in a folder.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let db = SqliteJournal::open_read_only(folder)?;
        Ok(Self { path: SqliteJournal::path_in(folder), db })
    }

    /// The events behind position `after`, whole batches of them until there are `max` or more,
    /// and the position of the last. No events means that the log ends there.
    pub fn read(&mut self, after: u64, max: usize) -> Result<(Vec<Event>, u64), JournalError> {
        let path = &self.path;
        let failed = |source| failure(path, "read", source);
        let first = self
            .db
            .prepare_cached("SELECT max(first_seq) FROM batch WHERE first_seq <= ?1")
            .and_then(|mut query| query.query_row([after + 1], |row| row.get::<_, Option<u64>>(0)))
            .map_err(failed)?;
        let first = match first {
            Some(first) => first,
            None => match self.oldest()? {
                Some(oldest) if oldest > after + 1 => {
                    return Err(JournalError::Trimmed { after, oldest: oldest - 1 });
                }
                _ => return Ok((Vec::new(), after)),
            },
        };
        let mut query = self
            .db
            .prepare_cached(
                "SELECT first_seq, last_seq, crc, events FROM batch
                 WHERE first_seq >= ?1 ORDER BY first_seq LIMIT ?2",
            )
            .map_err(failed)?;
        let mut rows = query.query(params![first, MAX_BATCHES]).map_err(failed)?;
        let (mut events, mut reached) = (Vec::new(), after);
        while events.len() < max
            && let Some(row) = rows.next().map_err(failed)?
        {
            let (first, last): (u64, u64) =
                (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
            if last <= reached {
                continue;
            }
            let place = format!("batch {first} to {last}");
            let bytes = row.get_ref(3).map_err(failed)?.as_blob().unwrap_or_default();
            if checksum(first, last, bytes) != row.get::<_, u32>(2).map_err(failed)? {
                return Err(corrupt(path, &place, "its checksum does not fit"));
            }
            if first > reached + 1 {
                return Err(JournalError::Trimmed { after: reached, oldest: first - 1 });
            }
            let known = usize::try_from(reached + 1 - first).unwrap_or(usize::MAX);
            for event in Decoder::new(bytes).skip(known) {
                events.push(event.map_err(|source| JournalError::Undecodable {
                    path: path.clone(),
                    place: place.clone(),
                    source,
                })?);
            }
            reached = last;
        }
        Ok((events, reached))
    }

    fn oldest(&self) -> Result<Option<u64>, JournalError> {
        self.db
            .query_row("SELECT min(first_seq) FROM batch", [], |row| row.get(0))
            .optional()
            .map(Option::flatten)
            .map_err(|source| failure(&self.path, "read", source))
    }
}

/// Hands over everything a journal holds, snapshot first, whether or not somebody writes to it.
pub fn offline_log(folder: &Path, event: &mut dyn FnMut(Event)) -> Result<Recovered, JournalError> {
    let db = SqliteJournal::open_read_only(folder)?;
    let path = SqliteJournal::path_in(folder);
    // One read transaction, so that snapshot and batches belong together.
    let all = db.unchecked_transaction().map_err(|source| failure(&path, "read", source))?;
    replay(&all, &path, event)
}
