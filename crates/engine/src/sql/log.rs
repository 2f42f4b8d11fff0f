//! The log of each partition: read by whoever follows it, and cut off behind them.

use qiang_core::Event;
use qiang_sql::sql;

use super::fault::Fault;
use super::write::position;
use super::{Engine, Shared, number, rows};

/// Positions deleted by one statement.
const TRIM_STEP: u64 = 4_096;

/// The log could not be read or cut off.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The database did not answer, or the rows make no sense.
    #[error("the log of partition {partition} could not be used")]
    Unusable {
        /// Which partition.
        partition: u16,
        /// What happened.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The part asked for is no longer in the log.
    #[error(
        "the log of partition {partition} begins after {oldest}, but events after {after} were asked for"
    )]
    Trimmed {
        /// Which partition.
        partition: u16,
        /// Where the reader stands.
        after: u64,
        /// The oldest position one can read from.
        oldest: u64,
    },
    /// An event that must be there is not.
    #[error("the log of partition {partition} has no event {seq}")]
    Gap {
        /// Which partition.
        partition: u16,
        /// The position.
        seq: u64,
    },
}

impl Engine {
    /// How many partitions there are; they are numbered from 0.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        u16::try_from(self.shared.lanes.len()).expect("they were counted in 16 bits")
    }

    /// The position of the last event of each partition.
    pub async fn positions(&self) -> Result<Vec<u64>, crate::Error> {
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
        let unusable = |fault: Fault| LogError::Unusable { partition, source: Box::new(fault) };
        let found = self.shared.events(partition, after, max).await.map_err(unusable)?;
        let (mut events, mut reached) = (Vec::with_capacity(found.len()), after);
        for (seq, event) in found {
            if seq != reached + 1 {
                let oldest = self.shared.trimmed(partition).await.map_err(unusable)?;
                return Err(if oldest > reached {
                    LogError::Trimmed { partition, after: reached, oldest }
                } else {
                    LogError::Gap { partition, seq: reached + 1 }
                });
            }
            events.push(event);
            reached = seq;
        }
        if events.is_empty() {
            let oldest = self.shared.trimmed(partition).await.map_err(unusable)?;
            if oldest > after {
                return Err(LogError::Trimmed { partition, after, oldest });
            }
        }
        Ok((events, reached))
    }

    /// Deletes the events of a partition up to `through`, which everybody who reads the log must
    /// have passed.
    pub async fn trim(&self, partition: u16, through: u64) -> Result<(), LogError> {
        let trimmed = self.shared.trim(partition, through).await;
        trimmed.map_err(|fault| LogError::Unusable { partition, source: Box::new(fault) })
    }
}

impl Shared {
    async fn positions(&self) -> Result<Vec<u64>, Fault> {
        let all = sql!("SELECT seq FROM engine_partitions ORDER BY id");
        let found = self.database.fetch_all(all, &[]).await?;
        found.iter().map(|row| seq(row, 0)).collect()
    }

    async fn events(
        &self,
        partition: u16,
        after: u64,
        max: usize,
    ) -> Result<Vec<(u64, Event)>, Fault> {
        let found = self
            .database
            .fetch_all(
                sql!(
                    "SELECT seq, event FROM engine_log WHERE partition_id = ? AND seq > ?
                     ORDER BY seq LIMIT ?"
                ),
                &[i64::from(partition).into(), position(after).into(), number(max).into()],
            )
            .await?;
        let event = |row| Ok((seq(row, 0)?, rows::event(row.bytes(1)?, "an event of the log")?));
        found.iter().map(event).collect()
    }

    async fn trimmed(&self, partition: u16) -> Result<u64, Fault> {
        let oldest = sql!("SELECT trimmed FROM engine_partitions WHERE id = ?");
        let row = self.database.fetch_optional(oldest, &[i64::from(partition).into()]).await?;
        seq(&row.ok_or(Fault::Missing { what: "a partition" })?, 0)
    }

    /// Says first that it is gone, so that nobody takes a half-deleted log for a damaged one.
    async fn trim(&self, partition: u16, through: u64) -> Result<(), Fault> {
        let id = i64::from(partition);
        let (seq, through) = (self.positions().await?[usize::from(partition)], through);
        let through = through.min(seq);
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

fn seq(row: &qiang_sql::Row, column: usize) -> Result<u64, Fault> {
    u64::try_from(row.int(column)?).map_err(|_| Fault::OutOfRange { what: "a position" })
}
