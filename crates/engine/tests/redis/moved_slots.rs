//! A slot that moves to another master in mid-sale takes the sale along.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use qiang_testkit::servers::cluster::{MASTERS, Options};
use qiang_testkit::servers::{Cluster, or_skip};

use crate::fixture::{node, open, orders, pool, prefix};
use crate::kills::{audit, load, sells};

/// Moves a slot, key by key, as `redis-cli --cluster reshard` does; the scripts there are unknown.
fn reshard(cluster: &Cluster, slot: u16) -> Result<()> {
    let from = cluster.master_of(slot)?;
    let to = (from + 1) % MASTERS;
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
    target.flush_scripts()?;
    let id = |node: usize| cluster.nodes()[node].command(&["CLUSTER", "MYID"]);
    let (source_id, target_id) = (id(from)?.text(), id(to)?.text());
    let (slot, port) = (slot.to_string(), target.port().to_string());
    target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id])?;
    source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id])?;
    loop {
        let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "3"])?;
        let keys: Vec<String> = keys.list().iter().map(|key| key.text()).collect();
        if keys.is_empty() {
            break;
        }
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        migrate.extend(keys.iter().map(String::as_str));
        source.command(&migrate)?;
    }
    for node in [target, source].into_iter().chain(cluster.nodes()) {
        node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).context("told")?;
    }
    Ok(())
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
    let partition = nodes[0].partitions_of(id, 1)[0];
    let slot = cluster.slot(&format!("p{partition}")).expect("it answers");
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
