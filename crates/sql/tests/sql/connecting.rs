//! Each cause of "no connection" is told apart, without the password; and a server that comes
//! back is found again.

use std::time::Duration;

use qiang_sql::scratch::{Scratch, available};
use qiang_sql::{Database, Dialect, Error, Limits, Value, on_every_database, sql};
use qiang_testkit::proxy::Proxy;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::net::TcpListener;

use crate::reading_and_writing::database;

on_every_database!(a_restarted_server_is_found_again, nothing_answers_after_closing);

const SERVERS: [Dialect; 2] = [Dialect::MySql, Dialect::Postgres];

/// A URL in parts: scheme, user, address, database.
fn parts(url: &str) -> [String; 4] {
    let (scheme, rest) = url.split_once("://").expect("a server's URL");
    let (user, rest) = rest.split_once('@').expect("a user");
    let (address, database) = rest.split_once('/').expect("a database");
    [scheme, user, address, database].map(str::to_owned)
}

async fn error(url: &str) -> Error {
    let error = Database::open(url).await.expect_err(url);
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    error
}

#[tokio::test]
async fn nobody_there() {
    for dialect in SERVERS {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let error = error(&format!("{dialect}://u:s3cret@{address}/q")).await;
        assert!(
            matches!(&error, Error::Unreachable { server, .. } if **server == address.to_string())
        );
        assert!(error.is_outage());
    }
}

#[tokio::test]
async fn no_such_user_and_no_such_database() {
    for dialect in SERVERS.into_iter().filter(|dialect| available(*dialect)) {
        let scratch = Scratch::new(dialect).await;
        let [scheme, user, address, _] = parts(scratch.url());
        let wrong = error(&format!("{scheme}://nobody_known:s3cret@{address}/q")).await;
        assert!(matches!(wrong, Error::WrongPassword { .. }), "{wrong:?}");
        let missing = error(&format!("{scheme}://{user}@{address}/no_such_database")).await;
        assert!(matches!(missing, Error::UnknownDatabase { .. }), "{missing:?}");
    }
}

/// Making it a file with a write-ahead log is a write, and of two that come for it at once SQLite
/// tells one that the file is locked, however long that one would wait.
#[tokio::test]
async fn a_new_file_that_another_writes() {
    let scratch = Scratch::new(Dialect::Sqlite).await;
    let options: SqliteConnectOptions = scratch.url().parse().expect("a URL");
    let mut other = options.create_if_missing(true).connect().await.expect("a new file");
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.expect("nobody else is there");
    let url = scratch.url().to_owned();
    let mut opening = tokio::spawn(async move { Database::open(&url).await });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut opening).await;
    assert!(early.is_err(), "it did not wait: {early:?}");
    sqlx::raw_sql("COMMIT").execute(&mut other).await.expect("written");
    opening.await.expect("no panic").expect("opened").ping().await.expect("it answers");
}

#[tokio::test]
async fn a_file_where_none_can_be() {
    let folder = error("sqlite:/nowhere/at/all/q.db").await;
    assert!(matches!(folder, Error::NoFolder { .. }), "{folder:?}");
    let file = error("sqlite:/proc/q.db").await;
    assert!(matches!(file, Error::Open { .. }), "{file:?}");
}

#[tokio::test]
async fn a_database_does_not_show_its_password() {
    for dialect in SERVERS.into_iter().filter(|dialect| available(*dialect)) {
        let scratch = Scratch::new(dialect).await;
        let [scheme, user, address, name] = parts(scratch.url());
        let user = user.split(':').next().unwrap_or(&user);
        // Where no password is asked for, any will do.
        let url = format!("{scheme}://{user}:s3cret@{address}/{name}");
        if let Ok(database) = Database::open(&url).await {
            assert!(!format!("{database:?} {}", database.name()).contains("s3cret"));
        }
    }
}

async fn nothing_answers_after_closing(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = database(&scratch).await;
    database.ping().await.expect("answers");
    database.close().await;
    let closed = database.ping().await.expect_err("it is closed");
    assert!(!closed.is_outage(), "waiting for it would be in vain: {closed:?}");
    assert!(database.begin().await.is_err());
}

async fn a_restarted_server_is_found_again(on: Dialect) {
    if on == Dialect::Sqlite {
        return;
    }
    let scratch = Scratch::new(on).await;
    database(&scratch).await.close().await;
    let [_, _, address, _] = parts(scratch.url());
    let (_, port) = address.rsplit_once(':').expect("a port");
    let proxy = Proxy::start(port.parse().expect("a number")).expect("a proxy");

    let limits = Limits { connections: 3, patience: Duration::from_millis(300) };
    let url = proxy.url(scratch.url());
    let database = Database::open_with(&url, limits).await.expect("opens");
    for _ in 0..3 {
        let mut tx = database.begin().await.expect("begun");
        tx.execute(sql!("INSERT INTO things (id) VALUES (?)"), &[Value::Int(1)]).await.expect("ok");
        proxy.refuse().expect("refuses");
        proxy.cut();
        let cut = tx.commit().await.expect_err("the wire is cut");
        assert!(cut.is_outage(), "{cut:?}");
        for _ in 0..2 {
            let down = database.ping().await.expect_err("the wire is cut");
            assert!(down.is_outage() && !down.is_transient(), "{down:?}");
        }
        proxy.heal().expect("heals");
        // Connections that were in the pool are dead and young; each may fail once.
        let mut attempts = 0;
        while let Err(error) = database.ping().await {
            assert!(error.is_outage(), "{error:?}");
            attempts += 1;
            assert!(attempts <= limits.connections, "{error:?}");
        }
        let rows = database.fetch_all(sql!("SELECT id FROM things"), &[]).await.expect("answers");
        assert!(rows.is_empty(), "what was not committed never was");
    }
}
