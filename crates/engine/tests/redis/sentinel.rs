//! A Redis that Sentinel looks after: the master is found, and followed when another one takes
//! over; one that could go on selling while it is cut off is refused.

use std::sync::Arc;

use qiang_engine::redis::{Engine, OpenError, Options, Place, Time};
use qiang_testkit::servers::cluster::PROMOTION_LIMIT;
use qiang_testkit::servers::{Authority, Sentinels, or_skip, redis, sentinel};

use crate::asking::Asking as _;
use crate::fixture::{claims, granted, node, number, open, orders, pool, prefix, wish};

async fn opened(url: &str) -> Result<Engine, OpenError> {
    let place = Place::parse(url).expect("a good url");
    Engine::open(Options { place, queue: 16, time: Time::Server, node: number() }).await
}

/// Buys for one user after the other until it works again.
async fn goes_on(engine: &Engine, user: &str) {
    let again = async {
        while engine.claim(wish(pool(1), user)).await.is_err() {
            assert!(engine.lost().is_empty(), "{:?}", engine.lost());
        }
    };
    tokio::time::timeout(PROMOTION_LIMIT, again).await.expect("the new master is found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_goes_on_with_the_master_that_sentinel_made() {
    // A master that comes back empty would hand that on to its replicas.
    let mut options = sentinel::Options::default();
    options.node.durability = redis::Durability::Always;
    let Some(all) = or_skip(Sentinels::start(&options)) else { return };
    let all = Arc::new(all);
    let engine = node(&format!("{}?wait=1", all.url()), &prefix()).await;
    open(&engine, pool(1), orders(1_000)).await;
    let mut sold = 0;
    for _ in 0..20 {
        granted(&engine, wish(pool(1), &format!("before{sold}"))).await;
        sold += 1;
    }
    // The master dies.
    let old = all.master().expect("they agree");
    all.servers()[old].kill().expect("it dies");
    goes_on(&engine, "first").await;
    let promoted = {
        let all = Arc::clone(&all);
        tokio::task::spawn_blocking(move || all.wait_for_promotion(old))
    };
    let promoted = promoted.await.expect("no panic").expect("another one takes over");
    let joined = {
        let all = Arc::clone(&all);
        tokio::task::spawn_blocking(move || all.wait_for_replicas(1).and_then(|()| all.fail_over()))
    };
    joined.await.expect("no panic").expect("it changes again");
    let changed = {
        let all = Arc::clone(&all);
        tokio::task::spawn_blocking(move || all.wait_for_promotion(promoted))
    };
    // The master lives on and is a replica now.
    changed.await.expect("no panic").expect("another one takes over");
    goes_on(&engine, "second").await;
    granted(&engine, wish(pool(1), "third")).await;
    assert_eq!(claims(&engine, pool(1)).await.len(), sold + 3);
    assert!(engine.lost().is_empty(), "{:?}", engine.lost());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_servers_that_speak_tls() {
    let authority = Authority::new().expect("made");
    let identity = authority.issue(&["127.0.0.1"]).expect("made");
    let mut options = sentinel::Options::default();
    options.node.tls = Some(identity);
    let Some(all) = or_skip(Sentinels::start(&options)) else { return };
    let url = format!("{}?wait=1&ca={}", all.url(), authority.ca().display());
    assert!(url.starts_with("rediss-sentinel://"), "{url}");
    let engine = node(&url, &prefix()).await;
    open(&engine, pool(1), orders(1_000)).await;
    granted(&engine, wish(pool(1), "ann")).await;
    let old = all.master().expect("they agree");
    all.servers()[old].kill().expect("it dies");
    goes_on(&engine, "bob").await;
    assert_eq!(claims(&engine, pool(1)).await.len(), 2);
}

#[tokio::test]
async fn a_master_that_would_go_on_selling_is_refused() {
    let options = sentinel::Options { replicas: 1, ..Default::default() };
    let Some(all) = or_skip(Sentinels::start(&options)) else { return };
    let refused = opened(&all.url()).await.expect_err("it could sell on");
    let told = refused.to_string();
    assert!(told.contains("?wait=1") && told.contains("min-replicas-to-write 1"), "{told}");
    opened(&format!("{}?wait=1", all.url())).await.expect("replicas are waited for");
    let unknown = all.url().replace(sentinel::MASTER, "other");
    let told = qiang_engine::chain(&opened(&unknown).await.expect_err("nobody knows it"));
    assert!(told.contains("know no master of that name"), "{told}");
    let master = &all.servers()[0];
    // Nobody can tell how it is set up.
    let user = ["ACL", "SETUSER", "blind", "on", ">secret", "~*", "+@all", "-config"];
    master.command(&user).expect("it knows users");
    let blind = all.url().replace("://", "://blind:secret@");
    let told = opened(&blind).await.expect_err("it may sell on").to_string();
    assert!(told.contains("cannot be looked at") && !told.contains("secret"), "{told}");
    master.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).expect("it is set");
    opened(&all.url()).await.expect("a master without replicas sells nothing");
}

#[tokio::test]
async fn logins_at_both_and_sentinels_that_do_not_answer() {
    let node_options = redis::Options { password: Some("inner".into()), ..Default::default() };
    let options = sentinel::Options { node: node_options, replicas: 1, ..Default::default() };
    let Some(all) = or_skip(Sentinels::start(&options)) else { return };
    let url = all.url().replace("://", "://:inner@");
    // One of them is somebody else, and one is nobody.
    let (first, rest) = url.split_once(',').expect("several");
    let url = format!("{first},127.0.0.1:1,127.0.0.1:{},{rest}?wait=1", all.servers()[1].port());
    let least = ["+sentinel|get-master-addr-by-name", "+ping"];
    let user = ["ACL", "SETUSER", "watcher", "on", ">outer", "-@all", least[0], least[1]];
    all.tell_sentinels(&user).expect("they know users");
    let login = |password| format!("{url}&sentinel_user=watcher&sentinel_password={password}");
    let told = qiang_engine::chain(&opened(&login("wrong")).await.expect_err("it is wrong"));
    assert!(told.contains("refused the login") && !told.contains("wrong"), "{told}");
    let engine = node(&login("outer"), &prefix()).await;
    open(&engine, pool(1), orders(10)).await;
    granted(&engine, wish(pool(1), "ann")).await;
}
