//! One master hangs, and so does its replica: the sales of the others know nothing of it.

use std::time::Duration;

use qiang_core::{Event, Flow, PoolId, State};
use qiang_testkit::contract;
use qiang_testkit::servers::cluster::{MASTERS, Options, Replicas};
use qiang_testkit::servers::{Cluster, or_skip, redis};

use crate::asking::Asking as _;
use crate::failover::slot_of;
use crate::fixture::{PARTITIONS, events_in, granted, node, open, orders, pool, prefix, wish};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_deadlines_go_on_beside_a_master_that_hangs() {
    // Otherwise all masters refuse everything when one is gone.
    let node_options = redis::Options::default().with("cluster-require-full-coverage", "no");
    let options = Options { node: node_options, replicas: Replicas::One, ..Default::default() };
    let Some(cluster) = or_skip(Cluster::start(&options)) else { return };
    let engine = node(&cluster.url(), &prefix()).await;
    let master = |id| cluster.master_of(slot_of(&cluster, &engine, id)).expect("it answers");
    let sick = pool(1);
    let healthy: Vec<PoolId> =
        (2..).map(pool).filter(|id| master(*id) != master(sick)).take(8).collect();
    let hung = master(sick);
    for id in healthy.iter().copied().chain([sick]) {
        open(&engine, id, contract::sale(1_000, Flow::Hold { hold_ms: 1, pay_ms: 1 })).await;
    }
    // The one everybody would be asked through.
    let before: Vec<_> = (0..PARTITIONS).map(|p| engine.connection_number(p)).collect();
    assert!(before.iter().all(Option::is_some), "{before:?}");
    for server in [hung, hung + MASTERS] {
        cluster.nodes()[server].pause().expect("it stops");
    }
    let waits = tokio::spawn({
        let engine = engine.clone();
        async move { engine.claim(wish(sick, "nobody answers")).await }
    });
    for round in 0..3 {
        for id in &healthy {
            let claim = granted(&engine, wish(*id, &format!("u{round}"))).await;
            let released = async {
                loop {
                    // Whatever is due with the sick one is not released.
                    let _some = engine.expire_due().await;
                    // A question about the claim would release it by itself.
                    let partition = engine.partitions_of(*id, 1)[0];
                    let released = |event: &Event| matches!(event, Event::Claim(new) if new.id == claim.id && new.state == State::Released);
                    if events_in(&engine, partition).await.iter().any(released) {
                        return;
                    }
                }
            };
            tokio::time::timeout(PATIENCE, released).await.expect("it runs out");
        }
        let ends = engine.ends().await.expect("some answer");
        assert!(ends.iter().any(Option::is_some) && ends.iter().any(Option::is_none), "{ends:?}");
        let positions = engine.positions().await.expect("some answer");
        assert!(positions.iter().zip(ends).all(|(here, end)| end.is_none_or(|end| end == *here)));
        assert_eq!(positions.len(), usize::from(PARTITIONS));
    }
    assert!(waits.await.expect("no panic").is_err());
    assert!(engine.lost().is_empty(), "{:?}", engine.lost());
    for server in [hung, hung + MASTERS] {
        cluster.nodes()[server].resume().expect("it goes on");
    }
    let goes_on = async { while engine.claim(wish(sick, "after")).await.is_err() {} };
    tokio::time::timeout(PATIENCE, goes_on).await.expect("it answers again");
    assert!(engine.lost().is_empty(), "{:?}", engine.lost());
}

#[tokio::test]
async fn a_new_connection_has_another_number() {
    let Some(server) = crate::servers::own(redis::Durability::None) else { return };
    let engine = node(&server.url(), &prefix()).await;
    open(&engine, pool(1), orders(10)).await;
    let mut seen = vec![engine.connection_number(0)];
    server.disconnect_clients().expect("it answers");
    granted(&engine, wish(pool(1), "ann")).await;
    seen.push(engine.connection_number(0));
    engine.drop_connections();
    assert_eq!(engine.connection_number(0), None);
    granted(&engine, wish(pool(1), "bob")).await;
    seen.push(engine.connection_number(0));
    assert!(seen.iter().all(Option::is_some) && seen.is_sorted_by(|a, b| a < b), "{seen:?}");
}
