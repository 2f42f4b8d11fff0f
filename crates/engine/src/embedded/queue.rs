//! The way to the writer: bounded, in order, and never blocking for those who ask.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::writer::Job;
use crate::Error;

/// Short beside a sync, long beside a decision.
const LINGER: Duration = Duration::from_micros(50);

/// Jobs waiting for the writer. Handing over is one short lock; the writer takes all at once.
#[derive(Debug)]
pub(super) struct Queue {
    capacity: usize,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: Vec<Job>,
    closed: bool,
    /// More than one job came the last time.
    crowded: bool,
}

impl Queue {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, waiting: Mutex::default(), arrived: Condvar::new() }
    }

    /// Hands a job over, or says at once that it cannot be taken.
    pub(super) fn push(&self, job: Job) -> Result<(), Error> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(Error::Unavailable);
        }
        if waiting.jobs.len() >= self.capacity {
            return Err(Error::Overloaded);
        }
        waiting.jobs.push(job);
        let first = waiting.jobs.len() == 1;
        drop(waiting);
        if first {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Moves everything that waits into `jobs`, waiting for something to come for at most
    /// `patience` (`None` is for ever). Says whether anything can still come.
    ///
    /// In a crowd, whoever was woken by a first job lingers for those behind it: being woken for
    /// each would cost more than deciding it.
    pub(super) fn take(&self, jobs: &mut Vec<Job>, patience: Option<Duration>) -> bool {
        let mut waiting = self.lock();
        let slept = waiting.jobs.is_empty() && !waiting.closed;
        waiting = self.wait(waiting, patience);
        if slept && waiting.crowded && !waiting.jobs.is_empty() {
            drop(waiting);
            std::thread::sleep(LINGER);
            waiting = self.lock();
        }
        waiting.crowded = waiting.jobs.len() > 1;
        std::mem::swap(&mut waiting.jobs, jobs);
        !waiting.closed
    }

    fn wait<'a>(
        &'a self,
        waiting: MutexGuard<'a, Waiting>,
        patience: Option<Duration>,
    ) -> MutexGuard<'a, Waiting> {
        let idle = |waiting: &mut Waiting| waiting.jobs.is_empty() && !waiting.closed;
        match patience {
            None => self.arrived.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let woken = self.arrived.wait_timeout_while(waiting, patience, idle);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Takes no more jobs; what waits can still be taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// A panic while the lock is held leaves the list whole.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
