//! Brings the tables to the shape this binary expects.
//!
//! The same version is the same shape on every database. MySQL and PostgreSQL came when SQLite
//! was at its second, so that is where their history begins.

use qiang_sql::{Migrations, Step};

use crate::Store;
use crate::error::{Error, Result};

/// How far a database has been migrated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// The newest migration that was applied.
    pub version: Option<i64>,
    /// What [`Store::migrate`] would apply, in order.
    pub pending: Vec<Migration>,
}

/// One step of the tables' history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Its place in the history.
    pub version: i64,
    /// What it is about.
    pub name: &'static str,
}

impl Migration {
    /// What a SQLite file that is not there yet would need, in order.
    #[must_use]
    pub fn all() -> Vec<Self> {
        MIGRATIONS.sqlite.iter().map(|step| of(&step.into())).collect()
    }
}

macro_rules! step {
    ($version:literal, $name:literal, $file:literal) => {
        Step { version: $version, name: $name, sql: include_str!(concat!("../migrations/", $file)) }
    };
}

static MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_migrations",
    sqlite: &[
        step!(1, "records", "sqlite/0001_records.sql"),
        step!(2, "leases", "sqlite/0002_leases.sql"),
        step!(3, "reviews", "sqlite/0003_reviews.sql"),
        step!(4, "consumers", "sqlite/0004_consumers.sql"),
        step!(5, "jobs", "sqlite/0005_jobs.sql"),
        step!(6, "pages", "sqlite/0006_pages.sql"),
        step!(7, "node samples", "sqlite/0007_node_samples.sql"),
        step!(8, "accounts", "sqlite/0008_accounts.sql"),
        step!(9, "console", "sqlite/0009_console.sql"),
        step!(10, "sale outcomes", "sqlite/0010_sale_outcomes.sql"),
        step!(11, "events", "sqlite/0011_events.sql"),
        step!(12, "retries", "sqlite/0012_retries.sql"),
        step!(13, "packets", "sqlite/0013_packets.sql"),
    ],
    mysql: &[
        step!(2, "records", "mysql/0002_records.sql"),
        step!(3, "reviews", "mysql/0003_reviews.sql"),
        step!(4, "consumers", "mysql/0004_consumers.sql"),
        step!(5, "jobs", "mysql/0005_jobs.sql"),
        step!(6, "pages", "mysql/0006_pages.sql"),
        step!(7, "node samples", "mysql/0007_node_samples.sql"),
        step!(8, "accounts", "mysql/0008_accounts.sql"),
        step!(9, "console", "mysql/0009_console.sql"),
        step!(10, "sale outcomes", "mysql/0010_sale_outcomes.sql"),
        step!(11, "events", "mysql/0011_events.sql"),
        step!(12, "retries", "mysql/0012_retries.sql"),
        step!(13, "packets", "mysql/0013_packets.sql"),
    ],
    postgres: &[
        step!(2, "records", "postgres/0002_records.sql"),
        step!(3, "reviews", "postgres/0003_reviews.sql"),
        step!(4, "consumers", "postgres/0004_consumers.sql"),
        step!(5, "jobs", "postgres/0005_jobs.sql"),
        step!(6, "pages", "postgres/0006_pages.sql"),
        step!(7, "node samples", "postgres/0007_node_samples.sql"),
        step!(8, "accounts", "postgres/0008_accounts.sql"),
        step!(9, "console", "postgres/0009_console.sql"),
        step!(10, "sale outcomes", "postgres/0010_sale_outcomes.sql"),
        step!(11, "events", "postgres/0011_events.sql"),
        step!(12, "retries", "postgres/0012_retries.sql"),
        step!(13, "packets", "postgres/0013_packets.sql"),
    ],
};

impl Store {
    /// How far the database has been migrated. A newer database is an error.
    pub async fn schema(&self) -> Result<Schema> {
        let schema = self.database.schema(&MIGRATIONS).await.map_err(Error::Open)?;
        let pending = schema.pending.iter().map(of).collect();
        Ok(Schema { version: schema.version, pending })
    }

    /// Applies what is pending, and says what that was. Doing it again does nothing, and of
    /// several who do it at once one does it.
    pub async fn migrate(&self) -> Result<Vec<Migration>> {
        let applied = self.database.migrate(&MIGRATIONS).await.map_err(Error::Open)?;
        Ok(applied.iter().map(of).collect())
    }
}

fn of(migration: &qiang_sql::Migration) -> Migration {
    Migration { version: migration.version, name: migration.name }
}
