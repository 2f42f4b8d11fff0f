//! One connection of a pool, whatever the database.

use std::time::Duration;

use sqlx::mysql::MySql;
use sqlx::pool::PoolConnection;
use sqlx::postgres::Postgres;
use sqlx::sqlite::Sqlite;

use crate::error::{Error, Result};
use crate::row::{Inner, Row};
use crate::value::{Arguments, Params};
use crate::{Dialect, Statement};

/// How long one statement may take. Servers end it themselves before that, so this is for servers
/// that vanished.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) enum Connection {
    Sqlite(PoolConnection<Sqlite>),
    MySql(PoolConnection<MySql>),
    Postgres(PoolConnection<Postgres>),
}

/// Runs a query of the right kind. Parameters are made for the connection they go to.
macro_rules! run {
    ($self:ident, $statement:ident, $params:ident, $method:ident) => {{
        let dialect = $self.dialect();
        let (sql, kept) = ($statement.sql(dialect), $statement.is_kept());
        if let Some(refused) = $params.refused {
            return Err(Error::Database(sqlx::Error::Encode(refused)));
        }
        let running = async {
            match ($self, $params.arguments) {
                (Self::Sqlite(to), Arguments::Sqlite(arguments)) => {
                    let query = sqlx::query_with(sql, arguments).persistent(kept);
                    query.$method(&mut **to).await.map(Outcome::Sqlite)
                }
                (Self::MySql(to), Arguments::MySql(arguments)) => {
                    let query = sqlx::query_with(sql, arguments).persistent(kept);
                    query.$method(&mut **to).await.map(Outcome::MySql)
                }
                (Self::Postgres(to), Arguments::Postgres(arguments)) => {
                    let query = sqlx::query_with(sql, arguments).persistent(kept);
                    query.$method(&mut **to).await.map(Outcome::Postgres)
                }
                _ => unreachable!("parameters are made for the connection they go to"),
            }
        };
        in_time(dialect, running).await?
    }};
}

/// What came of a query, for each database.
enum Outcome<S, M, P> {
    Sqlite(S),
    MySql(M),
    Postgres(P),
}

impl Connection {
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::MySql(_) => Dialect::MySql,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// How many rows it changed; in an `UPDATE`, how many it found.
    pub(crate) async fn execute(&mut self, statement: &Statement, params: Params) -> Result<u64> {
        Ok(match run!(self, statement, params, execute) {
            Outcome::Sqlite(done) => done.rows_affected(),
            Outcome::MySql(done) => done.rows_affected(),
            Outcome::Postgres(done) => done.rows_affected(),
        })
    }

    pub(crate) async fn fetch_all(
        &mut self,
        statement: &Statement,
        params: Params,
    ) -> Result<Vec<Row>> {
        Ok(match run!(self, statement, params, fetch_all) {
            Outcome::Sqlite(rows) => rows.into_iter().map(Inner::Sqlite).map(Row).collect(),
            Outcome::MySql(rows) => rows.into_iter().map(Inner::MySql).map(Row).collect(),
            Outcome::Postgres(rows) => rows.into_iter().map(Inner::Postgres).map(Row).collect(),
        })
    }

    pub(crate) async fn fetch_optional(
        &mut self,
        statement: &Statement,
        params: Params,
    ) -> Result<Option<Row>> {
        Ok(match run!(self, statement, params, fetch_optional) {
            Outcome::Sqlite(row) => row.map(Inner::Sqlite).map(Row),
            Outcome::MySql(row) => row.map(Inner::MySql).map(Row),
            Outcome::Postgres(row) => row.map(Inner::Postgres).map(Row),
        })
    }

    /// A statement without parameters, in one round trip.
    pub(crate) async fn tell(&mut self, text: &'static str) -> Result<()> {
        let dialect = self.dialect();
        let running = async {
            match self {
                // SQLite keeps what it has prepared.
                Self::Sqlite(to) => sqlx::query(text).execute(&mut **to).await.map(drop),
                Self::MySql(to) => sqlx::raw_sql(text).execute(&mut **to).await.map(drop),
                Self::Postgres(to) => sqlx::raw_sql(text).execute(&mut **to).await.map(drop),
            }
        };
        in_time(dialect, running).await
    }

    /// Closes it in the end instead of returning it to the pool.
    pub(crate) fn close_on_drop(&mut self) {
        match self {
            Self::Sqlite(connection) => connection.close_on_drop(),
            Self::MySql(connection) => connection.close_on_drop(),
            Self::Postgres(connection) => connection.close_on_drop(),
        }
    }
}

/// SQLite answers or fails. A server may never answer, so it gets a time limit.
async fn in_time<T>(dialect: Dialect, running: impl Future<Output = sqlx::Result<T>>) -> Result<T> {
    if dialect == Dialect::Sqlite {
        return Ok(running.await?);
    }
    match tokio::time::timeout(STATEMENT_TIMEOUT, running).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Error::Timeout { after: STATEMENT_TIMEOUT }),
    }
}
