//! A Redis that was filled by another version of qiang is not worked on.

use std::path::Path;

use qiang_core::{Kind, Outcome, Settlement};
use qiang_engine::redis::{Engine, OpenError, Options, Place, Time, hash_tag};
use qiang_testkit::contract;
use qiang_testkit::servers::redis::{Durability, own};
use qiang_testkit::servers::shared;

use crate::asking::Asking as _;
use crate::fixture::{events, granted, node, open, orders, pool, prefix, wish};
use crate::servers::command;

async fn opened(url: &str) -> Result<Engine, OpenError> {
    let place = Place::parse(url).expect("a good url");
    Engine::open(Options { place, queue: 1_024, time: Time::Server, node: 1 }).await
}

/// The dump was made by the version before the layout had a number: two sales, one of them spread,
/// with held, ordered and paid claims.
#[tokio::test]
async fn a_redis_filled_by_the_version_before_is_refused_and_left_alone() {
    let Some(server) = own(Durability::None) else { return };
    let folder = server.command(&["CONFIG", "GET", "dir"]).expect("it answers").list()[1].text();
    server.kill().expect("it runs");
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis/data/layout-1.rdb");
    std::fs::copy(dump, Path::new(&folder).join("dump.rdb")).expect("it is copied");
    server.restart().expect("it starts");
    let keys = || server.command(&["DBSIZE"]).expect("it answers").integer();
    let before = keys();
    assert!(before > Some(40), "{before:?}");
    let url = format!("{}?prefix=old&partitions=4", server.url());
    let refused = opened(&url).await.expect_err("it is of another version").to_string();
    assert!(refused.contains("layout 1") && refused.contains("qiang export"), "{refused}");
    assert_eq!(keys(), before);
    // Beside it there is room.
    node(&server.url(), "new").await;
}

#[tokio::test]
async fn a_redis_filled_by_a_newer_version_is_refused() {
    let Some(server) = own(Durability::None) else { return };
    let prefix = prefix();
    node(&server.url(), &prefix).await;
    let meta = server
        .command(&["KEYS", &format!("{prefix}:{{{}}}:meta", hash_tag(0))])
        .expect("it answers");
    let meta = meta.list()[0].text();
    server.command(&["HSET", &meta, "format", "99"]).expect("it answers");
    let url = format!("{}?prefix={prefix}&partitions=4", server.url());
    let refused = opened(&url).await.expect_err("it is of another version").to_string();
    assert!(refused.contains("newer qiang (layout 99"), "{refused}");
}

/// Pools that a version before kinds has opened are sales.
#[tokio::test]
async fn a_pool_that_does_not_say_its_kind_is_a_sale() {
    let Some(url) = shared::redis() else { return };
    let prefix = prefix();
    let engine = node(&url, &prefix).await;
    open(&engine, pool(1), orders(3)).await;
    let partition = engine.partitions_of(pool(1), 1)[0];
    let key = format!("{prefix}:{{{}}}:pool:1/0", hash_tag(partition));
    let script = "local rules = cmsgpack.unpack(redis.call('HGET', KEYS[1], 'rules')) \
                  table.remove(rules, 14) \
                  redis.call('HSET', KEYS[1], 'rules', cmsgpack.pack(rules)) return #rules";
    assert_eq!(command(&url, &["EVAL", script, "1", &key]), ":13\r\n");
    let claim = granted(&engine, wish(pool(1), "ann")).await;
    assert_eq!(claim.kind, Kind::Sale);
    let paid = engine.pay(contract::money(claim.id, "P1")).await;
    assert!(matches!(paid, Ok(Outcome::Done(Settlement::Paid(_)))), "{paid:?}");
    let events = events(&engine).await;
    assert_eq!(events.len(), 3);
    assert!(events.iter().all(|event| event.kind() == Kind::Sale), "{events:?}");
}
