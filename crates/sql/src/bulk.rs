//! Multi-row inserts.
//!
//! Rows go out in statements of 2ⁿ rows, largest first. So any number of rows needs only a
//! handful of different statements, each is prepared once for a connection and then reused, and
//! no statement comes near the 32,766 parameters SQLite allows.

use std::sync::OnceLock;

use crate::error::Result;
use crate::statement::Statement;
use crate::value::Params;
use crate::{Dialect, Existing, Table, Transaction};

/// log₂ of the most rows in one statement: enough that the round trip costs next to nothing for
/// each row.
const MAX_ROWS_LOG2: usize = 8;
/// About how many bytes a parameter takes.
const BYTES_OF_A_PARAMETER: usize = 14;

/// `INSERT` for any number of rows of a table.
#[derive(Debug)]
pub struct Insert {
    table: &'static Table,
    existing: Existing,
    /// By the logarithm of the number of rows.
    statements: [OnceLock<[Statement; MAX_ROWS_LOG2 + 1]>; 3],
}

impl Insert {
    /// Into a table, over what may be there.
    #[must_use]
    pub const fn new(table: &'static Table, existing: Existing) -> Self {
        Self { table, existing, statements: [const { OnceLock::new() }; 3] }
    }

    /// Inserts all rows, with `bind` adding the parameters of one, in the order of the columns.
    pub async fn run<T>(
        &self,
        transaction: &mut Transaction,
        mut rows: &[T],
        bind: impl Fn(&mut Params, &T),
    ) -> Result<()> {
        let dialect = transaction.dialect();
        let statements = self.statements(dialect);
        let columns = self.table.columns().count();
        for (log2, statement) in statements.iter().enumerate().rev() {
            while let Some((now, later)) = rows.split_at_checked(1 << log2) {
                let (mut params, values) = (Params::new(dialect), now.len() * columns);
                params.reserve(values, values * BYTES_OF_A_PARAMETER);
                now.iter().for_each(|row| bind(&mut params, row));
                assert_eq!(
                    params.len(),
                    values,
                    "a row of {} has {columns} columns",
                    self.table.name
                );
                transaction.execute_with(statement, params).await?;
                rows = later;
            }
        }
        Ok(())
    }

    /// The statement for one row.
    pub fn one(&self, dialect: Dialect) -> &Statement {
        &self.statements(dialect)[0]
    }

    fn statements(&self, dialect: Dialect) -> &[Statement; MAX_ROWS_LOG2 + 1] {
        self.statements[dialect as usize].get_or_init(|| {
            let insert = |log2: usize| self.table.insert(1 << log2, self.existing, dialect);
            std::array::from_fn(|log2| Statement::built(insert(log2)).kept())
        })
    }
}
