//! A Redis that forgot something: it was flushed, or put back from an old copy. Nothing is decided
//! on what is left until an operator had it put right from the records, and then everything is as
//! it was.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use qiang_engine::redis::hash_tag;
use qiang_sql::Dialect;
use qiang_testkit::proxy::Proxy;
use qiang_testkit::servers::Redis;
use qiang_testkit::servers::redis::{Durability, own};
use serde_json::json;

use crate::crowd::{
    self, Asking, Crowd, Person, Tales, Told, audit, check, granted, others, recorded, user,
};
use crate::shop::{Node, PARTITIONS, Shop, eventually};

const STOCK: u32 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_flushed_redis_is_noticed_and_put_back() {
    let Some(redis) = own(Durability::None) else { return };
    let Some(shop) = Shop::on(&redis.url(), Dialect::Postgres).await else { return };
    let nodes = ["api", "api", "worker"].map(|roles| shop.start(roles));
    let doors = [nodes[0].address, nodes[1].address];
    let sale = crowd::sale(doors[0], STOCK, json!({})).await;
    let sales = std::slice::from_ref(&sale);
    let tales = Crowd::rush(&doors, sales, 0..120, Asking::Once).end().await;
    assert_eq!(granted(&tales).len(), 120, "{:?}", others(&tales));
    recorded(doors[0]).await;

    redis.flush().expect("it runs");
    noticed(doors, &sale, "is empty").await;
    is_put_back(&shop, doors, &sale, tales).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_redis_that_went_back_to_an_old_copy_is_noticed_and_put_right() {
    let Some(redis) = own(Durability::Always) else { return };
    let Some(shop) = Shop::on(&redis.url(), Dialect::MySql).await else { return };
    let nodes = ["api", "api", "worker"].map(|roles| shop.start(roles));
    let doors = [nodes[0].address, nodes[1].address];
    let sale = crowd::sale(doors[0], STOCK, json!({})).await;
    let sales = std::slice::from_ref(&sale);
    let mut tales = Crowd::rush(&doors, sales, 0..50, Asking::Once).end().await;
    let copy = OldCopy::of(&redis);
    tales.extend(Crowd::rush(&doors, sales, 50..120, Asking::Once).end().await);
    assert_eq!(granted(&tales).len(), 120, "{:?}", others(&tales));
    recorded(doors[0]).await;
    recorded(doors[1]).await;

    copy.put_back(&redis);
    noticed(doors, &sale, "has gone back").await;
    is_put_back(&shop, doors, &sale, tales).await;
}

/// The machine of Redis lost power in the middle of a call, and later was started once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_half_a_call_that_redis_carried_out_is_noticed_and_put_right() {
    let Some(redis) = own(Durability::Always) else { return };
    let Some(shop) = Shop::on(&redis.url(), Dialect::Postgres).await else { return };
    let node = shop.start("api");
    let sale = crowd::sale(node.address, STOCK, json!({})).await;
    let sales = std::slice::from_ref(&sale);
    let mut tales = Crowd::rush(&[node.address], sales, 0..50, Asking::Once).end().await;
    let told = Person::buyer(node.address, "torn").claim(&sale, "torn").await;
    assert!(matches!(told, Told::Granted(_)), "{told:?}");
    drop(node);
    redis.tear(100).expect("it is cut");
    redis.restart_unchecked().expect("it starts");

    let nodes = ["api", "api", "worker"].map(|roles| shop.start(roles));
    let doors = [nodes[0].address, nodes[1].address];
    tales.extend(Crowd::rush(&doors, sales, 50..120, Asking::Once).end().await);
    assert_eq!(granted(&tales).len(), 120, "{:?}", others(&tales));
    recorded(doors[0]).await;
    redis.restart_unchecked().expect("it starts");
    noticed(doors, &sale, "in part").await;
    is_put_back(&shop, doors, &sale, tales).await;
}

/// There is no worker, so that the records know nothing of what was sold last: only the door does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_what_only_one_door_saw_is_missed_all_the_same() {
    let Some(forgotten) = Forgotten::by_one_door().await else { return };
    let Forgotten { shop, nodes, sale, .. } = &forgotten;
    let doors = [nodes[0].address, nodes[1].address];
    let sales = std::slice::from_ref(sale);
    noticed([doors[0]; 2], sale, "has gone back").await;
    eventually("everybody can know", async || shop.audit(&[]).code == Some(1)).await;
    let ended = shop.audit(&["--repair"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 partition of Redis had lost"), "{}", ended.stderr);
    // What nobody has kept is gone; whoever asks again is served like anybody else.
    let _worker = shop.start("worker");
    let tales = Crowd::rush(&doors, sales, 0..260, Asking::UntilAnswered).end().await;
    assert_eq!(granted(&tales).len(), STOCK as usize, "{:?}", others(&tales));
    recorded(doors[0]).await;
    check(&doors, sale, STOCK, "ordered", &tales).await;
    audit(doors[0]).await;
    shop.audit_ok();
}

/// The same, and the other door, which has nothing to miss, sells more than was lost before the first
/// one is asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_what_one_door_saw_is_missed_although_the_other_went_further() {
    let Some(forgotten) = Forgotten::by_one_door().await else { return };
    let Forgotten { shop, nodes, sale, .. } = &forgotten;
    let doors = [nodes[0].address, nodes[1].address];
    let sales = std::slice::from_ref(sale);
    let kept = Crowd::rush(&doors[1..], sales, 50..150, Asking::UntilAnswered).end().await;
    assert_eq!(granted(&kept).len(), 100, "{:?}", others(&kept));
    noticed([doors[0]; 2], sale, "has gone back").await;
    eventually("everybody can know", async || shop.audit(&[]).code == Some(1)).await;
    let ended = shop.audit(&["--repair"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 sale and 100 claims were put back"), "{}", ended.stderr);
    let _worker = shop.start("worker");
    let more = Crowd::rush(&doors, sales, 150..310, Asking::UntilAnswered).end().await;
    let tales = Tales::from_iter(kept.into_iter().chain(more));
    assert_eq!(granted(&tales).len(), STOCK as usize, "{:?}", others(&tales));
    recorded(doors[0]).await;
    check(&doors, sale, STOCK, "ordered", &tales).await;
    audit(doors[0]).await;
    shop.audit_ok();
}

/// Nobody is granted anything at either door, and both say why.
async fn noticed(doors: [SocketAddr; 2], sale: &str, why: &str) {
    for door in doors {
        // On a connection that broke it is not known at first whether it happened.
        let told = Person::buyer(door, "too-early").claim(sale, "too-early").await;
        assert!(matches!(told, Told::Nothing(_)), "{told:?}");
        let told = Person::buyer(door, "too-early").claim(sale, "too-early").await;
        assert_eq!(told, Told::Nothing("unavailable".into()));
        let ready = Person::admin(door).get("/readyz").await.ok(503);
        let engine = ready["engine"].as_str().expect("a reason");
        assert!(engine.contains(why), "{engine}");
    }
}

/// The audit says what to do; done, the sale goes on at both doors as if nothing had been.
async fn is_put_back(shop: &Shop, doors: [SocketAddr; 2], sale: &str, mut tales: Tales) {
    let ended = shop.audit(&[]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let error = ended.stderr.trim_end().lines().last().unwrap_or_default();
    assert!(error.contains("run `qiang audit --repair`"), "{}", ended.stderr);
    let ended = shop.audit(&["--repair"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 sale and 120 claims were put back"), "{}", ended.stderr);
    for door in doors {
        eventually("the door is open again", async || {
            // It may not have noticed before; then its first question tells it.
            let view = Person::admin(door).get(&format!("/api/v1/sales/{sale}")).await;
            view.status == 200 && Person::admin(door).get("/readyz").await.status == 200
        })
        .await;
        let told = Person::buyer(door, &user(7)).claim(sale, "another key").await;
        assert_eq!(told, Told::Refused("already_claimed".into()));
    }
    check(&doors, sale, STOCK, "ordered", &tales).await;
    let orders = Person::buyer(doors[1], &user(7)).get("/api/v1/orders").await.ok(200);
    assert_eq!(orders["orders"].as_array().map(Vec::len), Some(1), "{orders}");

    let sales = [sale.to_owned()];
    tales.extend(Crowd::rush(&doors, &sales, 120..260, Asking::UntilAnswered).end().await);
    assert_eq!(granted(&tales).len(), STOCK as usize, "{:?}", others(&tales));
    assert_eq!(others(&tales), [("sold_out", 60)].into());
    check(&doors, sale, STOCK, "ordered", &tales).await;
    audit(doors[0]).await;
    shop.audit_ok();
}

/// A sale of which only the first door knows that fifty units are gone.
struct Forgotten {
    _redis: Redis,
    shop: Shop,
    nodes: [Node; 2],
    sale: String,
}

impl Forgotten {
    async fn by_one_door() -> Option<Self> {
        let redis = own(Durability::Always)?;
        let shop = Shop::on(&redis.url(), Dialect::Postgres).await?;
        let nodes = ["api", "api"].map(|roles| shop.start(roles));
        let doors = [nodes[0].address];
        let sale = crowd::sale(doors[0], STOCK, json!({})).await;
        let copy = OldCopy::of(&redis);
        let sales = std::slice::from_ref(&sale);
        let gone = Crowd::rush(&doors, sales, 0..50, Asking::Once).end().await;
        assert_eq!(granted(&gone).len(), 50, "{:?}", others(&gone));
        copy.put_back(&redis);
        Some(Self { _redis: redis, shop, nodes, sale })
    }
}

/// What an append-only file was at a moment.
struct OldCopy {
    data: PathBuf,
    aside: tempfile::TempDir,
}

impl OldCopy {
    fn of(redis: &Redis) -> Self {
        let answer = redis.command(&["CONFIG", "GET", "dir"]).expect("it runs");
        let data = Path::new(&answer.list()[1].text()).join("appendonlydir");
        let aside = tempfile::tempdir().expect("a folder");
        copy_files(&data, aside.path());
        Self { data, aside }
    }

    fn put_back(&self, redis: &Redis) {
        redis.kill().expect("it runs");
        std::fs::remove_dir_all(&self.data).expect("ours");
        std::fs::create_dir(&self.data).expect("a folder");
        copy_files(self.aside.path(), &self.data);
        redis.restart().expect("it starts");
    }
}

fn copy_files(from: &Path, to: &Path) {
    for entry in from.read_dir().expect("a folder") {
        let entry = entry.expect("readable");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_in_the_middle_of_other_sales_loses_nothing_of_them() {
    let Some(redis) = own(Durability::None) else { return };
    let Some(shop) = Shop::on(&redis.url(), Dialect::Postgres).await else { return };
    let nodes = ["api", "api", "worker"].map(|roles| shop.start(roles));
    let doors = [nodes[0].address, nodes[1].address];
    let [first, second] = in_two_partitions(&shop, &redis, doors[0]).await;
    let sold = Crowd::rush(&doors, std::slice::from_ref(&first.0), 0..40, Asking::Once).end().await;
    recorded(doors[0]).await;

    let sales = std::slice::from_ref(&second.0);
    let crowd = Crowd::rush(&doors, sales, 1_000..1_600, Asking::UntilAnswered);
    for round in 1..=3 {
        crowd.told(round * 100).await;
        forget(&shop, &redis, first.1);
        let ended = shop.audit(&["--repair"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    let others_sold = crowd.end().await;
    let tales = Tales::from_iter(sold.into_iter().chain(others_sold));
    assert_eq!(granted(&tales).len(), 640, "{:?}", others(&tales));
    recorded(doors[0]).await;
    for (sale, _) in [&first, &second] {
        for door in doors {
            eventually("the door has noticed that all is well", async || {
                Person::admin(door).get(&format!("/api/v1/sales/{sale}")).await.status == 200
            })
            .await;
        }
        check(&doors, sale, 1_000, "ordered", &tales).await;
    }
    audit(doors[0]).await;
    shop.audit_ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_from_before_the_repair_does_not_close_the_door_again() {
    let Some(redis) = own(Durability::None) else { return };
    let Some(shop) = Shop::on(&redis.url(), Dialect::Postgres).await else { return };
    let proxy = Proxy::start(redis.port()).expect("a port");
    let mut far = shop.serving("api");
    far.env("QIANG_ENGINE__URL", proxy.url(shop.engine()));
    let far = Node::start(&mut far).expect("it starts");
    let (door, _worker) = (far.address, shop.start("worker"));
    let [first, second] = in_two_partitions(&shop, &redis, door).await;
    for (sale, _) in [&first, &second] {
        let told = Person::buyer(door, "early").claim(sale, "early").await;
        assert!(matches!(told, Told::Granted(_)), "{told:?}");
    }
    recorded(door).await;

    redis.flush().expect("it runs");
    let told = Person::buyer(door, "one").claim(&first.0, "one").await;
    assert_eq!(told, Told::Nothing("unavailable".into()));
    // Asked of the lost state, answered when all is well again. No question is as long as a claim.
    const CLAIM_BYTES: u64 = 700;
    let before = proxy.counts();
    proxy.pause_replies();
    let sale = second.0.clone();
    let late = tokio::spawn(async move { Person::buyer(door, "two").claim(&sale, "two").await });
    let asked = before.request_bytes + CLAIM_BYTES;
    proxy.until(move |now| now.request_bytes > asked).await.expect("a question");
    let ended = shop.audit(&["--repair"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    eventually("the door knows of the repair", async || far.said().contains("was repaired")).await;
    proxy.resume();
    assert!(matches!(late.await.expect("no panic"), Told::Nothing(_)));
    eventually("the door is open", async || {
        let told = Person::buyer(door, "two").claim(&second.0, "two").await;
        matches!(told, Told::Granted(_))
    })
    .await;
    let told = Person::buyer(door, "one").claim(&first.0, "one").await;
    assert!(matches!(told, Told::Granted(_)), "{told:?}");
    audit(door).await;
    shop.audit_ok();
}

/// Two sales whose state lies in different partitions, and which those are.
async fn in_two_partitions(shop: &Shop, redis: &Redis, door: SocketAddr) -> [(String, u16); 2] {
    let first = crowd::sale(door, 1_000, json!({})).await;
    let first_in = partition_of(shop, redis, &first);
    loop {
        let second = crowd::sale(door, 1_000, json!({})).await;
        let second_in = partition_of(shop, redis, &second);
        if second_in != first_in {
            return [(first, first_in), (second, second_in)];
        }
    }
}

fn prefix(shop: &Shop) -> &str {
    let settings = shop.engine().split_once("?prefix=").expect("keys of its own").1;
    settings.split('&').next().expect("a prefix")
}

/// Where a sale is, if it lies in this partition.
pub(crate) fn key_of(shop: &Shop, partition: u16, sale: &str) -> String {
    format!("{}:{{{}}}:pool:{sale}/0", prefix(shop), hash_tag(partition))
}

fn partition_of(shop: &Shop, redis: &Redis, sale: &str) -> u16 {
    let holds = |partition: &u16| {
        let key = key_of(shop, *partition, sale);
        redis.command(&["EXISTS", &key]).expect("it runs").integer() == Some(1)
    };
    (0..PARTITIONS).find(holds).expect("it lies somewhere")
}

/// Removes everything of one partition.
fn forget(shop: &Shop, redis: &Redis, partition: u16) {
    let pattern = format!("{}:{{{}}}:*", prefix(shop), hash_tag(partition));
    let keys = redis.command(&["KEYS", &pattern]).expect("it runs");
    let keys: Vec<String> = keys.list().iter().map(|key| key.text()).collect();
    assert!(!keys.is_empty());
    let command: Vec<&str> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    redis.command(&command).expect("it runs");
}
