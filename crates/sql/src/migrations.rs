//! Brings tables to the shape a binary expects.
//!
//! Migrations are part of the binary, run in order, and are never changed once released: their
//! checksums are in the database. A database that has been migrated further than the binary
//! knows is left alone. Of several processes that migrate at once one does it, and the others
//! wait and find it done.
//!
//! On SQLite and PostgreSQL a migration happens whole or not at all. MySQL commits each `CREATE`
//! by itself, so its migrations must be written so that they can be run again from the beginning
//! (`IF NOT EXISTS`), which is what happens after one was cut off. There, `{exact}` is the
//! collation that compares texts byte by byte, as the others do: `utf8mb4_bin` would take `a` and
//! `a ` for the same.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError, MigrationType};
use sqlx::{AssertSqlSafe, Connection as _, SqlSafeStr};

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::{Database, Dialect, Statement};

/// How long to wait for another process that migrates.
const PATIENCE: Duration = Duration::from_secs(120);
/// What the others wait for, on PostgreSQL: a number for `qiang`.
const LOCK: i64 = 0x0071_6961_6e67;

/// The history of a set of tables.
#[derive(Debug, Clone, Copy)]
pub struct Migrations {
    /// The table that keeps what was applied.
    pub table: &'static str,
    /// The history on SQLite, by rising version.
    pub sqlite: &'static [Step],
    /// The history on MySQL and MariaDB, by rising version.
    pub mysql: &'static [Step],
    /// The history on PostgreSQL, by rising version.
    pub postgres: &'static [Step],
}

/// One step of a history, with its SQL.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Its place in the history.
    pub version: i64,
    /// What it is about.
    pub name: &'static str,
    pub sql: &'static str,
}

/// How far a database has been migrated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// The newest migration that was applied.
    pub version: Option<i64>,
    /// What migrating would apply, in order.
    pub pending: Vec<Migration>,
}

/// One step of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Its place in the history.
    pub version: i64,
    /// What it is about.
    pub name: &'static str,
}

impl From<&Step> for Migration {
    fn from(step: &Step) -> Self {
        Self { version: step.version, name: step.name }
    }
}

impl Migrations {
    /// The history on databases of that kind.
    #[must_use]
    pub fn steps(&self, dialect: Dialect) -> &'static [Step] {
        match dialect {
            Dialect::Sqlite => self.sqlite,
            Dialect::MySql => self.mysql,
            Dialect::Postgres => self.postgres,
        }
    }
}

impl Database {
    /// How far the database has been migrated. A newer database is an error.
    pub async fn schema(&self, migrations: &Migrations) -> Result<Schema> {
        let table = [migrations.table.into()];
        let applied = if self.fetch_optional(&TABLE, &table).await?.is_some() {
            let text = format!("SELECT MAX(version) FROM {}", migrations.table);
            let row = self.fetch_optional(&Statement::built(text), &[]).await?;
            row.map(|row| row.int_or_null(0)).transpose()?.flatten()
        } else {
            None
        };
        let steps = migrations.steps(self.dialect());
        not_newer(steps, applied)?;
        let is_pending = |step: &&Step| applied.is_none_or(|applied| step.version > applied);
        let pending = steps.iter().filter(is_pending).map(Migration::from).collect();
        Ok(Schema { version: applied, pending })
    }

    /// Applies what is pending, and says what that was. Doing it again does nothing.
    pub async fn migrate(&self, migrations: &Migrations) -> Result<Vec<Migration>> {
        let table = migrations.table;
        let steps = migrations.steps(self.dialect());
        let mut connection = self.writer().await?;
        // This connection's settings and its lock end with it.
        connection.close_on_drop();
        let applied = match &mut connection {
            Connection::Sqlite(connection) => {
                let begun = connection.begin_with("BEGIN IMMEDIATE").await;
                let mut all = begun?;
                let applied = apply(&mut *all, table, steps, steps_as_written).await?;
                all.commit().await?;
                applied
            }
            Connection::MySql(connection) => {
                lock_mysql(connection, table).await?;
                let exact = exact_collation(connection).await?;
                let spelled = |sql: &str| sql.replace("{exact}", exact);
                apply(&mut **connection, table, steps, spelled).await?
            }
            Connection::Postgres(connection) => {
                lock_postgres(connection).await?;
                apply(&mut **connection, table, steps, steps_as_written).await?
            }
        };
        for migration in &applied {
            tracing::info!(version = migration.version, name = migration.name, table, "migrated");
        }
        Ok(applied)
    }
}

/// Whether there is a table of that name.
static TABLE: Statement = Statement::each(
    "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
    "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
    "SELECT 1 FROM pg_tables WHERE schemaname = ANY (current_schemas(false)) AND tablename = ?",
);

fn steps_as_written(sql: &str) -> String {
    sql.to_owned()
}

/// Applies what has not been, on a connection that nobody else does this on.
async fn apply<C: Migrate>(
    connection: &mut C,
    table: &'static str,
    steps: &[Step],
    spelled: impl Fn(&str) -> String,
) -> Result<Vec<Migration>> {
    connection.ensure_migrations_table(table).await.map_err(Error::Migrate)?;
    if let Some(version) = connection.dirty_version(table).await.map_err(Error::Migrate)? {
        return Err(Error::Migrate(MigrateError::Dirty(version)));
    }
    let applied = connection.list_applied_migrations(table).await.map_err(Error::Migrate)?;
    let applied: BTreeMap<i64, _> = applied.into_iter().map(|one| (one.version, one)).collect();
    not_newer(steps, applied.keys().next_back().copied())?;
    let mut done = Vec::new();
    for step in steps {
        let as_written = AssertSqlSafe(step.sql).into_sql_str();
        let mut migration = sqlx::migrate::Migration::new(
            step.version,
            step.name.into(),
            MigrationType::Simple,
            as_written,
            false,
        );
        match applied.get(&step.version) {
            Some(before) if before.checksum == migration.checksum => {}
            Some(_) => return Err(Error::Migrate(MigrateError::VersionMismatch(step.version))),
            None => {
                migration.sql = AssertSqlSafe(spelled(step.sql)).into_sql_str();
                connection.apply(table, &migration).await.map_err(Error::Migrate)?;
                done.push(Migration::from(step));
            }
        }
    }
    Ok(done)
}

fn not_newer(steps: &[Step], applied: Option<i64>) -> Result<()> {
    let known = steps.iter().map(|step| step.version).max().unwrap_or(0);
    match applied {
        Some(found) if found > known => Err(Error::NewerDatabase { found, known }),
        _ => Ok(()),
    }
}

/// Locks, and forgets what was cut off, so that it is done again. MariaDB does not know "wait for
/// ever", and answers it at once with NULL.
async fn lock_mysql(connection: &mut sqlx::MySqlConnection, table: &str) -> Result<()> {
    let got: Option<i64> =
        sqlx::query_scalar("SELECT GET_LOCK(CONCAT('qiang migrates ', MD5(DATABASE())), ?)")
            .bind(PATIENCE.as_secs())
            .fetch_one(&mut *connection)
            .await?;
    if got != Some(1) {
        return Err(Error::MigrationLocked { after: PATIENCE });
    }
    connection.ensure_migrations_table(table).await.map_err(Error::Migrate)?;
    let forget = AssertSqlSafe(format!("DELETE FROM {table} WHERE success = FALSE"));
    sqlx::raw_sql(forget).execute(connection).await?;
    Ok(())
}

async fn lock_postgres(connection: &mut sqlx::PgConnection) -> Result<()> {
    let patience = format!(
        "SET statement_timeout = 0; SET lock_timeout = '{0}s'; SELECT pg_advisory_lock({LOCK})",
        PATIENCE.as_secs()
    );
    sqlx::raw_sql(AssertSqlSafe(patience)).execute(connection).await.map_err(Error::from).map_err(
        |error| {
            if error.is_transient() { Error::MigrationLocked { after: PATIENCE } } else { error }
        },
    )?;
    Ok(())
}

/// The collation that compares byte by byte and does not disregard spaces at the end.
async fn exact_collation(connection: &mut sqlx::MySqlConnection) -> Result<&'static str> {
    let version: String = sqlx::query_scalar("SELECT VERSION()").fetch_one(connection).await?;
    let is_mariadb = version.to_ascii_lowercase().contains("mariadb");
    Ok(if is_mariadb { "utf8mb4_nopad_bin" } else { "utf8mb4_0900_bin" })
}
