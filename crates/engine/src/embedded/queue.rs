//! The queue in front of the desk, which many callers share with one committer.
//!
//! A caller who finds the desk free decides at once, and a refusal that rests on nothing pending is
//! answered without another thread. A caller who finds the desk taken leaves the question in the
//! queue; the one at the desk decides all questions in the queue before leaving. What changed
//! something waits for the committer's thread, which takes all of it, appends it with one sync and
//! answers, while others go on deciding.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use qiang_core::Book;
use tokio::sync::{oneshot, watch};

use super::desk::{Answer, Asked, Desk, Position, Question, Replies};
use super::journal::Journal;
use super::writer::{Committer, Poisoned};
use crate::{Clock, Error, JournalError};

/// From so many answers in one commit on, there is a crowd; with so many, it is large.
const CROWD: usize = 4;
const LARGE_CROWD: usize = 512;
/// In a crowd the committer waits for as long as more come, in steps of this, before it commits:
/// a sync keeps a processor and the disk busy, and one can serve them all.
const LINGER: Duration = Duration::from_micros(100);
const MAX_LINGERS: usize = 2;
/// However far away the next deadline is, the clock is looked at this often: it may have been
/// set, or the machine may have slept.
const MAX_PATIENCE: Duration = Duration::from_secs(1);
const BUG: &str =
    "a bug stopped the engine; see the log. Nothing acknowledged is lost: start again";
/// What to do after a write that failed.
const ADVICE: &str = ". Nothing acknowledged is lost: mend the cause and start again. What was \
                      asked last may or may not have happened";

/// What callers and committer share.
#[derive(Debug)]
pub(super) struct Queue<C> {
    desk: Mutex<Desk<C>>,
    waiting: Mutex<Waiting>,
    /// There is work for the committer.
    work: Condvar,
    /// More than this do not wait.
    capacity: usize,
    /// Position of the last durable event.
    pub(super) durable: watch::Sender<u64>,
    /// Becomes true when nothing is decided any more.
    pub(super) ended: watch::Sender<bool>,
    poison: OnceLock<String>,
}

/// Why the committer's thread goes on.
enum Woken<'a, C> {
    /// Something at this desk is pending.
    Work(MutexGuard<'a, Desk<C>>),
    /// Nothing is pending that could be seen yet.
    Idle,
    /// There will be nothing more.
    Closed,
}

/// Questions of callers who found the desk taken. Nobody leaves the desk without looking here.
#[derive(Debug, Default)]
struct Waiting {
    questions: Vec<(Question, Answer)>,
    /// How many commands those are.
    commands: usize,
    /// Something is pending that the committer has not seen.
    pending: bool,
    closed: bool,
}

impl Waiting {
    fn take(&mut self) -> Vec<(Question, Answer)> {
        self.commands = 0;
        std::mem::take(&mut self.questions)
    }
}

impl<C: Clock> Queue<C> {
    pub(super) fn new(desk: Desk<C>, capacity: usize) -> Self {
        Self {
            durable: watch::Sender::new(desk.position().seq),
            desk: Mutex::new(desk),
            waiting: Mutex::default(),
            work: Condvar::new(),
            capacity,
            ended: watch::Sender::new(false),
            poison: OnceLock::new(),
        }
    }

    /// Decides what is asked and waits until the answer rests on nothing that could be lost. What
    /// was decided stands even if the caller stops waiting.
    pub(super) async fn ask(&self, question: Question) -> Result<Replies, Error> {
        let answered = match self.desk.try_lock() {
            Ok(mut desk) => {
                let asked = self.ask_at_desk(&mut desk, &question);
                drop(desk);
                self.serve_waiting();
                match asked? {
                    Ok(replies) => return Ok(replies),
                    Err(answered) => answered,
                }
            }
            Err(TryLockError::WouldBlock) => {
                let (to, answered) = oneshot::channel();
                self.enqueue(question, to)?;
                self.serve_waiting();
                answered
            }
            Err(TryLockError::Poisoned(_)) => return Err(self.broken()),
        };
        answered.await.unwrap_or(Err(Error::OutcomeUnknown))
    }

    /// Looks at the book, and returns what was seen when all of it is durable.
    pub(super) async fn look<T>(
        &self,
        look: impl FnOnce(&Book, Position) -> T,
    ) -> Result<T, Error> {
        let (seen, durable) = {
            let mut desk = self.desk.lock().map_err(|_| self.broken())?;
            if self.lock_waiting().closed {
                return Err(Error::Unavailable);
            }
            desk.tick();
            let seen = look(desk.book(), desk.position());
            if desk.is_durable() {
                (seen, None)
            } else {
                let (to, durable) = oneshot::channel();
                desk.keep_look(to);
                self.wake_committer(&desk);
                (seen, Some(durable))
            }
        };
        self.serve_waiting();
        match durable {
            None => Ok(seen),
            Some(durable) => durable.await.map(|()| seen).map_err(|_| Error::Unavailable),
        }
    }

    /// How many wait, for the desk or for the journal.
    pub(super) fn waiting(&self) -> usize {
        let at_desk = self.desk.lock().map_or(0, |desk| desk.waiting());
        at_desk + self.lock_waiting().commands
    }

    /// Takes nothing more; what was taken is still answered.
    pub(super) fn close(&self) {
        self.lock_waiting().closed = true;
        self.work.notify_all();
    }

    /// Why nothing is decided any more, if that is not because it was closed.
    pub(super) fn poison(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// The life of the committer's thread: until the queue is closed and nothing is pending,
    /// or the journal fails.
    pub(super) fn commit_all(&self, committer: &mut Committer<impl Journal>) {
        let ending = Ending(self);
        let mut crowded = false;
        loop {
            if let Err(Poisoned(error)) = committer.look() {
                self.stop(&error);
                break;
            }
            let mut desk = match self.wait_for_work() {
                Woken::Work(desk) => desk,
                Woken::Idle => continue,
                Woken::Closed => break,
            };
            if crowded {
                let Some(later) = self.linger(desk) else { break };
                desk = later;
            }
            let to_write = desk.take(&mut committer.pending);
            drop(desk);
            crowded = committer.pending.waiting() >= CROWD;
            if let Err(Poisoned(error)) = committer.append(to_write) {
                self.stop(&error);
                break;
            }
            let Ok(mut desk) = self.desk.lock() else { break };
            desk.committed(&committer.pending);
            drop(desk);
            committer.pending.answer();
            self.durable.send_replace(committer.pending.last_seq());
        }
        drop(ending);
    }

    /// Says why nothing is decided from now on, and what to do.
    fn stop(&self, error: &JournalError) {
        let mut reason = crate::error::chain(error);
        // Of a journal that is gone, the error itself says what is left of it.
        if !matches!(error, JournalError::Gone { .. }) {
            reason.push_str(ADVICE);
        }
        tracing::error!(reason, "the engine stopped");
        let _first = self.poison.set(reason);
    }

    /// Decides now: the answer, or where it will come from once it is durable.
    fn ask_at_desk(
        &self,
        desk: &mut Desk<C>,
        question: &Question,
    ) -> Result<Result<Replies, oneshot::Receiver<Result<Replies, Error>>>, Error> {
        if !self.fits(desk.waiting(), question) {
            return Err(Error::Overloaded);
        }
        if self.lock_waiting().closed {
            return Err(Error::Unavailable);
        }
        desk.tick();
        Ok(match desk.decide(question) {
            Asked::Settled(replies) => Ok(replies),
            Asked::Waits(replies) => {
                let (to, answered) = oneshot::channel();
                desk.keep(to, replies);
                self.wake_committer(desk);
                Err(answered)
            }
        })
    }

    /// Whether so many more may wait. A question larger than all the room there is may wait alone.
    fn fits(&self, waiting: usize, question: &Question) -> bool {
        waiting == 0 || waiting + question.len() <= self.capacity
    }

    fn enqueue(&self, question: Question, to: Answer) -> Result<(), Error> {
        let mut waiting = self.lock_waiting();
        if waiting.closed {
            return Err(Error::Unavailable);
        }
        if !self.fits(waiting.commands, &question) {
            return Err(Error::Overloaded);
        }
        waiting.commands += question.len();
        waiting.questions.push((question, to));
        if waiting.questions.len() == 1 {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Decides for those in waiting, unless somebody is at the desk, who will. Everybody who leaves
    /// the desk calls this, and so does everybody who leaves a question: none is forgotten.
    fn serve_waiting(&self) {
        while !self.lock_waiting().questions.is_empty()
            && let Ok(mut desk) = self.desk.try_lock()
        {
            self.decide_waiting(&mut desk);
        }
    }

    fn decide_waiting(&self, desk: &mut Desk<C>) {
        let questions = self.lock_waiting().take();
        if questions.is_empty() {
            return;
        }
        desk.tick();
        for (question, to) in questions {
            // What waits and the desk have one bound, and only together they keep it.
            if !self.fits(desk.waiting(), &question) {
                let _heard = to.send(Err(Error::Overloaded));
                continue;
            }
            match desk.decide(&question) {
                Asked::Settled(replies) => drop(to.send(Ok(replies))),
                Asked::Waits(replies) => {
                    desk.keep(to, replies);
                    self.wake_committer(desk);
                }
            }
        }
    }

    /// Waits until something is pending, for a second at most.
    fn wait_for_work(&self) -> Woken<'_, C> {
        let Ok(mut desk) = self.desk.lock() else { return Woken::Closed };
        self.decide_waiting(&mut desk);
        desk.tick();
        if desk.has_work() {
            self.lock_waiting().pending = false;
            return Woken::Work(desk);
        }
        let patience = desk.patience().map_or(MAX_PATIENCE, |wait| wait.min(MAX_PATIENCE));
        drop(desk);
        let waiting = self.lock_waiting();
        let idle = |waiting: &mut Waiting| {
            waiting.questions.is_empty() && !waiting.pending && !waiting.closed
        };
        let waited = self.work.wait_timeout_while(waiting, patience, idle);
        let mut waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        if waiting.closed && waiting.questions.is_empty() && !waiting.pending {
            return Woken::Closed;
        }
        waiting.pending = false;
        Woken::Idle
    }

    /// Lets others decide for as long as more and more of them come, but not for long.
    fn linger<'a>(&'a self, mut desk: MutexGuard<'a, Desk<C>>) -> Option<MutexGuard<'a, Desk<C>>> {
        for _ in 0..MAX_LINGERS {
            let waiting = desk.waiting();
            if waiting >= LARGE_CROWD {
                break;
            }
            drop(desk);
            std::thread::sleep(LINGER);
            desk = self.desk.lock().ok()?;
            self.decide_waiting(&mut desk);
            if desk.waiting() == waiting {
                break;
            }
        }
        Some(desk)
    }

    /// Tells the committer that something is pending; it knows while something was before.
    fn wake_committer(&self, desk: &Desk<C>) {
        if desk.is_first_in_line() {
            self.lock_waiting().pending = true;
            self.work.notify_one();
        }
    }

    fn lock_waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing in there can be left half done.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A panic in the middle of a decision leaves a book nobody may trust: nothing is decided on
    /// it any more.
    fn broken(&self) -> Error {
        let _first = self.poison.set(BUG.into());
        self.close();
        Error::Unavailable
    }
}

/// Closes the queue when the committer ends, however it ends, so that nobody waits for ever.
struct Ending<'a, C: Clock>(&'a Queue<C>);

impl<C: Clock> Drop for Ending<'_, C> {
    fn drop(&mut self) {
        let queue = self.0;
        if std::thread::panicking() || queue.desk.is_poisoned() {
            let _first = queue.poison.set(BUG.into());
        }
        // Nobody decides while this is held, and nobody begins to after it was closed.
        let mut desk = queue.desk.lock().unwrap_or_else(PoisonError::into_inner);
        queue.close();
        desk.turn_away();
        for (_, to) in queue.lock_waiting().take() {
            let _heard = to.send(Err(Error::Unavailable));
        }
        drop(desk);
        queue.ended.send_replace(true);
    }
}
