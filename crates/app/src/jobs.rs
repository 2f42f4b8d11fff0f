//! Runs jobs ([`qiang_store::jobs`]): so many at once, each with a time limit, its panics caught, and
//! tried again with growing pauses until it is a dead letter.
//!
//! A domain registers a handler for each kind of its jobs in [`Jobs`], and enqueues them in its own
//! transactions. A handler may be run twice for one job, and must not mind.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use qiang_store::Store;
use qiang_store::jobs::{Job, Take};
use tokio::task::{JoinError, JoinSet};

use crate::consumer::Stop;
use crate::workers::Report;

/// Jobs that one process runs at once.
const MAX_AT_ONCE: usize = 8;
/// How long a job may take; then it has failed.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a process that is not heard of keeps a job: longer than one may take.
const LEASE: Duration = Duration::from_secs(60);
/// How often it is looked for jobs that are due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Jobs that are over are looked at for so long, and forgotten then.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3_600);
/// So many looks are between two times of forgetting.
const LOOKS_FOR_PRUNING: u32 = 1_000;

/// Why an attempt failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

type Attempt = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// How often and after what pauses a job is tried.
#[derive(Debug, Clone, Copy)]
pub struct Retries {
    /// Attempts before it is a dead letter.
    pub attempts: u32,
    /// The pause behind the first attempt; each next one is twice as long.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(300));
        Self { attempts: 10, first, longest }
    }
}

impl Retries {
    /// The pause behind this attempt; `None` if it was the last.
    fn pause(&self, attempt: u32) -> Option<Duration> {
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        let pause = self.first.saturating_mul(doubled).min(self.longest);
        (attempt < self.attempts).then_some(pause)
    }
}

/// Who does which kind of job.
#[derive(Default)]
pub struct Jobs {
    kinds: BTreeMap<&'static str, Kind>,
}

struct Kind {
    run: Box<dyn Fn(Job) -> Attempt + Send + Sync>,
    retries: Retries,
}

impl Jobs {
    /// Has a kind of job, whose name carries its version, done by a handler.
    pub fn register<W>(
        &mut self,
        kind: &'static str,
        retries: Retries,
        run: impl Fn(Job) -> W + Send + Sync + 'static,
    ) -> &mut Self
    where
        W: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let run = Box::new(move |job| Box::pin(run(job)) as Attempt);
        let before = self.kinds.insert(kind, Kind { run, retries });
        assert!(before.is_none(), "two handlers for {kind}");
        self
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.kinds.keys()).finish()
    }
}

/// Takes jobs and runs them.
#[derive(Debug, Clone)]
pub struct Runner {
    store: Store,
    owner: String,
    jobs: Arc<Jobs>,
    lease: Duration,
}

impl Runner {
    /// Of these kinds, under a name that no other process has.
    #[must_use]
    pub fn new(store: Store, owner: &str, jobs: Jobs) -> Self {
        Self { store, owner: owner.to_owned(), jobs: Arc::new(jobs), lease: LEASE }
    }

    /// Runs what is due until told to stop; then what is under way may end within the grace, and
    /// the rest is somebody else's when its lease has run out.
    pub async fn follow(self, stop: Stop, mut report: Report) {
        if self.jobs.kinds.is_empty() {
            return;
        }
        let mut running = JoinSet::new();
        for look in 1_u32.. {
            let turned = self.look(look, &mut running).await;
            report.heard(turned.map_err(Into::into));
            tokio::select! {
                () = stop.token.cancelled() => break,
                Some(_) = running.join_next() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        let ending = async { while running.join_next().await.is_some() {} };
        let _in_time = tokio::time::timeout(stop.grace, ending).await;
    }

    /// Begins what is due, and forgets now and then what is long over.
    async fn look(&self, look: u32, running: &mut JoinSet<()>) -> Result<(), qiang_store::Error> {
        for job in self.take(Take::Due, MAX_AT_ONCE - running.len()).await? {
            running.spawn(self.clone().run(job));
        }
        if look.is_multiple_of(LOOKS_FOR_PRUNING) {
            self.store.prune_jobs(KEEP).await?;
        }
        Ok(())
    }

    /// Runs all jobs, also those that are not due yet, and those that they enqueue, until none
    /// waits; says how many attempts that were. For tests, which do not wait.
    pub async fn run_until_empty(&self) -> Result<usize, qiang_store::Error> {
        let mut attempts = 0;
        loop {
            let jobs = self.take(Take::Any, MAX_AT_ONCE).await?;
            if jobs.is_empty() {
                return Ok(attempts);
            }
            attempts += jobs.len();
            let running: JoinSet<()> = jobs.into_iter().map(|job| self.clone().run(job)).collect();
            running.join_all().await;
        }
    }

    async fn take(&self, which: Take, max: usize) -> Result<Vec<Job>, qiang_store::Error> {
        let kinds: Vec<&str> = self.jobs.kinds.keys().copied().collect();
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        self.store.take_jobs(&kinds, which, &self.owner, self.lease, max).await
    }

    async fn run(self, job: Job) {
        let Some(kind) = self.jobs.kinds.get(job.kind.as_str()) else { return };
        let Job { kind: name, key, attempts, .. } = &job;
        let ended = if *attempts > kind.retries.attempts {
            Err("whoever ran it died each time".to_owned())
        } else {
            attempt((kind.run)(job.clone())).await
        };
        let noted = match &ended {
            Ok(()) => self.store.complete_job(&job).await,
            Err(error) => {
                let retry = kind.retries.pause(*attempts);
                match retry {
                    Some(_) => tracing::warn!(kind = name, key, attempts, "a job failed: {error}"),
                    None => tracing::error!(kind = name, key, attempts, "a dead letter: {error}"),
                }
                self.store.fail_job(&job, error, retry).await
            }
        };
        match noted {
            Ok(true) => {}
            Ok(false) => tracing::warn!(kind = name, key, "a job took longer than its lease"),
            // It is taken again when its lease has run out.
            Err(error) => tracing::warn!(
                kind = name,
                key,
                "what became of a job was not noted: {}",
                qiang_engine::chain(&error)
            ),
        }
    }
}

/// Runs a handler on a task of its own, which ends with this one.
async fn attempt(run: Attempt) -> Result<(), String> {
    let mut task = JoinSet::new();
    task.spawn(run);
    match tokio::time::timeout(TIMEOUT, task.join_next()).await {
        Ok(Some(Ok(ended))) => ended.map_err(|error| qiang_engine::chain(&*error)),
        Ok(Some(Err(error))) => Err(panicked(error)),
        Ok(None) => unreachable!("there is one task"),
        Err(_) => Err(format!("it took longer than {} s", TIMEOUT.as_secs())),
    }
}

fn panicked(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "it was cancelled".to_owned() };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("it panicked: {}", text.unwrap_or("without a word"))
}
