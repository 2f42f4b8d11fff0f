//! One master of a cluster hangs, and its replica, too: the other masters' sales are sold, recorded
//! and listed all the same.

use qiang_sql::Dialect;
use qiang_testkit::servers::cluster::{self, Cluster, MASTERS, Replicas};
use qiang_testkit::servers::{or_skip, redis};
use serde_json::json;

use crate::crowd::{self, Person, Told};
use crate::redis_lost::key_of;
use crate::shop::{PARTITIONS, Shop, eventually};

/// Which master has a sale.
fn master_of(cluster: &Cluster, shop: &Shop, sale: &str) -> usize {
    let has = |partition: &u16| {
        let key = key_of(shop, *partition, sale);
        let master = cluster.master_of(cluster.slot(&key)?)?;
        let there = cluster.nodes()[master].command(&["EXISTS", &key])?.integer() == Some(1);
        anyhow::Ok(there.then_some(master))
    };
    let found = (0..PARTITIONS).find_map(|partition| has(&partition).expect("it answers"));
    found.expect("it lies somewhere")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_records_of_others_go_on_beside_a_master_that_hangs() {
    // Otherwise all masters refuse everything when one is gone.
    let node = redis::Options::default().with("cluster-require-full-coverage", "no");
    let options = cluster::Options { node, replicas: Replicas::One, ..Default::default() };
    let Some(cluster) = or_skip(Cluster::start(&options)) else { return };
    let Some(shop) = Shop::on(&cluster.url(), Dialect::Postgres).await else { return };
    let nodes = ["api", "worker"].map(|roles| shop.start(roles));
    let door = nodes[0].address;
    let sick = crowd::sale(door, 100, json!({})).await;
    let hung = master_of(&cluster, &shop, &sick);
    let mut healthy = Vec::new();
    while healthy.len() < 3 {
        let sale = crowd::sale(door, 100, json!({})).await;
        if master_of(&cluster, &shop, &sale) != hung {
            healthy.push(sale);
        }
    }
    crowd::recorded(door).await;
    for server in [hung, hung + MASTERS] {
        cluster.nodes()[server].pause().expect("it stops");
    }
    for (place, sale) in healthy.iter().enumerate() {
        let mut buyer = Person::buyer(door, &format!("buyer-{place}"));
        let Told::Granted(claim) = buyer.claim(sale, "k").await else { panic!("it is sold") };
        eventually("the order is listed", async || {
            let listed = buyer.get("/api/v1/orders").await;
            listed.status == 200 && listed.body.to_string().contains(&claim)
        })
        .await;
    }
    for server in [hung, hung + MASTERS] {
        cluster.nodes()[server].resume().expect("it goes on");
    }
    eventually("it sells again", async || {
        matches!(Person::buyer(door, "late").claim(&sick, "k").await, Told::Granted(_))
    })
    .await;
    crowd::recorded(door).await;
    shop.audit_ok();
}
