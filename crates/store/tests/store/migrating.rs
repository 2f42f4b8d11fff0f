//! Migrations run once, and a database from the future is left alone.

use qiang_sql::scratch::{Scratch, available};
use qiang_sql::{Database, Dialect, Migrations, Step, Value, on_every_database, sql};
use qiang_store::{Error, Migration, RECORDS, Store};

use crate::fixtures::{Db, Records, pool_id};

on_every_database!(
    positions_become_those_of_the_records,
    migrating_twice_does_nothing_the_second_time,
    a_newer_database_is_refused,
    a_changed_migration_is_refused,
    many_nodes_migrate_at_once,
);

async fn migrating_twice_does_nothing_the_second_time(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let store = Store::open(scratch.url()).await.expect("opens");
    let before = store.schema().await.expect("readable");
    assert_eq!(before.version, None);
    assert_eq!(store.migrate().await.expect("migrates"), before.pending);
    assert!(!before.pending.is_empty());

    assert_eq!(store.migrate().await.expect("migrates again"), []);
    let after = store.schema().await.expect("readable");
    assert_eq!(after.version, before.pending.last().map(|migration| migration.version));
    assert_eq!(after.pending, []);

    let again = Store::open(scratch.url()).await.expect("opens again");
    assert_eq!(again.migrate().await.expect("migrates"), []);
    assert_eq!(Records::of(&again).await.sales, []);
}

async fn a_newer_database_is_refused(on: Dialect) {
    let db = Db::new(on).await;
    db.tamper(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (4711, 'from the future', TRUE, ?, 0)",
        &[Value::Bytes(&[0])],
    )
    .await;
    for refused in [db.store.migrate().await.err(), db.store.schema().await.err()] {
        let refused = refused.expect("refused");
        assert!(matches!(
            refused,
            Error::Open(qiang_sql::Error::NewerDatabase { found: 4711, .. })
        ));
        let text = refused.to_string();
        assert!(text.contains("made by a newer qiang") && text.contains("4711"), "{text}");
    }
}

async fn a_changed_migration_is_refused(on: Dialect) {
    let db = Db::new(on).await;
    db.tamper("UPDATE _sqlx_migrations SET checksum = ?", &[Value::Bytes(&[0])]).await;
    let refused = db.store.migrate().await.expect_err("refused");
    assert!(matches!(refused, Error::Open(qiang_sql::Error::Migrate(_))), "{refused:?}");
    assert!(!refused.is_outage());
}

/// Files of the first release are brought up to date with what is in them.
#[tokio::test]
async fn a_file_of_the_first_release_keeps_its_records() {
    const FIRST: Migrations = Migrations {
        table: "_sqlx_migrations",
        sqlite: &[Step {
            version: 1,
            name: "records",
            sql: include_str!("../../migrations/sqlite/0001_records.sql"),
        }],
        mysql: &[],
        postgres: &[],
    };
    let scratch = Scratch::new(Dialect::Sqlite).await;
    let database = Database::open(scratch.url()).await.expect("opens");
    database.migrate(&FIRST).await.expect("migrates");
    let insert = sql!(
        "INSERT INTO sales (id, version, state, title, sku, units, limit_per_user, limit_by,
            price_cents, price_steps, opens_at, flow, reclaim, total, changed_at)
         VALUES (1, 1, 'open', 'Tea', 'T', 5, 1, 'user', 100, '[]', 0, 'instant', 'never', 5, 0)"
    );
    database.execute(insert, &[]).await.expect("written");
    database.close().await;

    let store = Store::open(scratch.url()).await.expect("opens");
    let pending = store.schema().await.expect("readable").pending;
    assert_eq!(pending, Migration::all()[1..]);
    assert_eq!(store.migrate().await.expect("migrates"), pending);
    let sale = store.sale(pool_id(1)).await.expect("readable").expect("kept");
    assert_eq!((sale.terms.title.as_str(), sale.terms.buckets), ("Tea", 1));
}

/// What the records have had before there were several consumers, they have had after.
async fn positions_become_those_of_the_records(on: Dialect) {
    macro_rules! step {
        ($version:literal, $file:literal) => {
            Step {
                version: $version,
                name: "",
                sql: include_str!(concat!("../../migrations/", $file)),
            }
        };
    }
    const BEFORE: Migrations = Migrations {
        table: "_sqlx_migrations",
        sqlite: &[
            step!(1, "sqlite/0001_records.sql"),
            step!(2, "sqlite/0002_leases.sql"),
            step!(3, "sqlite/0003_reviews.sql"),
        ],
        mysql: &[step!(2, "mysql/0002_records.sql"), step!(3, "mysql/0003_reviews.sql")],
        postgres: &[step!(2, "postgres/0002_records.sql"), step!(3, "postgres/0003_reviews.sql")],
    };
    let scratch = Scratch::new(on).await;
    let database = Database::open(scratch.url()).await.expect("opens");
    database.migrate(&BEFORE).await.expect("migrates");
    let insert = sql!(
        "INSERT INTO positions (consumer, seq) VALUES ('records', 7), ('redis/12', 8), ('sql/0', 9)"
    );
    database.execute(insert, &[]).await.expect("written");
    database.close().await;

    let store = Store::open(scratch.url()).await.expect("opens");
    store.migrate().await.expect("migrates");
    let expected = [("embedded", 7), ("redis/12", 8), ("sql/0", 9)];
    let expected = expected.map(|(log, seq)| (log.to_owned(), seq));
    assert_eq!(store.positions(RECORDS).await.expect("readable"), expected);
    assert_eq!(store.consumers().await.expect("readable"), [RECORDS]);
    store.project("embedded", 7, 8, &[]).await.expect("it goes on from there");

    // MySQL commits each step by itself: one that was cut off at its very end is run again.
    if on == Dialect::MySql {
        let database = Database::open(scratch.url()).await.expect("opens");
        let cut_off = sql!("DELETE FROM _sqlx_migrations WHERE version >= 4");
        database.execute(cut_off, &[]).await.expect("deleted");
        assert!(!store.migrate().await.expect("migrates again").is_empty());
        assert_eq!(store.position(RECORDS, "embedded").await.expect("readable"), 8);
        assert_eq!(store.consumers().await.expect("readable"), [RECORDS]);
    }
}

/// One version is one shape, wherever it is.
#[tokio::test]
async fn all_databases_are_at_the_same_version() {
    for on in Dialect::ALL.into_iter().filter(|on| available(*on)) {
        let db = Db::new(on).await;
        let version = db.store.schema().await.expect("readable").version;
        assert_eq!(version, Migration::all().last().map(|last| last.version), "{on}");
    }
}

/// Nodes of a new version start at the same time.
async fn many_nodes_migrate_at_once(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let store = Store::open(scratch.url()).await.expect("opens");
        nodes.spawn(async move { store.migrate().await.expect("migrates").len() });
    }
    let applied: Vec<usize> = nodes.join_all().await;
    assert_eq!(applied.iter().filter(|applied| **applied > 0).count(), 1, "{applied:?}");
}
