//! Work to be done later: enqueued in the transaction of whoever wants it done, taken by one worker
//! at a time, tried again, and set aside as a dead letter when it keeps failing.
//!
//! A job is known by its kind, which carries a version (`open_packet_v1`), and its key: enqueuing
//! the same again changes nothing. It is done at least once. Whoever takes it has a lease by the
//! database's clock; a worker that died loses it when the lease ends, and one that was late finds
//! that the job is no longer its own. So what a job does must be harmless if done twice.

use std::time::Duration;

use qiang_core::Timestamp;
use qiang_sql::{Existing, Insert, Listed, MAX_ITEMS, Params, Row, Table, Transaction, Value, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::{Store, page, patiently};

const TAKING: &str = "taking jobs";
const ENDING: &str = "noting what became of a job";
/// The most bytes of an error that are kept.
const MAX_ERROR: usize = 4_096;
/// Jobs that are forgotten at once.
const PRUNE_AT_ONCE: u32 = 1_000;

static JOBS: Table = Table {
    name: "jobs",
    key: "kind, job_key",
    fixed: "payload, created_at",
    changing: "state, at, owner, attempts, error",
};

static ENQUEUE: Insert = Insert::new(&JOBS, Existing::Stays);

static DUE: Listed = Listed::over(
    &[&JOBS],
    "SELECT {jobs} FROM jobs WHERE state = 'waiting' AND at <= {now} AND kind IN ({list})
     ORDER BY at LIMIT ? {skip_locked}",
);

/// Those that nobody has, also if they are not due.
static ANY: Listed = Listed::over(
    &[&JOBS],
    "SELECT {jobs} FROM jobs WHERE state = 'waiting' AND (at <= {now} OR owner = '')
        AND kind IN ({list})
     ORDER BY at LIMIT ? {skip_locked}",
);

/// A job to be enqueued.
#[derive(Debug, Clone, Copy)]
pub struct NewJob<'a> {
    /// What is to be done, with its version.
    pub kind: &'a str,
    /// Which one of its kind: the same key is the same job.
    pub key: &'a str,
    /// What has to be known to do it.
    pub payload: &'a str,
    /// How long from now it is due.
    pub delay: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// What is to be done, with its version.
    pub kind: String,
    pub key: String,
    /// What has to be known to do it.
    pub payload: String,
    /// When it was enqueued.
    pub created_at: Timestamp,
    pub state: JobState,
    /// Waiting: when it is due. Taken: when the lease ends. Over: since when.
    pub at: Timestamp,
    /// Who has it, if somebody does.
    pub owner: Option<String>,
    /// How often it was taken.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// To be done.
    Waiting,
    Done,
    /// A dead letter: it failed too often, and a person has to look at it.
    Dead,
    /// A dead letter that a person has given up.
    Discarded,
}

impl JobState {
    /// The word for it in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Waiting, Self::Done, Self::Dead, Self::Discarded];
        all.into_iter().find(|state| state.as_str() == word)
    }
}

/// Which jobs may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// Those that are due.
    Due,
    /// All that nobody has, whenever they are due: for tests, which do not wait.
    Any,
}

/// Enqueues jobs in the caller's transaction: they are there if it is committed. Those that are
/// known, in whatever state, stay as they are.
pub async fn enqueue(tx: &mut Transaction, jobs: &[NewJob<'_>]) -> Result<()> {
    const DOING: &str = "enqueuing jobs";
    let now = tx.fetch_optional(sql!("SELECT {now}"), &[]).await.when(DOING)?;
    let now = now.as_ref().map_or(Ok(0), |row| Fields::new(row, &JOBS).int())?;
    let bind = |params: &mut Params, job: &NewJob<'_>| {
        params
            .add(job.kind)
            .add(job.key)
            .add(job.payload)
            .add(now)
            .add(JobState::Waiting.as_str())
            .add(now.saturating_add(millis(job.delay)))
            .add("")
            .add(0_u32)
            .add(Value::Null);
    };
    ENQUEUE.run(tx, jobs, bind).await.when(DOING)
}

/// Notes in the caller's transaction that a job is done, if the job is still the worker's; says
/// whether it was. So what a job does in SQL happens exactly once.
pub async fn complete(tx: &mut Transaction, job: &Job) -> Result<bool> {
    let done = sql!(
        "UPDATE jobs SET state = 'done', at = {now}, owner = '', error = NULL
         WHERE kind = ? AND job_key = ? AND state = 'waiting' AND owner = ? AND attempts = ?"
    );
    tx.execute(done, &held(job)).await.when(ENDING).map(|found| found == 1)
}

impl Store {
    /// Takes jobs of these kinds, at most `max`, for as long as the lease; longest due first. No
    /// two workers get one.
    pub async fn take_jobs(
        &self,
        kinds: &[&str],
        which: Take,
        owner: &str,
        lease: Duration,
        max: u32,
    ) -> Result<Vec<Job>> {
        assert!(kinds.len() <= MAX_ITEMS, "{} kinds of jobs", kinds.len());
        assert!(!owner.is_empty(), "a worker has a name");
        if kinds.is_empty() || max == 0 {
            return Ok(Vec::new());
        }
        let values: Vec<Value<'_>> = kinds.iter().map(|kind| (*kind).into()).collect();
        // A look first: nothing is written, and nobody waits, while there is nothing to do.
        let (look, values) = select(which).sized(&[], &values, &[Value::Int(1)]);
        if self.database.fetch_optional(look, &values).await.when(TAKING)?.is_none() {
            return Ok(Vec::new());
        }
        patiently!(self.try_to_take(kinds, which, owner, lease, max).await)
    }

    async fn try_to_take(
        &self,
        kinds: &[&str],
        which: Take,
        owner: &str,
        lease: Duration,
        max: u32,
    ) -> Result<Vec<Job>> {
        let mut tx = self.begin().await?;
        let kinds: Vec<Value<'_>> = kinds.iter().map(|kind| (*kind).into()).collect();
        let limit = [page(max).into()];
        let rows = select(which).fetch(&mut tx, &[], &kinds, &limit).await.when(TAKING)?;
        let found: Vec<Job> = rows.iter().map(read).collect::<Result<_>>()?;
        let mut taken = Vec::with_capacity(found.len());
        for mut job in found {
            let take = sql!(
                "UPDATE jobs SET owner = ?, at = {now} + ?, attempts = attempts + 1
                 WHERE kind = ? AND job_key = ? AND state = 'waiting' AND owner = ? AND attempts = ?"
            );
            let before = job.owner.as_deref().unwrap_or("");
            let values = [
                owner.into(),
                millis(lease).into(),
                job.kind.as_str().into(),
                job.key.as_str().into(),
                before.into(),
                job.attempts.into(),
            ];
            if tx.execute(take, &values).await.when(TAKING)? == 1 {
                (job.owner, job.attempts) = (Some(owner.to_owned()), job.attempts + 1);
                taken.push(job);
            }
        }
        tx.commit().await.when(TAKING)?;
        Ok(taken)
    }

    /// Notes that a job is done, if it is still the worker's; says whether it was.
    pub async fn complete_job(&self, job: &Job) -> Result<bool> {
        patiently!(self.try_to_complete(job).await)
    }

    async fn try_to_complete(&self, job: &Job) -> Result<bool> {
        let mut tx = self.begin().await?;
        let done = complete(&mut tx, job).await?;
        tx.commit().await.when(ENDING)?;
        Ok(done)
    }

    /// Notes that an attempt failed, if the job is still the worker's; says whether it was. It is
    /// due again after `retry`, or a dead letter.
    pub async fn fail_job(&self, job: &Job, error: &str, retry: Option<Duration>) -> Result<bool> {
        let error = &error[..error.floor_char_boundary(MAX_ERROR)];
        let fail = sql!(
            "UPDATE jobs SET state = ?, at = {now} + ?, owner = '', error = ?
             WHERE kind = ? AND job_key = ? AND state = 'waiting' AND owner = ? AND attempts = ?"
        );
        let state = if retry.is_some() { JobState::Waiting } else { JobState::Dead };
        let after = retry.map_or(0, millis);
        let [kind, key, owner, attempts] = held(job);
        let values =
            [state.as_str().into(), after.into(), error.into(), kind, key, owner, attempts];
        let failed = patiently!(self.database.execute(fail, &values).await);
        failed.when(ENDING).map(|found| found == 1)
    }

    pub async fn job(&self, kind: &str, key: &str) -> Result<Option<Job>> {
        let select = sql!([JOBS] "SELECT {jobs} FROM jobs WHERE kind = ? AND job_key = ?");
        let row = self.database.fetch_optional(select, &[kind.into(), key.into()]).await;
        row.when("reading a job")?.as_ref().map(read).transpose()
    }

    /// The dead letters, longest dead first, at most `max`.
    pub async fn dead_jobs(&self, max: u32) -> Result<Vec<Job>> {
        let select = sql!(
            [JOBS] "SELECT {jobs} FROM jobs WHERE state = 'dead' ORDER BY at, kind, job_key LIMIT ?"
        );
        let rows = self.database.fetch_all(select, &[page(max).into()]).await;
        rows.when("reading jobs")?.iter().map(read).collect()
    }

    /// Has a dead letter done after all, with all its attempts; says whether there was one.
    pub async fn retry_job(&self, kind: &str, key: &str) -> Result<bool> {
        let retry = sql!(
            "UPDATE jobs SET state = 'waiting', at = {now}, attempts = 0
             WHERE kind = ? AND job_key = ? AND state = 'dead'"
        );
        let retried = self.database.execute(retry, &[kind.into(), key.into()]).await;
        retried.when("retrying a job").map(|found| found == 1)
    }

    /// Gives a dead letter up; says whether there was one.
    pub async fn discard_job(&self, kind: &str, key: &str) -> Result<bool> {
        let discard = sql!(
            "UPDATE jobs SET state = 'discarded', at = {now}
             WHERE kind = ? AND job_key = ? AND state = 'dead'"
        );
        let discarded = self.database.execute(discard, &[kind.into(), key.into()]).await;
        discarded.when("discarding a job").map(|found| found == 1)
    }

    /// Forgets jobs that have been done or discarded for longer than this, some at a time; says how
    /// many. Their keys may be used again.
    pub async fn prune_jobs(&self, age: Duration) -> Result<u64> {
        const DOING: &str = "forgetting jobs";
        let mut pruned = 0;
        for state in [JobState::Done, JobState::Discarded] {
            let state = Value::Text(state.as_str());
            let oldest = sql!(
                "SELECT MAX(oldest.at) FROM (
                    SELECT at FROM jobs WHERE state = ? AND at <= {now} - ? ORDER BY at LIMIT ?
                 ) AS oldest"
            );
            let values = [state, millis(age).into(), PRUNE_AT_ONCE.into()];
            let row = self.database.fetch_optional(oldest, &values).await.when(DOING)?;
            let read = |row| Fields::new(row, &JOBS).int_or_none();
            let Some(last) = row.as_ref().map(read).transpose()?.flatten() else { continue };
            let delete = sql!("DELETE FROM jobs WHERE state = ? AND at <= ?");
            pruned += self.database.execute(delete, &[state, last.into()]).await.when(DOING)?;
        }
        Ok(pruned)
    }
}

fn select(which: Take) -> &'static Listed {
    match which {
        Take::Due => &DUE,
        Take::Any => &ANY,
    }
}

/// Parameters that match the job only while this worker still has it.
fn held(job: &Job) -> [Value<'_>; 4] {
    let owner = job.owner.as_deref().unwrap_or("");
    [job.kind.as_str().into(), job.key.as_str().into(), owner.into(), job.attempts.into()]
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

fn read(row: &Row) -> Result<Job> {
    let mut fields = Fields::new(row, &JOBS);
    Ok(Job {
        kind: fields.text()?.to_owned(),
        key: fields.text()?.to_owned(),
        payload: fields.text()?.to_owned(),
        created_at: fields.time()?,
        state: fields.word(JobState::from_word)?,
        at: fields.time()?,
        owner: Some(fields.text()?).filter(|owner| !owner.is_empty()).map(str::to_owned),
        attempts: fields.number()?,
        error: fields.text_or_none()?.map(str::to_owned),
    })
}
