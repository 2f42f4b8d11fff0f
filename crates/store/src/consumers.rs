//! Who reads the logs, and how far each of them has come.
//!
//! A consumer is a registered name with a position in every log. [`Store::advance`] is the only way
//! to move a position: by compare-and-set, in the transaction that writes what the consumer made of
//! the events. So every event takes effect once for each consumer. A log may be trimmed behind
//! [`Store::floor`], the least position of all registered consumers.

use qiang_sql::{Existing, Insert, Row, Table, Transaction, Value, sql};

use crate::error::{Error, Result, While};
use crate::fields::Fields;
use crate::{Store, patiently};

/// The consumer that writes the records. It is always registered.
pub const RECORDS: &str = "records";

const MOVING: &str = "moving a position";
const READING: &str = "reading positions";
const REGISTERING: &str = "registering a consumer";

static CONSUMERS: Table = Table { name: "consumers", key: "name", fixed: "", changing: "" };
static POSITIONS: Table =
    Table { name: "consumer_positions", key: "consumer, log", fixed: "", changing: "seq" };

static REGISTER: Insert = Insert::new(&CONSUMERS, Existing::IsAnError);
static START: Insert = Insert::new(&POSITIONS, Existing::IsAnError);

/// Where a new consumer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// In each log at the floor: what all other consumers have passed may be trimmed at any
    /// moment.
    WithTheLogs,
    /// At 0. It rebuilds from the engine what the logs no longer hold.
    WithARebuild,
}

impl Store {
    /// Registers a consumer. From here on no log is trimmed before the consumer has passed. Says
    /// whether it is new; one that is known stays where it is.
    pub async fn register_consumer(&self, name: &str, begin: Begin) -> Result<bool> {
        let known = sql!([CONSUMERS] "SELECT {consumers} FROM consumers WHERE name = ?");
        let known = self.database.fetch_optional(known, &[name.into()]).await;
        if known.when(REGISTERING)?.is_some() {
            return Ok(false);
        }
        match patiently!(self.try_to_register(name, begin).await) {
            // Somebody else did so at the same moment.
            Err(Error::Database { source, .. }) if source.is_duplicate() => Ok(false),
            done => done.map(|()| true),
        }
    }

    async fn try_to_register(&self, name: &str, begin: Begin) -> Result<()> {
        let mut tx = self.begin().await?;
        forget_positions(&mut tx, name).await?;
        if begin == Begin::WithTheLogs {
            // Until this is committed no consumer can begin a log or move in one. So no floor that
            // somebody read before is higher than where this consumer begins.
            for lock in [
                sql!("SELECT name FROM consumers ORDER BY name {lock}"),
                sql!("SELECT seq FROM consumer_positions ORDER BY consumer, log {lock}"),
            ] {
                tx.fetch_all(lock, &[]).await.when(REGISTERING)?;
            }
            let floors = sql!(
                "SELECT MIN(consumer), log, MIN(seq) FROM consumer_positions
                 WHERE consumer IN (SELECT name FROM consumers) GROUP BY log
                 HAVING COUNT(*) = (SELECT COUNT(*) FROM consumers)"
            );
            for row in tx.fetch_all(floors, &[]).await.when(REGISTERING)? {
                let (log, floor) = read(&row)?;
                let values = [name.into(), log.as_str().into(), seq(floor)];
                tx.execute(START.one(tx.dialect()), &values).await.when(REGISTERING)?;
            }
        }
        let register = REGISTER.one(tx.dialect());
        tx.execute(register, &[name.into()]).await.when(REGISTERING)?;
        tx.commit().await.when(REGISTERING)
    }

    /// Forgets a consumer and its positions: logs no longer wait for it. Says whether there was one.
    ///
    /// # Panics
    /// If it is [`RECORDS`]: nothing may be trimmed that is not recorded.
    pub async fn retire_consumer(&self, name: &str) -> Result<bool> {
        assert_ne!(name, RECORDS, "the records are never retired");
        patiently!(self.try_to_retire(name).await)
    }

    async fn try_to_retire(&self, name: &str) -> Result<bool> {
        let mut tx = self.begin().await?;
        let retire = sql!("DELETE FROM consumers WHERE name = ?");
        let retired = tx.execute(retire, &[name.into()]).await.when("retiring a consumer")?;
        forget_positions(&mut tx, name).await?;
        tx.commit().await.when("retiring a consumer")?;
        Ok(retired == 1)
    }

    /// The registered consumers, by name.
    pub async fn consumers(&self) -> Result<Vec<String>> {
        let select = sql!([CONSUMERS] "SELECT {consumers} FROM consumers ORDER BY name");
        let rows = self.database.fetch_all(select, &[]).await.when(READING)?;
        rows.iter().map(|row| Fields::new(row, &CONSUMERS).text().map(str::to_owned)).collect()
    }

    /// How far a consumer has come in a log; 0 if it never began.
    pub async fn position(&self, consumer: &str, log: &str) -> Result<u64> {
        let values = [consumer.into(), log.into()];
        let row = self.database.fetch_optional(select_position(), &values).await.when(READING)?;
        row.as_ref().map_or(Ok(0), |row| read(row).map(|(_, seq)| seq))
    }

    /// The logs a consumer has begun, by name, and how far it has come in each.
    pub async fn positions(&self, consumer: &str) -> Result<Vec<(String, u64)>> {
        let select = sql!(
            [POSITIONS] "SELECT {consumer_positions} FROM consumer_positions
                         WHERE consumer = ? ORDER BY log"
        );
        let rows = self.database.fetch_all(select, &[consumer.into()]).await.when(READING)?;
        rows.iter().map(read).collect()
    }

    /// For each log that any consumer has begun, by name, the highest position of a consumer. The
    /// log has reached at least that.
    pub async fn furthest(&self) -> Result<Vec<(String, u64)>> {
        let select = sql!(
            "SELECT MIN(consumer), log, MAX(seq) FROM consumer_positions GROUP BY log ORDER BY log"
        );
        let rows = self.database.fetch_all(select, &[]).await.when(READING)?;
        rows.iter().map(read).collect()
    }

    /// The position of a log that every registered consumer has passed: what lies before it may be
    /// trimmed. `None` if there is no consumer.
    pub async fn floor(&self, log: &str) -> Result<Option<u64>> {
        let select = sql!(
            "SELECT MIN(COALESCE(p.seq, 0)) FROM consumers AS c
             LEFT JOIN consumer_positions AS p ON p.consumer = c.name AND p.log = ?"
        );
        let row = self.database.fetch_optional(select, &[log.into()]).await.when(READING)?;
        row.as_ref().map_or(Ok(None), |row| Fields::new(row, &POSITIONS).number_or_none())
    }

    /// Moves a consumer in a log from `from` to `to`, together with what `write` does in the same
    /// transaction, or does nothing at all. A consumer that never moved is at 0.
    ///
    /// `write` gets the transaction and gives it back to be committed; it is called again if the
    /// transaction collides with another one. An operational error may come after the commit; the
    /// caller then finds out by asking for the position.
    pub async fn advance<T, W>(
        &self,
        consumer: &str,
        log: &str,
        from: u64,
        to: u64,
        write: impl Fn(Transaction) -> W,
    ) -> Result<T>
    where
        W: Future<Output = Result<(Transaction, T)>>,
    {
        assert!(from <= to, "a position never goes back, not from {from} to {to}");
        let moving = Move { consumer, log, from, to };
        match patiently!(self.try_to_advance(&moving, &write).await) {
            // Somebody else began at the same moment, and was first.
            Err(Error::Database { doing: MOVING, source }) if source.is_duplicate() => {
                Err(moving.was_elsewhere(self.position(consumer, log).await?))
            }
            moved => moved,
        }
    }

    async fn try_to_advance<T, W>(
        &self,
        moving: &Move<'_>,
        write: &impl Fn(Transaction) -> W,
    ) -> Result<T>
    where
        W: Future<Output = Result<(Transaction, T)>>,
    {
        let mut tx = self.begin().await?;
        moving.carry_out(&mut tx).await?;
        let (tx, written) = write(tx).await?;
        tx.commit().await.when("writing events")?;
        Ok(written)
    }
}

/// A step of a consumer in a log.
struct Move<'a> {
    consumer: &'a str,
    log: &'a str,
    from: u64,
    to: u64,
}

impl Move<'_> {
    /// Locks the row of the position: another worker that wants to move it waits, and then finds
    /// it moved. If there is no row yet, the primary key lets one worker create it.
    async fn carry_out(&self, tx: &mut Transaction) -> Result<()> {
        let (consumer, log) = (Value::Text(self.consumer), Value::Text(self.log));
        let update = sql!(
            "UPDATE consumer_positions SET seq = ? WHERE consumer = ? AND log = ? AND seq = ?"
        );
        let moved = tx.execute(update, &[seq(self.to), consumer, log, seq(self.from)]).await;
        if moved.when(MOVING)? == 1 {
            return Ok(());
        }
        // Locked, so that nobody registers while this one begins a log.
        let known = sql!([CONSUMERS] "SELECT {consumers} FROM consumers WHERE name = ? {lock}");
        if tx.fetch_optional(known, &[consumer]).await.when(MOVING)?.is_none() {
            return Err(Error::NotRegistered { consumer: self.consumer.to_owned() });
        }
        let found = tx.fetch_optional(select_position(), &[consumer, log]).await.when(MOVING)?;
        match found.as_ref().map(read).transpose()? {
            Some((_, found)) => Err(self.was_elsewhere(found)),
            None if self.from != 0 => Err(self.was_elsewhere(0)),
            None => {
                let start = START.one(tx.dialect());
                tx.execute(start, &[consumer, log, seq(self.to)]).await.when(MOVING).map(drop)
            }
        }
    }

    fn was_elsewhere(&self, found: u64) -> Error {
        let (consumer, log) = (self.consumer.to_owned(), self.log.to_owned());
        Error::PositionMoved { consumer, log, expected: self.from, found }
    }
}

/// A position as a parameter.
fn seq(position: u64) -> Value<'static> {
    Value::Int(i64::try_from(position).expect("no log has 2^63 events"))
}

fn select_position() -> &'static qiang_sql::Statement {
    sql!(
        [POSITIONS] "SELECT {consumer_positions} FROM consumer_positions
                     WHERE consumer = ? AND log = ?"
    )
}

async fn forget_positions(tx: &mut Transaction, consumer: &str) -> Result<()> {
    let forget = sql!("DELETE FROM consumer_positions WHERE consumer = ?");
    tx.execute(forget, &[consumer.into()]).await.when(REGISTERING).map(drop)
}

/// A log and a position in it.
fn read(row: &Row) -> Result<(String, u64)> {
    let mut fields = Fields::new(row, &POSITIONS);
    let (_consumer, log) = (fields.text()?, fields.text()?.to_owned());
    Ok((log, fields.number()?))
}
