//! Units moved from one bucket to another, and one of the two forgot it: nothing is sold twice, and
//! nobody has to be alive who saw the transfer.

use qiang_core::{PoolId, Refusal};
use qiang_engine::Error;
use qiang_engine::redis::{Engine, is_in_its_bucket};
use qiang_testkit::servers::redis::{Durability, own};
use qiang_testkit::servers::{Redis, shared};

use crate::asking::Asking as _;
use crate::fixture::{claims, granted, node, open, orders, pool, prefix, refused, view, wish};
use crate::servers::Saved;

const STOCK: u32 = 20;

/// A sale of two buckets, of which the second has nothing left.
struct Sale {
    server: Redis,
    prefix: String,
    id: PoolId,
    /// In which partition each bucket lies.
    partitions: Vec<u16>,
    /// Users who claim from each bucket, and have not yet.
    users: [Vec<String>; 2],
}

impl Sale {
    async fn begin() -> Option<Self> {
        let server = own(Durability::None)?;
        let (prefix, id) = (prefix(), pool(1));
        let engine = node(&server.url(), &prefix).await;
        let mut terms = orders(STOCK);
        terms.buckets = 2;
        open(&engine, id, terms).await;
        let users = users(&engine).await;
        let partitions = engine.partitions_of(id, 2);
        let mut sale = Self { server, prefix, id, partitions, users };
        for _ in 0..STOCK / 2 {
            sale.claim(&engine, 1).await;
        }
        Some(sale)
    }

    async fn claim(&mut self, engine: &Engine, bucket: usize) {
        let user = self.users[bucket].pop().expect("there are enough");
        granted(engine, wish(self.id, &user)).await;
    }

    /// Nobody alive has seen anything.
    async fn fresh_node(&self) -> Engine {
        node(&self.server.url(), &self.prefix).await
    }

    fn saved(&self, url: &'static str, bucket: usize) -> Saved<'static> {
        Saved::of(url, &self.prefix, self.partitions[bucket])
    }

    async fn nothing_is_sold(&mut self, engine: &Engine, lost: usize) {
        for bucket in [0, 1] {
            let user = self.users[bucket].pop().expect("there are enough");
            let told = engine.claim(wish(self.id, &user)).await;
            assert_eq!(told, Err(Error::Unavailable), "bucket {bucket}");
        }
        let found = engine.lost();
        let what = found.get(&self.partitions[lost]);
        assert!(what.is_some_and(|what| what.contains("gone back")), "{found:?}");
        assert_eq!(found.len(), 1, "{found:?}");
    }
}

/// Users by the bucket of two that they claim from.
async fn users(engine: &Engine) -> [Vec<String>; 2] {
    let probe = pool(1_000_000);
    let mut terms = orders(1_000);
    terms.buckets = 2;
    open(engine, probe, terms.clone()).await;
    let mut users = [Vec::new(), Vec::new()];
    for number in 0..100 {
        let claim = granted(engine, wish(probe, &format!("u{number}"))).await;
        assert!(is_in_its_bucket(&claim, &terms));
        users[(claim.id.number as usize - 1) % 2].push(claim.user.as_str().to_owned());
    }
    users
}

fn leaked(url: String) -> &'static str {
    Box::leak(url.into_boxed_str())
}

#[tokio::test]
async fn p24_units_that_a_forgetful_lender_lent_are_not_sold_again() {
    let Some(mut sale) = Sale::begin().await else { return };
    let saved = sale.saved(leaked(sale.server.url()), 0);
    let engine = sale.fresh_node().await;
    sale.claim(&engine, 1).await;
    drop(engine);
    saved.put_back();
    let engine = sale.fresh_node().await;
    sale.nothing_is_sold(&engine, 0).await;
}

/// The position alone does not tell: other sales of the partition have made its log longer again.
#[tokio::test]
async fn p24_a_forgotten_lending_is_noticed_although_others_went_further() {
    let Some(mut sale) = Sale::begin().await else { return };
    let saved = sale.saved(leaked(sale.server.url()), 0);
    let engine = sale.fresh_node().await;
    sale.claim(&engine, 1).await;
    saved.put_back();
    let engine = sale.fresh_node().await;
    let beside = (2..).map(pool).find(|id| engine.partitions_of(*id, 1)[0] == sale.partitions[0]);
    let beside = beside.expect("some sale lies there");
    open(&engine, beside, orders(50)).await;
    for user in 0..50 {
        granted(&engine, wish(beside, &format!("u{user}"))).await;
    }
    sale.nothing_is_sold(&engine, 0).await;
    assert_eq!(engine.claim(wish(beside, "late")).await, Err(Error::Unavailable));
}

#[tokio::test]
async fn p24_a_borrower_that_forgot_what_it_got_is_noticed() {
    let Some(mut sale) = Sale::begin().await else { return };
    let saved = sale.saved(leaked(sale.server.url()), 1);
    let engine = sale.fresh_node().await;
    sale.claim(&engine, 1).await;
    drop(engine);
    saved.put_back();
    let engine = sale.fresh_node().await;
    sale.nothing_is_sold(&engine, 1).await;
}

/// Whoever sold before the server was replaced looks again before it sells on.
#[tokio::test]
async fn p24_a_node_that_reconnects_compares_the_buckets_again() {
    let Some(mut sale) = Sale::begin().await else { return };
    let bystander = sale.fresh_node().await;
    sale.claim(&bystander, 0).await;
    let saved = sale.saved(leaked(sale.server.url()), 0);
    let engine = sale.fresh_node().await;
    sale.claim(&engine, 1).await;
    drop(engine);
    saved.put_back();
    bystander.drop_connections();
    sale.nothing_is_sold(&bystander, 0).await;
}

#[tokio::test]
async fn p24_transfers_are_events_and_the_buckets_add_up() {
    let Some(url) = shared::redis() else { return };
    let engine = node(&url, &prefix()).await;
    let id = pool(1);
    let mut terms = orders(STOCK);
    terms.buckets = 4;
    open(&engine, id, terms).await;
    for user in 0..STOCK {
        granted(&engine, wish(id, &format!("u{user}"))).await;
        let spread = engine.spread(id).await.expect("it answers").expect("it is there");
        assert_eq!((spread.units, spread.short), (STOCK.into(), 0));
    }
    assert_eq!(refused(&engine, wish(id, "late")).await, Refusal::SoldOut);
    let ends: u64 = engine.positions().await.expect("it answers").iter().sum();
    let told = crate::fixture::events(&engine).await.len() as u64;
    assert_eq!(told, 1 + u64::from(STOCK));
    assert!(ends > told, "no transfer is in the logs");
    assert_eq!(claims(&engine, id).await.len(), STOCK as usize);
    assert_eq!(view(&engine, id).await.available, 0);
}
