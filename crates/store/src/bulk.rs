//! Multi-row inserts.
//!
//! Rows go out in statements of 2ⁿ rows, largest first. So any number of rows needs only a
//! handful of different statements, each is prepared once for a connection and then reused, and
//! no statement comes near the 32,766 parameters SQLite allows.

use std::sync::{Arc, OnceLock};

use sqlx::AssertSqlSafe;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection};

/// A statement whose parameters are being bound.
pub(crate) type Binding<'q> = Query<'q, Sqlite, SqliteArguments>;

/// log₂ of the most rows one statement carries: enough that the hand-over to the driver's thread
/// costs nothing for each row.
const MAX_ROWS_LOG2: usize = 8;

/// `INSERT … VALUES (…), (…) …` for any number of rows.
pub(crate) struct Insert {
    head: &'static str,
    /// Placeholders are `?`: SQLite looks a `$n` up by walking all names of the statement, which
    /// makes binding quadratic.
    row: &'static str,
    tail: &'static str,
    statements: OnceLock<[Arc<str>; MAX_ROWS_LOG2 + 1]>,
}

impl Insert {
    pub(crate) const fn new(head: &'static str, row: &'static str, tail: &'static str) -> Self {
        Self { head, row, tail, statements: OnceLock::new() }
    }

    /// Inserts all rows, with `bind` binding the parameters of one.
    pub(crate) async fn run<T>(
        &self,
        connection: &mut SqliteConnection,
        mut rows: &[T],
        bind: impl for<'q> Fn(Binding<'q>, &T) -> Binding<'q>,
    ) -> sqlx::Result<()> {
        let statements = self.statements.get_or_init(|| self.texts());
        for (log2, statement) in statements.iter().enumerate().rev() {
            while let Some((now, later)) = rows.split_at_checked(1 << log2) {
                let query = sqlx::query(AssertSqlSafe(Arc::clone(statement)));
                now.iter().fold(query, &bind).execute(&mut *connection).await?;
                rows = later;
            }
        }
        Ok(())
    }

    fn texts(&self) -> [Arc<str>; MAX_ROWS_LOG2 + 1] {
        std::array::from_fn(|log2| {
            let rows = vec![self.row; 1 << log2].join(", ");
            format!("{} VALUES {rows} {}", self.head, self.tail).into()
        })
    }
}
