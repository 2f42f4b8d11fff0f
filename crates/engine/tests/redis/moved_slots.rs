//! A slot that moves to another master in mid-sale takes the sale along.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use qiang_testkit::servers::cluster::{MASTERS, Move, Options};
use qiang_testkit::servers::{Cluster, or_skip};

use crate::failover::slot_of;
use crate::fixture::{granted, node, open, orders, pool, prefix, wish};
use crate::kills::{audit, load, sells};

/// A slot on its way to the next master.
pub(crate) fn begin(cluster: &Cluster, slot: u16) -> Result<Move<'_>> {
    Move::begin(cluster, slot, (cluster.master_of(slot)? + 1) % MASTERS)
}

fn reshard(cluster: &Cluster, slot: u16) -> Result<()> {
    cluster.move_slot(slot, (cluster.master_of(slot)? + 1) % MASTERS)
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
        let moving = begin(&cluster, slot).expect("it begins");
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
