//! A master of a Redis Cluster that dies in the middle of a sale, and a replica in its place.

use std::net::SocketAddr;

use qiang_engine::redis::hash_tag;
use qiang_sql::Dialect;
use qiang_testkit::servers::{Cluster, cluster, or_skip};
use serde_json::json;

use crate::crowd::{self, Asking, Crowd, Person, Tales, Told, audit, check, granted, others};
use crate::shop::{Shop, eventually};

const STOCK: u32 = 100;
const CROWD: u32 = 400;

fn cluster() -> Option<Cluster> {
    let replicas = cluster::Replicas::One;
    or_skip(Cluster::start(&cluster::Options { replicas, ..Default::default() }))
}

/// In every partition one sale at least, most probably.
async fn sales(door: SocketAddr) -> Vec<String> {
    let mut sales = Vec::new();
    for _ in 0..8 {
        sales.push(crowd::sale(door, STOCK, json!({})).await);
    }
    sales
}

/// Kills the master of the first partition; returns when a replica has its place and the one that
/// was killed follows it.
fn fail_over(cluster: &Cluster) {
    let slot = cluster.slot(hash_tag(0)).expect("a slot");
    let master = cluster.master_of(slot).expect("a master");
    cluster.nodes()[master].kill().expect("it runs");
    let promoted = cluster.wait_for_promotion(slot, master).expect("a replica");
    cluster.nodes()[master].restart().expect("it starts");
    cluster.wait_for_replication(promoted).expect("it follows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_what_a_replica_had_to_confirm_survives_the_master() {
    let Some(cluster) = cluster() else { return };
    let Some(shop) = Shop::on(&cluster.url(), Dialect::Postgres).await else { return };
    let shop = shop.waiting_for_replicas(1);
    let nodes = ["api", "api", "worker"].map(|roles| shop.start(roles));
    let doors = [nodes[0].address, nodes[1].address];
    let sales = sales(doors[0]).await;
    let crowd = Crowd::rush(&doors, &sales, 0..CROWD, Asking::UntilAnswered);
    crowd.told(100).await;
    fail_over(&cluster);
    let tales = crowd.end().await;
    assert_eq!(granted(&tales).len(), CROWD as usize, "{:?}", others(&tales));
    for sale in &sales {
        check(&doors, sale, STOCK, "ordered", &tales).await;
    }
    audit(doors[1]).await;
    shop.audit_ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_what_a_failover_lost_is_said_and_put_right() {
    let Some(cluster) = cluster() else { return };
    let Some(shop) = Shop::on(&cluster.url(), Dialect::MySql).await else { return };
    let (node, _worker) = (shop.start("api"), shop.start("worker"));
    let door = node.address;
    let sales = sales(door).await;
    let crowd = Crowd::rush(&[door], &sales, 0..CROWD, Asking::UntilAnswered);
    crowd.told(100).await;
    fail_over(&cluster);
    // Whoever claims finds out; what is lost stays closed until it was put right.
    let mut lost = false;
    for (place, sale) in sales.iter().enumerate() {
        let scout = format!("scout-{place}");
        eventually("the sale goes on, or was repaired", async || {
            let told = Person::buyer(door, &scout).claim(sale, &scout).await;
            if Person::admin(door).get("/readyz").await.body["engine_problem"] == "lost" {
                lost = true;
                let ended = shop.audit(&["--repair"]);
                assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            }
            !matches!(told, Told::Nothing(_))
        })
        .await;
    }
    let tales = crowd.end().await;
    // It was asked until there was an answer, and there is stock for all.
    assert_eq!(granted(&tales).len(), CROWD as usize, "{:?}", others(&tales));
    crowd::recorded(door).await;
    let missing = missing(door, &tales).await;
    assert!(lost || missing.is_empty(), "lost and not said: {missing:?}");
    for sale in &sales {
        let view = Person::admin(door).get(&format!("/api/v1/sales/{sale}")).await.ok(200);
        let sold = view["ordered"].as_u64().expect("a count");
        assert!(sold <= u64::from(STOCK) && view["available"] == u64::from(STOCK) - sold, "{view}");
    }
    audit(door).await;
    shop.audit_ok();
}

/// Claims that were acknowledged and are not there, or are somebody else's.
async fn missing(door: SocketAddr, tales: &Tales) -> Vec<String> {
    let mut missing = Vec::new();
    for (user, claim) in granted(tales) {
        let answer = Person::buyer(door, user).get(&format!("/api/v1/claims/{claim}")).await;
        if answer.status != 200 {
            missing.push(claim.to_owned());
        }
    }
    missing
}
