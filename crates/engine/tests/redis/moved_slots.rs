//! A slot that moves to another master in mid-sale takes the sale along.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use qiang_testkit::servers::cluster::{MASTERS, Options};
use qiang_testkit::servers::{Cluster, Redis, or_skip};

use crate::failover::slot_of;
use crate::fixture::{granted, node, open, orders, pool, prefix, wish};
use crate::kills::{audit, load, sells};

/// A slot on its way to the next master, as `redis-cli --cluster reshard` moves it.
pub(crate) struct Move<'a> {
    cluster: &'a Cluster,
    source: &'a Redis,
    target: &'a Redis,
    slot: String,
}

impl<'a> Move<'a> {
    /// The scripts are unknown there.
    pub(crate) fn begin(cluster: &'a Cluster, slot: u16) -> Result<Self> {
        let from = cluster.master_of(slot)?;
        let to = (from + 1) % MASTERS;
        let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
        target.flush_scripts()?;
        let slot = slot.to_string();
        target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)?])?;
        source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)?])?;
        Ok(Self { cluster, source, target, slot })
    }

    /// Keys that have not been moved.
    pub(crate) fn rest(&self) -> Result<Vec<String>> {
        let keys = self.source.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"])?;
        Ok(keys.list().iter().map(|key| key.text()).collect())
    }

    pub(crate) fn take(&self, keys: &[String]) -> Result<()> {
        let port = self.target.port().to_string();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        migrate.extend(keys.iter().map(String::as_str));
        self.source.command(&migrate).map(drop)
    }

    pub(crate) fn end(self) -> Result<()> {
        let target = id(self.target)?;
        for node in [self.target, self.source].into_iter().chain(self.cluster.nodes()) {
            node.command(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &target]).context("told")?;
        }
        Ok(())
    }
}

fn id(node: &Redis) -> Result<String> {
    Ok(node.command(&["CLUSTER", "MYID"])?.text())
}

/// Moves a slot, some keys at a time.
fn reshard(cluster: &Cluster, slot: u16) -> Result<()> {
    let moving = Move::begin(cluster, slot)?;
    loop {
        let mut keys = moving.rest()?;
        keys.truncate(3);
        if keys.is_empty() {
            return moving.end();
        }
        moving.take(&keys)?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p27_a_log_is_read_whole_while_its_slot_moves_key_by_key() {
    let Some(cluster) = or_skip(Cluster::start(&Options::default())) else { return };
    let engine = node(&cluster.url(), &prefix()).await;
    let id = pool(1);
    open(&engine, id, orders(100)).await;
    for user in 0..5 {
        granted(&engine, wish(id, &format!("u{user}"))).await;
    }
    let partition = engine.partitions_of(id, 1)[0];
    let slot = slot_of(&cluster, &engine, id);
    // The log first and what it is checked against last; then the other way round.
    for first in ["log", "meta"] {
        let whole = engine.read_log(partition, 0, 100).await.expect("it can be read");
        let moving = Move::begin(&cluster, slot).expect("it begins");
        let mut keys = moving.rest().expect("it answers");
        keys.sort_by_key(|key| !key.ends_with(first));
        assert!(keys.len() > 3, "{keys:?}");
        for key in keys {
            moving.take(&[key]).expect("it moves");
            let read = engine.read_log(partition, 0, 100).await;
            assert_eq!(read.expect("nothing is lost"), whole);
            assert!(engine.lost().is_empty(), "{:?}", engine.lost());
        }
        moving.end().expect("it ends");
        granted(&engine, wish(id, first)).await;
        let read = engine.read_log(partition, whole.1, 100).await.expect("it can be read");
        assert!(!read.0.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_takes_the_sale_along() {
    let Some(cluster) = or_skip(Cluster::start(&Options::default())) else { return };
    let cluster = Arc::new(cluster);
    let (url, prefix) = (cluster.url(), prefix());
    let nodes = [node(&url, &prefix).await, node(&url, &prefix).await];
    let id = pool(1);
    open(&nodes[0], id, orders(1_000_000)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = load(&nodes, &[id], &stop).await;
    let slot = slot_of(&cluster, &nodes[0], id);
    for _ in 0..3 {
        sells(&nodes[0], id, 50).await;
        let moving = Arc::clone(&cluster);
        let moved = tokio::task::spawn_blocking(move || reshard(&moving, slot));
        moved.await.expect("no panic").expect("it moves");
    }
    sells(&nodes[0], id, 50).await;
    stop.store(true, Ordering::SeqCst);
    let mut told = BTreeMap::new();
    for task in tasks {
        told.extend(task.await.expect("no panic"));
    }
    assert!(nodes.iter().all(|node| node.lost().is_empty()));
    audit(&nodes[1], &[id], &told).await;
}
