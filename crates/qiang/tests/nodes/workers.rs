//! Logs are carried by whoever is there: a worker that dies is followed by another, and one that
//! comes back late does no harm.

use qiang_sql::Dialect;
use qiang_testkit::servers::shared;
use serde_json::{Value, json};

use crate::crowd::{self, Asking, Crowd, Person, audit, check, recorded};
use crate::shop::{Node, PARTITIONS, Shop, eventually};

const STOCK: u32 = 300;

/// A door, and two workers that have shared the logs.
async fn shared_out(shop: &Shop) -> (Node, Node, Node) {
    let nodes = (shop.start("api"), shop.start("worker"), shop.start("worker"));
    carried_by(shop, 2).await;
    nodes
}

async fn carried_by(shop: &Shop, workers: usize) {
    eventually(&format!("all logs are carried, by {workers}"), async || {
        shop.carried().await == (PARTITIONS.into(), workers)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_killed_is_followed_by_the_other() {
    let Some(redis) = shared::redis() else { return };
    let Some(shop) = Shop::on(&redis, Dialect::Postgres).await else { return };
    let (door, mut first, _second) = shared_out(&shop).await;
    let shown = Person::admin(door.address).get("/api/v1/admin/nodes").await.body;
    let nodes = shown["nodes"].as_array().expect("a list");
    let logs = |node: &Value| node["logs"].as_array().expect("a list").len();
    assert_eq!(nodes.len(), 3, "{shown}");
    assert_eq!(nodes.iter().map(logs).sum::<usize>(), usize::from(PARTITIONS), "{shown}");
    let answering: Vec<_> = nodes.iter().filter(|node| node["answers"] == true).collect();
    assert!(answering.len() == 1 && logs(answering[0]) == 0, "{shown}");
    let sales = sales(&door).await;
    let crowd = Crowd::rush(&[door.address], &sales, 0..200, Asking::Once);
    crowd.told(80).await;
    first.kill();
    let mut tales = crowd.end().await;
    carried_by(&shop, 1).await;
    recorded(door.address).await;
    tales.extend(Crowd::rush(&[door.address], &sales, 200..240, Asking::Once).end().await);
    recorded(door.address).await;
    for sale in &sales {
        check(&[door.address], sale, STOCK, "ordered", &tales).await;
    }
    audit(door.address).await;
    shop.audit_ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_slept_through_its_lease_does_no_harm() {
    let Some(redis) = shared::redis() else { return };
    let Some(shop) = Shop::on(&redis, Dialect::MySql).await else { return };
    let (door, first, _second) = shared_out(&shop).await;
    let sales = sales(&door).await;
    let crowd = Crowd::rush(&[door.address], &sales, 0..200, Asking::Once);
    crowd.told(80).await;
    first.pause();
    let mut tales = crowd.end().await;
    // It may sleep in the middle of a transaction, whose locks the other one cannot pass yet.
    carried_by(&shop, 1).await;
    let crowd = Crowd::rush(&[door.address], &sales, 200..400, Asking::Once);
    crowd.told(50).await;
    first.resume();
    tales.extend(crowd.end().await);
    carried_by(&shop, 2).await;
    recorded(door.address).await;
    for sale in &sales {
        check(&[door.address], sale, STOCK, "ordered", &tales).await;
    }
    audit(door.address).await;
    shop.audit_ok();
}

/// Enough to be in several logs.
async fn sales(door: &Node) -> Vec<String> {
    let mut sales = Vec::new();
    for _ in 0..6 {
        sales.push(crowd::sale(door.address, STOCK, json!({})).await);
    }
    sales
}
