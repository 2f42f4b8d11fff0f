//! Talks to SQLite, MySQL, MariaDB and PostgreSQL with one code.
//!
//! SQL is written once, with `?` for parameters, in what all of them understand; what they spell
//! differently stands side by side in one [`Statement`]. The columns of a [`Table`] are written
//! once, and statements are made from them. A name that one of them has reserved
//! stands in double quotes. Rows are read the same from each, and
//! nothing that stands in a database makes reading panic.
//!
//! A transaction is on the disk when [`Transaction::commit`] returns. One that was not committed
//! never happened: its connection is closed, and nothing of it reaches whoever comes next.
//!
//! Nothing here knows what the tables are about, and no password is ever shown.

mod blame;
mod bulk;
mod connection;
mod database;
mod dialect;
mod error;
mod list;
mod migrations;
mod row;
#[cfg(feature = "scratch")]
pub mod scratch;
mod sqlite;
mod statement;
mod table;
mod transaction;
mod url;
mod value;

pub use blame::Blame;
pub use bulk::Insert;
pub use database::{Database, Limits};
pub use dialect::Dialect;
pub use error::{BadColumn, Error, Result};
pub use list::{Listed, MAX_ITEMS};
pub use migrations::{Migration, Migrations, Schema, Step};
pub use row::Row;
pub use statement::Statement;
pub use table::{Existing, Table};
pub use transaction::Transaction;
pub use url::check_url;
pub use value::{Params, Value};
