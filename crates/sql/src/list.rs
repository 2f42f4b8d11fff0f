//! Statements with a list in them.
//!
//! A list has 2ⁿ places, and places that are left over repeat its last item, which changes
//! nothing. So there are few statements, each is prepared once for a connection, and none comes
//! near what a database allows.

use std::sync::OnceLock;

use crate::error::Result;
use crate::{Row, Statement, Table, Transaction, Value};

/// log₂ of the longest list in one statement.
const MAX_LOG2: usize = 8;
/// The most items in one statement.
pub const MAX_ITEMS: usize = 1 << MAX_LOG2;
/// Where the list goes in the text.
const PLACE: &str = "{list}";

/// A statement with one list, in all its sizes.
#[derive(Debug)]
pub struct Listed {
    tables: &'static [&'static Table],
    text: &'static str,
    sizes: [OnceLock<Statement>; MAX_LOG2 + 1],
}

impl Listed {
    /// `… IN ({list})`, with the columns of these tables in it.
    #[must_use]
    pub const fn over(tables: &'static [&'static Table], text: &'static str) -> Self {
        Self { tables, text, sizes: [const { OnceLock::new() }; MAX_LOG2 + 1] }
    }

    /// All rows for all items. `before` are the parameters in front of the list, `after` those
    /// behind it.
    pub async fn fetch(
        &self,
        transaction: &mut Transaction,
        before: &[Value<'_>],
        items: &[Value<'_>],
        after: &[Value<'_>],
    ) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for items in items.chunks(MAX_ITEMS) {
            let (statement, values) = self.sized(before, items, after);
            rows.append(&mut transaction.fetch_all(statement, &values).await?);
        }
        Ok(rows)
    }

    /// Runs it for all items, and says how many rows it changed.
    pub async fn execute(
        &self,
        transaction: &mut Transaction,
        before: &[Value<'_>],
        items: &[Value<'_>],
    ) -> Result<u64> {
        let mut changed = 0;
        for items in items.chunks(MAX_ITEMS) {
            let (statement, values) = self.sized(before, items, &[]);
            changed += transaction.execute(statement, &values).await?;
        }
        Ok(changed)
    }

    /// The statement for one list of 1 to [`MAX_ITEMS`], and its parameters.
    ///
    /// # Panics
    /// If there are no items, or more.
    #[must_use]
    pub fn sized<'a>(
        &self,
        before: &[Value<'a>],
        items: &[Value<'a>],
        after: &[Value<'a>],
    ) -> (&Statement, Vec<Value<'a>>) {
        let size = items.len().next_power_of_two();
        let last = items.last().expect("no statement is made for an empty list");
        let filled = items.iter().chain(std::iter::repeat(last)).take(size);
        let values = before.iter().chain(filled).chain(after).copied().collect();
        let statement = self.sizes[size.ilog2() as usize].get_or_init(|| {
            let list = vec!["?"; size].join(", ");
            let text = Table::expand(self.tables, self.text);
            Statement::built(text.replace(PLACE, &list)).kept()
        });
        (statement, values)
    }
}
