//! The queue in front of a partition.
//!
//! A partition's transactions come one after the other anyway, so those of one process wait in a
//! queue here instead of waiting for each other's locks, and as many as wait are decided in one
//! transaction. What was asked is decided even if nobody waits for the answer any more.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qiang_core::{Command, PoolId, Reply};
use tokio::sync::oneshot;

use crate::{Error, Stopwatch};

/// Commands decided in one transaction.
const MAX_BATCH: usize = 256;

/// One thing to do.
#[derive(Debug)]
pub(super) enum Task {
    /// Decide a command.
    Command(Command),
    /// Release what is overdue in a pool.
    Expire(PoolId),
}

/// A task, and who waits for it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) since: Stopwatch,
    to: oneshot::Sender<Answer>,
    _place: Waiting,
}

/// The reply to a command; nothing where there was none to give.
pub(super) type Answer = Result<Option<Reply>, Error>;

/// One of those who wait; they are counted.
#[derive(Debug)]
pub(super) struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    /// A place in the queue, if there are fewer than `max` who have one.
    pub(super) fn take(count: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let more = |waiting| (waiting < max).then_some(waiting + 1);
        let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Self(Arc::clone(count)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Job {
    pub(super) fn new(task: Task, place: Waiting) -> (Self, oneshot::Receiver<Answer>) {
        let (to, answer) = oneshot::channel();
        (Self { task, since: Stopwatch::start(), to, _place: place }, answer)
    }

    pub(super) fn pool(&self) -> PoolId {
        match &self.task {
            Task::Command(command) => command.pool(),
            Task::Expire(pool) => *pool,
        }
    }

    pub(super) fn command(&self) -> Option<&Command> {
        match &self.task {
            Task::Command(command) => Some(command),
            Task::Expire(_) => None,
        }
    }

    pub(super) fn answer(self, answer: Answer) {
        // Whoever asked may be gone; what was decided stands.
        let _heard = self.to.send(answer);
    }
}

/// Who waits for one partition.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Jobs>,
    /// Numbers the transactions of this process on this partition.
    calls: AtomicI64,
}

#[derive(Debug, Default)]
struct Jobs {
    jobs: VecDeque<Job>,
    served: bool,
}

impl Queue {
    /// Joins the queue. `true` means that nobody serves it, and the caller has to see to that.
    #[must_use]
    pub(super) fn join(&self, job: Job) -> bool {
        let mut waiting = self.waiting();
        waiting.jobs.push_back(job);
        !std::mem::replace(&mut waiting.served, true)
    }

    /// The next batch; `None` when nobody waits, and the queue is not served any more.
    ///
    /// What changes a pool as a whole ends a batch: what was read of the pool before it holds no
    /// longer behind it.
    pub(super) fn next(&self) -> Option<Vec<Job>> {
        let mut waiting = self.waiting();
        let mut batch = Vec::new();
        while batch.len() < MAX_BATCH
            && let Some(job) = waiting.jobs.pop_front()
        {
            let last = changes_a_pool(&job);
            batch.push(job);
            if last {
                break;
            }
        }
        waiting.served = !batch.is_empty();
        waiting.served.then_some(batch)
    }

    /// Turns everybody away and leaves the queue, after a panic in a batch.
    pub(super) fn abandon(&self) {
        let mut waiting = self.waiting();
        waiting.served = false;
        waiting.jobs.clear();
    }

    /// The number of the next transaction.
    pub(super) fn next_call(&self) -> i64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn waiting(&self) -> MutexGuard<'_, Jobs> {
        // Nothing in there can be left half done.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pools a batch is about.
pub(super) fn pools_of(jobs: &[Job]) -> BTreeSet<PoolId> {
    jobs.iter().map(Job::pool).collect()
}

fn changes_a_pool(job: &Job) -> bool {
    matches!(&job.task, Task::Command(command) if command.is_of_pool())
}
