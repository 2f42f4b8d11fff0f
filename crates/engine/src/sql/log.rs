//! The log of each partition: read by whoever follows it, and cut off behind them.

use qiang_core::Event;
use qiang_sql::sql;

use super::fault::Fault;
use super::rows::Fields;
use super::write::position;
use super::{Engine, Shared, number, rows};
use crate::{Error, LogError, chain};

/// Positions deleted by one statement.
const TRIM_STEP: u64 = 4_096;

/// A look at a log.
#[derive(Debug)]
struct Found {
    /// Position of its last event.
    end: u64,
    /// Position one can read from at the earliest.
    oldest: u64,
    events: Vec<(u64, Event)>,
}

impl Engine {
    /// How many partitions there are; they are numbered from 0.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        u16::try_from(self.shared.queues.len()).expect("they were counted in 16 bits")
    }

    /// The position of the last event of each partition.
    pub async fn positions(&self) -> Result<Vec<u64>, Error> {
        self.shared.positions().await.map_err(super::told)
    }

    /// The events of a partition behind position `after`, at most `max`, and the position of the
    /// last. No events means that the log ends there.
    pub async fn read_log(
        &self,
        partition: u16,
        after: u64,
        max: usize,
    ) -> Result<(Vec<Event>, u64), LogError> {
        let max = max.max(1);
        let found = self.shared.read_log(partition, after, max).await.map_err(log_error)?;
        let Some(Found { end, oldest, events }) = found else { return Err(LogError::Nonsense) };
        if after < oldest {
            return Err(LogError::Trimmed { after, oldest });
        }
        if after > end {
            return Err(LogError::Behind { after, end });
        }
        let through = events.last().map_or(after, |(seq, _)| *seq);
        let whole = (after + 1..).zip(&events).all(|(expected, (seq, _))| *seq == expected);
        if !whole || (events.len() < max && through < end) {
            tracing::error!(partition, after, through, end, "events are missing in the log");
            return Err(LogError::Nonsense);
        }
        Ok((events.into_iter().map(|(_, event)| event).collect(), through))
    }

    /// Deletes the events of a partition up to `through`, which everybody who reads the log must
    /// have passed.
    pub async fn trim(&self, partition: u16, through: u64) -> Result<(), LogError> {
        self.shared.trim(partition, through).await.map_err(log_error)
    }
}

impl Shared {
    async fn positions(&self) -> Result<Vec<u64>, Fault> {
        let all = sql!("SELECT seq FROM engine_partitions ORDER BY id");
        let found = self.database.fetch_all(all, &[]).await?;
        found.iter().map(|row| Fields::of(row).position()).collect()
    }

    /// One look at the events and at where the log begins and ends.
    async fn read_log(
        &self,
        partition: u16,
        after: u64,
        max: usize,
    ) -> Result<Option<Found>, Fault> {
        let found = self
            .database
            .fetch_all(
                sql!(
                    "SELECT p.seq, p.trimmed, l.seq, l.event FROM engine_partitions p
                     LEFT JOIN engine_log l ON l.partition_id = p.id AND l.seq > ?
                     WHERE p.id = ? ORDER BY l.seq LIMIT ?"
                ),
                &[position(after).into(), i64::from(partition).into(), number(max).into()],
            )
            .await?;
        let Some(first) = found.first() else { return Ok(None) };
        let mut fields = Fields::of(first);
        let (end, oldest) = (fields.position()?, fields.position()?);
        let mut events = Vec::with_capacity(found.len());
        for row in &found {
            let mut fields = Fields::of(row);
            let (_end, _oldest) = (fields.int()?, fields.int()?);
            if let Some(seq) = fields.int_or_null()? {
                let seq = u64::try_from(seq);
                let seq = seq.map_err(|_| Fault::OutOfRange { what: "a position" })?;
                events.push((seq, rows::event(fields.bytes()?, "an event of the log")?));
            }
        }
        Ok(Some(Found { end, oldest, events }))
    }

    /// Says first that it is gone, so that nobody takes a half-deleted log for a damaged one.
    async fn trim(&self, partition: u16, through: u64) -> Result<(), Fault> {
        let id = i64::from(partition);
        let end = self.positions().await?.get(usize::from(partition)).copied().unwrap_or(0);
        let through = through.min(end);
        self.database
            .execute(
                sql!("UPDATE engine_partitions SET trimmed = ? WHERE id = ? AND trimmed < ?"),
                &[position(through).into(), id.into(), position(through).into()],
            )
            .await?;
        let first = sql!("SELECT MIN(seq) FROM engine_log WHERE partition_id = ?");
        let row = self.database.fetch_optional(first, &[id.into()]).await?;
        let first = row.map(|row| row.int_or_null(0)).transpose()?.flatten();
        let mut from = first.and_then(|first| u64::try_from(first).ok()).unwrap_or(u64::MAX);
        while from <= through {
            let to = through.min(from.saturating_add(TRIM_STEP));
            self.database
                .execute(
                    sql!("DELETE FROM engine_log WHERE partition_id = ? AND seq <= ?"),
                    &[id.into(), position(to).into()],
                )
                .await?;
            from = to + 1;
        }
        Ok(())
    }
}

fn log_error(fault: Fault) -> LogError {
    match fault {
        Fault::Database(error) | Fault::Commit(error) => LogError::Sql(Box::new(error)),
        other => {
            tracing::error!(error = chain(&other), "the log cannot be understood");
            LogError::Nonsense
        }
    }
}
