//! A Redis that syncs before it answers, killed in the middle of a sale and started again.

use qiang_sql::Dialect;
use qiang_testkit::servers::redis::{Durability, own};
use serde_json::json;

use crate::crowd::{self, Asking, Crowd, audit, check, granted, others};
use crate::shop::Shop;

const STOCK: u32 = 250;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_killed_redis() {
    let Some(redis) = own(Durability::Always) else { return };
    let Some(shop) = Shop::on(&redis.url(), Dialect::Postgres).await else { return };
    let nodes = ["api", "api", "worker"].map(|roles| shop.start(roles));
    let doors = [nodes[0].address, nodes[1].address];
    let sale = crowd::sale(doors[0], STOCK, json!({})).await;
    let crowd = Crowd::rush(&doors, std::slice::from_ref(&sale), 0..400, Asking::UntilAnswered);
    for answers in [40, 100, 180] {
        crowd.told(answers).await;
        redis.kill().expect("it runs");
        redis.restart().expect("it starts");
    }
    let tales = crowd.end().await;
    assert_eq!(granted(&tales).len(), STOCK as usize, "{:?}", others(&tales));
    assert_eq!(others(&tales), [("sold_out", 400 - STOCK as usize)].into());
    check(&doors, &sale, STOCK, "ordered", &tales).await;
    audit(doors[1]).await;
    shop.audit_ok();
}
