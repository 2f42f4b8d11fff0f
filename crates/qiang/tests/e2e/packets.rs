//! A packet is there for nobody who asks for a sale, a claim or an order, and is recorded as none.

use serde_json::{Value, json};

use crate::shop::Shop;

#[tokio::test]
async fn a_packet_is_no_sale() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    shop.packet(72, "ann").await;
    let mut boss = shop.admin().await;
    let listed = boss.get("/sales").await.ok(200);
    let ids: Vec<_> =
        listed["sales"].as_array().expect("a list").iter().map(|s| &s["id"]).collect();
    assert_eq!(ids, [&json!(sale)]);
    boss.get("/sales/72").await.problem(404, "no_such_sale");
    boss.post("/sales/72/claims", json!({})).await.problem(404, "no_such_sale");
    boss.post("/sales/72/restock", json!({ "units": 1 })).await.problem(404, "no_such_sale");
    boss.post("/sales/72/close", Value::Null).await.problem(404, "no_such_sale");
    boss.delete("/sales/72").await.problem(404, "no_such_sale");
    boss.put("/current-sale", json!({ "sale_id": "72" })).await.problem(404, "no_such_sale");
}

#[tokio::test]
async fn a_portion_is_no_claim_of_a_sale_and_no_order() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    shop.packet(72, "ann").await;
    let mut ann = shop.buyer("ann").await;
    ann.get("/claims/72-1").await.problem(404, "no_such_claim");
    ann.post("/claims/72-1/order", Value::Null).await.problem(404, "no_such_claim");
    ann.delete("/claims/72-1").await.problem(404, "no_such_claim");
    ann.get("/orders/72-1").await.problem(404, "no_such_order");
    ann.post("/orders/72-1/cancel", Value::Null).await.problem(404, "no_such_order");
    ann.post("/orders/72-1/pay", Value::Null).await.problem(404, "no_such_order");
    shop.callback("p-1", "72-1", 5).await.problem(404, "no_such_order");
    ann.granted(&sale).await;
    let orders = ann.get("/orders").await.ok(200)["orders"].as_array().expect("a list").len();
    assert_eq!(orders, 1, "the one of the sale");
    let audit = shop.audit().await;
    assert_eq!([&audit["sales"], &audit["claims"], &audit["orders"]], [1, 1, 1]);
}
