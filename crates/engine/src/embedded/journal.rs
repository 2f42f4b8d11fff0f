//! What the engine asks of the place where it keeps its events.

use qiang_core::{Event, Timestamp};

use crate::JournalError;

/// A durable list of batches, and a snapshot that stands for the oldest of them.
///
/// One [`Journal::append`] is one atomic, synced step: all of it is there after a crash, or
/// nothing. After a failed append nobody knows which, and the engine stops for good.
pub trait Journal: Send + 'static {
    /// Hands over everything stored, snapshot first, and says where the log ends.
    fn recover(&mut self, event: &mut dyn FnMut(Event)) -> Result<Recovered, JournalError>;

    /// Makes a write durable before it returns.
    fn append(&mut self, write: &Write<'_>) -> Result<(), JournalError>;

    /// Looks whether a restart would still find what was appended. An error stops the engine.
    fn look(&mut self) -> Result<(), JournalError> {
        Ok(())
    }
}

/// Where a recovered log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// The last event's position.
    pub seq: u64,
    /// The latest time met; no later decision is made at an earlier time.
    pub at: Timestamp,
    /// The highest id any snapshot has had, finished or not.
    pub snapshot: u64,
    /// The newest complete snapshot stands for the log up to here.
    pub snapshot_seq: u64,
    /// Bytes of events behind that snapshot.
    pub log_bytes: u64,
    /// Bytes of that snapshot.
    pub snapshot_bytes: u64,
}

/// What goes into the journal in one step; each part is optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Write<'a> {
    /// Newly decided events.
    pub batch: Option<Batch<'a>>,
    /// The next part of a snapshot.
    pub part: Option<Part<'a>>,
    /// Nobody needs events up to here any more: some of them may be dropped.
    pub trim_through: u64,
}

/// Events with consecutive positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Position of the first.
    pub first_seq: u64,
    /// Position of the last.
    pub last_seq: u64,
    /// The events, encoded.
    pub events: &'a [u8],
}

/// A piece of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// Which snapshot; ids rise.
    pub snapshot: u64,
    /// The log position at which it was begun: everything up to here is in it.
    pub base_seq: u64,
    /// Its place in the snapshot, from 0.
    pub number: u64,
    /// With this part the snapshot is complete and replaces the one before.
    pub last: bool,
    /// Its events, encoded.
    pub events: &'a [u8],
}
