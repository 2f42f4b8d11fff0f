//! A database that goes away is told from an event that cannot be written, and found again when it
//! comes back.

use qiang_core::{Event, Flow};
use qiang_sql::{Database, Dialect, Limits, on_every_database};
use qiang_store::{Error, RECORDS, Store};
use qiang_testkit::proxy::Proxy;
use qiang_testkit::servers::{self, Mariadb, Postgres, mariadb, postgres};

use crate::fixtures::{Db, Records, granted, opened, terms};

on_every_database!(wherever_the_wire_is_cut_a_batch_is_written_once);

/// Kills a server under a store and starts it again, twice.
async fn goes_on_after_a_restart(
    url: &str,
    kill: impl Fn() -> anyhow::Result<()>,
    restart: impl Fn() -> anyhow::Result<()>,
) {
    let store = Store::open(url).await.expect("opens");
    store.migrate().await.expect("migrates");
    let pool = opened(1, terms(Flow::Instant));
    store.project("embedded", 0, 1, &[Event::Pool(pool.clone())]).await.expect("written");
    for number in 1..=2 {
        let at = u64::from(number);
        let event = [Event::Claim(granted(&pool, number, "a"))];
        kill().expect("killed");
        let down = store.project("embedded", at, at + 1, &event).await.expect_err("it is down");
        assert!(down.is_outage() && !down.is_transient(), "{down:?}");
        restart().expect("started again");
        // As a consumer does: what failed is tried again from where the records say it is.
        let mut attempts = 0;
        loop {
            match store.project("embedded", at, at + 1, &event).await {
                Ok(()) => break,
                Err(Error::PositionMoved { found, .. }) if found == at + 1 => break,
                Err(error) => assert!(error.is_outage(), "{error:?}"),
            }
            attempts += 1;
            assert!(attempts < 20, "it has been back for long");
        }
        assert_eq!(store.position(RECORDS, "embedded").await.expect("readable"), at + 1);
    }
    store.ping().await.expect("answers");
    assert_eq!(Records::of(&store).await.claims.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_that_was_killed_is_found_again() {
    let Some(server) = servers::or_skip(Mariadb::start(&mariadb::Options::default())) else {
        return;
    };
    let url = format!("{}/mysql", server.url());
    goes_on_after_a_restart(&url, || server.kill(), || server.restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_was_killed_is_found_again() {
    let Some(server) = servers::or_skip(Postgres::start(&postgres::Options::default())) else {
        return;
    };
    goes_on_after_a_restart(&server.url(), || server.kill(), || server.restart()).await;
}

/// At every place of the conversation, also between a commit and its answer: the position says what
/// came of it, and the rows are there exactly if it has moved.
async fn wherever_the_wire_is_cut_a_batch_is_written_once(on: Dialect) {
    if on == Dialect::Sqlite {
        return;
    }
    let db = Db::new(on).await;
    let port = db.url.rsplit(':').next().and_then(|rest| rest.split('/').next());
    let proxy = Proxy::start(port.expect("a port").parse().expect("a number")).expect("a proxy");
    let pool = opened(1, terms(Flow::Instant));
    db.store.project("embedded", 0, 1, &[Event::Pool(pool.clone())]).await.expect("written");
    // One connection, so that the same is said each time.
    let limits = Limits { connections: 1, ..Limits::default() };
    let store = Database::open_with(&proxy.url(&db.url), limits).await.expect("opens");
    let store = Store::over(store);
    let claim = |at: u64| granted(&pool, u32::try_from(at).expect("a number"), "a");
    let project =
        async |at: u64| store.project("embedded", at, at + 1, &[Event::Claim(claim(at))]).await;
    let position = async || db.store.position(RECORDS, "embedded").await.expect("readable");

    let (mut unharmed, mut lost, mut written_unseen) = (0, 0, false);
    let mut cut = 0;
    // The first bytes are about the connection; behind the last there is nothing left to cut.
    while unharmed < 5 || lost < 5 {
        // After one that goes through, the connection is warm, and little is said.
        let mut at = position().await;
        while project(at).await.is_err() {
            at = position().await;
        }
        at += 1;
        proxy.cut_after_reply_bytes(cut);
        // An answer to a commit is longer than this.
        cut += 5;
        let outcome = project(at).await;
        proxy.heal().expect("heals");
        let found = position().await;
        let row = db.store.claim(claim(at).id).await.expect("readable");
        assert_eq!(row.is_some(), found == at + 1, "cut after {cut}: {outcome:?}");
        match (outcome, found == at + 1) {
            (Ok(()), true) => unharmed += 1,
            (Err(error), true) if error.is_outage() => (unharmed, written_unseen) = (0, true),
            (Err(error), false) if error.is_outage() => (unharmed, lost) = (0, lost + 1),
            (outcome, moved) => panic!("cut after {cut}: {outcome:?}, moved: {moved}"),
        }
    }
    assert!(written_unseen, "it was never cut between a commit and its answer");
}

#[tokio::test]
async fn what_cannot_be_written_is_not_an_outage() {
    let db = Db::new(Dialect::Sqlite).await;
    let stray = [Event::Claim(granted(&opened(1, terms(Flow::Instant)), 1, "a"))];
    let refused = db.store.project("embedded", 0, 1, &stray).await.expect_err("no such sale");
    assert!(!refused.is_outage() && !refused.is_transient(), "{refused:?}");
    let moved = db.store.project("embedded", 7, 8, &[]).await.expect_err("not there");
    assert!(!moved.is_outage(), "{moved:?}");
}
