//! A database that goes away is told from an event that cannot be written, and found again when it
//! comes back.

use qiang_core::{Event, Flow};
use qiang_store::{Error, Store};
use qiang_testkit::servers::{self, Mariadb, Postgres, mariadb, postgres};

use crate::fixtures::{Db, Records, granted, opened, terms};

/// Kills a server under a store and starts it again, twice.
async fn goes_on_after_a_restart(
    url: &str,
    kill: impl Fn() -> anyhow::Result<()>,
    restart: impl Fn() -> anyhow::Result<()>,
) {
    let store = Store::open(url).await.expect("opens");
    store.migrate().await.expect("migrates");
    let pool = opened(1, terms(Flow::Instant));
    store.project("records", 0, 1, &[Event::Pool(pool.clone())]).await.expect("written");
    for number in 1..=2 {
        let at = u64::from(number);
        let event = [Event::Claim(granted(&pool, number, "a"))];
        kill().expect("killed");
        let down = store.project("records", at, at + 1, &event).await.expect_err("it is down");
        assert!(down.is_outage() && !down.is_transient(), "{down:?}");
        restart().expect("started again");
        // As a projector does: what failed is tried again from where the records say it is.
        let mut attempts = 0;
        loop {
            match store.project("records", at, at + 1, &event).await {
                Ok(()) => break,
                Err(Error::PositionMoved { found, .. }) if found == at + 1 => break,
                Err(error) => assert!(error.is_outage(), "{error:?}"),
            }
            attempts += 1;
            assert!(attempts < 20, "it has been back for long");
        }
        assert_eq!(store.position("records").await.expect("readable"), at + 1);
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

#[tokio::test]
async fn what_cannot_be_written_is_not_an_outage() {
    let db = Db::new(qiang_sql::Dialect::Sqlite).await;
    let stray = [Event::Claim(granted(&opened(1, terms(Flow::Instant)), 1, "a"))];
    let refused = db.store.project("records", 0, 1, &stray).await.expect_err("no such sale");
    assert!(!refused.is_outage() && !refused.is_transient(), "{refused:?}");
    let moved = db.store.project("records", 7, 8, &[]).await.expect_err("not there");
    assert!(!moved.is_outage(), "{moved:?}");
}
