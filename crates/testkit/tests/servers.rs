//! Servers are started, killed, paused and started again, and keep what they promised to keep.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use qiang_testkit::servers::cluster::{self, Cluster, Links, Replicas};
use qiang_testkit::servers::mariadb::{self, Mariadb};
use qiang_testkit::servers::postgres::{self, Fsync, Postgres};
use qiang_testkit::servers::redis::{self, Durability, Flavour, Redis};
use qiang_testkit::servers::{Disk, REDIS, Value, or_skip};

fn redis(options: &redis::Options) -> Option<Redis> {
    or_skip(Redis::start(options))
}

fn get(redis: &Redis, key: &str) -> Value {
    redis.command(&["GET", key]).expect("it answers")
}

#[test]
fn what_redis_synced_survives_a_kill() {
    let durability = Durability::Always;
    let Some(redis) = redis(&redis::Options { durability, ..Default::default() }) else { return };
    redis.command(&["SET", "stock", "7"]).unwrap();
    redis.kill().unwrap();
    assert!(!redis.is_running());
    assert!(redis.command(&["PING"]).is_err());
    redis.restart().unwrap();
    assert_eq!(get(&redis, "stock").integer(), Some(7));
    redis.flush().unwrap();
    assert_eq!(get(&redis, "stock"), Value::Nil);
}

#[test]
fn what_redis_kept_in_memory_does_not() {
    let Some(redis) = redis(&redis::Options::default()) else { return };
    redis.command(&["SET", "stock", "7"]).unwrap();
    redis.restart().unwrap();
    assert_eq!(get(&redis, "stock"), Value::Nil);
}

#[test]
fn valkey_is_started_like_redis_and_can_be_paused() {
    let options = redis::Options { flavour: Flavour::Valkey, ..Default::default() };
    let Some(valkey) = redis(&options) else { return };
    let info = valkey.command(&["INFO", "server"]).unwrap().text();
    assert!(info.contains("valkey_version:9."), "{info}");
    valkey.pause().unwrap();
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| valkey.command(&["PING"]));
        valkey.resume().unwrap();
        asked.join().unwrap()
    });
    assert_eq!(answer.unwrap().text(), "PONG");
}

#[test]
fn a_password_is_asked_for() {
    let password = Some("secret".to_owned());
    let Some(redis) = redis(&redis::Options { password, ..Default::default() }) else { return };
    assert!(redis.url().starts_with("redis://:secret@127.0.0.1:"), "{}", redis.url());
    assert_eq!(redis.command(&["PING"]).unwrap().text(), "PONG");
}

#[test]
fn a_port_that_somebody_else_has_is_given_up() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let options = redis::Options::default().with("port", port);
    let Err(error) = Redis::start(&options) else { panic!("two listen at one port") };
    if or_skip(REDIS.find().map_err(Into::into)).is_some() {
        assert!(error.to_string().contains("Address already in use"), "{error}");
    }
}

#[test]
fn a_cluster_serves_every_slot() {
    let Some(cluster) = or_skip(Cluster::start(&cluster::Options::default())) else { return };
    assert_eq!(cluster.url().matches("127.0.0.1:").count(), 3);
    for (key, expected) in [("b", 0), ("c", 1), ("a", 2)] {
        let slot = cluster.slot(key).unwrap();
        let master = cluster.master_of(slot).unwrap();
        assert_eq!(master, expected, "{key} is in slot {slot}");
        cluster.nodes()[master].command(&["SET", key, "1"]).unwrap();
    }
}

#[test]
fn a_replica_takes_over_when_its_master_is_killed() {
    let options = cluster::Options { replicas: Replicas::One, ..Default::default() };
    let Some(cluster) = or_skip(Cluster::start(&options)) else { return };
    let slot = cluster.slot("stock").unwrap();
    let old = cluster.master_of(slot).unwrap();
    cluster.nodes()[old].command(&["SET", "stock", "7"]).unwrap();
    cluster.wait_for_replication(old).unwrap();
    cluster.nodes()[old].kill().unwrap();
    let new = cluster.wait_for_promotion(slot, old).unwrap();
    assert_eq!(new, old + 3);
    assert_eq!(get(&cluster.nodes()[new], "stock").integer(), Some(7));
}

#[test]
fn redis_ends_on_a_full_disk_and_has_everything_when_there_is_room_again() {
    if !Disk::is_possible() {
        eprintln!("skipped: a small disk can only be mounted by root");
        return;
    }
    let (durability, disk_megabytes) = (Durability::Always, Some(8));
    let options = redis::Options { durability, disk_megabytes, ..Default::default() };
    let Some(redis) = redis(&options) else { return };
    let disk = redis.disk().unwrap();
    redis.command(&["SET", "stock", "7"]).unwrap();
    assert!(!redis.has_fallen());
    disk.fill().unwrap();
    // More than the last page of its file has room for.
    assert!(redis.command(&["SET", "stock", &"8".repeat(8_192)]).is_err());
    while !redis.has_fallen() {}
    assert!(redis.said().contains("AOF write error"), "{}", redis.said());
    disk.make_room().unwrap();
    redis.restart().unwrap();
    assert!(!redis.has_fallen());
    assert_eq!(get(&redis, "stock").integer(), Some(7));
}

#[test]
fn a_master_that_the_others_do_not_hear_is_replaced_and_goes_on_as_a_replica() {
    let (replicas, links) = (Replicas::One, Links::Proxied);
    let options = cluster::Options { replicas, links, ..Default::default() };
    let Some(cluster) = or_skip(Cluster::start(&options)) else { return };
    let slot = cluster.slot("stock").unwrap();
    let old = cluster.master_of(slot).unwrap();
    let replica = cluster.replica_of(old).unwrap();
    cluster.part_replication(old, replica).unwrap();
    cluster.nodes()[old].command(&["SET", "stock", "7"]).unwrap();
    assert_eq!(get(&cluster.nodes()[old], "stock").integer(), Some(7));
    cluster.heal_links().unwrap();
    cluster.wait_for_replication(old).unwrap();
    cluster.isolate(old).unwrap();
    // The one that was replaced cannot be asked: it hears nothing of it.
    while !cluster.masters().unwrap().contains(&replica) {}
    assert!(cluster.masters().unwrap().contains(&old));
    cluster.heal_links().unwrap();
    cluster.wait_until_whole().unwrap();
    assert_eq!(cluster.replica_of(replica).unwrap(), old);
    assert_eq!(get(&cluster.nodes()[replica], "stock").integer(), Some(7));
}

#[test]
fn what_mariadb_committed_survives_a_kill() {
    let Some(mariadb) = or_skip(Mariadb::start(&mariadb::Options::default())) else { return };
    assert_eq!(mariadb.url(), format!("mysql://root@127.0.0.1:{}", mariadb.port()));
    let port = mariadb.port().to_string();
    let sql = |text: &str| {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-h", "127.0.0.1", "-P", &port, "-u", "root", "-N"]);
        printed(client.args(["qiang", "-e", text]))
    };
    sql("CREATE TABLE t (n INT); INSERT INTO t VALUES (7)");
    mariadb.kill().unwrap();
    mariadb.restart().unwrap();
    assert_eq!(sql("SELECT n FROM t"), "7");
}

#[test]
fn what_postgres_committed_survives_a_kill() {
    let options = postgres::Options { fsync: Fsync::Off, ..Default::default() };
    let Some(postgres) = or_skip(Postgres::start(&options)) else { return };
    let url = postgres.url();
    let sql = |text: &str| printed(Command::new("psql").args(["-X", "-A", "-t", &url, "-c", text]));
    sql("CREATE TABLE t (n INT); INSERT INTO t VALUES (7)");
    // One that is busy must not keep it from starting again.
    let mut busy = Command::new("psql")
        .args(["-X", &url, "-c", "SELECT pg_sleep(600)"])
        .stderr(Stdio::null())
        .spawn();
    while sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") != "1" {}
    postgres.kill().unwrap();
    postgres.restart().unwrap();
    assert_eq!(sql("SELECT n FROM t"), "7");
    assert!(!busy.as_mut().unwrap().wait().unwrap().success());
}

fn printed(command: &mut Command) -> String {
    let output = command.output().expect("the client is installed with its server");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
