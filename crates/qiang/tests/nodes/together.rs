//! Two doors and two workers are one shop.

use std::collections::BTreeSet;

use qiang_sql::Dialect;
use qiang_testkit::servers::shared;
use serde_json::json;

use crate::crowd::{self, Asking, Crowd, Person, Told, audit, check, granted, others};
use crate::shop::{Shop, eventually};

const STOCK: u32 = 150;
const CROWD: u32 = 240;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_doors_and_two_workers_on_redis_are_one_shop() {
    let Some(redis) = shared::redis() else { return };
    let Some(shop) = Shop::on(&redis, Dialect::Postgres).await else { return };
    are_one_shop(&shop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_doors_and_two_workers_on_a_database_alone_are_one_shop() {
    let Some(shop) = Shop::on("sql:", Dialect::MySql).await else { return };
    are_one_shop(&shop).await;
}

async fn are_one_shop(shop: &Shop) {
    let nodes = ["api", "api", "worker", "worker"].map(|roles| shop.start(roles));
    let doors = [nodes[0].address, nodes[1].address];
    ids_never_collide(doors).await;

    let sale = crowd::sale(doors[0], STOCK, json!({})).await;
    let crowd = Crowd::rush(&doors, std::slice::from_ref(&sale), 0..CROWD, Asking::Once);
    let tales = crowd.end().await;
    assert_eq!(granted(&tales).len(), STOCK as usize, "{:?}", others(&tales));
    assert_eq!(others(&tales), [("sold_out", (CROWD - STOCK) as usize)].into());
    check(&doors, &sale, STOCK, "ordered", &tales).await;

    // The limit counts at both doors, and what was done at one is listed at the other.
    let (user, claim) = granted(&tales).into_iter().next().expect("somebody");
    for door in doors {
        let told = Person::buyer(door, user).claim(&sale, "another key").await;
        assert_eq!(told, Told::Refused("already_claimed".into()));
        let orders = Person::buyer(door, user).get("/api/v1/orders").await.ok(200);
        assert_eq!(orders["orders"][0]["order_id"], claim, "{orders}");
    }
    // Given up at one door, it can be had at the other, where everybody was told "sold out".
    Person::buyer(doors[1], user).delete(&format!("/api/v1/claims/{claim}")).await.ok(200);
    eventually("what came back can be bought at the other door", async || {
        let told = Person::buyer(doors[0], "late").claim(&sale, "late").await;
        matches!(told, Told::Granted(_))
    })
    .await;
    let orders = Person::buyer(doors[1], "late").get("/api/v1/orders").await.ok(200);
    assert_eq!(orders["orders"].as_array().map(Vec::len), Some(1), "{orders}");

    // Each door shows the seconds of all four processes.
    for door in doors {
        eventually("a second has the samples of all processes", async || {
            let shown = Person::admin(door).get("/api/v1/admin/samples").await.ok(200);
            let samples = shown["samples"].as_array().cloned().unwrap_or_default();
            samples.iter().any(|one| {
                let stock = &one["sales"][0];
                one["nodes"] == 4
                    && stock["sale_id"] == sale.as_str()
                    && !one["lag_events"].is_null()
            })
        })
        .await;
    }

    // What is current at one door soon is at the other.
    let body = json!({ "sale_id": sale });
    Person::admin(doors[0]).put("/api/v1/current-sale", body).await.ok(200);
    eventually("the other door knows the current sale", async || {
        let current = Person::admin(doors[1]).get("/api/v1/current-sale").await;
        current.status == 200 && current.body["id"] == sale.as_str()
    })
    .await;

    for worker in &nodes[2..] {
        let mut person = Person::admin(worker.address);
        assert_eq!(person.page("/healthz").await, "ok\n");
        assert_eq!(person.get("/readyz").await.ok(200)["ready"], true);
        assert!(person.page("/metrics").await.contains("qiang_projection_position{log=\"0\"}"));
        let sent_away = person.get("/api/v1/sales").await.ok(404);
        assert!(sent_away["detail"].as_str().is_some_and(|detail| detail.contains("worker")));
    }
    audit(doors[1]).await;
    shop.audit_ok();
    for node in nodes {
        assert!(node.terminate().success());
    }
    shop.audit_ok();
}

/// Sales opened at both doors at once have ids of their own, each with the number of its process.
async fn ids_never_collide(doors: [std::net::SocketAddr; 2]) {
    let open = |door| async move {
        let mut ids = Vec::new();
        for _ in 0..10 {
            let id = crowd::sale(door, 1, json!({})).await;
            ids.push(id.parse::<u64>().expect("a number"));
        }
        ids
    };
    let [one, two] = doors.map(|door| tokio::spawn(open(door)));
    let [one, two] = [one.await.expect("no panic"), two.await.expect("no panic")];
    let all: BTreeSet<u64> = one.iter().chain(&two).copied().collect();
    assert_eq!(all.len(), 20);
    // 12 bits of sequence, then 10 bits of process.
    let process = |ids: &[u64]| ids.iter().map(|id| (id >> 12) & 1_023).collect::<BTreeSet<_>>();
    let (one, two) = (process(&one), process(&two));
    assert_eq!((one.len(), two.len()), (1, 1));
    assert_ne!(one, two);
}
