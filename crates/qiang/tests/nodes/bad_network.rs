//! A network between a door and Redis that cuts, delays, refuses and loses answers.

use std::time::Duration;

use qiang_sql::Dialect;
use qiang_testkit::proxy::Proxy;
use qiang_testkit::servers::{Redis, or_skip, redis};
use serde_json::json;

use crate::crowd::{self, Asking, Crowd, audit, check, granted, others};
use crate::shop::{Node, Shop};

const STOCK: u32 = 350;
const CROWD: u32 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_network_before_redis_gives_every_buyer_one_answer() {
    let Some(redis) = or_skip(Redis::start(&redis::Options::default())) else { return };
    let Some(shop) = Shop::on(&redis.url(), Dialect::Postgres).await else { return };
    let proxy = Proxy::start(redis.port()).expect("a port");
    let mut far = shop.serving("api");
    far.env("QIANG_ENGINE__URL", proxy.url(shop.engine()));
    let far = Node::start(&mut far).expect("it starts");
    let nodes = [far, shop.start("api"), shop.start("worker")];
    let doors = [nodes[0].address, nodes[1].address];
    let sale = crowd::sale(doors[0], STOCK, json!({})).await;
    let crowd = Crowd::rush(&doors, std::slice::from_ref(&sale), 0..CROWD, Asking::UntilAnswered);
    for round in 0..6 {
        crowd.told(10 + round * 70).await;
        let before = proxy.counts();
        proxy.swallow_next_reply();
        proxy
            .until(move |now| now.swallowed_bytes > before.swallowed_bytes)
            .await
            .expect("a reply");
        proxy.cut();
        proxy.refuse().expect("it listens");
        crowd.told(20 + round * 70).await;
        proxy.admit().expect("it listened");
        proxy.delay_replies(Duration::from_millis(30));
        proxy.cut_after_reply_bytes(50);
        crowd.told(30 + round * 70).await;
        proxy.pause_replies();
        crowd.told(40 + round * 70).await;
        proxy.heal().expect("it listens");
    }
    let tales = crowd.end().await;
    assert_eq!(granted(&tales).len(), STOCK as usize, "{:?}", others(&tales));
    assert_eq!(others(&tales), [("sold_out", (CROWD - STOCK) as usize)].into());
    check(&doors, &sale, STOCK, "ordered", &tales).await;
    audit(doors[0]).await;
    shop.audit_ok();
}
