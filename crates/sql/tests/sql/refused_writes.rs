//! A database that takes no writes is told apart from one that is gone, and is not overruled.

use qiang_sql::scratch::{Scratch, available};
use qiang_sql::{Database, Dialect, Error, Statement, Value, sql};

async fn refused(database: &Database) -> Error {
    let insert = sql!("INSERT INTO t (x) VALUES (?)");
    database.execute(insert, &[Value::Bytes(&[7; 1 << 16])]).await.expect_err("it takes no writes")
}

fn says(error: &Error, words: &str) {
    assert!(error.is_outage(), "{error:?}");
    assert!(error.refuses_writes().is_some_and(|why| why.contains(words)), "{error:?}");
}

/// Whoever made a PostgreSQL read-only means it.
#[tokio::test]
async fn a_postgres_that_was_made_read_only_is_not_written_to() {
    if !available(Dialect::Postgres) {
        return;
    }
    let scratch = Scratch::new(Dialect::Postgres).await;
    let before = Database::open(scratch.url()).await.expect("opens");
    before.execute(sql!("CREATE TABLE t (x BYTEA)"), &[]).await.expect("made");
    let (_, name) = scratch.url().rsplit_once('/').expect("a database");
    let alter = format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = on");
    before.execute(&Statement::built(alter), &[]).await.expect("altered");
    let after = Database::open(scratch.url()).await.expect("opens");
    says(&refused(&after).await, "read-only");
    let mut transaction = after.begin().await.expect("begins");
    let insert = sql!("INSERT INTO t (x) VALUES (?)");
    let error = transaction.execute(insert, &[Value::Bytes(&[7])]).await.expect_err("read-only");
    says(&error, "read-only");
    assert!(after.fetch_all(sql!("SELECT x FROM t"), &[]).await.expect("readable").is_empty());
}

#[tokio::test]
async fn a_sqlite_file_that_cannot_grow_is_full() {
    let scratch = Scratch::new(Dialect::Sqlite).await;
    let database = Database::open(scratch.url()).await.expect("opens");
    database.execute(sql!("CREATE TABLE t (x BLOB)"), &[]).await.expect("made");
    database.execute(sql!("PRAGMA max_page_count = 3"), &[]).await.expect("told");
    let error = refused(&database).await;
    says(&error, "full");
}
