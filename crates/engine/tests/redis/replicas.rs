//! With `wait=1` nothing is said before a replica has it.

use std::time::Duration;

use qiang_core::Outcome;
use qiang_engine::redis::Engine;
use qiang_engine::{Error, LogError};
use qiang_testkit::contract;
use qiang_testkit::servers::redis::{Durability, Options};
use qiang_testkit::servers::{Redis, or_skip};

use crate::asking::Asking as _;
use crate::fixture::{granted, node, open, orders, pool, prefix, view, wish};
use crate::servers::own;

/// A server and its replica, which has everything.
async fn pair() -> Option<(Redis, Redis)> {
    let master = or_skip(Redis::start(&Options::default().with("repl-diskless-sync-delay", "0")))?;
    let replica = own(Durability::None)?;
    let port = master.port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]).expect("it answers");
    let linked = async {
        loop {
            let said = replica.command(&["INFO", "replication"]).expect("it answers").text();
            if said.contains("master_link_status:up") {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), linked).await.expect("it is linked");
    Some((master, replica))
}

#[tokio::test]
async fn nothing_is_said_before_a_replica_has_it() {
    let Some((master, replica)) = pair().await else { return };
    let (url, prefix) = (format!("{}?wait=1&wait_ms=200", master.url()), prefix());
    let (one, other) = (node(&url, &prefix).await, node(&url, &prefix).await);
    let id = pool(1);
    open(&one, id, orders(5)).await;
    let ann = granted(&one, wish(id, "ann")).await;
    let paid = one.pay(contract::money(ann.id, "P")).await;
    assert!(matches!(paid, Ok(Outcome::Done(_))), "{paid:?}");
    view(&other, id).await;
    replica.pause().expect("it stops");
    let bob = || contract::wish(id, "bob", Some("r"));
    assert_eq!(one.claim(bob()).await, Err(Error::OutcomeUnknown));
    // It was granted, but whoever says so rests on what only one server has. That goes for another
    // node, which changes nothing itself, and for looking.
    let (again, seen) = tokio::join!(other.claim(bob()), other.pool(id));
    assert_eq!(again, Err(Error::OutcomeUnknown));
    assert_eq!(seen, Err(Error::OutcomeUnknown));
    replica.resume().expect("it goes on");
    let again = other.claim(bob()).await;
    assert!(matches!(again, Ok(Outcome::Replayed(_))), "{again:?}");
    assert_eq!(view(&one, id).await.claims, 2);
}

/// What a worker carries into the records is never lost by a failover, because it was not carried
/// before a replica had it, whoever wrote it.
#[tokio::test]
async fn p16_what_no_replica_has_is_not_recorded_and_not_counted_on() {
    let Some((master, replica)) = pair().await else { return };
    let prefix = prefix();
    let hasty = node(&master.url(), &prefix).await;
    let url = format!("{}?wait=1&wait_ms=100", master.url());
    let worker = node(&url, &prefix).await;
    let id = pool(1);
    open(&hasty, id, orders(5)).await;
    let partition = worker.partitions_of(id, 1)[0];
    let (events, through) = replicated(&worker, partition, 0).await;
    assert_eq!((events, through), (1, 1));
    replica.pause().expect("it stops");
    granted(&hasty, wish(id, "ann")).await;
    let read = worker.read_log(partition, through, 10).await;
    assert!(matches!(read, Err(LogError::TooFewReplicas)), "{read:?}");
    assert!(worker.claim(wish(id, "ann")).await.is_err());
    assert!(worker.pool(id).await.is_err());
    assert_eq!(worker.known(partition), 1);
    replica.resume().expect("it goes on");
    assert_eq!(replicated(&worker, partition, through).await.0, 1);
}

/// How many events are behind a position, once a replica has them, and where they end.
async fn replicated(engine: &Engine, partition: u16, after: u64) -> (usize, u64) {
    let read = async {
        loop {
            match engine.read_log(partition, after, 10).await {
                Err(LogError::TooFewReplicas) => {}
                read => break read.expect("it can be read"),
            }
        }
    };
    let read = tokio::time::timeout(Duration::from_secs(30), read).await.expect("it catches up");
    (read.0.len(), read.1)
}
