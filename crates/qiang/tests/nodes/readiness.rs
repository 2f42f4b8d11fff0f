//! `/readyz` and `qiang_engine_up` tell whether writes are taken, what is wrong if not, and what to
//! do, and tell it at once, also while a server hangs.

use std::net::SocketAddr;
use std::time::Duration;

use qiang_sql::{Database, Dialect, Statement};
use qiang_testkit::servers::{
    Cluster, Mariadb, Postgres, Redis, cluster, mariadb, or_skip, postgres, redis,
};
use serde_json::{Value, json};

use crate::crowd::{self, Person, Told};
use crate::shop::{Shop, eventually};

/// Much less than it takes to find out that a server hangs.
const AT_ONCE: Duration = Duration::from_secs(1);

/// What a node says of itself; it must say it at once.
async fn readiness(door: SocketAddr) -> (u16, Value) {
    let mut person = Person::admin(door);
    let asked = tokio::time::timeout(AT_ONCE, person.get("/readyz"));
    let answer = asked.await.expect("it waits for nobody");
    (answer.status, answer.body)
}

async fn engine_up(door: SocketAddr) -> bool {
    let page = Person::admin(door).page("/metrics").await;
    page.lines().any(|line| line == "qiang_engine_up 1")
}

/// Waits until a node is not ready for this reason.
async fn not_ready(door: SocketAddr, part: &str, problem: &str, words: &str) -> Value {
    let mut said = Value::Null;
    eventually(&format!("{part} is {problem}: {words}"), async || {
        let (status, body) = readiness(door).await;
        said = body;
        status == 503
            && said["ready"] == false
            && said[format!("{part}_problem")] == problem
            && said[part].as_str().is_some_and(|text| text.contains(words))
    })
    .await;
    said
}

async fn ready(door: SocketAddr) {
    // Two pages, and a probe may come in between.
    eventually("it is ready again, and the metric says so", async || {
        readiness(door).await.0 == 200 && engine_up(door).await
    })
    .await;
}

fn tell(redis: &Redis, command: &[&str]) {
    redis.command(command).expect("it does");
}

/// A command that makes a server refuse writes, the words for that, and what undoes it.
type Ill = (&'static [&'static str], &'static str, &'static [&'static str]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_takes_no_writes_is_not_ready() {
    let options = redis::Options::default().with("enable-protected-configs", "yes");
    let Some(redis) = or_skip(Redis::start(&options)) else { return };
    let Some(shop) = Shop::on(&redis.url(), Dialect::Sqlite).await else { return };
    let node = shop.start("api,worker");
    let door = node.address;
    let sale = crowd::sale(door, 100, json!({})).await;
    ready(door).await;
    let ills: [Ill; 3] = [
        (
            &["CONFIG", "SET", "maxmemory", "1"],
            "refuses writes: its memory is full. Raise maxmemory",
            &["CONFIG", "SET", "maxmemory", "0"],
        ),
        (
            &["CONFIG", "SET", "min-replicas-to-write", "1"],
            "refuses writes: fewer replicas than min-replicas-to-write",
            &["CONFIG", "SET", "min-replicas-to-write", "0"],
        ),
        // Of a server that is not there, so that it keeps what it has.
        (
            &["REPLICAOF", "127.0.0.1", "1"],
            "refuses writes: it is a replica. Name the master",
            &["REPLICAOF", "NO", "ONE"],
        ),
    ];
    for (place, (make_ill, words, mend)) in ills.into_iter().enumerate() {
        tell(&redis, make_ill);
        let said = not_ready(door, "engine", "refuses_writes", words).await;
        assert_eq!(said["serving"], "none", "{said}");
        assert!(said["engine"].as_str().is_some_and(|text| text.contains("Redis at 127.0.0.1:")));
        assert!(!engine_up(door).await);
        let user = format!("early-{place}");
        let told = Person::buyer(door, &user).claim(&sale, &user).await;
        assert!(matches!(told, Told::Nothing(_)), "{told:?}");
        tell(&redis, mend);
        ready(door).await;
        let told = Person::buyer(door, &user).claim(&sale, &user).await;
        assert!(matches!(told, Told::Granted(_)), "{told:?}");
    }
    // A disk it cannot write to.
    tell(&redis, &["CONFIG", "SET", "save", "3600 1000000"]);
    let folder = redis.command(&["CONFIG", "GET", "dir"]).expect("a folder");
    let folder = folder.list()[1].text();
    tell(&redis, &["CONFIG", "SET", "dir", "/proc"]);
    tell(&redis, &["BGSAVE"]);
    not_ready(door, "engine", "refuses_writes", "it cannot write to its disk").await;
    tell(&redis, &["CONFIG", "SET", "dir", &folder]);
    tell(&redis, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    ready(door).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_replicas_to_wait_for_is_not_ready() {
    let Some(master) = or_skip(Redis::start(&redis::Options::default())) else { return };
    let follow = format!("127.0.0.1 {}", master.port());
    let options = redis::Options::default().with("replicaof", follow);
    let Some(replica) = or_skip(Redis::start(&options)) else { return };
    let Some(shop) = Shop::on(&master.url(), Dialect::Sqlite).await else { return };
    let shop = shop.waiting_for_replicas(1);
    let node = shop.start("api,worker");
    ready(node.address).await;
    replica.kill().expect("it runs");
    let words = "has too few replicas: 0 of 1 have what it was told";
    not_ready(node.address, "engine", "refuses_writes", words).await;
    assert!(!engine_up(node.address).await);
    replica.restart().expect("it starts");
    ready(node.address).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_hangs_or_is_gone_is_unreachable_and_that_is_said_at_once() {
    let Some(redis) = or_skip(Redis::start(&redis::Options::default())) else { return };
    let Some(shop) = Shop::on(&redis.url(), Dialect::Sqlite).await else { return };
    let node = shop.start("api,worker");
    let door = node.address;
    ready(door).await;
    redis.pause().expect("it runs");
    let said = not_ready(door, "engine", "unreachable", "does not answer").await;
    assert_eq!((&said["serving"], &said["database"]), (&json!("none"), &Value::Null));
    redis.resume().expect("it was paused");
    ready(door).await;
    redis.kill().expect("it runs");
    not_ready(door, "engine", "unreachable", "cannot be reached").await;
    assert!(!engine_up(door).await);
    // It kept nothing: that is another thing, with another remedy.
    redis.restart().expect("it starts");
    not_ready(door, "engine", "lost", "Redis has lost partition").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_sick_master_of_a_cluster_leaves_the_others_serving() {
    let options = cluster::Options { replicas: cluster::Replicas::None, ..Default::default() };
    let Some(cluster) = or_skip(Cluster::start(&options)) else { return };
    let Some(shop) = Shop::on(&cluster.url(), Dialect::Sqlite).await else { return };
    let node = shop.start("api,worker");
    let door = node.address;
    ready(door).await;
    let master = cluster
        .master_of(cluster.slot(qiang_engine::redis::hash_tag(0)).expect("a slot"))
        .expect("a master");
    let sick = &cluster.nodes()[master];
    tell(sick, &["CONFIG", "SET", "maxmemory", "1"]);
    let said = not_ready(door, "engine", "refuses_writes", "its memory is full").await;
    assert_eq!(said["serving"], "some", "{said}");
    let what = said["engine"].as_str().expect("words");
    let server = format!("Redis at 127.0.0.1:{}", sick.port());
    assert!(what.starts_with(&server) && what.contains(" of 4 partitions)"), "{what}");
    assert!(!engine_up(door).await);
    // A balancer that asks for less keeps sending people.
    let some = Person::admin(door).get("/readyz?serving=some").await.ok(200);
    assert_eq!(some["ready"], false, "{some}");
    for node in cluster.nodes() {
        tell(node, &["CONFIG", "SET", "maxmemory", "1"]);
    }
    eventually("nothing is served", async || {
        Person::admin(door).get("/readyz?serving=some").await.status == 503
    })
    .await;
    for node in cluster.nodes() {
        tell(node, &["CONFIG", "SET", "maxmemory", "0"]);
    }
    ready(door).await;
}

async fn execute(database: &Database, text: &str) {
    let statement = Statement::built(text.to_owned());
    database.execute(&statement, &[]).await.expect(text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_was_made_read_only_is_not_written_to_and_not_ready() {
    let Some(redis) = or_skip(Redis::start(&redis::Options::default())) else { return };
    let Some(server) = or_skip(Postgres::start(&postgres::Options::default())) else { return };
    let boss = Database::open(&server.url()).await.expect("opens");
    let url = redis.url();
    for engine in [&*url, "sql:"] {
        let shop = Shop::new(engine, &server.url());
        let node = shop.start("api,worker");
        let door = node.address;
        let sale = crowd::sale(door, 10, json!({})).await;
        ready(door).await;
        execute(&boss, "ALTER SYSTEM SET default_transaction_read_only = on").await;
        execute(&boss, "SELECT pg_reload_conf()").await;
        let words = "the database is read-only: make it writable";
        let said = not_ready(door, "database", "refuses_writes", words).await;
        let told = Person::buyer(door, "ann").claim(&sale, "ann").await;
        if engine == "sql:" {
            assert_eq!(said["engine_problem"], "refuses_writes", "{said}");
            assert_eq!(said["serving"], "none", "{said}");
            assert!(!engine_up(door).await && matches!(told, Told::Nothing(_)), "{told:?}");
        } else {
            assert_eq!((&said["engine"], &said["serving"]), (&Value::Null, &json!("all")));
            assert!(engine_up(door).await && matches!(told, Told::Granted(_)), "{told:?}");
        }
        execute(&boss, "ALTER SYSTEM RESET default_transaction_read_only").await;
        execute(&boss, "SELECT pg_reload_conf()").await;
        ready(door).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_that_is_read_only_hangs_or_is_gone_is_not_ready() {
    let Some(redis) = or_skip(Redis::start(&redis::Options::default())) else { return };
    let Some(server) = or_skip(Mariadb::start(&mariadb::Options::default())) else { return };
    let root = format!("{}/qiang", server.url());
    let boss = Database::open(&root).await.expect("opens");
    // Whoever may do everything may write to a database that is read-only.
    for text in [
        "CREATE USER shop@'127.0.0.1' IDENTIFIED BY 'secret'",
        "GRANT ALL ON qiang.* TO shop@'127.0.0.1'",
    ] {
        execute(&boss, text).await;
    }
    let database = format!("mysql://shop:secret@127.0.0.1:{}/qiang", server.port());
    let shop = Shop::new(&redis.url(), &database);
    let node = shop.start("api,worker");
    let door = node.address;
    ready(door).await;
    execute(&boss, "SET GLOBAL read_only = 1").await;
    let said = not_ready(door, "database", "refuses_writes", "the database is read-only").await;
    assert_eq!(said["engine"], Value::Null, "{said}");
    execute(&boss, "SET GLOBAL read_only = 0").await;
    ready(door).await;
    server.pause().expect("it runs");
    not_ready(door, "database", "unreachable", "the database cannot be reached").await;
    server.resume().expect("it was paused");
    ready(door).await;
    server.kill().expect("it runs");
    not_ready(door, "database", "unreachable", "the database cannot be reached").await;
    assert!(engine_up(door).await, "the sale goes on");
    server.restart().expect("it starts");
    ready(door).await;
}
