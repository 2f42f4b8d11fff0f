//! An append-only file that ends in the middle of a call, as a crash may leave it. Redis cuts off
//! the last command of it and keeps the ones before; the start after the next one carries them out
//! together with whatever came behind them.

use qiang_core::PoolId;
use qiang_engine::redis::Engine;
use qiang_testkit::servers::redis::Durability;
use qiang_testkit::servers::{Redis, or_skip, redis};

use crate::fixture::{claims, events, granted, node, open, orders, pool, prefix, wish};
use crate::gone_back::{is_lost, repair, salvage};

/// A Redis and a sale on it, of which the last call, two claims, was cut off.
struct Torn {
    server: Redis,
    url: String,
    prefix: String,
}

const SALE: u64 = 1;

impl Torn {
    /// Leaves so many bytes off the end of the file, less than that call takes there.
    async fn by(bytes: u64, flavour: redis::Flavour) -> Option<Self> {
        let options =
            redis::Options { flavour, durability: Durability::Always, ..Default::default() };
        let server = or_skip(Redis::start(&options))?;
        let (url, prefix) = (server.url(), prefix());
        let engine = node(&url, &prefix).await;
        open(&engine, pool(SALE), orders(10)).await;
        granted(&engine, wish(pool(SALE), "ann")).await;
        let torn = granted(&engine, wish(pool(SALE), "torn"));
        tokio::join!(torn, granted(&engine, wish(pool(SALE), "gone")));
        let file = server.append_only_file().expect("readable").expect("it has one");
        server.kill().expect("it runs");
        let length = file.metadata().expect("a file").len();
        std::fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .and_then(|f| f.set_len(length - bytes))
            .expect("it is cut");
        Some(Self { server, url, prefix })
    }

    async fn node(&self) -> Engine {
        node(&self.url, &self.prefix).await
    }
}

/// How much is left off: of the last word alone, of the answer that is kept, and nearly all.
const CUTS: [u64; 6] = [1, 3, 20, 60, 200, 400];

#[tokio::test]
async fn p16_half_a_call_in_the_file_of_redis_is_noticed_and_put_right() {
    for bytes in CUTS {
        let Some(torn) = Torn::by(bytes, redis::Flavour::Redis).await else { return };
        torn.server.restart_unchecked().expect("it starts");
        // It was never told, and is gone: the next one has its number.
        let engine = torn.node().await;
        let bob = granted(&engine, wish(pool(SALE), "bob")).await;
        assert_eq!(bob.id.number, 2);
        torn.server.restart_unchecked().expect("it starts");

        for engine in [engine, torn.node().await] {
            is_lost(&engine, pool(SALE), "in part").await;
            for partition in 0..engine.partitions() {
                let read = engine.read_log(partition, 0, 10).await;
                let sold_here = engine.partitions_of(pool(SALE), 1) == [partition];
                assert_eq!(read.is_err(), sold_here, "{read:?}");
            }
        }
        let engine = torn.node().await;
        let states = engine.partition_states().await.expect("it can be read");
        assert_eq!(states.iter().filter(|state| state.torn).count(), 1);
        let record = salvage(&engine, pool(SALE)).await;
        let users: Vec<&str> = record.claims.iter().map(|claim| claim.user.as_str()).collect();
        assert_eq!(users, ["ann", "bob"]);
        repair(&engine, &record, &[10; 4]).await;
        assert_eq!(granted(&engine, wish(pool(SALE), "torn")).await.id.number, 3);
        torn.server.restart_unchecked().expect("it starts");
        engine_has(&engine, pool(SALE), &["ann", "bob", "torn"]).await;
    }
}

#[tokio::test]
async fn p16_a_file_that_was_checked_before_the_start_has_no_half_of_a_call() {
    for flavour in [redis::Flavour::Redis, redis::Flavour::Valkey] {
        for bytes in CUTS {
            let Some(torn) = Torn::by(bytes, flavour).await else { return };
            torn.server.restart().expect("it starts");
            let engine = torn.node().await;
            assert_eq!(granted(&engine, wish(pool(SALE), "bob")).await.id.number, 2);
            torn.server.restart().expect("it starts");
            engine_has(&engine, pool(SALE), &["ann", "bob"]).await;
            let logged = events(&torn.node().await).await;
            assert_eq!(logged.len(), 3, "{logged:?}");
        }
    }
}

async fn engine_has(engine: &Engine, id: PoolId, users: &[&str]) {
    let claims = claims(engine, id).await;
    let found: Vec<&str> = claims.iter().map(|claim| claim.user.as_str()).collect();
    assert_eq!(found, users);
}
