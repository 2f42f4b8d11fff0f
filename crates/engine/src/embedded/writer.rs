//! The single writer: decides a batch, makes it durable with one sync, then answers all of it.
//!
//! It never answers on data that is not durable. After a failed append it is poisoned: what was
//! asked in that batch may or may not have happened, and nothing is decided any more.
//!
//! [`Writer::step`] does one batch and knows nothing of threads, so that a simulator can drive
//! it through every fault.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qiang_core::{Book, Command, Reply, SnapshotCursor, Timestamp};
use tokio::sync::oneshot;

use super::codec::Encoder;
use super::journal::{Batch, Journal, Part, Write};
use super::stats::Stats;
use crate::{Clock, Error, JournalError, Stopwatch};

/// Commands decided before a sync, and claims released in one; bounds the size of a batch.
const MAX_BATCH: usize = 8_192;
/// Claims in one part of a snapshot; bounds what a part adds to a step.
const SNAPSHOT_PART: usize = 4_096;

/// Where the answer to a command goes.
pub type Answer = oneshot::Sender<Result<Reply, Error>>;

/// A look at the book and where it stands.
pub type Look = Box<dyn FnOnce(&Book, Position) + Send>;

/// One thing for the writer to do.
pub enum Job {
    /// Decide a command.
    Command(Command, Answer),
    /// Look at the book, at a moment when all of it is durable.
    Look(Look),
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command(command, _) => f.debug_tuple("Command").field(command).finish(),
            Self::Look(_) => f.write_str("Look"),
        }
    }
}

/// Where the writer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Position of the last durable event.
    pub seq: u64,
    /// The time of the last decision.
    pub at: Timestamp,
}

/// The writer could not make a batch durable and has stopped for good.
#[derive(Debug, thiserror::Error)]
#[error("the journal failed, and the engine stopped rather than answer on what may be lost")]
pub struct Poisoned(#[from] pub JournalError);

/// How a writer works.
#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// Spreads the hash tables.
    pub seed: u64,
    /// Bytes of new events after which a snapshot is begun, if the last one is not larger.
    pub snapshot_bytes: u64,
}

/// The owner of all pools.
pub struct Writer<J, C> {
    book: Book,
    journal: J,
    clock: C,
    options: WriterOptions,
    position: Position,
    batch: Encoder,
    part: Encoder,
    snapshot: Option<Snapshot>,
    last_snapshot: u64,
    last_snapshot_bytes: u64,
    /// Everything up to here is in a complete snapshot.
    snapshot_seq: u64,
    log_bytes: u64,
    /// Everything up to here was read by every consumer.
    consumed: Arc<AtomicU64>,
    stats: Arc<Stats>,
    replies: Vec<(Answer, Reply)>,
    looks: Vec<Look>,
    max_batch: usize,
    snapshot_part: usize,
    poisoned: bool,
}

#[derive(Debug)]
struct Snapshot {
    id: u64,
    base_seq: u64,
    next_part: u64,
    bytes: u64,
    cursor: SnapshotCursor,
}

impl<J: Journal, C: Clock> Writer<J, C> {
    /// Rebuilds the book from the journal.
    pub fn recover(
        mut journal: J,
        clock: C,
        options: WriterOptions,
        consumed: Arc<AtomicU64>,
        stats: Arc<Stats>,
    ) -> Result<Self, JournalError> {
        let mut book = Book::new(options.seed);
        let end = journal.recover(&mut |event| book.store(&event))?;
        book.settle();
        Ok(Self {
            book,
            journal,
            clock,
            options,
            position: Position { seq: end.seq, at: end.at },
            batch: Encoder::default(),
            part: Encoder::default(),
            snapshot: None,
            last_snapshot: end.snapshot,
            last_snapshot_bytes: end.snapshot_bytes,
            snapshot_seq: end.snapshot_seq,
            log_bytes: end.log_bytes,
            consumed,
            stats,
            replies: Vec::new(),
            looks: Vec::new(),
            max_batch: MAX_BATCH,
            snapshot_part: SNAPSHOT_PART,
            poisoned: false,
        })
    }

    /// Makes steps smaller than is sensible, so that a simulator meets every seam between two of
    /// them with few claims.
    #[must_use]
    pub fn in_steps_of(self, batch: NonZeroUsize, snapshot_part: NonZeroUsize) -> Self {
        Self { max_batch: batch.get(), snapshot_part: snapshot_part.get(), ..self }
    }

    /// Where the log ends.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Everything there is, all of it durable between two steps.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// The journal it writes to.
    pub fn journal(&self) -> &J {
        &self.journal
    }

    /// How long the writer may sleep before something is due; `None` is until it is asked.
    pub fn patience(&self) -> Option<Duration> {
        if self.snapshot.is_some() {
            return Some(Duration::ZERO);
        }
        let wait = self.book.next_due()?.millis().saturating_sub(self.now().millis());
        Some(Duration::from_millis(u64::try_from(wait).unwrap_or(0)))
    }

    /// Releases what is overdue, then decides, makes durable and answers everything in `jobs`.
    pub fn step(&mut self, jobs: &mut Vec<Job>) -> Result<(), Poisoned> {
        assert!(!self.poisoned, "the book may hold what is not durable: recover instead");
        self.position.at = self.now();
        let done = self.expire().and_then(|()| {
            while !jobs.is_empty() {
                self.decide(jobs.drain(..jobs.len().min(self.max_batch)));
                self.commit()?;
                self.answer();
            }
            if self.snapshot.is_some() { self.commit() } else { Ok(()) }
        });
        if done.is_err() {
            self.poisoned = true;
            self.replies.drain(..).for_each(|(to, _)| drop(to.send(Err(Error::OutcomeUnknown))));
            self.looks.clear();
        }
        done
    }

    /// Time as the rules see it never goes back, whatever the clock does.
    fn now(&self) -> Timestamp {
        self.clock.now().max(self.position.at)
    }

    fn expire(&mut self) -> Result<(), Poisoned> {
        loop {
            let batch = &mut self.batch;
            let now = self.position.at;
            let released =
                self.book.expire_due(now, self.max_batch, &mut |event| batch.push(event));
            if released == 0 {
                return Ok(());
            }
            self.stats.expired.fetch_add(released as u64, Ordering::Relaxed);
            self.commit()?;
        }
    }

    fn decide(&mut self, jobs: impl Iterator<Item = Job>) {
        let watch = Stopwatch::start();
        for job in jobs {
            match job {
                Job::Command(command, answer) => {
                    let batch = &mut self.batch;
                    let now = self.position.at;
                    let reply = self.book.handle(&command, now, &mut |event| batch.push(event));
                    self.replies.push((answer, reply));
                }
                Job::Look(look) => self.looks.push(look),
            }
        }
        self.stats.decide.record(watch.elapsed());
    }

    /// Makes what was decided durable, with the next part of a snapshot if one is under way.
    /// Refusals alone touch nothing.
    fn commit(&mut self) -> Result<(), Poisoned> {
        let count = self.batch.count();
        let part = self.next_part();
        if count == 0 && part.is_none() {
            return Ok(());
        }
        let watch = Stopwatch::start();
        let last_seq = self.position.seq + count;
        let batch =
            Batch { first_seq: self.position.seq + 1, last_seq, events: self.batch.bytes() };
        let part = part.map(|part| Part { events: self.part.bytes(), ..part });
        self.journal.append(&Write {
            batch: (count > 0).then_some(batch),
            part,
            trim_through: self.snapshot_seq.min(self.consumed.load(Ordering::Acquire)),
        })?;
        self.stats.commit.record(watch.elapsed());
        self.position.seq = last_seq;
        self.log_bytes += self.batch.bytes().len() as u64;
        self.batch.clear();
        self.stats.events.fetch_add(count, Ordering::Relaxed);
        self.stats.batches.fetch_add(u64::from(count > 0), Ordering::Relaxed);
        if part.is_some_and(|part| part.last) {
            self.finish_snapshot();
        }
        Ok(())
    }

    fn answer(&mut self) {
        for (to, reply) in self.replies.drain(..) {
            // Whoever asked may be gone; what was decided stands.
            let _heard = to.send(Ok(reply));
        }
        for look in self.looks.drain(..) {
            look(&self.book, self.position);
        }
    }

    /// Encodes the next part of the snapshot under way, beginning one when the log has grown.
    /// It stands for the log before this batch and may hold some of the batch already: what is
    /// replayed behind it is taken only where it is newer.
    fn next_part(&mut self) -> Option<Part<'static>> {
        if self.snapshot.is_none() {
            let enough = self.options.snapshot_bytes.max(self.last_snapshot_bytes);
            if self.log_bytes < enough {
                return None;
            }
            self.last_snapshot += 1;
            self.snapshot = Some(Snapshot {
                id: self.last_snapshot,
                base_seq: self.position.seq,
                next_part: 0,
                bytes: 0,
                cursor: SnapshotCursor::default(),
            });
        }
        let snapshot = self.snapshot.as_mut()?;
        let part = &mut self.part;
        part.clear();
        let cursor = &mut snapshot.cursor;
        let last = self.book.snapshot(cursor, self.snapshot_part, &mut |event| part.push(event));
        snapshot.bytes += part.bytes().len() as u64;
        let number = snapshot.next_part;
        snapshot.next_part += 1;
        let Snapshot { id, base_seq, .. } = *snapshot;
        Some(Part { snapshot: id, base_seq, number, last, events: &[] })
    }

    fn finish_snapshot(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.snapshot_seq = snapshot.base_seq;
            self.last_snapshot_bytes = snapshot.bytes;
            self.log_bytes = 0;
            self.stats.snapshots.fetch_add(1, Ordering::Relaxed);
        }
    }
}
