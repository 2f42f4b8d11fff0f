//! One step after the other: decide a batch, make it durable, answer all of it.
//!
//! This is the engine without its threads. It never answers on data that is not durable, and
//! after a failed append it is poisoned: what was asked in that batch may or may not have
//! happened, and nothing is decided any more. A simulator drives it through every fault.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use qiang_core::Book;

use super::desk::{Answer, Asked, Desk, Pending, Position, Question, WriterOptions};
use super::journal::Journal;
use super::stats::Stats;
use crate::{Clock, JournalError, Stopwatch};

/// Commands decided before a sync, and claims released in one; bounds the size of a batch.
const MAX_BATCH: usize = 8_192;
/// Between two looks at the file of the journal.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A look at the book and where it stands.
pub type Look = Box<dyn FnOnce(&Book, Position) + Send>;

/// One thing for the writer to do.
pub enum Job {
    /// Decide what is asked.
    Ask(Question, Answer),
    /// Look at the book, at a moment when all of it is durable.
    Look(Look),
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ask(question, _) => f.debug_tuple("Ask").field(question).finish(),
            Self::Look(_) => f.write_str("Look"),
        }
    }
}

/// The journal failed, and nothing is decided any more.
#[derive(Debug, thiserror::Error)]
#[error("the journal failed, and the engine stopped rather than answer on what may be lost")]
pub struct Poisoned(#[from] pub JournalError);

/// A desk and its journal.
pub struct Writer<J, C> {
    desk: Desk<C>,
    committer: Committer<J>,
    looks: Vec<Look>,
    max_batch: usize,
    poisoned: bool,
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
        let desk = Desk::new(book, end, clock, options, consumed, Arc::clone(&stats));
        let (pending, looked) = (Pending::default(), Stopwatch::start());
        let committer = Committer { journal, looked, pending, stats };
        Ok(Self { desk, committer, looks: Vec::new(), max_batch: MAX_BATCH, poisoned: false })
    }

    /// Makes steps smaller than is sensible, so that a simulator meets every seam between two of
    /// them with few claims.
    #[must_use]
    pub fn in_steps_of(mut self, batch: NonZeroUsize, snapshot_part: NonZeroUsize) -> Self {
        self.desk.snapshot_part = snapshot_part.get();
        Self { max_batch: batch.get(), ..self }
    }

    /// Where the log ends.
    pub fn position(&self) -> Position {
        self.desk.position()
    }

    /// Everything there is, all of it durable between two steps.
    pub fn book(&self) -> &Book {
        self.desk.book()
    }

    /// The journal it writes to.
    pub fn journal(&self) -> &J {
        &self.committer.journal
    }

    /// How long nothing has to be done; `None` is until something is asked.
    pub fn patience(&self) -> Option<Duration> {
        self.desk.patience()
    }

    /// Releases what is overdue, then decides, makes durable and answers everything in `jobs`.
    pub fn step(&mut self, jobs: &mut Vec<Job>) -> Result<(), Poisoned> {
        assert!(!self.poisoned, "the book may hold what is not durable: recover instead");
        let done = self.try_step(jobs);
        if done.is_err() {
            self.poisoned = true;
            self.looks.clear();
            self.desk.turn_away();
        }
        done
    }

    /// The two halves, for whoever lets them work at the same time.
    pub(super) fn split(self) -> (Desk<C>, Committer<J>) {
        (self.desk, self.committer)
    }

    fn try_step(&mut self, jobs: &mut Vec<Job>) -> Result<(), Poisoned> {
        while self.desk.release_overdue(self.max_batch) > 0 {
            self.commit()?;
        }
        while !jobs.is_empty() {
            for job in jobs.drain(..jobs.len().min(self.max_batch)) {
                match job {
                    Job::Ask(question, answer) => {
                        let (Asked::Settled(replies) | Asked::Waits(replies)) =
                            self.desk.decide(&question);
                        self.desk.keep(answer, replies);
                    }
                    Job::Look(look) => self.looks.push(look),
                }
            }
            self.commit()?;
            for look in self.looks.drain(..) {
                look(self.desk.book(), self.desk.position());
            }
        }
        // A snapshot under way goes on whether or not anybody asks for anything.
        if self.desk.has_work() { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<(), Poisoned> {
        let to_write = self.desk.take(&mut self.committer.pending);
        self.committer.append(to_write)?;
        self.desk.committed(&self.committer.pending);
        self.committer.pending.answer();
        Ok(())
    }
}

/// The owner of a journal: makes durable what was taken from a desk.
pub(super) struct Committer<J> {
    journal: J,
    /// Since the journal was looked at.
    looked: Stopwatch,
    pub(super) pending: Pending,
    stats: Arc<Stats>,
}

impl<J: Journal> Committer<J> {
    /// Appends what is pending, if there is anything to write. When that fails, those who wait
    /// for it are told that nobody knows.
    pub(super) fn append(&mut self, to_write: bool) -> Result<(), Poisoned> {
        if !to_write {
            return Ok(());
        }
        let watch = Stopwatch::start();
        let appended = self.journal.append(&self.pending.write());
        self.stats.commit.record(watch.elapsed());
        appended.map_err(|error| {
            self.pending.fail();
            Poisoned(error)
        })
    }

    /// Looks once a second whether a restart would still find the journal. To be called between
    /// two commits, when nobody waits for an answer that was written.
    pub(super) fn look(&mut self) -> Result<(), Poisoned> {
        if self.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked = Stopwatch::start();
        Ok(self.journal.look()?)
    }
}
