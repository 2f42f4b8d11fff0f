//! A master of a cluster dies and its replica takes over: either nothing is missing, or it is said.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qiang_core::PoolId;
use qiang_engine::Error;
use qiang_engine::redis::{Engine, hash_tag};
use qiang_testkit::servers::cluster::{Options, PROMOTION_LIMIT, Replicas};
use qiang_testkit::servers::redis::{self, Durability};
use qiang_testkit::servers::{Cluster, cluster, or_skip};

use crate::asking::Asking as _;
use crate::fixture::{claims, granted, node, open, orders, pool, prefix, wish};
use crate::gone_back::is_given_to_nobody;
use crate::kills::{audit, load, sells};

/// The slot of a pool's only partition.
pub(crate) fn slot_of(cluster: &Cluster, engine: &Engine, id: PoolId) -> u16 {
    let partition = engine.partitions_of(id, 1)[0];
    cluster.slot(hash_tag(partition)).expect("it answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_failover_loses_nothing_or_says_so() {
    let node_options = redis::Options { durability: Durability::Always, ..Default::default() };
    let options = Options { node: node_options, replicas: Replicas::One, ..Default::default() };
    let Some(cluster) = or_skip(Cluster::start(&options)) else { return };
    let cluster = Arc::new(cluster);
    let (url, prefix) = (cluster.url(), prefix());
    let nodes = [node(&url, &prefix).await, node(&url, &prefix).await];
    let master = |id| cluster.master_of(slot_of(&cluster, &nodes[0], id)).expect("it answers");
    // Two pools that lie on different masters.
    let one = pool(1);
    let other = (2..).map(pool).find(|id| master(*id) != master(one)).expect("ids never end");
    for id in [one, other] {
        open(&nodes[0], id, orders(100_000)).await;
    }
    dies_under_load(&cluster, &nodes, one).await;
    let fresh = || node(&url, &prefix);
    dies_ahead_of_its_replica(&cluster, &nodes[1], fresh, other).await;
}

/// Replication is not waited for, so a claim may be acknowledged and gone; never unnoticed.
async fn dies_under_load(cluster: &Arc<Cluster>, nodes: &[Engine; 2], id: PoolId) {
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = load(nodes, &[id], &stop).await;
    sells(&nodes[0], id, 200).await;
    let slot = slot_of(cluster, &nodes[0], id);
    let promoted = tokio::task::spawn_blocking({
        let cluster = Arc::clone(cluster);
        move || {
            let old = cluster.master_of(slot)?;
            cluster.nodes()[old].kill()?;
            cluster.wait_for_promotion(slot, old)
        }
    });
    promoted.await.expect("no panic").expect("the replica takes over");
    // Either it sells on, or it says that it does not.
    let goes_on = async {
        for turn in 0.. {
            let claim = nodes[0].claim(wish(id, &format!("after{turn}"))).await;
            if claim.is_ok() || !nodes[0].lost().is_empty() {
                return;
            }
        }
    };
    tokio::time::timeout(PROMOTION_LIMIT, goes_on).await.expect("the new master is found");
    stop.store(true, Ordering::SeqCst);
    let mut told = BTreeMap::new();
    for task in tasks {
        told.extend(task.await.expect("no panic"));
    }
    if nodes.iter().any(|node| !node.lost().is_empty()) {
        return;
    }
    let stored = claims(&nodes[0], id).await;
    assert!(told.len() <= stored.len(), "{} told, {} stored", told.len(), stored.len());
    audit(&nodes[0], &[id], &told).await;
}

/// What only the master had is gone with it, and that is noticed. Until it is, p26: nobody else gets its
/// numbers.
async fn dies_ahead_of_its_replica<F: Future<Output = Engine>>(
    cluster: &Arc<Cluster>,
    engine: &Engine,
    fresh: impl Fn() -> F,
    id: PoolId,
) {
    let ann = granted(engine, wish(id, "ann")).await;
    let slot = slot_of(cluster, engine, id);
    let master = cluster.master_of(slot).expect("it answers");
    let replica = (master + cluster::MASTERS) % (2 * cluster::MASTERS);
    cluster.wait_for_replication(master).expect("it has everything");
    cluster.nodes()[replica].kill().expect("it dies");
    let mut gone = Vec::new();
    for user in 0..5 {
        gone.push(granted(engine, wish(id, &format!("gone{user}"))).await);
    }
    cluster.nodes()[master].kill().expect("it dies");
    let promoted = tokio::task::spawn_blocking({
        let cluster = Arc::clone(cluster);
        move || {
            cluster.nodes()[replica].restart()?;
            cluster.wait_for_promotion(slot, master)
        }
    });
    promoted.await.expect("no panic").expect("the replica takes over");
    // Of a connection that broke nobody knows what it still carried.
    assert!(engine.claim(wish(id, "late")).await.is_err());
    assert_eq!(engine.claim(wish(id, "late")).await, Err(Error::Unavailable));
    let partition = engine.partitions_of(id, 1)[0];
    assert!(engine.lost()[&partition].contains("gone back"), "{:?}", engine.lost());
    is_given_to_nobody(&fresh().await, &gone[0], &[ann]).await;
}
