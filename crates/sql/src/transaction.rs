//! A transaction. It is on the disk when [`Transaction::commit`] returns.

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::value::{Params, Value};
use crate::{Dialect, Row, Statement};

/// A connection in the middle of a transaction. On SQLite it is the one that writes, and holds
/// the file from the beginning; elsewhere it sees what others have committed (READ COMMITTED).
///
/// Unless it is committed or rolled back, the connection is closed, and the transaction ends with
/// it: whatever state an error left it in, the next one begins on another connection.
pub struct Transaction {
    connection: Option<Connection>,
    dialect: Dialect,
    broken: bool,
}

impl Transaction {
    pub(crate) async fn begin(connection: Connection) -> Result<Self> {
        let dialect = connection.dialect();
        let mut begun = Self { connection: Some(connection), dialect, broken: false };
        begun
            .connection()
            .tell(match dialect {
                Dialect::Sqlite => "BEGIN IMMEDIATE",
                Dialect::MySql | Dialect::Postgres => "BEGIN",
            })
            .await?;
        Ok(begun)
    }

    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Runs a statement, and says how many rows it changed. An `UPDATE` counts the rows it found,
    /// also those that already were what they should become.
    pub async fn execute(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<u64> {
        self.execute_with(statement, Params::of(self.dialect, values)).await
    }

    pub(crate) async fn execute_with(
        &mut self,
        statement: &Statement,
        params: Params,
    ) -> Result<u64> {
        let done = self.connection().execute(statement, params).await;
        self.note(done)
    }

    /// All rows of an answer.
    pub async fn fetch_all(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>> {
        let params = Params::of(self.dialect, values);
        let rows = self.connection().fetch_all(statement, params).await;
        self.note(rows)
    }

    /// The first row of an answer, if there is one.
    pub async fn fetch_optional(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Option<Row>> {
        let params = Params::of(self.dialect, values);
        let row = self.connection().fetch_optional(statement, params).await;
        self.note(row)
    }

    /// Commits. An error may come after the commit took effect. If a statement had failed before,
    /// nothing took effect ([`Error::Broken`]).
    pub async fn commit(mut self) -> Result<()> {
        // Some databases would go on without the statement that failed, and PostgreSQL would roll
        // back and call it done.
        if self.broken {
            return Err(Error::Broken);
        }
        self.connection().tell("COMMIT").await?;
        drop(self.connection.take());
        Ok(())
    }

    /// Gives it up and keeps the connection. Dropping does the same at the cost of a connection.
    pub async fn rollback(mut self) -> Result<()> {
        self.connection().tell("ROLLBACK").await?;
        drop(self.connection.take());
        Ok(())
    }

    fn note<T>(&mut self, outcome: Result<T>) -> Result<T> {
        self.broken |= outcome.is_err();
        outcome
    }

    fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is taken only by the end")
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.close_on_drop();
        }
    }
}
