//! A sale that is spread over the masters of a cluster.

use std::collections::BTreeSet;

use qiang_sql::Dialect;
use qiang_testkit::servers::shared;
use serde_json::json;

use crate::crowd::{self, Asking, Crowd, Person, audit, check, granted, others};
use crate::shop::{Shop, run};

const STOCK: u32 = 203;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spread_sale_on_a_cluster_sells_out_exactly_and_can_be_cleared() {
    let Some(cluster) = shared::redis_cluster() else { return };
    let Some(shop) = Shop::on(&cluster, Dialect::Postgres).await else { return };
    let nodes = ["api", "api", "worker"].map(|roles| shop.start(roles));
    let doors = [nodes[0].address, nodes[1].address];
    // Paid at once, so that it can be cleared.
    let terms = json!({ "buckets": 4, "flow": "instant" });
    let sale = crowd::sale(doors[0], STOCK, terms).await;
    let crowd = Crowd::rush(&doors, std::slice::from_ref(&sale), 0..300, Asking::Once);
    let tales = crowd.end().await;
    assert_eq!(granted(&tales).len(), STOCK as usize, "{:?}", others(&tales));
    assert_eq!(others(&tales), [("sold_out", 300 - STOCK as usize)].into());
    check(&doors, &sale, STOCK, "paid", &tales).await;
    let bucket = |claim: &&str| {
        let number: u32 = claim.rsplit_once('-').expect("a number").1.parse().expect("a number");
        (number - 1) % 4
    };
    let granted = granted(&tales);
    let buckets: BTreeSet<u32> = granted.values().map(bucket).collect();
    assert_eq!(buckets.len(), 4, "every bucket has sold");
    audit(doors[1]).await;
    let said = shop.audit_ok();
    assert!(said.contains(&format!("1 sale, {STOCK} claims")), "{said}");

    let mut boss = Person::admin(doors[1]);
    boss.post(&format!("/api/v1/sales/{sale}/close"), json!(null)).await.ok(200);
    let told = Person::buyer(doors[0], "late").claim(&sale, "late").await;
    assert_eq!(told, crowd::Told::Refused("closed".into()));
    let path = format!("/api/v1/sales/{sale}");
    for door in [doors[0], doors[1], doors[0]] {
        let view = Person::admin(door).delete(&path).await.ok(200);
        assert_eq!(view["id"], sale.as_str(), "{view}");
    }
    // What is gone from the engine is read from the records.
    for (place, (user, claim)) in granted.iter().enumerate().step_by(20) {
        let mut person = Person::buyer(doors[place % 2], user);
        let view = person.get(&format!("/api/v1/claims/{claim}")).await.ok(200);
        assert_eq!(view["state"], "paid", "{view}");
    }
    audit(doors[0]).await;
    shop.audit_ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_the_bench_meets_a_spread_sale() {
    let Some(cluster) = shared::redis_cluster() else { return };
    let Some(shop) = Shop::on(&cluster, Dialect::Postgres).await else { return };
    let node = shop.start("api,worker");
    let url = format!("http://{}", node.address);
    let load = ["--rate", "300", "--duration", "1s", "--stock", "40", "--buckets", "4"];
    let ended = run(&mut shop.command(&[&["bench", "--url", &url], &load[..]].concat()));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("exact: "), "{}", ended.stderr);
    let sales = Person::admin(node.address).get("/api/v1/sales").await.ok(200);
    assert_eq!(sales["sales"][0]["buckets"], 4, "{sales}");
}

/// Nobody has carried anything over, and claims of a bucket come before their sale in the logs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_without_a_worker_records_spread_sales() {
    let Some(redis) = shared::redis() else { return };
    let Some(shop) = Shop::on(&redis, Dialect::Postgres).await else { return };
    let node = shop.start("api");
    let mut sales = Vec::new();
    for _ in 0..6 {
        sales.push(crowd::sale(node.address, 20, json!({ "buckets": 4 })).await);
    }
    let tales = Crowd::rush(&[node.address], &sales, 0..42, Asking::Once).end().await;
    assert_eq!(granted(&tales).len(), 42, "{:?}", others(&tales));
    let said = shop.audit_ok();
    assert!(said.contains("6 sales, 42 claims"), "{said}");
}
