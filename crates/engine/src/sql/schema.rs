//! The tables, and how an engine enters them.

use std::time::Duration;

use qiang_core::Timestamp;
use qiang_sql::{Database, Migrations, Step, sql};

use super::fault::Fault;
use super::tables::INSERT_PARTITIONS;
use super::write::one;
use crate::Error;

/// How long the last call of an engine is remembered that never came back.
const FORGET_CALLS: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The history of the engine's tables.
const MIGRATIONS: Migrations = Migrations {
    table: "engine_migrations",
    sqlite: &[
        Step {
            version: 1,
            name: "engine",
            sql: include_str!("../../migrations/sqlite/0001_engine.sql"),
        },
        Step {
            version: 2,
            name: "payments of a pool",
            sql: include_str!("../../migrations/sqlite/0002_payments.sql"),
        },
        Step {
            version: 3,
            name: "kinds of pools",
            sql: include_str!("../../migrations/sqlite/0003_kinds.sql"),
        },
    ],
    mysql: &[
        Step {
            version: 1,
            name: "engine",
            sql: include_str!("../../migrations/mysql/0001_engine.sql"),
        },
        Step {
            version: 2,
            name: "payments of a pool",
            sql: include_str!("../../migrations/mysql/0002_payments.sql"),
        },
        Step {
            version: 3,
            name: "kinds of pools",
            sql: include_str!("../../migrations/mysql/0003_kinds.sql"),
        },
    ],
    postgres: &[
        Step {
            version: 1,
            name: "engine",
            sql: include_str!("../../migrations/postgres/0001_engine.sql"),
        },
        Step {
            version: 2,
            name: "payments of a pool",
            sql: include_str!("../../migrations/postgres/0002_payments.sql"),
        },
        Step {
            version: 3,
            name: "kinds of pools",
            sql: include_str!("../../migrations/postgres/0003_kinds.sql"),
        },
    ],
};

/// The engine could not be opened. No pool was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The database did not do what was asked.
    #[error(transparent)]
    Database(#[from] qiang_sql::Error),
    /// The tables are not what an engine has made.
    #[error("the tables of the engine cannot be used")]
    Tables(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What had run out could not be released.
    #[error("what ran out meanwhile could not be released")]
    Engine(#[from] Error),
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Database(error) => Self::Database(error),
            other => Self::Tables(Box::new(other)),
        }
    }
}

/// What an engine has to know about the tables it works on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entered {
    /// A name that no other engine has on this database, now or later.
    pub(super) caller: i64,
    pub(super) partitions: u16,
}

/// Brings the tables into shape and takes a name. The first one makes the partitions; all others
/// take what there is, for a pool never moves.
pub(super) async fn enter(
    database: &Database,
    partitions: u16,
    now: Timestamp,
) -> Result<Entered, OpenError> {
    assert!(partitions > 0, "a pool belongs to a partition");
    database.migrate(&MIGRATIONS).await?;
    let mut transaction = database.begin().await?;
    // This locks the row: of two that enter at once, one is first.
    one(
        &mut transaction,
        "the number of callers",
        sql!("UPDATE engine_settings SET value = value + 1 WHERE name = 'callers'"),
        &[],
    )
    .await?;
    let row = transaction
        .fetch_optional(
            sql!(
                "SELECT s.value, (SELECT COUNT(*) FROM engine_partitions)
                 FROM engine_settings s WHERE s.name = 'callers'"
            ),
            &[],
        )
        .await?;
    let row = row.ok_or(Fault::Missing { what: "the number of callers" })?;
    let caller = row.int(0).map_err(Fault::from)?;
    let there = row.int(1).map_err(Fault::from)?;
    let there =
        u16::try_from(there).map_err(|_| Fault::OutOfRange { what: "the number of partitions" })?;
    if there == 0 {
        let ids: Vec<u16> = (0..partitions).collect();
        INSERT_PARTITIONS
            .run(&mut transaction, &ids, |params, id| {
                params.add(i64::from(*id)).add(0_u32).add(0_u32).add(i64::MIN);
            })
            .await?;
    } else if there != partitions {
        tracing::info!(there, wanted = partitions, "a database keeps its number of partitions");
    }
    let forgotten = i64::try_from(FORGET_CALLS.as_millis()).unwrap_or(i64::MAX);
    transaction
        .execute(
            sql!("DELETE FROM engine_calls WHERE at < ?"),
            &[now.millis().saturating_sub(forgotten).into()],
        )
        .await?;
    transaction.commit().await?;
    Ok(Entered { caller, partitions: if there == 0 { partitions } else { there } })
}
