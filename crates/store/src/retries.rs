//! Events that a consumer could not apply: set aside in the transaction that moves its position, so
//! that nobody waits behind them; tried again; dead letters when they keep failing.
//!
//! An event is here at most once for each consumer. What waits is due at a time of the database's
//! clock. An attempt is one transaction that applies the event and notes that it is resolved, so it
//! counts once, whoever else tries at the same moment. A claim of which something as new is on record
//! needs no attempt: its event is resolved. Only a person discards a dead letter: first it is
//! `discarding`, then what it stood for is undone elsewhere, then it is `discarded`; whoever is cut off
//! in between is finished by somebody else.

mod ending;

use std::time::Duration;

use qiang_core::{ClaimId, Event, PoolId, Timestamp};
use qiang_sql::{Existing, Insert, Params, Row, Table, Transaction, Value, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::jobs::Take;
use crate::project::{sql_id, write};
use crate::{Store, page, patiently, reviews};

const PARKING: &str = "setting events aside";
const READING: &str = "reading events that were set aside";
const RETRYING: &str = "trying an event again";
/// The most bytes of an error that are kept.
const MAX_ERROR: usize = 4_096;
const LONGEST_PAUSE_SECS: u64 = 30;

static RETRIES: Table = Table {
    name: "retries",
    key: "consumer, event_id",
    fixed: "kind, pool_id, number, version, event, parked_at",
    changing: "state, at, attempts, round, error, outcome",
};

/// One that comes again, because the consumer went back, is to be tried again.
static PARK: Insert = Insert::new(&RETRIES, Existing::IsReplaced);

macro_rules! select {
    ($which:literal) => {
        sql!([RETRIES] concat!("SELECT {retries} FROM retries WHERE ", $which))
    };
}

/// An event to be set aside after its first attempt.
#[derive(Debug, Clone)]
pub struct Parked<'a> {
    pub event: &'a Event,
    /// The whole of it, for whoever tries it again.
    pub bytes: Vec<u8>,
    /// Why it could not be applied.
    pub error: String,
}

/// An event that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    pub consumer: String,
    pub event_id: String,
    /// Of which kind the event is.
    pub kind: String,
    pub pool: PoolId,
    /// The number of the claim it is about; 0 is none.
    pub number: u32,
    /// The version of what it is about.
    pub version: u32,
    /// The whole event.
    pub bytes: Vec<u8>,
    /// When it was set aside.
    pub parked_at: Timestamp,
    pub state: RetryState,
    /// Waiting: when it is due. Otherwise: since when it is so.
    pub at: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// How often since it was set aside, or since a person asked for more attempts.
    pub round: u32,
    /// Why the last attempt failed.
    pub error: String,
    /// What discarding it has undone.
    pub outcome: Option<Compensation>,
}

/// Where an event that was set aside stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetryState {
    /// To be tried again.
    Waiting,
    /// A dead letter: it failed too often, and a person has to look at it.
    Dead,
    /// A person has given it up; what it stood for is being undone.
    Discarding,
    /// That is done: final.
    Discarded,
    /// It was applied after all, or something newer was: final.
    Resolved,
}

impl RetryState {
    /// Every state there is.
    pub const ALL: [Self; 5] =
        [Self::Waiting, Self::Dead, Self::Discarding, Self::Discarded, Self::Resolved];

    /// The word for it in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Dead => "dead",
            Self::Discarding => "discarding",
            Self::Discarded => "discarded",
            Self::Resolved => "resolved",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// What discarding an event has undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compensation {
    /// The claim was open and was given back.
    Released,
    /// The claim was paid and was taken back; the money is owed back.
    Revoked,
    /// There was nothing to undo.
    Nothing,
}

impl Compensation {
    /// The word for it in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Revoked => "revoked",
            Self::Nothing => "nothing",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Released, Self::Revoked, Self::Nothing];
        all.into_iter().find(|outcome| outcome.as_str() == word)
    }
}

/// How many events are set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetryCounts {
    /// To be tried again.
    pub waiting: u64,
    /// Dead letters.
    pub dead: u64,
}

/// A place in a list of events that were set aside, by time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryCursor {
    pub at: Timestamp,
    pub event_id: String,
}

/// The pause behind a failed attempt, the `round`th of those allowed: 1, 2, 4 … 30 s. `None` if it
/// was the last.
#[must_use]
pub fn pause(round: u32, retries: u32) -> Option<Duration> {
    let doubled = 2_u64.saturating_pow(round.saturating_sub(1)).min(LONGEST_PAUSE_SECS);
    (round <= retries).then(|| Duration::from_secs(doubled))
}

/// Sets events aside in the caller's transaction, each after one attempt of `1 + retries`.
pub(crate) async fn park(
    tx: &mut Transaction,
    consumer: &str,
    parked: &[Parked<'_>],
    retries: u32,
) -> Result<()> {
    if parked.is_empty() {
        return Ok(());
    }
    let now = tx.fetch_optional(sql!("SELECT {now}"), &[]).await.when(PARKING)?;
    let now = now.as_ref().map_or(Ok(0), |row| Fields::new(row, &RETRIES).int())?;
    let (state, after) = match pause(1, retries) {
        Some(pause) => (RetryState::Waiting, millis(pause)),
        None => (RetryState::Dead, 0),
    };
    let bind = |params: &mut Params, one: &Parked<'_>| {
        params
            .add(consumer)
            .add(one.event.id().as_str())
            .add(one.event.name())
            .add(sql_id(one.event.pool()))
            .add(one.event.claim().map_or(0, |claim| claim.number))
            .add(one.event.version())
            .add(one.bytes.as_slice())
            .add(now)
            .add(state.as_str())
            .add(now.saturating_add(after))
            .add(1_u32)
            .add(1_u32)
            .add(kept(&one.error))
            .add(Value::Null);
    };
    PARK.run(tx, parked, bind).await.when(PARKING)
}

impl Store {
    /// The events of a consumer that are to be tried again now, at most `max`: longest due first, and
    /// those of one claim in their order.
    pub async fn due_retries(&self, consumer: &str, which: Take, max: u32) -> Result<Vec<Retry>> {
        let values = [consumer.into(), page(max).into()];
        let rows = match which {
            Take::Due => {
                let select = select!(
                    "state = 'waiting' AND at <= {now} AND consumer = ?
                     ORDER BY at, pool_id, number, version LIMIT ?"
                );
                self.database.fetch_all(select, &values).await
            }
            Take::Any => {
                let select = select!(
                    "state = 'waiting' AND consumer = ?
                     ORDER BY at, pool_id, number, version LIMIT ?"
                );
                self.database.fetch_all(select, &values).await
            }
        };
        rows.when(READING)?.iter().map(read).collect()
    }

    /// Records an event that was set aside, in the transaction that notes that it is resolved; says
    /// whether it still was to be tried.
    pub async fn retry_event(&self, retry: &Retry, event: &Event) -> Result<bool> {
        patiently!(self.try_to_retry(retry, event).await)
    }

    async fn try_to_retry(&self, retry: &Retry, event: &Event) -> Result<bool> {
        let mut tx = self.begin().await?;
        let resolve = sql!(
            "UPDATE retries SET state = 'resolved', at = {now}, attempts = attempts + 1
             WHERE consumer = ? AND event_id = ? AND state = 'waiting' AND attempts = ?"
        );
        if tx.execute(resolve, &held(retry)).await.when(RETRYING)? == 0 {
            tx.rollback().await.when(RETRYING)?;
            return Ok(false);
        }
        let marked = write(&mut tx, std::slice::from_ref(event)).await?;
        tx.commit().await.when(RETRYING)?;
        reviews::tell(&marked);
        Ok(true)
    }

    /// Notes that an attempt failed. Says what became of the event, if it still was to be tried.
    pub async fn fail_retry(
        &self,
        retry: &Retry,
        error: &str,
        retries: u32,
    ) -> Result<Option<RetryState>> {
        let (state, after) = match pause(retry.round + 1, retries) {
            Some(pause) => (RetryState::Waiting, millis(pause)),
            None => (RetryState::Dead, 0),
        };
        let fail = sql!(
            "UPDATE retries SET state = ?, at = {now} + ?, error = ?, attempts = attempts + 1,
                round = round + 1
             WHERE consumer = ? AND event_id = ? AND state = 'waiting' AND attempts = ?"
        );
        let [consumer, event, attempts] = held(retry);
        let values =
            [state.as_str().into(), after.into(), kept(error).into(), consumer, event, attempts];
        let failed = patiently!(self.database.execute(fail, &values).await);
        Ok((failed.when(RETRYING)? == 1).then_some(state))
    }

    /// Leaves an event for later without counting an attempt: nobody knows yet whose fault it is.
    pub async fn postpone_retry(&self, retry: &Retry, error: &str) -> Result<()> {
        let postpone = sql!(
            "UPDATE retries SET at = {now} + ?, error = ?
             WHERE consumer = ? AND event_id = ? AND state = 'waiting' AND attempts = ?"
        );
        let [consumer, event, attempts] = held(retry);
        let after = millis(Duration::from_secs(LONGEST_PAUSE_SECS)).into();
        let values = [after, kept(error).into(), consumer, event, attempts];
        let postponed = patiently!(self.database.execute(postpone, &values).await);
        postponed.when(RETRYING).map(drop)
    }

    /// Resolves what waits or is dead although something as new is on record; says how many.
    pub async fn resolve_superseded(&self) -> Result<u64> {
        let resolve = sql!(
            "UPDATE retries SET state = 'resolved', at = {now}
             WHERE state IN ('waiting', 'dead') AND kind LIKE 'claim%'
                AND EXISTS (
                    SELECT 1 FROM claims WHERE claims.sale_id = retries.pool_id
                        AND claims.number = retries.number AND claims.version >= retries.version
                )"
        );
        let resolved = patiently!(self.database.execute(resolve, &[]).await);
        resolved.when(RETRYING)
    }

    /// How many events are set aside.
    pub async fn retry_counts(&self) -> Result<RetryCounts> {
        let count = sql!(
            "SELECT state, COUNT(*) FROM retries WHERE state IN ('waiting', 'dead') GROUP BY state"
        );
        let mut counts = RetryCounts::default();
        for row in self.database.fetch_all(count, &[]).await.when(READING)? {
            let mut fields = Fields::new(&row, &RETRIES);
            match fields.word(RetryState::from_word)? {
                RetryState::Waiting => counts.waiting = fields.number()?,
                _ => counts.dead = fields.number()?,
            }
        }
        Ok(counts)
    }

    /// An event that was set aside.
    pub async fn retry(&self, consumer: &str, event: &str) -> Result<Option<Retry>> {
        let select = select!("consumer = ? AND event_id = ?");
        let row = self.database.fetch_optional(select, &[consumer.into(), event.into()]).await;
        row.when(READING)?.as_ref().map(read).transpose()
    }

    /// Whether something of a pool is set aside that is neither recorded nor given up.
    pub async fn has_set_aside(&self, pool: PoolId) -> Result<bool> {
        let select = sql!(
            "SELECT 1 FROM retries WHERE pool_id = ? AND state IN ('waiting', 'dead', 'discarding')
             LIMIT 1"
        );
        let row = self.database.fetch_optional(select, &[sql_id(pool).into()]).await;
        Ok(row.when(READING)?.is_some())
    }

    /// What was set aside of a claim, or of a pool as a whole (number 0), whatever became of it.
    pub async fn retries_of(&self, pool: PoolId, number: u32) -> Result<Vec<Retry>> {
        let select = select!("pool_id = ? AND number = ? ORDER BY version, event_id");
        let values = [sql_id(pool).into(), number.into()];
        let rows = self.database.fetch_all(select, &values).await;
        rows.when(READING)?.iter().map(read).collect()
    }

    /// The claims with a dead letter, at most `max`.
    pub async fn dead_claims(&self, max: u32) -> Result<Vec<ClaimId>> {
        let select = select!("state = 'dead' AND number > 0 ORDER BY at LIMIT ?");
        let rows = self.database.fetch_all(select, &[page(max).into()]).await.when(READING)?;
        let claim = |retry: Retry| ClaimId { pool: retry.pool, number: retry.number };
        rows.iter().map(|row| read(row).map(claim)).collect()
    }

    /// Events in one state, of one kind if that is asked for, longest so first, from behind the cursor
    /// on.
    pub async fn retries(
        &self,
        state: RetryState,
        kind: Option<&str>,
        after: Option<&RetryCursor>,
        max: u32,
    ) -> Result<Vec<Retry>> {
        let (kind, max) = (Value::Text(kind.unwrap_or("")), page(max).into());
        let at = Value::Int(after.map_or(i64::MIN, |after| after.at.millis()));
        let event = Value::Text(after.map_or("", |after| after.event_id.as_str()));
        let select = select!(
            "state = ? AND at >= ? AND (at > ? OR event_id > ?) AND (? = '' OR kind = ?)
             ORDER BY at, event_id LIMIT ?"
        );
        let values = [state.as_str().into(), at, at, event, kind, kind, max];
        let rows = self.database.fetch_all(select, &values).await;
        rows.when(READING)?.iter().map(read).collect()
    }
}

impl Retry {
    /// Its place in the list of its state.
    #[must_use]
    pub fn cursor(&self) -> RetryCursor {
        RetryCursor { at: self.at, event_id: self.event_id.clone() }
    }
}

/// Parameters that match the row only while nobody else has tried it.
fn held(retry: &Retry) -> [Value<'_>; 3] {
    [retry.consumer.as_str().into(), retry.event_id.as_str().into(), retry.attempts.into()]
}

fn kept(error: &str) -> &str {
    &error[..error.floor_char_boundary(MAX_ERROR)]
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

fn read(row: &Row) -> Result<Retry> {
    let mut fields = Fields::new(row, &RETRIES);
    Ok(Retry {
        consumer: fields.text()?.to_owned(),
        event_id: fields.text()?.to_owned(),
        kind: fields.text()?.to_owned(),
        pool: fields.pool()?,
        number: fields.number()?,
        version: fields.number()?,
        bytes: fields.bytes()?.to_vec(),
        parked_at: fields.time()?,
        state: fields.word(RetryState::from_word)?,
        at: fields.time()?,
        attempts: fields.number()?,
        round: fields.number()?,
        error: fields.text()?.to_owned(),
        outcome: fields.word_or_none(Compensation::from_word)?,
    })
}

#[cfg(test)]
mod tests {
    use super::pause;

    #[test]
    fn pauses_grow_and_attempts_end() {
        let pauses = |retries| (1..).map_while(move |round| pause(round, retries));
        let secs: Vec<u64> = pauses(7).map(|pause| pause.as_secs()).collect();
        assert_eq!(secs, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(pauses(3).count(), 3, "four attempts with the first");
        assert_eq!(pauses(0).count(), 0);
    }
}
