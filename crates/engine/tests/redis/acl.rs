//! A user of Redis who may do no more than `docs/OPERATING.md` says.

use qiang_engine::redis::Engine;
use qiang_testkit::contract::money;
use qiang_testkit::servers::redis::Durability;
use qiang_testkit::servers::{Cluster, Redis, cluster, or_skip};

use crate::asking::Asking as _;
use crate::failover::slot_of;
use crate::fixture::{claims, events_in, granted, node, open, orders, pool, prefix, wish};
use crate::moved_slots::begin;
use crate::servers::own;

/// Makes the user of the handbook, for another prefix.
fn allow(server: &Redis, prefix: &str) {
    let handbook = include_str!("../../../../docs/OPERATING.md");
    let rules = handbook.lines().find(|line| line.starts_with("ACL SETUSER qiang "));
    let rules = rules.expect("the handbook says it").replace("~qiang:*", &format!("~{prefix}:*"));
    let rules: Vec<&str> = rules.split_whitespace().collect();
    server.command(&rules).expect("it knows users");
}

fn as_that_user(url: &str) -> String {
    url.replace("://", "://qiang:PASSWORD@")
}

async fn does_everything(engine: &Engine) {
    open(engine, pool(1), orders(10)).await;
    let claim = granted(engine, wish(pool(1), "ann")).await;
    engine.pay(money(claim.id, "p1")).await.expect("it is paid");
    engine.expire_due().await.expect("it can be asked");
    engine.finish_transfers().await.expect("it can be asked");
    assert_eq!(claims(engine, pool(1)).await.len(), 1);
    let partition = engine.partitions_of(pool(1), 1)[0];
    assert!(!events_in(engine, partition).await.is_empty());
    engine.trim(partition, 1).await.expect("it can be trimmed");
    engine.close(pool(1)).await.expect("it can be closed");
    engine.clear(pool(1)).await.expect("it can be asked");
}

/// What was asked for and not allowed.
fn denied(server: &Redis) -> usize {
    server.command(&["ACL", "LOG"]).expect("it answers").list().len()
}

#[tokio::test]
async fn the_user_of_the_handbook_can_do_everything() {
    let Some(server) = own(Durability::None) else { return };
    let prefix = prefix();
    allow(&server, &prefix);
    let engine = node(&format!("{}?wait=0", as_that_user(&server.url())), &prefix).await;
    does_everything(&engine).await;
    assert_eq!(denied(&server), 0);
}

#[tokio::test]
async fn the_user_of_the_handbook_can_do_everything_in_a_cluster() {
    let Some(cluster) = or_skip(Cluster::start(&cluster::Options::default())) else { return };
    let prefix = prefix();
    cluster.nodes().iter().for_each(|server| allow(server, &prefix));
    let engine = node(&as_that_user(&cluster.url()), &prefix).await;
    does_everything(&engine).await;
    // A slot that moves is asked for at its target.
    let moving = begin(&cluster, slot_of(&cluster, &engine, pool(1))).expect("it begins");
    moving.take(&moving.rest().expect("it answers")).expect("it moves");
    let partition = engine.partitions_of(pool(1), 1)[0];
    assert!(!events_in(&engine, partition).await.is_empty());
    moving.end().expect("it ends");
    assert!(cluster.nodes().iter().all(|server| denied(server) == 0));
}
