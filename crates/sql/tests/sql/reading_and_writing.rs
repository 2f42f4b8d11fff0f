//! What goes in comes out again, the same from every database.

use qiang_sql::scratch::Scratch;
use qiang_sql::{Database, Dialect, Existing, Insert, Table, Value, on_every_database, sql};

on_every_database!(
    values_come_back_equal,
    a_column_of_another_type_is_an_error,
    a_null_may_come_first,
    an_update_counts_what_it_found,
    a_known_key_is_a_duplicate,
    many_rows_go_in_at_once,
    the_clock_is_right,
    small_and_unsigned_numbers_are_numbers,
);

pub(crate) async fn database(scratch: &Scratch) -> Database {
    let database = Database::open(scratch.url()).await.expect("opens");
    let create = sql!(
        sqlite: "CREATE TABLE things (id BIGINT NOT NULL PRIMARY KEY, n BIGINT, t TEXT, b BLOB)",
        mysql: "CREATE TABLE things (id BIGINT NOT NULL PRIMARY KEY, n BIGINT, t TEXT, b BLOB)
                DEFAULT CHARACTER SET utf8mb4",
        postgres: "CREATE TABLE things (id BIGINT NOT NULL PRIMARY KEY, n BIGINT, t TEXT, b BYTEA)",
    );
    database.execute(create, &[]).await.expect("created");
    database
}

async fn values_come_back_equal(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    let shared = "shared 中文 😀 ' ? $1".into();
    let rows: [(i64, Value<'_>, Value<'_>, Value<'_>); 4] = [
        (1, Value::Int(i64::MIN), Value::Text(""), Value::Bytes(&[])),
        (2, Value::Int(i64::MAX), Value::Text("a \\ 'b' {now}"), Value::Bytes(&[0, 255, 39])),
        (3, Value::Null, Value::Null, Value::Null),
        (4, Value::Int(0), Value::Shared(&shared), Value::Null),
    ];
    for (id, n, t, b) in rows {
        let insert = sql!("INSERT INTO things (id, n, t, b) VALUES (?, ?, ?, ?)");
        assert_eq!(database.execute(insert, &[id.into(), n, t, b]).await.expect("written"), 1);
    }
    let select = sql!("SELECT id, n, t, b FROM things ORDER BY id");
    let read = database.fetch_all(select, &[]).await.expect("read");
    assert_eq!(read.len(), rows.len());
    for (row, (id, n, t, b)) in read.iter().zip(rows) {
        assert_eq!(row.int(0).expect("a number"), id);
        assert_eq!(Value::from(row.int_or_null(1).expect("a number")), n);
        let text = row.text_or_null(2).expect("a text");
        assert_eq!(text, if let Value::Shared(t) = t { Some(&**t) } else { text });
        if !matches!(t, Value::Shared(_)) {
            assert_eq!(Value::from(text), t);
        }
        assert_eq!(Value::from(row.bytes_or_null(3).expect("bytes")), b);
    }
}

async fn a_column_of_another_type_is_an_error(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    let row = database.fetch_optional(sql!("SELECT 'text' AS word, 1 AS number"), &[]).await;
    let row = row.expect("read").expect("a row");
    let bad = row.int(0).expect_err("not a number");
    assert_eq!((bad.column.as_str(), bad.expected), ("word", "a number"));
    assert!(row.text(1).is_err());
    assert!(row.int(2).is_err(), "there is no such column");
    assert_eq!(row.name(2), "?");
    let row = database.fetch_optional(sql!("SELECT n FROM things"), &[]).await.expect("read");
    assert!(row.is_none());
    let nothing = database.fetch_optional(sql!("SELECT MAX(n) AS top FROM things"), &[]).await;
    let nothing = nothing.expect("read").expect("a row");
    assert_eq!(nothing.int_or_null(0).expect("NULL"), None);
    assert_eq!(nothing.int(0).expect_err("NULL").column, "top");
}

/// PostgreSQL keeps the types a prepared statement was first used with.
async fn a_null_may_come_first(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    let mut tx = database.begin().await.expect("begun");
    for (id, n, t) in [(1, None, None), (2, Some(7), Some("seven")), (3, None, None)] {
        let insert = sql!("INSERT INTO things (id, n, t) VALUES (?, ?, ?)");
        let values: [Value<'_>; 3] = [Value::Int(id), n.map(Value::Int).into(), t.into()];
        tx.execute(insert, &values).await.expect("written");
    }
    for (n, expected) in [(Value::Null, 0), (Value::Int(7), 1), (Value::Null, 0)] {
        let select = sql!("SELECT COUNT(*) FROM things WHERE n = ?");
        let row = tx.fetch_optional(select, &[n]).await.expect("read").expect("a row");
        assert_eq!(row.int(0).expect("a number"), expected);
    }
    tx.commit().await.expect("committed");
}

async fn an_update_counts_what_it_found(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    database.execute(sql!("INSERT INTO things (id, n) VALUES (1, 5)"), &[]).await.expect("written");
    let update = sql!("UPDATE things SET n = ? WHERE id = ? AND n = ?");
    let run = async |to: i64, id: i64, from: i64| {
        database.execute(update, &[to.into(), id.into(), from.into()]).await.expect("run")
    };
    assert_eq!(run(5, 1, 5).await, 1, "the same value counts");
    assert_eq!(run(6, 1, 5).await, 1);
    assert_eq!(run(7, 1, 5).await, 0);
    assert_eq!(run(7, 2, 6).await, 0);
}

async fn a_known_key_is_a_duplicate(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    let insert = sql!("INSERT INTO things (id) VALUES (?)");
    database.execute(insert, &[Value::Int(1)]).await.expect("written");
    let error = database.execute(insert, &[Value::Int(1)]).await.expect_err("there already");
    assert!(error.is_duplicate() && !error.is_outage() && !error.is_transient(), "{error:?}");
    let missing = database.fetch_all(sql!("SELECT * FROM nowhere"), &[]).await;
    let missing = missing.expect_err("no such table");
    assert!(!missing.is_duplicate() && !missing.is_outage(), "{missing:?}");
    let id = Value::Null;
    let null = database.execute(insert, &[id]).await.expect_err("a key is not NULL");
    assert!(!null.is_duplicate() && !null.is_outage(), "{null:?}");
}

async fn many_rows_go_in_at_once(on: Dialect) {
    static THINGS: Table =
        Table { name: "versions", key: "id", fixed: "", changing: "version, word" };
    static UPSERT: Insert = Insert::new(&THINGS, Existing::YieldsToNewer);
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    let create = sql!(
        "CREATE TABLE versions (id BIGINT NOT NULL PRIMARY KEY, version BIGINT, word VARCHAR(9))"
    );
    database.execute(create, &[]).await.expect("created");
    let upsert = async |rows: &[(i64, i64)], text: &str| {
        let mut tx = database.begin().await.expect("begun");
        let bind = |params: &mut qiang_sql::Params, row: &(i64, i64)| {
            params.add(row.0).add(row.1).add(text);
        };
        UPSERT.run(&mut tx, rows, bind).await.expect("written");
        tx.commit().await.expect("committed");
    };
    let rows: Vec<(i64, i64)> = (1..=1_111).map(|id| (id, 10)).collect();
    upsert(&rows, "first").await;
    let mixed: Vec<(i64, i64)> =
        (1..=1_111).map(|id| (id, if id % 2 == 0 { 11 } else { 9 })).collect();
    upsert(&mixed, "second").await;
    let count =
        sql!("SELECT COUNT(*), CAST(SUM(version) AS DECIMAL(20)) FROM versions WHERE word = ?");
    for (text, expected) in [("first", 556), ("second", 555)] {
        let row = database.fetch_optional(count, &[text.into()]).await.expect("read");
        assert_eq!(row.expect("a row").int(0).expect("a number"), expected, "{text}");
    }
}

async fn the_clock_is_right(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    #[expect(clippy::disallowed_methods, reason = "the database's clock is compared with ours")]
    let now = std::time::SystemTime::now();
    let ours = now.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis();
    let theirs = database.now_ms().await.expect("a clock");
    let ours = i64::try_from(ours).expect("fits");
    assert!((theirs - ours).abs() < 10_000, "{theirs} is not about {ours}");
    let later = database.now_ms().await.expect("a clock");
    assert!(later >= theirs);
}

async fn small_and_unsigned_numbers_are_numbers(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    let select = sql!(
        sqlite: "SELECT 1, 2, 1 = 1",
        mysql: "SELECT CAST(1 AS SIGNED), CAST(2 AS UNSIGNED), 1 = 1",
        postgres: "SELECT CAST(1 AS SMALLINT), CAST(2 AS INT), 1 = 1",
    );
    let row = database.fetch_optional(select, &[]).await.expect("read").expect("a row");
    let numbers = [0, 1, 2].map(|column| row.int(column).expect("a number"));
    assert_eq!(numbers, [1, 2, 1]);
}
