//! Repairs of a Redis that lost something: one at a time, of what was lost only, and nobody's money
//! goes to somebody else.

use std::time::Duration;

use qiang_sql::{Database, Dialect, Limits, sql};
use qiang_store::Store;
use qiang_testkit::servers::Redis;
use qiang_testkit::servers::redis::{Durability, own};
use serde_json::json;

use crate::crowd::{
    self, Asking, Crowd, Person, Told, audit, check, granted, key, others, recorded,
};
use crate::shop::{Shop, eventually};

/// A Redis of its own, and a shop on it.
async fn shop() -> Option<(Redis, Shop)> {
    let redis = own(Durability::None)?;
    let shop = Shop::on(&redis.url(), Dialect::Postgres).await?;
    Some((redis, shop))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p25_repairs_at_the_same_time_lose_nothing() {
    const STOCK: u32 = 2_000;
    let Some((redis, shop)) = shop().await else { return };
    let nodes = ["api", "worker"].map(|roles| shop.start(roles));
    let door = [nodes[0].address];
    let sale = crowd::sale(door[0], STOCK, json!({})).await;
    let sales = std::slice::from_ref(&sale);
    let mut tales = Crowd::rush(&door, sales, 0..300, Asking::Once).end().await;
    assert_eq!(granted(&tales).len(), 300, "{:?}", others(&tales));
    recorded(door[0]).await;
    redis.flush().expect("it runs");
    let crowd = Crowd::rush(&door, sales, 300..900, Asking::UntilAnswered);
    std::thread::scope(|scope| {
        let repairs: Vec<_> = (0..3).map(|_| scope.spawn(|| shop.audit(&["--repair"]))).collect();
        for repair in repairs {
            let ended = repair.join().expect("no panic");
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        }
    });
    tales.extend(crowd.end().await);
    assert_eq!(granted(&tales).len(), 900, "{:?}", others(&tales));
    recorded(door[0]).await;
    check(&door, &sale, STOCK, "ordered", &tales).await;
    audit(door[0]).await;
    shop.audit_ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p25_a_repair_waits_for_another_and_says_whose() {
    let Some((redis, shop)) = shop().await else { return };
    let nodes = ["api", "worker"].map(|roles| shop.start(roles));
    let door = nodes[0].address;
    let sale = crowd::sale(door, 10, json!({})).await;
    recorded(door).await;
    redis.flush().expect("it runs");
    let store = Store::open(shop.database()).await.expect("the records");
    // It dies, and its lease runs out.
    let taken = store.take_lease("redis/repair", "somebody else", Duration::from_secs(2)).await;
    assert!(taken.expect("it can be written"));
    store.close().await;
    let ended = shop.audit(&["--repair"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("somebody else repairs or imports; waiting"), "{}", ended.stderr);
    eventually("the door is open again", async || {
        matches!(Person::buyer(door, "ann").claim(&sale, "k").await, Told::Granted(_))
    })
    .await;
}

/// Alice's claim is lost with Redis before anybody has recorded it. Her number is not given to Bob, and
/// her money is owed back to her.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p26_money_for_a_lost_claim_is_owed_back_and_pays_nobody_elses_order() {
    let Some((redis, shop)) = shop().await else { return };
    let node = shop.start("api");
    let door = node.address;
    let worker = shop.start("worker");
    let sale = crowd::sale(door, 5, json!({})).await;
    recorded(door).await;
    worker.pause();
    let told = Person::buyer(door, "alice").claim(&sale, "a").await;
    let Told::Granted(lost) = told else { panic!("{told:?}") };
    redis.flush().expect("it runs");
    worker.resume();
    let ended = shop.audit(&["--repair"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let mut bob = None;
    eventually("the door is open again", async || {
        let told = Person::buyer(door, "bob").claim(&sale, "b").await;
        if let Told::Granted(claim) = told {
            bob = Some(claim);
        }
        bob.is_some()
    })
    .await;
    let bob = bob.expect("granted");
    assert_ne!(bob, lost);
    let settled = Person::admin(door).pays("alices-money", &lost, 9_900).await.ok(200);
    assert_eq!(settled["outcome"], "refund_due", "{settled}");
    assert_eq!(settled["refund"]["reason"], "claim_lost", "{settled}");
    let order = Person::buyer(door, "bob").get(&format!("/api/v1/orders/{bob}")).await.ok(200);
    assert_eq!(
        (&order["status"], &order["user_id"]),
        (&json!("PENDING"), &json!("bob")),
        "{order}"
    );
    let again = Person::admin(door).pays("alices-money", &lost, 9_900).await.ok(200);
    assert_eq!((&again["outcome"], &again["replayed"]), (&json!("refund_due"), &json!(true)));
    let refunds = Person::admin(door).get("/api/v1/admin/refunds").await.ok(200);
    assert_eq!(refunds["refunds"][0]["order_id"], json!(lost), "{refunds}");
    // A second loss at once: the numbers go on behind what the first one left out.
    redis.flush().expect("it runs");
    let ended = shop.audit(&["--repair"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    eventually("the door is open again", async || {
        match Person::buyer(door, "alice").claim(&sale, "a").await {
            Told::Granted(claim) => claim != lost && claim != bob,
            _ => false,
        }
    })
    .await;
    recorded(door).await;
    audit(door).await;
    shop.audit_ok();
}

/// The books say that more was sold than there is. That sale waits for units to come back, a person is
/// told, and every other sale goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p24_an_oversold_sale_is_told_and_stops_no_other() {
    let Some((redis, shop)) = shop().await else { return };
    let nodes = ["api", "worker"].map(|roles| shop.start(roles));
    let door = [nodes[0].address];
    let sale = crowd::sale(door[0], 10, json!({})).await;
    let other = crowd::sale(door[0], 10, json!({})).await;
    let sales = std::slice::from_ref(&sale);
    let tales = Crowd::rush(&door, sales, 0..10, Asking::Once).end().await;
    assert_eq!(granted(&tales).len(), 10, "{:?}", others(&tales));
    recorded(door[0]).await;
    shrink(&shop, &sale, 8).await;
    redis.flush().expect("it runs");
    let ended = shop.audit(&["--repair"]);
    assert!(ended.stderr.contains("10 units are taken of 8, 2 too many"), "{}", ended.stderr);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    eventually("the other sale goes on", async || {
        matches!(Person::buyer(door[0], "ann").claim(&other, "k").await, Told::Granted(_))
    })
    .await;
    let late = Person::buyer(door[0], "late").claim(&sale, "k").await;
    assert_eq!(late, Told::Refused("sold_out".into()));
    let ended = shop.audit(&[]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("engine\t10 units are taken of 8"), "{}", ended.stderr);
    for (user, claim) in granted(&tales).into_iter().take(2) {
        let mut person = Person::buyer(door[0], user);
        person.delete(&format!("/api/v1/claims/{claim}")).await.ok(200);
        assert_eq!(person.claim(&sale, "again").await, Told::Refused("sold_out".into()));
    }
    recorded(door[0]).await;
    shop.audit_ok();
    let (user, claim) = granted(&tales).into_iter().nth(2).expect("there are ten");
    Person::buyer(door[0], user).delete(&format!("/api/v1/claims/{claim}")).await.ok(200);
    let told = Person::buyer(door[0], "late").claim(&sale, &key("late")).await;
    assert!(matches!(told, Told::Granted(_)), "{told:?}");
}

/// Makes the records say that a sale never had more than this.
async fn shrink(shop: &Shop, sale: &str, total: i64) {
    let limits = Limits { connections: 1, patience: Duration::from_secs(20) };
    let database = Database::open_with(shop.database(), limits).await.expect("it lets us in");
    let sale: i64 = sale.parse().expect("a number");
    for update in [
        sql!("UPDATE sales SET total = ? WHERE id = ?"),
        sql!("UPDATE sale_changes SET total = ? WHERE sale_id = ?"),
    ] {
        let changed = database.execute(update, &[total.into(), sale.into()]).await;
        assert_eq!(changed.expect("it can be written"), 1);
    }
    database.close().await;
}

/// The database is gone, and Redis is not: a new one is filled from there, once somebody said so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_database_adopts_the_sales_in_redis() {
    let Some((redis, shop)) = shop().await else { return };
    let node = shop.start("api,worker");
    let door = [node.address];
    let first = crowd::sale(door[0], 100, json!({})).await;
    recorded(door[0]).await;
    // After a repair partitions have epochs of their own.
    redis.flush().expect("it runs");
    assert_eq!(shop.audit(&["--repair"]).code, Some(0));
    let sales = std::slice::from_ref(&first);
    let tales = Crowd::rush(&door, sales, 0..40, Asking::UntilAnswered).end().await;
    drop(node);

    let anew = shop.on_new_database(Dialect::Postgres).await;
    let adopt = || crate::shop::run(&mut anew.command(&["migrate", "--adopt-redis"]));
    let refused = anew.audit(&[]);
    assert!(refused.stderr.contains("sales of another database"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--adopt-redis"), "{}", refused.stderr);
    assert_eq!(adopt().code, Some(0));
    let again = adopt();
    assert!(again.code == Some(1) && again.stderr.contains("knows already"), "{}", again.stderr);
    let node = anew.start("api,worker");
    recorded(node.address).await;
    check(&[node.address], &first, 100, "ordered", &tales).await;
    anew.audit_ok();
}

/// Everything was lost, and one sale is held up while it is put back: the others sell again meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_is_back_does_not_wait_for_the_others() {
    // Sales of one partition are put back together. With these ids the two are in different ones.
    const HELD_UP: &str = "1";
    const OTHER: &str = "2";
    let Some((redis, shop)) = shop().await else { return };
    let nodes = ["api", "worker"].map(|roles| shop.start(roles));
    let door = nodes[0].address;
    for id in [HELD_UP, OTHER] {
        crowd::sale(door, 10, json!({ "id": id })).await;
    }
    recorded(door).await;
    // Whoever wants to leave out numbers of this sale waits for whoever is about to write the same row.
    let database = Database::open(shop.database()).await.expect("the records");
    let mut busy = database.begin().await.expect("it begins");
    let row = format!("redis_numbers/{HELD_UP}");
    let hold = sql!("INSERT INTO settings (name, value) VALUES (?, ?)");
    busy.execute(hold, &[row.as_str().into(), "0".into()]).await.expect("it is written");
    redis.flush().expect("it runs");
    std::thread::scope(|scope| {
        let repair = scope.spawn(|| shop.audit(&["--repair"]));
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                eventually("another sale is open again", async || {
                    let told = Person::buyer(door, "ann").claim(OTHER, "k").await;
                    matches!(told, Told::Granted(_))
                })
                .await;
                assert!(!repair.is_finished(), "it waits for the sale that is held up");
                drop(busy);
            });
        });
        let ended = repair.join().expect("no panic");
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    });
    eventually("the sale that was held up is open again", async || {
        matches!(Person::buyer(door, "ann").claim(HELD_UP, "k").await, Told::Granted(_))
    })
    .await;
    shop.audit_ok();
}
