//! Brings the tables to the shape this binary expects.
//!
//! Migrations are part of the binary, run in order, each in its own transaction, and are never
//! changed once released: their checksums are in the database. A database that has been migrated
//! further than this binary knows is left alone.

use std::collections::BTreeSet;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migrate, MigrationType, Migrator};

use crate::Store;
use crate::error::{Error, Result, While};

/// Every migration there is, by rising version.
const SQLITE: [(i64, &str, &str); 1] =
    [(1, "records", include_str!("../migrations/sqlite/0001_records.sql"))];

/// Where the migrator keeps what was applied.
const TABLE: &str = "_sqlx_migrations";

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
    /// Every migration there is, in order.
    #[must_use]
    pub fn all() -> Vec<Self> {
        SQLITE.iter().map(|&(version, name, _)| Self { version, name }).collect()
    }
}

impl Store {
    /// How far the database has been migrated. A newer database is an error.
    pub async fn schema(&self) -> Result<Schema> {
        let mut connection = self.writer().acquire().await.when("reading the schema")?;
        connection.ensure_migrations_table(TABLE).await.map_err(Error::Migrate)?;
        let applied = connection.list_applied_migrations(TABLE).await.map_err(Error::Migrate)?;
        let applied: BTreeSet<i64> = applied.iter().map(|migration| migration.version).collect();
        let known = SQLITE.iter().map(|(version, ..)| *version).max().unwrap_or(0);
        match applied.last() {
            Some(&found) if found > known => Err(Error::NewerDatabase { found, known }),
            version => Ok(Schema {
                version: version.copied(),
                pending: Migration::all()
                    .into_iter()
                    .filter(|migration| !applied.contains(&migration.version))
                    .collect(),
            }),
        }
    }

    /// Applies what is pending, and says what that was. Doing it again does nothing.
    pub async fn migrate(&self) -> Result<Vec<Migration>> {
        let pending = self.schema().await?.pending;
        let migrations = SQLITE.map(|(version, name, sql)| {
            let (name, sql) = (name.into(), sql.into_sql_str());
            sqlx::migrate::Migration::new(version, name, MigrationType::Simple, sql, false)
        });
        let migrator = Migrator::with_migrations(migrations.into());
        migrator.run(self.writer()).await.map_err(Error::Migrate)?;
        for migration in &pending {
            tracing::info!(version = migration.version, name = migration.name, "migrated");
        }
        Ok(pending)
    }
}
