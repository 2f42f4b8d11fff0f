//! The desk: what was decided, and how much of it is durable.
//!
//! Commands are decided here one after the other, and what they change is encoded for the
//! journal at once. Nothing is answered that rests on a change which is not durable yet: such
//! answers are kept beside the batch they wait for. When nothing is pending, a refusal or a
//! repeat is answered on the spot.
//!
//! A desk knows nothing of threads and disks. Whoever owns a journal takes the pending batch
//! ([`Desk::take`]), appends it, and reports back ([`Desk::committed`]); meanwhile the desk goes
//! on deciding.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qiang_core::{Book, Command, Reply, SnapshotCursor, Timestamp};
use tokio::sync::oneshot;

use super::codec::Encoder;
use super::journal::{Batch, Part, Recovered, Write};
use super::stats::Stats;
use crate::{Clock, Error};

/// Claims released before the next look at what else there is to do.
const MAX_RELEASED: usize = 8_192;
/// Claims in one part of a snapshot; bounds how long a part keeps others from deciding.
const SNAPSHOT_PART: usize = 256;

/// What is asked at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// One command.
    One(Command),
    /// Commands that are decided in this order, with nothing in between, and answered together.
    Many(Vec<Command>),
}

/// The answer, of the same shape as the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replies {
    /// To one command.
    One(Reply),
    /// To each of many, in their order.
    Many(Vec<Reply>),
}

/// Where an answer goes.
pub type Answer = oneshot::Sender<Result<Replies, Error>>;

impl Question {
    /// How many commands it holds.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(commands) => commands.len(),
        }
    }
}

impl Replies {
    /// How many replies it holds.
    fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(replies) => replies.len(),
        }
    }

    /// The reply to one command.
    #[must_use]
    pub fn one(self) -> Reply {
        match self {
            Self::One(reply) => reply,
            Self::Many(replies) => unreachable!("asked one thing, answered {replies:?}"),
        }
    }

    /// The replies to many commands.
    #[must_use]
    pub fn many(self) -> Vec<Reply> {
        match self {
            Self::Many(replies) => replies,
            Self::One(reply) => unreachable!("asked many things, answered {reply:?}"),
        }
    }
}

/// How a desk works.
#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// Spreads the hash tables.
    pub seed: u64,
    /// Bytes of new events after which a snapshot is begun, if the last one is not larger.
    pub snapshot_bytes: u64,
}

/// Where the log stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Position of the last event decided.
    pub seq: u64,
    /// The time of the last decision.
    pub at: Timestamp,
}

/// All pools, what was decided on them, and what waits for the journal.
#[derive(Debug)]
pub(super) struct Desk<C> {
    book: Book,
    clock: C,
    options: WriterOptions,
    position: Position,
    /// Everything up to here is in the journal.
    durable: u64,
    batch: Encoder,
    replies: Vec<(Answer, Replies)>,
    /// How many replies those are.
    waiting: usize,
    looks: Vec<oneshot::Sender<()>>,
    snapshot: Option<Snapshot>,
    last_snapshot: u64,
    last_snapshot_bytes: u64,
    /// Everything up to here is in a complete snapshot.
    snapshot_seq: u64,
    log_bytes: u64,
    /// Everything up to here was read by every consumer.
    consumed: Arc<AtomicU64>,
    stats: Arc<Stats>,
    pub(super) snapshot_part: usize,
}

#[derive(Debug)]
struct Snapshot {
    id: u64,
    base_seq: u64,
    next_part: u64,
    bytes: u64,
    cursor: SnapshotCursor,
}

/// What became of a question.
pub(super) enum Asked {
    /// The answer rests on nothing that could still be lost.
    Settled(Replies),
    /// The answer waits for the journal.
    Waits(Replies),
}

/// What was taken from a desk to be made durable, and who waits for it. It is used again and
/// again, so that its memory is.
#[derive(Debug, Default)]
pub(super) struct Pending {
    first_seq: u64,
    last_seq: u64,
    batch: Encoder,
    part: Option<Part<'static>>,
    part_events: Encoder,
    trim_through: u64,
    replies: Vec<(Answer, Replies)>,
    waiting: usize,
    looks: Vec<oneshot::Sender<()>>,
}

impl<C: Clock> Desk<C> {
    /// A desk at the end of a journal that was read into `book`.
    pub(super) fn new(
        book: Book,
        end: Recovered,
        clock: C,
        options: WriterOptions,
        consumed: Arc<AtomicU64>,
        stats: Arc<Stats>,
    ) -> Self {
        Self {
            book,
            clock,
            options,
            position: Position { seq: end.seq, at: end.at },
            durable: end.seq,
            batch: Encoder::default(),
            replies: Vec::new(),
            waiting: 0,
            looks: Vec::new(),
            snapshot: None,
            last_snapshot: end.snapshot,
            last_snapshot_bytes: end.snapshot_bytes,
            snapshot_seq: end.snapshot_seq,
            log_bytes: end.log_bytes,
            consumed,
            stats,
            snapshot_part: SNAPSHOT_PART,
        }
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// Everything there is, some of which may not be durable.
    pub(super) fn book(&self) -> &Book {
        &self.book
    }

    /// Whether everything decided is durable.
    pub(super) fn is_durable(&self) -> bool {
        self.durable == self.position.seq
    }

    /// How many replies wait for the journal.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// How long nothing has to be done; `None` is until something is asked.
    pub(super) fn patience(&self) -> Option<Duration> {
        if self.has_work() {
            return Some(Duration::ZERO);
        }
        let wait = self.book.next_due()?.millis().saturating_sub(self.now().millis());
        Some(Duration::from_millis(u64::try_from(wait).unwrap_or(0)))
    }

    /// Whether there is something to take.
    pub(super) fn has_work(&self) -> bool {
        self.batch.count() > 0
            || self.snapshot.is_some()
            || !self.replies.is_empty()
            || !self.looks.is_empty()
    }

    /// Whether what was kept last is the only thing there is to take.
    pub(super) fn is_first_in_line(&self) -> bool {
        self.replies.len() + self.looks.len() == 1
    }

    /// Looks at the clock; from here on it is that time, and no deadline before it stands.
    pub(super) fn tick(&mut self) {
        while self.release_overdue(MAX_RELEASED) == MAX_RELEASED {}
    }

    /// Looks at the clock and releases at most `max` claims whose time is up.
    pub(super) fn release_overdue(&mut self, max: usize) -> usize {
        self.position.at = self.now();
        let (batch, at) = (&mut self.batch, self.position.at);
        let before = batch.count();
        let released = self.book.expire_due(at, max, &mut |event| batch.push(event));
        self.position.seq += batch.count() - before;
        self.stats.expired.fetch_add(released as u64, Ordering::Relaxed);
        released
    }

    /// Decides what is asked at the time of the last tick.
    pub(super) fn decide(&mut self, question: &Question) -> Asked {
        let (batch, at) = (&mut self.batch, self.position.at);
        let before = batch.count();
        if let Question::Many(commands) = question {
            self.book.look_ahead(commands);
        }
        let mut decide = |command| self.book.handle(command, at, &mut |event| batch.push(event));
        let replies = match question {
            Question::One(command) => Replies::One(decide(command)),
            Question::Many(commands) => Replies::Many(commands.iter().map(decide).collect()),
        };
        self.position.seq += batch.count() - before;
        if self.is_durable() { Asked::Settled(replies) } else { Asked::Waits(replies) }
    }

    /// Keeps an answer until everything decided so far is durable.
    pub(super) fn keep(&mut self, to: Answer, replies: Replies) {
        self.waiting += replies.len();
        self.replies.push((to, replies));
    }

    /// Tells when everything decided so far is durable.
    pub(super) fn keep_look(&mut self, to: oneshot::Sender<()>) {
        self.looks.push(to);
    }

    /// Moves everything that waits into `pending`, with the next part of a snapshot if one is
    /// under way. Says whether there is anything to write; refusals alone need no writing.
    pub(super) fn take(&mut self, pending: &mut Pending) -> bool {
        debug_assert!(pending.replies.is_empty() && pending.looks.is_empty());
        pending.first_seq = self.durable + 1;
        pending.last_seq = self.position.seq;
        pending.batch.clear();
        std::mem::swap(&mut pending.batch, &mut self.batch);
        std::mem::swap(&mut pending.replies, &mut self.replies);
        pending.waiting = std::mem::take(&mut self.waiting);
        std::mem::swap(&mut pending.looks, &mut self.looks);
        pending.part = self.next_part(&mut pending.part_events);
        pending.trim_through = self.snapshot_seq.min(self.consumed.load(Ordering::Acquire));
        pending.batch.count() > 0 || pending.part.is_some()
    }

    /// What was taken is durable.
    pub(super) fn committed(&mut self, pending: &Pending) {
        self.durable = pending.last_seq;
        self.log_bytes += pending.batch.bytes().len() as u64;
        let count = pending.batch.count();
        self.stats.events.fetch_add(count, Ordering::Relaxed);
        self.stats.batches.fetch_add(u64::from(count > 0), Ordering::Relaxed);
        if pending.part.is_some_and(|part| part.last)
            && let Some(snapshot) = self.snapshot.take()
        {
            self.snapshot_seq = snapshot.base_seq;
            self.last_snapshot_bytes = snapshot.bytes;
            self.log_bytes = 0;
            self.stats.snapshots.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tells everybody who still waits that nobody knows: their answers rest on what the journal
    /// failed to take, and may or may not hold.
    pub(super) fn turn_away(&mut self) {
        self.looks.clear();
        self.waiting = 0;
        for (to, _) in self.replies.drain(..) {
            let _heard = to.send(Err(Error::OutcomeUnknown));
        }
    }

    /// Time as the rules see it never goes back, whatever the clock does.
    fn now(&self) -> Timestamp {
        self.clock.now().max(self.position.at)
    }

    /// Encodes the next part of the snapshot under way, beginning one when the log has grown.
    /// It stands for the log before this batch and may hold some of the batch already: what is
    /// replayed behind it is taken only where it is newer.
    fn next_part(&mut self, events: &mut Encoder) -> Option<Part<'static>> {
        if self.snapshot.is_none() {
            let enough = self.options.snapshot_bytes.max(self.last_snapshot_bytes);
            if self.log_bytes < enough {
                return None;
            }
            self.last_snapshot += 1;
            self.snapshot = Some(Snapshot {
                id: self.last_snapshot,
                base_seq: self.durable,
                next_part: 0,
                bytes: 0,
                cursor: SnapshotCursor::default(),
            });
        }
        let snapshot = self.snapshot.as_mut()?;
        events.clear();
        let cursor = &mut snapshot.cursor;
        let last = self.book.snapshot(cursor, self.snapshot_part, &mut |event| events.push(event));
        snapshot.bytes += events.bytes().len() as u64;
        let number = snapshot.next_part;
        snapshot.next_part += 1;
        let Snapshot { id, base_seq, .. } = *snapshot;
        Some(Part { snapshot: id, base_seq, number, last, events: &[] })
    }
}

impl Pending {
    /// What goes into the journal.
    pub(super) fn write(&self) -> Write<'_> {
        let Self { first_seq, last_seq, batch, part, part_events, trim_through, .. } = self;
        let (first_seq, last_seq) = (*first_seq, *last_seq);
        Write {
            batch: (batch.count() > 0).then(|| Batch {
                first_seq,
                last_seq,
                events: batch.bytes(),
            }),
            part: part.map(|part| Part { events: part_events.bytes(), ..part }),
            trim_through: *trim_through,
        }
    }

    /// How many replies wait for it.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Position of its last event.
    pub(super) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Gives everybody who waits for it their answer.
    pub(super) fn answer(&mut self) {
        for (to, replies) in self.replies.drain(..) {
            // Whoever asked may be gone; what was decided stands.
            let _heard = to.send(Ok(replies));
        }
        for to in self.looks.drain(..) {
            let _heard = to.send(());
        }
    }

    /// Tells everybody who waits for it that nobody knows.
    pub(super) fn fail(&mut self) {
        self.looks.clear();
        for (to, _) in self.replies.drain(..) {
            let _heard = to.send(Err(Error::OutcomeUnknown));
        }
    }
}
