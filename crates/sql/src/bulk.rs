//! Multi-row inserts.
//!
//! Rows go out in statements of 2ⁿ rows, largest first. So any number of rows needs only a
//! handful of different statements, each is prepared once for a connection and then reused, and
//! no statement comes near the 32,766 parameters SQLite allows.

use std::sync::OnceLock;

use crate::error::Result;
use crate::statement::Statement;
use crate::value::Params;
use crate::{Dialect, Transaction};

/// log₂ of the most rows one statement carries: enough that the way to the database and back
/// costs nothing for each row.
const MAX_ROWS_LOG2: usize = 8;
/// About what a parameter takes on its way.
const BYTES_OF_A_PARAMETER: usize = 14;

/// `INSERT … VALUES (…), (…) …` for any number of rows.
#[derive(Debug)]
pub struct Insert {
    head: &'static str,
    row: &'static str,
    tail: Tail,
    /// By the logarithm of the number of rows.
    statements: [OnceLock<[Statement; MAX_ROWS_LOG2 + 1]>; 3],
}

/// What comes behind the rows, for those that are already there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tail {
    /// SQLite and PostgreSQL: `ON CONFLICT (…) DO …`.
    pub on_conflict: &'static str,
    /// MySQL: `ON DUPLICATE KEY UPDATE …`. It assigns from left to right, and each assignment sees
    /// those before it: what others are compared with comes last.
    pub on_duplicate_key: &'static str,
}

impl Insert {
    /// `head` up to where `VALUES` comes, one `row` in brackets, and the `tail`.
    #[must_use]
    pub const fn new(head: &'static str, row: &'static str, tail: Tail) -> Self {
        Self { head, row, tail, statements: [const { OnceLock::new() }; 3] }
    }

    /// Inserts all rows, with `bind` adding the parameters of one.
    pub async fn run<T>(
        &self,
        transaction: &mut Transaction,
        mut rows: &[T],
        bind: impl Fn(&mut Params, &T),
    ) -> Result<()> {
        let dialect = transaction.dialect();
        let statements = self.statements[dialect as usize].get_or_init(|| self.statements(dialect));
        let columns = self.row.bytes().filter(|byte| *byte == b'?').count();
        for (log2, statement) in statements.iter().enumerate().rev() {
            while let Some((now, later)) = rows.split_at_checked(1 << log2) {
                let mut params = Params::new(dialect);
                params.reserve(now.len() * columns, now.len() * columns * BYTES_OF_A_PARAMETER);
                now.iter().for_each(|row| bind(&mut params, row));
                transaction.execute_with(statement, params).await?;
                rows = later;
            }
        }
        Ok(())
    }

    fn statements(&self, dialect: Dialect) -> [Statement; MAX_ROWS_LOG2 + 1] {
        let tail = match dialect {
            Dialect::Sqlite | Dialect::Postgres => self.tail.on_conflict,
            Dialect::MySql => self.tail.on_duplicate_key,
        };
        std::array::from_fn(|log2| {
            let rows = vec![self.row; 1 << log2].join(", ");
            Statement::built(format!("{} VALUES {rows} {tail}", self.head)).kept()
        })
    }
}
