//! Migrations run once, and a database from the future is left alone.

use qiang_store::{Error, Store};

use crate::fixtures::{Db, Records};

#[tokio::test]
async fn migrating_twice_does_nothing_the_second_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite:{}", folder.path().join("records.db").display());
    let store = Store::open(&url).await.expect("opens");
    let before = store.schema().await.expect("readable");
    assert_eq!(before.version, None);
    assert_eq!(store.migrate().await.expect("migrates"), before.pending);
    assert!(!before.pending.is_empty());

    assert_eq!(store.migrate().await.expect("migrates again"), []);
    let after = store.schema().await.expect("readable");
    assert_eq!(after.version, before.pending.last().map(|migration| migration.version));
    assert_eq!(after.pending, []);

    let again = Store::open(&url).await.expect("opens again");
    assert_eq!(again.migrate().await.expect("migrates"), []);
    assert_eq!(Records::of(&again).await.sales, []);
}

#[tokio::test]
async fn a_newer_database_is_refused() {
    let db = Db::new().await;
    db.tamper(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (4711, 'from the future', TRUE, x'00', 0)",
    )
    .await;
    for refused in [db.store.migrate().await.err(), db.store.schema().await.err()] {
        let refused = refused.expect("refused");
        assert!(matches!(refused, Error::NewerDatabase { found: 4711, .. }));
        let text = refused.to_string();
        assert!(text.contains("made by a newer qiang") && text.contains("4711"), "{text}");
    }
}

#[tokio::test]
async fn a_changed_migration_is_refused() {
    let db = Db::new().await;
    db.tamper("UPDATE _sqlx_migrations SET checksum = x'00'").await;
    assert!(matches!(db.store.migrate().await, Err(Error::Migrate(_))));
}
