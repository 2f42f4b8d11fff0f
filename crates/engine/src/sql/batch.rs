//! One batch, one transaction: lock the partition, release what is overdue, decide, write, commit,
//! answer.
//!
//! Before the commit nothing has happened, and everything can be done again. When a commit is not
//! confirmed, nobody knows: the transaction has left its number in `engine_calls`, and whoever
//! holds the partition's lock afterwards sees whether it is there, because the lost transaction
//! held that lock until its end. So a batch has one effect, and its answers are those that belong
//! to it. What cannot be found out in time is answered [`Error::OutcomeUnknown`].

use std::sync::atomic::Ordering;
use std::time::Duration;

use qiang_core::{Event, Reply, Timestamp};
use qiang_sql::{Transaction, sql};

use super::Shared;
use super::fault::Fault;
use super::load::Loaded;
use super::queue::{Answer, Job, Queue, Task, pools_of};
use super::rows::Fields;
use super::write::{Place, write};
use crate::{Error, Stopwatch, chain};

/// Claims released in one transaction, beside what else it does.
const MAX_RELEASED: usize = 512;
/// Between two attempts; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// A transaction that only has to be committed.
struct Prepared {
    transaction: Transaction,
    /// The answers, if the commands were decided; none if there was too much to release first.
    replies: Option<Vec<Option<Reply>>>,
    events: Vec<Event>,
    released: usize,
    call: i64,
}

/// How a batch ended.
enum End {
    /// Everything is durable, and this is what to answer.
    Done(Vec<Option<Reply>>),
    /// What was overdue is released, and there is more of it.
    More,
}

impl Shared {
    /// Serves everybody in the queue, batch by batch.
    pub(super) async fn serve(&self, partition: u16) {
        let queue = &self.queues[usize::from(partition)];
        let _serving = Serving { shared: self, queue };
        while let Some(jobs) = queue.next() {
            self.serve_batch(partition, queue, jobs).await;
        }
    }

    async fn serve_batch(&self, partition: u16, queue: &Queue, mut jobs: Vec<Job>) {
        let watch = Stopwatch::start();
        let (mut pause, mut last) = (FIRST_PAUSE, None);
        loop {
            let patience = self.options.patience;
            let tired = |job: &mut Job| job.since.elapsed() >= patience;
            let tired: Vec<_> = jobs.extract_if(.., tired).collect();
            if !tired.is_empty() {
                let (waited, error) =
                    (tired.len(), last.as_ref().map(|fault: &Fault| chain(fault)));
                tracing::warn!(partition, waited, error, "the database was waited for in vain");
                answer_all(tired, &Err(Error::Unavailable));
            }
            if jobs.is_empty() {
                return;
            }
            match self.attempt(partition, queue, &jobs, &watch).await {
                Ok(End::Done(replies)) => {
                    for (job, reply) in jobs.into_iter().zip(replies) {
                        job.answer(Ok(reply));
                    }
                    return;
                }
                Ok(End::More) => pause = FIRST_PAUSE,
                Err(Fault::Commit(error)) => {
                    tracing::warn!(
                        partition,
                        error = chain(&error),
                        "nobody knows whether it happened"
                    );
                    return answer_all(jobs, &Err(Error::OutcomeUnknown));
                }
                Err(fault) if fault.may_pass() => {
                    tracing::debug!(partition, error = chain(&fault), "trying again");
                    tokio::time::sleep(pause).await;
                    (pause, last) = (MAX_PAUSE.min(pause * 2), Some(fault));
                }
                Err(fault) => {
                    tracing::error!(partition, error = chain(&fault), "a batch failed");
                    return answer_all(jobs, &Err(Error::Unavailable));
                }
            }
        }
    }

    /// Tries a batch once. Unless the error is [`Fault::Commit`], nothing of it happened.
    async fn attempt(
        &self,
        partition: u16,
        queue: &Queue,
        jobs: &[Job],
        watch: &Stopwatch,
    ) -> Result<End, Fault> {
        let preparing = self.in_time(watch, self.prepare(partition, queue, jobs));
        let Prepared { transaction, replies, events, released, call } = preparing.await??;
        let end = || replies.map_or(End::More, End::Done);
        if events.is_empty() {
            // Nothing is to be kept; if this fails, the connection is closed.
            let _closed = self.in_time(watch, transaction.rollback()).await;
            return Ok(end());
        }
        let took = Stopwatch::start();
        let committed = self.in_time(&took, transaction.commit()).await;
        if let Err(error) = committed.and_then(|committed| committed) {
            let happened = self.happened(partition, call).await;
            tracing::warn!(
                partition,
                happened,
                error = chain(&error),
                "a commit was not confirmed"
            );
            match happened {
                Some(true) => {}
                // A broken commit that did not happen is like any other broken statement.
                Some(false) => return Err(Fault::Database(error)),
                None => return Err(Fault::Commit(error)),
            }
        }
        self.stats.commit.record(took.elapsed());
        self.stats.batches.fetch_add(1, Ordering::Relaxed);
        self.stats.events.fetch_add(events.len() as u64, Ordering::Relaxed);
        self.stats.expired.fetch_add(released as u64, Ordering::Relaxed);
        self.durable.send_modify(|commits| *commits += 1);
        Ok(end())
    }

    /// Decides a batch and writes what comes of it, up to the commit.
    async fn prepare(
        &self,
        partition: u16,
        queue: &Queue,
        jobs: &[Job],
    ) -> Result<Prepared, Fault> {
        let mut transaction = self.database.begin().await?;
        let (seq, at) = lock(&mut transaction, partition).await?;
        // Time as the rules see it never goes back, whatever the clocks of all nodes do.
        let now = self.now().max(at);
        let mut loaded = Loaded::pools(&mut transaction, &self.terms, &pools_of(jobs)).await?;
        let overdue = loaded.overdue(&mut transaction, now, MAX_RELEASED).await?;
        let mut events = Vec::new();
        loaded.expire(&overdue, now, &mut events)?;
        let released = events.len();
        let replies = if released < MAX_RELEASED {
            let commands: Vec<_> = jobs.iter().filter_map(Job::command).collect();
            loaded.details(&mut transaction, &commands).await?;
            let decide = |job: &Job| match &job.task {
                Task::Command(command) => Some(loaded.decide(command, now, &mut events)),
                Task::Expire(_) => None,
            };
            Some(jobs.iter().map(decide).collect())
        } else {
            None
        };
        let call = queue.next_call();
        if !events.is_empty() {
            let place = Place { partition, seq, at: now, caller: self.caller, call };
            write(&mut transaction, &loaded, &events, place).await?;
        }
        Ok(Prepared { transaction, replies, events, released, call })
    }

    /// Whether a transaction whose commit was not confirmed has happened; `None` if that cannot
    /// be found out in time.
    async fn happened(&self, partition: u16, call: i64) -> Option<bool> {
        let (watch, mut pause) = (Stopwatch::start(), FIRST_PAUSE);
        loop {
            match self.in_time(&watch, self.last_call(partition)).await {
                Ok(Ok(last)) => return Some(last >= call),
                Ok(Err(fault)) if fault.may_pass() => {
                    tokio::time::sleep(pause).await;
                    pause = MAX_PAUSE.min(pause * 2);
                }
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }

    /// The number of this process's last transaction on a partition. While the lock is held, none
    /// is under way.
    async fn last_call(&self, partition: u16) -> Result<i64, Fault> {
        let mut transaction = self.database.begin().await?;
        lock(&mut transaction, partition).await?;
        let row = transaction
            .fetch_optional(
                sql!("SELECT number FROM engine_calls WHERE partition_id = ? AND caller = ?"),
                &[i64::from(partition).into(), self.caller.into()],
            )
            .await?;
        let last = row.map(|row| row.int(0)).transpose()?.unwrap_or(0);
        transaction.rollback().await?;
        Ok(last)
    }

    /// Does not wait longer than those who asked do.
    async fn in_time<T>(
        &self,
        watch: &Stopwatch,
        work: impl Future<Output = T>,
    ) -> Result<T, qiang_sql::Error> {
        let left = self.options.patience.saturating_sub(watch.elapsed());
        let after = self.options.patience;
        tokio::time::timeout(left, work).await.map_err(|_| qiang_sql::Error::Timeout { after })
    }
}

/// Takes the partition: from here on nobody else decides in it. Says where its log ends, and when
/// that was.
async fn lock(transaction: &mut Transaction, partition: u16) -> Result<(u64, Timestamp), Fault> {
    let row = transaction
        .fetch_optional(
            sql!("SELECT seq, at FROM engine_partitions WHERE id = ? {lock}"),
            &[i64::from(partition).into()],
        )
        .await?;
    let row = row.ok_or(Fault::Missing { what: "a partition" })?;
    let mut fields = Fields::of(&row);
    Ok((fields.position()?, fields.time()?))
}

fn answer_all(jobs: Vec<Job>, answer: &Answer) {
    for job in jobs {
        job.answer(answer.clone());
    }
}

/// Leaves the queue in order also when a batch panics: nobody waits for ever.
struct Serving<'a> {
    shared: &'a Shared,
    queue: &'a Queue,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.abandon();
        }
        self.shared.serving.send_modify(|queues| *queues -= 1);
    }
}
