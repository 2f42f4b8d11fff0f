//! An append-only file that ends in the middle of a call, as a crash may leave it. Redis cuts off
//! the last command of it and keeps the ones before; the start after the next one carries them out
//! together with whatever came behind them.

use qiang_core::{Cents, Kind, Outcome, PayRequest, Settlement};
use qiang_engine::redis::Engine;
use qiang_testkit::contract::money;
use qiang_testkit::servers::redis::{Durability, Flavour};
use qiang_testkit::servers::{Redis, or_skip, redis};

use crate::asking::Asking as _;
use crate::fixture::{claims, events, granted, node, open, orders, pool, prefix, put_back, wish};
use crate::gone_back::{is_lost, repair, salvage};

const SALE: u64 = 1;

/// How much of a call is left off: of its last word alone, of the answer that is kept, nearly all.
const CUTS: [u64; 6] = [1, 3, 20, 60, 200, 400];

/// A Redis with a sale on it from which Ann has something.
struct Shop {
    server: Redis,
    url: String,
    prefix: String,
}

impl Shop {
    async fn begin(flavour: Flavour) -> Option<(Self, Engine)> {
        let durability = Durability::Always;
        let options = redis::Options { flavour, durability, ..Default::default() };
        let server = or_skip(Redis::start(&options))?;
        let (url, prefix) = (server.url(), prefix());
        let engine = node(&url, &prefix).await;
        open(&engine, pool(SALE), orders(10)).await;
        granted(&engine, wish(pool(SALE), "ann")).await;
        Some((Self { server, url, prefix }, engine))
    }

    /// The same, and the last call there, two claims, is cut off.
    async fn torn_by(bytes: u64, flavour: Flavour) -> Option<Self> {
        let (shop, engine) = Self::begin(flavour).await?;
        let torn = granted(&engine, wish(pool(SALE), "torn"));
        tokio::join!(torn, granted(&engine, wish(pool(SALE), "gone")));
        shop.server.tear(bytes).expect("it is cut");
        Some(shop)
    }

    async fn start_unchecked(&self) -> Engine {
        self.server.restart_unchecked().expect("it starts");
        self.node().await
    }

    async fn node(&self) -> Engine {
        node(&self.url, &self.prefix).await
    }
}

async fn is_sold_to(engine: &Engine, users: &[&str]) {
    let claims = claims(engine, pool(SALE)).await;
    let found: Vec<&str> = claims.iter().map(|claim| claim.user.as_str()).collect();
    assert_eq!(found, users);
}

#[tokio::test]
async fn p16_half_a_call_in_the_file_of_redis_is_noticed_and_put_right() {
    for bytes in CUTS {
        let Some(shop) = Shop::torn_by(bytes, Flavour::Redis).await else { return };
        let engine = shop.start_unchecked().await;
        // What was cut off is gone: the next one has its number.
        let bob = granted(&engine, wish(pool(SALE), "bob")).await;
        assert_eq!(bob.id.number, 2);

        for engine in [engine, shop.start_unchecked().await] {
            is_lost(&engine, pool(SALE), "in part").await;
            for partition in 0..engine.partitions() {
                let read = engine.read_log(partition, 0, 10).await;
                let sold_here = engine.partitions_of(pool(SALE), 1) == [partition];
                assert_eq!(read.is_err(), sold_here, "{read:?}");
            }
        }
        let engine = shop.node().await;
        let states = engine.partition_states().await.expect("it can be read");
        assert_eq!(states.iter().filter(|state| state.torn).count(), 1);
        let record = salvage(&engine, pool(SALE)).await;
        repair(&engine, &record, &[10; 4]).await;
        is_sold_to(&engine, &["ann", "bob"]).await;
        assert_eq!(granted(&engine, wish(pool(SALE), "torn")).await.id.number, 3);
        shop.start_unchecked().await;
        is_sold_to(&engine, &["ann", "bob", "torn"]).await;
    }
}

#[tokio::test]
async fn p16_a_file_that_was_checked_before_the_start_has_no_half_of_a_call() {
    for flavour in [Flavour::Redis, Flavour::Valkey] {
        for bytes in CUTS {
            let Some(shop) = Shop::torn_by(bytes, flavour).await else { return };
            shop.server.restart().expect("it starts");
            let engine = shop.node().await;
            assert_eq!(granted(&engine, wish(pool(SALE), "bob")).await.id.number, 2);
            shop.server.restart().expect("it starts");
            is_sold_to(&engine, &["ann", "bob"]).await;
            let logged = events(&shop.node().await).await;
            assert_eq!(logged.len(), 3, "{logged:?}");
        }
    }
}

/// Suspending and resuming alone does not make half a call unnoticed that is carried out later.
#[tokio::test]
async fn half_a_call_is_noticed_although_the_partitions_were_resumed_before_it_was_carried_out() {
    let Some(shop) = Shop::torn_by(60, Flavour::Redis).await else { return };
    let engine = shop.start_unchecked().await;
    let record = salvage(&engine, pool(SALE)).await;
    repair(&engine, &record, &[10; 4]).await;
    granted(&engine, wish(pool(SALE), "bob")).await;
    shop.server.restart_unchecked().expect("it starts");
    is_lost(&engine, pool(SALE), "in part").await;
}

/// What half an opening leaves is no sale, and does not stand in the way of one.
#[tokio::test]
async fn half_an_opening_is_no_sale() {
    // Far enough to leave off everything but the first things an opening writes.
    for bytes in (1..800).step_by(50) {
        let Some((shop, engine)) = Shop::begin(Flavour::Redis).await else { return };
        let late = pool(SALE + 1);
        open(&engine, late, orders(5)).await;
        shop.server.tear(bytes).expect("it is cut");
        let engine = shop.start_unchecked().await;
        granted(&engine, wish(pool(SALE), "bob")).await;
        let engine = shop.start_unchecked().await;
        let mut records = Vec::new();
        for partition in 0..engine.partitions() {
            for id in engine.pools_in(partition).await.expect("it can be read") {
                records.extend(engine.salvage(id).await.expect("it can be read"));
            }
        }
        put_back(&engine, &records, "e2", &[20; 4]).await;
        let listed = engine.pools(Kind::Sale, None, 10).await.expect("it can be read").len();
        assert!((1..=2).contains(&listed), "cut by {bytes}: {listed}");
        is_sold_to(&engine, &["ann", "bob"]).await;
        open(&engine, late, orders(5)).await;
        granted(&engine, wish(late, "ann")).await;
        assert_eq!(engine.pools(Kind::Sale, None, 10).await.expect("it can be read").len(), 2);
    }
}

/// Money that was owed back by a call that never was, and then paid.
#[tokio::test]
async fn half_a_refund_is_not_owed() {
    for bytes in CUTS {
        let Some((shop, engine)) = Shop::begin(Flavour::Redis).await else { return };
        let right = money(granted(&engine, wish(pool(SALE), "bob")).await.id, "P");
        let wrong = PayRequest { amount: Cents::new(1), ..right.clone() };
        let owed = engine.pay(wrong).await;
        assert!(matches!(owed, Ok(Outcome::Done(Settlement::RefundDue(_)))), "{owed:?}");
        shop.server.tear(bytes).expect("it is cut");
        let engine = shop.start_unchecked().await;
        let paid = engine.pay(right).await;
        assert!(matches!(paid, Ok(Outcome::Done(Settlement::Paid(_)))), "{paid:?}");
        let engine = shop.start_unchecked().await;
        let record = salvage(&engine, pool(SALE)).await;
        assert!(record.refunds.is_empty() && record.claims[1].payment.is_some(), "{record:?}");
    }
}
