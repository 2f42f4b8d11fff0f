//! Statements with a list in them.
//!
//! A list is written in 2ⁿ places, and what is left over is filled with its last item again,
//! which changes nothing. So there are few statements, each is prepared once
//! for a connection, and none comes near what a database allows.

use std::sync::OnceLock;

use qiang_sql::{Row, Statement, Transaction, Value};

use super::fault::Fault;

/// log₂ of the longest list in one statement.
const MAX_LOG2: usize = 8;
/// The most items in one statement.
pub(super) const MAX_ITEMS: usize = 1 << MAX_LOG2;
/// Where the list goes in the text.
const PLACE: &str = "{list}";

/// A statement with one list, in all its sizes.
#[derive(Debug)]
pub(super) struct Listed {
    text: &'static str,
    sizes: [OnceLock<Statement>; MAX_LOG2 + 1],
}

impl Listed {
    /// `… IN ({list})`
    pub(super) const fn within(text: &'static str) -> Self {
        Self { text, sizes: [const { OnceLock::new() }; MAX_LOG2 + 1] }
    }

    /// All rows for all items. `before` are the parameters in front of the list, `after` those
    /// behind it.
    pub(super) async fn fetch(
        &self,
        transaction: &mut Transaction,
        before: &[Value<'_>],
        items: &[Value<'_>],
        after: &[Value<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let mut rows = Vec::new();
        for items in items.chunks(MAX_ITEMS) {
            let (statement, values) = self.sized(before, items, after);
            rows.append(&mut transaction.fetch_all(statement, &values).await?);
        }
        Ok(rows)
    }

    /// Changes the rows of all items, each of which must be there.
    pub(super) async fn change(
        &self,
        transaction: &mut Transaction,
        what: &'static str,
        before: &[Value<'_>],
        items: &[Value<'_>],
    ) -> Result<(), Fault> {
        for items in items.chunks(MAX_ITEMS) {
            let (statement, values) = self.sized(before, items, &[]);
            let (expected, found) =
                (items.len() as u64, transaction.execute(statement, &values).await?);
            if found != expected {
                return Err(Fault::Guard { what, expected, found });
            }
        }
        Ok(())
    }

    /// The statement for one list, and its parameters.
    pub(super) fn sized<'a>(
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
            Statement::built(self.text.replace(PLACE, &list)).kept()
        });
        (statement, values)
    }
}
