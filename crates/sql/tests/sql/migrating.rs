//! Tables come to the shape the binary expects, once, whoever asks and how many at a time.

use qiang_sql::scratch::Scratch;
use qiang_sql::{
    Database, Dialect, Error, Migration, Migrations, Step, Value, on_every_database, sql,
};

on_every_database!(
    what_is_pending_is_applied_once,
    many_migrate_at_once,
    a_newer_database_is_left_alone,
    a_changed_migration_is_refused,
    a_migration_that_fails_can_be_tried_again,
    texts_are_compared_byte_by_byte,
);

const FIRST: Step = Step {
    version: 1,
    name: "names",
    sql: "CREATE TABLE names (name VARCHAR(64) NOT NULL PRIMARY KEY)",
};
const FIRST_MYSQL: Step = Step {
    version: 1,
    name: "names",
    sql: "CREATE TABLE IF NOT EXISTS names (name VARCHAR(64) NOT NULL PRIMARY KEY)
          DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};",
};
const FIRST_POSTGRES: Step = Step {
    version: 1,
    name: "names",
    sql: "CREATE TABLE names (name VARCHAR(64) COLLATE \"C\" NOT NULL PRIMARY KEY)",
};
const SECOND: Step = Step {
    version: 2,
    name: "more",
    sql: "CREATE TABLE more (id BIGINT NOT NULL); CREATE TABLE most (id BIGINT NOT NULL);",
};
const SECOND_MYSQL: Step = Step {
    version: 2,
    name: "more",
    sql: "CREATE TABLE IF NOT EXISTS more (id BIGINT NOT NULL);
          CREATE TABLE IF NOT EXISTS most (id BIGINT NOT NULL);",
};
const BROKEN: Step = Step {
    version: 2,
    name: "more",
    sql: "CREATE TABLE more (id BIGINT NOT NULL); CREATE TABLE no no no;",
};
const OTHER: Step = Step { version: 1, name: "names", sql: "SELECT 1" };

const TABLE: &str = "_test_migrations";
const OLD: Migrations = Migrations {
    table: TABLE,
    sqlite: &[FIRST],
    mysql: &[FIRST_MYSQL],
    postgres: &[FIRST_POSTGRES],
};
const NEW: Migrations = Migrations {
    table: TABLE,
    sqlite: &[FIRST, SECOND],
    mysql: &[FIRST_MYSQL, SECOND_MYSQL],
    postgres: &[FIRST_POSTGRES, SECOND],
};
const FAILING: Migrations = Migrations {
    table: TABLE,
    sqlite: &[FIRST, BROKEN],
    mysql: &[FIRST_MYSQL, BROKEN],
    postgres: &[FIRST_POSTGRES, BROKEN],
};
const CHANGED: Migrations =
    Migrations { table: TABLE, sqlite: &[OTHER], mysql: &[OTHER], postgres: &[OTHER] };

const NAMES: Migration = Migration { version: 1, name: "names" };
const MORE: Migration = Migration { version: 2, name: "more" };

async fn open(scratch: &Scratch) -> Database {
    Database::open(scratch.url()).await.expect("opens")
}

async fn what_is_pending_is_applied_once(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = open(&scratch).await;
    let schema = database.schema(&NEW).await.expect("readable");
    assert_eq!((schema.version, schema.pending), (None, vec![NAMES, MORE]));
    assert_eq!(database.migrate(&OLD).await.expect("migrated"), [NAMES]);
    let schema = database.schema(&NEW).await.expect("readable");
    assert_eq!((schema.version, schema.pending), (Some(1), vec![MORE]));
    assert_eq!(database.migrate(&NEW).await.expect("migrated"), [MORE]);
    assert_eq!(database.migrate(&NEW).await.expect("migrated"), []);
    database.fetch_all(sql!("SELECT id FROM most"), &[]).await.expect("the last table is there");
}

async fn many_migrate_at_once(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let mut migrating = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let database = open(&scratch).await;
        migrating.spawn(async move { database.migrate(&NEW).await });
    }
    let applied = migrating.join_all().await;
    let applied: Vec<Vec<Migration>> =
        applied.into_iter().collect::<Result<_, _>>().expect("nobody fails");
    let all: Vec<Migration> = applied.into_iter().flatten().collect();
    assert_eq!(all, [NAMES, MORE], "each by one");
}

async fn a_newer_database_is_left_alone(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = open(&scratch).await;
    database.migrate(&NEW).await.expect("migrated");
    for refused in [database.schema(&OLD).await.map(drop), database.migrate(&OLD).await.map(drop)] {
        assert!(matches!(refused, Err(Error::NewerDatabase { found: 2, known: 1 })));
    }
}

async fn a_changed_migration_is_refused(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = open(&scratch).await;
    database.migrate(&OLD).await.expect("migrated");
    let refused = database.migrate(&CHANGED).await.expect_err("it was another");
    assert!(matches!(refused, Error::Migrate(_)) && !refused.is_outage(), "{refused:?}");
}

async fn a_migration_that_fails_can_be_tried_again(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = open(&scratch).await;
    for _ in 0..2 {
        let failed = database.migrate(&FAILING).await.expect_err("it is broken");
        assert!(matches!(failed, Error::Migrate(_)) && !failed.is_outage(), "{failed:?}");
    }
    let schema = database.schema(&NEW).await.expect("readable");
    assert!(schema.pending.contains(&MORE) || on == Dialect::MySql, "{schema:?}");
    let done = database.migrate(&NEW).await.expect("mended");
    assert_eq!(done.last(), Some(&MORE));
}

async fn texts_are_compared_byte_by_byte(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = open(&scratch).await;
    database.migrate(&OLD).await.expect("migrated");
    let mut names = ["a", "A", "a ", "á", "b", "ß", "ss", "𠮷", "\u{ffff}", "Z"];
    for name in names {
        let insert = sql!("INSERT INTO names (name) VALUES (?)");
        database.execute(insert, &[Value::Text(name)]).await.expect("each is another");
    }
    let rows = database.fetch_all(sql!("SELECT name FROM names ORDER BY name"), &[]).await;
    let read: Vec<String> =
        rows.expect("read").iter().map(|row| row.text(0).expect("a text").to_owned()).collect();
    names.sort_unstable();
    assert_eq!(read, names);
    let select = sql!("SELECT name FROM names WHERE name = ?");
    assert_eq!(database.fetch_all(select, &["a ".into()]).await.expect("read").len(), 1);
}
