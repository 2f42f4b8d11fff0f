//! A transaction happens whole or not at all, and a broken one harms nobody who comes later.

use qiang_sql::scratch::Scratch;
use qiang_sql::{Database, Dialect, Error, Statement, Value, on_every_database, sql};

use crate::reading_and_writing::database;

on_every_database!(
    what_is_committed_is_there,
    what_is_dropped_or_rolled_back_never_was,
    a_failed_statement_cannot_be_committed,
    a_cancelled_statement_harms_nobody,
    two_who_wait_for_each_other_are_told_so,
);

fn insert() -> &'static Statement {
    sql!("INSERT INTO things (id) VALUES (?)")
}

async fn count(database: &Database) -> i64 {
    let row = database.fetch_optional(sql!("SELECT COUNT(*) FROM things"), &[]).await;
    row.expect("read").expect("a row").int(0).expect("a number")
}

async fn what_is_committed_is_there(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    let mut tx = database.begin().await.expect("begun");
    tx.execute(insert(), &[Value::Int(1)]).await.expect("written");
    assert_eq!(count(&database).await, 0, "nobody sees it before");
    assert_eq!(tx.fetch_all(sql!("SELECT id FROM things"), &[]).await.expect("read").len(), 1);
    tx.commit().await.expect("committed");
    assert_eq!(count(&database).await, 1);
}

async fn what_is_dropped_or_rolled_back_never_was(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    for id in 0..20 {
        let mut tx = database.begin().await.expect("begun");
        tx.execute(insert(), &[Value::Int(id)]).await.expect("written");
        if id % 2 == 0 { drop(tx) } else { tx.rollback().await.expect("rolled back") }
    }
    assert_eq!(count(&database).await, 0);
}

async fn a_failed_statement_cannot_be_committed(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    let mut tx = database.begin().await.expect("begun");
    tx.execute(insert(), &[Value::Int(1)]).await.expect("written");
    tx.execute(insert(), &[Value::Int(1)]).await.expect_err("there already");
    assert!(matches!(tx.commit().await, Err(Error::Broken)));
    assert_eq!(count(&database).await, 0);
}

/// Whoever asks next gets the answer to their own question.
async fn a_cancelled_statement_harms_nobody(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    for number in 0..50 {
        let values = [Value::Int(-1)];
        let asked = database.fetch_optional(sql!("SELECT ? + 0"), &values);
        let brief = std::time::Duration::from_micros(number * 40);
        tokio::time::timeout(brief, asked).await.ok();
        let values = [Value::Int(7)];
        let row = database.fetch_optional(sql!("SELECT ? + 1"), &values).await;
        let row = row.expect("read").expect("a row");
        assert_eq!(row.int(0).expect("a number"), 8);
    }
}

async fn two_who_wait_for_each_other_are_told_so(on: Dialect) {
    // One writer at a time cannot deadlock.
    if on == Dialect::Sqlite {
        return;
    }
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    for id in [1, 2] {
        database.execute(insert(), &[Value::Int(id)]).await.expect("written");
    }
    let update = sql!("UPDATE things SET n = 1 WHERE id = ?");
    let mut one = database.begin().await.expect("begun");
    let mut two = database.begin().await.expect("begun");
    one.execute(update, &[Value::Int(1)]).await.expect("locked");
    two.execute(update, &[Value::Int(2)]).await.expect("locked");
    let first = async {
        let done = one.execute(update, &[Value::Int(2)]).await;
        drop(one);
        done
    };
    let second = async {
        let done = two.execute(update, &[Value::Int(1)]).await;
        drop(two);
        done
    };
    let outcomes: [_; 2] = tokio::join!(first, second).into();
    let failed: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].is_transient() && failed[0].is_outage(), "{failed:?}");
}
