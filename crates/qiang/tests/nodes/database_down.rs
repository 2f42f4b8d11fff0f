//! A database that goes away in the middle of a sale on Redis: the sale goes on, the records wait.

use qiang_testkit::servers::{Mariadb, Postgres, Redis, mariadb, or_skip, postgres, redis, shared};
use serde_json::json;

use crate::crowd::{self, Asking, Crowd, Person, audit, check, granted, others, recorded};
use crate::shop::{Shop, eventually};

const STOCK: u32 = 300;

/// A database of the test's own.
enum Database {
    Mariadb(Mariadb),
    Postgres(Postgres),
}

impl Database {
    fn url(&self) -> String {
        match self {
            Self::Mariadb(server) => format!("{}/qiang", server.url()),
            Self::Postgres(server) => server.url(),
        }
    }

    fn kill(&self) {
        match self {
            Self::Mariadb(server) => server.kill(),
            Self::Postgres(server) => server.kill(),
        }
        .expect("it runs");
    }

    fn restart(&self) {
        match self {
            Self::Mariadb(server) => server.restart(),
            Self::Postgres(server) => server.restart(),
        }
        .expect("it starts");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p35_a_database_that_is_down_loses_nothing() {
    let Some(redis) = shared::redis() else { return };
    if let Some(server) = or_skip(Mariadb::start(&mariadb::Options::default())) {
        loses_nothing(&redis, &Database::Mariadb(server)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p35_a_postgres_that_is_down_loses_nothing() {
    let Some(redis) = or_skip(Redis::start(&redis::Options::default())) else { return };
    if let Some(server) = or_skip(Postgres::start(&postgres::Options::default())) {
        loses_nothing(&redis.url(), &Database::Postgres(server)).await;
    }
}

async fn loses_nothing(redis: &str, database: &Database) {
    let shop = Shop::new(redis, &database.url());
    let (door, worker) = (shop.start("api"), shop.start("worker"));
    let sale = crowd::sale(door.address, STOCK, json!({})).await;
    let sales = std::slice::from_ref(&sale);
    let crowd = Crowd::rush(&[door.address], sales, 0..180, Asking::Once);
    crowd.told(60).await;
    database.kill();
    let mut tales = crowd.end().await;
    tales.extend(Crowd::rush(&[door.address], sales, 180..240, Asking::Once).end().await);
    assert_eq!(granted(&tales).len(), 240, "the sale goes on: {:?}", others(&tales));

    // Nobody is told a list that lacks something, and an operator is told why.
    let mut buyer = Person::buyer(door.address, "user-0");
    assert_eq!(buyer.get("/api/v1/orders").await.ok(503)["code"], "unavailable");
    let why = Person::admin(door.address).get("/readyz").await.ok(503);
    assert!(why["engine"].is_null() && why["database"].is_string(), "{why}");
    eventually("the worker has tried again and again", async || {
        let page = Person::admin(worker.address).page("/metrics").await;
        let failures = page.lines().find_map(|line| {
            line.strip_prefix("qiang_projection_failures_total ")?.parse::<u32>().ok()
        });
        failures.expect("a counter") >= 4
    })
    .await;

    database.restart();
    recorded(door.address).await;
    tales.extend(Crowd::rush(&[door.address], sales, 240..320, Asking::Once).end().await);
    assert_eq!(granted(&tales).len(), STOCK as usize, "{:?}", others(&tales));
    recorded(door.address).await;
    for node in [&door, &worker] {
        eventually("it is ready again", async || {
            Person::admin(node.address).get("/readyz").await.status == 200
        })
        .await;
    }
    check(&[door.address], &sale, STOCK, "ordered", &tales).await;
    audit(door.address).await;
    let said = shop.audit_ok();
    assert!(said.contains(&format!("1 sale, {STOCK} claims, {STOCK} orders")), "{said}");
}
