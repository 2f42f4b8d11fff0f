//! The columns of a table, each written once. Statements for all dialects are made from them, and
//! rows are bound and read in their order: `key`, `fixed`, `changing`.

use crate::Dialect;

/// The column that tells which of two rows is newer.
const VERSION: &str = "version";

/// A table, as the program uses it. Columns are separated by commas.
#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    /// What no two rows share.
    pub key: &'static str,
    /// What stays as it was first written.
    pub fixed: &'static str,
    /// What changes. With [`Existing::YieldsToNewer`] one of them is `version`.
    pub changing: &'static str,
}

/// What becomes of a row whose key is already there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// There must be none: the statement fails.
    IsAnError,
    /// It stays as it is.
    Stays,
    /// What changes is replaced if the new row has a higher `version`.
    YieldsToNewer,
    /// The one column that changes keeps the lower value.
    KeepsLeast,
    /// All of it is replaced, in place.
    IsReplaced,
    /// What changes is a number, and the new one is added to it.
    IsAddedTo,
}

impl Table {
    pub(crate) fn columns(&self) -> impl Iterator<Item = &'static str> {
        [self.key, self.fixed, self.changing].into_iter().flat_map(names)
    }

    /// How many columns make up the key.
    #[must_use]
    pub fn key_len(&self) -> usize {
        names(self.key).count()
    }

    /// Replaces `{name of a table}` by its columns, each with the table's name before it.
    pub(crate) fn expand(tables: &[&Self], text: &str) -> String {
        tables.iter().fold(text.to_owned(), |text, table| {
            let columns: Vec<_> =
                table.columns().map(|column| format!("{}.{column}", table.name)).collect();
            text.replace(&format!("{{{}}}", table.name), &columns.join(", "))
        })
    }

    /// `INSERT` of so many rows.
    pub(crate) fn insert(&self, rows: usize, existing: Existing, dialect: Dialect) -> String {
        let columns: Vec<_> = self.columns().collect();
        let row = format!("({})", vec!["?"; columns.len()].join(", "));
        let (name, columns, rows) = (self.name, columns.join(", "), vec![row; rows].join(", "));
        let tail = self.tail(existing, dialect);
        format!("INSERT INTO {name} ({columns}) VALUES {rows}{tail}")
    }

    fn tail(&self, existing: Existing, dialect: Dialect) -> String {
        let changed: Vec<_> = match existing {
            Existing::IsAnError => return String::new(),
            Existing::Stays => Vec::new(),
            Existing::YieldsToNewer | Existing::IsAddedTo | Existing::KeepsLeast => {
                names(self.changing).collect()
            }
            Existing::IsReplaced => names(self.fixed).chain(names(self.changing)).collect(),
        };
        if existing == Existing::KeepsLeast {
            return self.keep_least(changed[0], dialect);
        }
        let newer = existing == Existing::YieldsToNewer;
        let adds = existing == Existing::IsAddedTo;
        assert!(!newer || changed.contains(&VERSION), "{} has no version", self.name);
        let set = |value: &dyn Fn(&str) -> String| {
            let set = changed.iter().map(|column| format!("{column} = {}", value(column)));
            set.collect::<Vec<_>>()
        };
        if dialect == Dialect::MySql {
            let mut set = if newer {
                set(&|column| {
                    format!("IF(VALUES({VERSION}) > {VERSION}, VALUES({column}), {column})")
                })
            } else if adds {
                set(&|column| format!("{column} + VALUES({column})"))
            } else {
                set(&|column| format!("VALUES({column})"))
            };
            if newer {
                // MySQL assigns from left to right, and each assignment sees those before it.
                set.retain(|assignment| !assignment.starts_with(&format!("{VERSION} =")));
                set.push(format!("{VERSION} = GREATEST(VALUES({VERSION}), {VERSION})"));
            }
            if set.is_empty() {
                set.extend(names(self.key).take(1).map(|first| format!("{first} = {first}")));
            }
            return format!(" ON DUPLICATE KEY UPDATE {}", set.join(", "));
        }
        let key = self.key;
        if changed.is_empty() {
            return format!(" ON CONFLICT ({key}) DO NOTHING");
        }
        let name = self.name;
        let set = if adds {
            set(&|column| format!("{name}.{column} + excluded.{column}"))
        } else {
            set(&|column| format!("excluded.{column}"))
        };
        let set = set.join(", ");
        let only = if newer {
            format!(" WHERE excluded.{VERSION} > {name}.{VERSION}")
        } else {
            String::new()
        };
        format!(" ON CONFLICT ({key}) DO UPDATE SET {set}{only}")
    }
}

impl Table {
    fn keep_least(&self, column: &str, dialect: Dialect) -> String {
        let Self { name, key, .. } = self;
        match dialect {
            Dialect::MySql => {
                format!(" ON DUPLICATE KEY UPDATE {column} = LEAST(VALUES({column}), {column})")
            }
            Dialect::Sqlite | Dialect::Postgres => format!(
                " ON CONFLICT ({key}) DO UPDATE SET {column} = excluded.{column} \
                 WHERE excluded.{column} < {name}.{column}"
            ),
        }
    }
}

/// The columns of a list.
fn names(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{Existing, Table};
    use crate::Dialect::{MySql, Postgres, Sqlite};

    const THINGS: Table = Table { name: "things", key: "a, b", fixed: "c", changing: "version, d" };

    #[test]
    fn a_row_that_is_there_is_an_error_unless_said_otherwise() {
        let insert = "INSERT INTO things (a, b, c, version, d) VALUES (?, ?, ?, ?, ?)";
        for dialect in crate::Dialect::ALL {
            assert_eq!(THINGS.insert(1, Existing::IsAnError, dialect), insert);
            let two = format!("{insert}, (?, ?, ?, ?, ?)");
            assert_eq!(THINGS.insert(2, Existing::IsAnError, dialect), two);
        }
    }

    #[test]
    fn a_row_that_is_there_can_stay_or_yield() {
        let tail = |existing, dialect| THINGS.tail(existing, dialect);
        assert_eq!(tail(Existing::Stays, Sqlite), " ON CONFLICT (a, b) DO NOTHING");
        assert_eq!(tail(Existing::Stays, MySql), " ON DUPLICATE KEY UPDATE a = a");
        assert_eq!(
            tail(Existing::YieldsToNewer, Postgres),
            " ON CONFLICT (a, b) DO UPDATE SET version = excluded.version, d = excluded.d \
             WHERE excluded.version > things.version"
        );
        assert_eq!(
            tail(Existing::YieldsToNewer, MySql),
            " ON DUPLICATE KEY UPDATE d = IF(VALUES(version) > version, VALUES(d), d), \
             version = GREATEST(VALUES(version), version)"
        );
        assert_eq!(
            tail(Existing::IsReplaced, MySql),
            " ON DUPLICATE KEY UPDATE c = VALUES(c), version = VALUES(version), d = VALUES(d)"
        );
    }

    #[test]
    fn numbers_can_be_added_to_a_row_that_is_there() {
        let sums = Table { name: "sums", key: "a", fixed: "b", changing: "n" };
        let tail = |dialect| sums.tail(Existing::IsAddedTo, dialect);
        assert_eq!(tail(MySql), " ON DUPLICATE KEY UPDATE n = n + VALUES(n)");
        for dialect in [Sqlite, Postgres] {
            let expected = " ON CONFLICT (a) DO UPDATE SET n = sums.n + excluded.n";
            assert_eq!(tail(dialect), expected);
        }
    }

    #[test]
    fn a_row_that_is_there_can_keep_the_lower_value() {
        let table = Table { name: "t", key: "a", fixed: "b", changing: "c" };
        let tail = |dialect| table.tail(Existing::KeepsLeast, dialect);
        assert_eq!(tail(MySql), " ON DUPLICATE KEY UPDATE c = LEAST(VALUES(c), c)");
        let others = " ON CONFLICT (a) DO UPDATE SET c = excluded.c WHERE excluded.c < t.c";
        assert_eq!([tail(Sqlite), tail(Postgres)], [others, others]);
    }

    #[test]
    fn columns_stand_for_a_tables_name() {
        let text = Table::expand(&[&THINGS], "SELECT {things}, {now} FROM things");
        assert_eq!(
            text,
            "SELECT things.a, things.b, things.c, things.version, things.d, {now} FROM things"
        );
    }
}
