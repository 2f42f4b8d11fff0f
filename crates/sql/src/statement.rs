//! SQL text, written once and spelled for each dialect once.
//!
//! Parameters are `?`, `{now}` is the database's own clock in Unix milliseconds, `{lock}` keeps the
//! selected rows from others until the transaction ends, `{skip_locked}` does so with those that nobody
//! else has, and `{name of a table}` is its columns.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::{Dialect, Table};

/// A statement. Those known at compile time are best made by [`sql!`](crate::sql), which keeps
/// what it worked out.
#[derive(Debug)]
pub struct Statement {
    tables: &'static [&'static Table],
    text: Text,
    kept: bool,
    spelled: [OnceLock<Arc<str>>; 3],
}

#[derive(Debug)]
enum Text {
    Same(&'static str),
    Each { sqlite: &'static str, mysql: &'static str, postgres: &'static str },
    Built(String),
}

impl Statement {
    /// The same text for all.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        Self::over(&[], text)
    }

    /// The same text for all, with the columns of these tables in it.
    #[must_use]
    pub const fn over(tables: &'static [&'static Table], text: &'static str) -> Self {
        Self::of(tables, Text::Same(text), true)
    }

    /// A text for each.
    #[must_use]
    pub const fn each(sqlite: &'static str, mysql: &'static str, postgres: &'static str) -> Self {
        Self::of(&[], Text::Each { sqlite, mysql, postgres }, true)
    }

    /// A text that is made at run time and not seen again, so that no connection keeps it. It must
    /// be made of parts of this program: whatever comes from outside is a parameter.
    #[must_use]
    pub const fn built(text: String) -> Self {
        Self::of(&[], Text::Built(text), false)
    }

    /// The same, with the columns of these tables in it.
    #[must_use]
    pub fn built_over(tables: &[&Table], text: &str) -> Self {
        Self::built(Table::expand(tables, text))
    }

    const fn of(tables: &'static [&'static Table], text: Text, kept: bool) -> Self {
        Self { tables, text, kept, spelled: [const { OnceLock::new() }; 3] }
    }

    /// The same, for a text that will be seen again.
    #[must_use]
    pub fn kept(self) -> Self {
        Self { kept: true, ..self }
    }

    /// Whether connections keep it prepared.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }

    pub(crate) fn sql(&self, dialect: Dialect) -> SqlStr {
        let spelled = self.spelled[dialect as usize].get_or_init(|| {
            let text = match &self.text {
                Text::Same(text) => text,
                Text::Each { sqlite, .. } if dialect == Dialect::Sqlite => sqlite,
                Text::Each { mysql, .. } if dialect == Dialect::MySql => mysql,
                Text::Each { postgres, .. } => postgres,
                Text::Built(text) => text.as_str(),
            };
            spell(&Table::expand(self.tables, text), dialect).into()
        });
        AssertSqlSafe(Arc::clone(spelled)).into_sql_str()
    }
}

/// A [`Statement`] that is spelled once: one text for all, with the columns of tables in it or
/// without, or one for each dialect.
///
/// `sql!([CLAIMS] "SELECT {claims} FROM claims WHERE number = ?")`
#[macro_export]
macro_rules! sql {
    ([$($table:path),+] $text:expr) => {{
        const TABLES: &[&$crate::Table] = &[$(&$table),+];
        static STATEMENT: $crate::Statement = $crate::Statement::over(TABLES, $text);
        &STATEMENT
    }};
    (sqlite: $sqlite:expr, mysql: $mysql:expr, postgres: $postgres:expr $(,)?) => {{
        static STATEMENT: $crate::Statement = $crate::Statement::each($sqlite, $mysql, $postgres);
        &STATEMENT
    }};
    ($text:expr) => {{
        static STATEMENT: $crate::Statement = $crate::Statement::new($text);
        &STATEMENT
    }};
}

/// Replaces `{now}`, `{lock}` and `{skip_locked}`, and for PostgreSQL `?` by `$1`, `$2`, …; leaves quotes and comments alone.
pub(crate) fn spell(text: &str, dialect: Dialect) -> String {
    let mut spelled = String::with_capacity(text.len() + text.len() / 8);
    let (mut rest, mut parameters) = (text, 0_usize);
    while let Some(at) = rest.find(['?', '{', '\'', '"', '`', '-']) {
        let (before, from) = rest.split_at(at);
        spelled.push_str(before);
        let taken = match from.as_bytes()[0] {
            b'?' if dialect == Dialect::Postgres => {
                parameters += 1;
                write!(spelled, "${parameters}").expect("a String takes everything");
                1
            }
            b'{' if from.starts_with("{now}") => {
                spelled.push_str(dialect.now_ms());
                "{now}".len()
            }
            b'{' if from.starts_with("{lock}") => {
                spelled.push_str(dialect.lock());
                "{lock}".len()
            }
            b'{' if from.starts_with("{skip_locked}") => {
                spelled.push_str(dialect.skip_locked());
                "{skip_locked}".len()
            }
            _ => {
                let whole = verbatim(from);
                spelled.push_str(&from[..whole]);
                whole
            }
        };
        rest = &from[taken..];
    }
    spelled.push_str(rest);
    spelled
}

/// How much to take over as it is: a quoted text, a comment, or a single character.
fn verbatim(from: &str) -> usize {
    let end = match from.as_bytes()[0] {
        quote @ (b'\'' | b'"' | b'`') => from[1..].find(char::from(quote)).map(|end| end + 2),
        b'-' if from.starts_with("--") => from.find('\n'),
        _ => Some(1),
    };
    end.unwrap_or(from.len())
}

#[cfg(test)]
mod tests {
    use super::spell;
    use crate::Dialect::{MySql, Postgres, Sqlite};

    #[test]
    fn parameters_are_numbered_for_postgres_only() {
        let text = "SELECT a FROM t WHERE b = ? AND c IN (?, ?)";
        assert_eq!(spell(text, Sqlite), text);
        assert_eq!(spell(text, MySql), text);
        assert_eq!(spell(text, Postgres), "SELECT a FROM t WHERE b = $1 AND c IN ($2, $3)");
    }

    #[test]
    fn quotes_and_comments_stay_as_they_are() {
        let text = "SELECT '?', 'it''s {now}', \"?\", `?` -- why? isn't it\n, ?, 1 - 1";
        let expected = "SELECT '?', 'it''s {now}', \"?\", `?` -- why? isn't it\n, $1, 1 - 1";
        assert_eq!(spell(text, Postgres), expected);
    }

    #[test]
    fn unfinished_texts_are_taken_as_they_are() {
        for text in ["'?", "--?", "-", "", "{", "{no}", "中文 '?"] {
            assert_eq!(spell(text, Postgres), text);
        }
    }

    #[test]
    fn the_clock_is_the_databases() {
        for dialect in crate::Dialect::ALL {
            let spelled = spell("a < {now}", dialect);
            assert_eq!(spelled, format!("a < {}", dialect.now_ms()));
        }
    }
}
