//! Where arrivals wait until a connection is free. Its length is bounded: who finds it full is
//! turned away, and counted.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, TryAcquireError};

/// The planned times of those who wait, first come, first served.
#[derive(Debug)]
pub(crate) struct Line {
    waiting: Mutex<Waiting>,
    /// As many permits as there are waiting, or fewer for the moment between joining and telling.
    told: Semaphore,
    bound: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    arrivals: VecDeque<Duration>,
    closed: bool,
}

impl Line {
    pub(crate) fn new(bound: usize) -> Self {
        Self { waiting: Mutex::default(), told: Semaphore::new(0), bound }
    }

    /// Lets these join; how many found no place. Behind the end nobody arrives.
    pub(crate) fn join(&self, arrivals: impl IntoIterator<Item = Duration>) -> u64 {
        let (mut joined, mut turned_away) = (0, 0);
        let mut waiting = self.waiting();
        if waiting.closed {
            return 0;
        }
        for arrival in arrivals {
            if waiting.arrivals.len() < self.bound {
                waiting.arrivals.push_back(arrival);
                joined += 1;
            } else {
                turned_away += 1;
            }
        }
        drop(waiting);
        self.told.add_permits(joined);
        turned_away
    }

    /// Who is next; waits for somebody to come. `None` when nobody comes any more.
    pub(crate) async fn next(&self) -> Option<Duration> {
        if let Ok(told) = self.told.acquire().await {
            told.forget();
        }
        self.waiting().arrivals.pop_front()
    }

    /// Who is next, if there is one.
    pub(crate) fn try_next(&self) -> Option<Duration> {
        match self.told.try_acquire() {
            Ok(told) => told.forget(),
            Err(TryAcquireError::NoPermits) => return None,
            Err(TryAcquireError::Closed) => {}
        }
        self.waiting().arrivals.pop_front()
    }

    /// Nobody joins any more; who waits is still served.
    pub(crate) fn close(&self) {
        self.waiting().closed = true;
        self.told.close();
    }

    /// Sends everybody home who still waits, and says how many.
    pub(crate) fn clear(&self) -> u64 {
        self.close();
        self.waiting().arrivals.drain(..).len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting().arrivals.len()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test]
    async fn first_come_first_served_and_no_more_than_fit() {
        let line = Line::new(2);
        assert_eq!(line.join([at(1), at(2), at(3)]), 1);
        assert_eq!(line.len(), 2);
        assert_eq!(line.next().await, Some(at(1)));
        assert_eq!(line.join([at(4), at(5)]), 1);
        assert_eq!(line.try_next(), Some(at(2)));
        assert_eq!(line.next().await, Some(at(4)));
        assert_eq!(line.try_next(), None);
    }

    #[tokio::test]
    async fn who_waits_at_the_end_is_served_and_then_nobody() {
        let line = Line::new(9);
        line.join([at(1), at(2), at(3)]);
        line.close();
        assert_eq!(line.next().await, Some(at(1)));
        assert_eq!(line.try_next(), Some(at(2)));
        assert_eq!(line.clear(), 1);
        assert_eq!(line.join([at(4)]), 0);
        assert_eq!((line.next().await, line.try_next()), (None, None));
    }

    #[tokio::test]
    async fn every_waiting_connection_is_woken() {
        let line = std::sync::Arc::new(Line::new(9));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let line = std::sync::Arc::clone(&line);
                tokio::spawn(async move { line.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        line.join([at(1), at(2), at(3)]);
        let mut served = Vec::new();
        for one in waiting {
            served.extend(one.await.expect("no panic"));
        }
        served.sort();
        assert_eq!(served, [at(1), at(2), at(3)]);
    }
}
