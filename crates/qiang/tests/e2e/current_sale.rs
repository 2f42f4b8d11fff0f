//! One current sale for shops that run one at a time, and the address shops with vouchers know.

use axum::http::Method;
use serde_json::{Value, json};

use crate::shop::Shop;

#[tokio::test]
async fn the_current_sale_is_chosen_by_an_admin_and_outlives_a_restart() {
    let shop = Shop::open().await;
    let (mut ann, mut admin) = (shop.buyer("ann").await, shop.admin().await);
    ann.refused(Method::GET, "/current-sale", Value::Null, 404, "no_current_sale").await;
    let path = "/current-sale/claims";
    ann.refused(Method::POST, path, Value::Null, 404, "no_current_sale").await;
    let sale = shop.sale(5, json!({})).await;
    let choice = json!({ "sale_id": sale });
    ann.refused(Method::PUT, "/current-sale", choice.clone(), 403, "forbidden").await;
    let nobody = &mut shop.stranger().await;
    nobody.refused(Method::PUT, "/current-sale", choice.clone(), 401, "unauthenticated").await;
    assert_eq!(admin.put("/current-sale", choice).await.ok(200)["id"], sale);
    for (body, status, code) in [
        (json!({ "sale_id": "12" }), 404, "no_such_sale"),
        (json!({ "sale_id": "x" }), 404, "no_such_sale"),
        (json!({ "sale_id": 12 }), 422, "invalid_field"),
        (json!({}), 422, "invalid_field"),
        (json!({ "sale": "12" }), 422, "unknown_field"),
    ] {
        admin.refused(Method::PUT, "/current-sale", body, status, code).await;
    }
    let shop = shop.restart(|_| ()).await;
    let mut ann = shop.buyer("ann").await;
    assert_eq!(ann.get("/current-sale").await.ok(200), shop.view(&sale).await);
    let claim = ann.post_as("k", path, Value::Null).await.ok(201);
    assert_eq!(claim["sale_id"], sale);
    assert_eq!(ann.post_as("k", path, Value::Null).await.ok(200), claim);
    let none = shop.admin().await.put("/current-sale", json!({ "sale_id": null })).await;
    assert_eq!((none.status, none.text.as_str()), (204, ""));
    ann.refused(Method::GET, "/current-sale", Value::Null, 404, "no_current_sale").await;
    let shop = shop.restart(|_| ()).await;
    let path = "/current-sale";
    shop.stranger().await.refused(Method::GET, path, Value::Null, 404, "no_current_sale").await;
}

#[tokio::test]
async fn p01_a_claim_stays_with_the_sale_it_was_made_on() {
    let shop = Shop::open().await;
    let (old, new) = (shop.sale(5, json!({})).await, shop.sale(5, json!({ "sku": "pad" })).await);
    let (mut ann, mut admin) = (shop.buyer("ann").await, shop.admin().await);
    let mut claims = Vec::new();
    for sale in [&old, &new] {
        admin.put("/current-sale", json!({ "sale_id": sale })).await.ok(200);
        claims.push(ann.post("/current-sale/claims", Value::Null).await.ok(201));
    }
    for (claim, sale, sku) in [(&claims[0], &old, "phone-15"), (&claims[1], &new, "pad")] {
        assert_eq!(claim["sale_id"], **sale);
        let id = claim["claim_id"].as_str().expect("an id");
        assert!(id.starts_with(&format!("{sale}-")), "{id}");
        let order = ann.get(&format!("/orders/{id}")).await.ok(200);
        assert_eq!((&order["sale_id"], &order["items"][0]["sku"]), (&json!(sale), &json!(sku)));
    }
    // Also in the records, which were written after the change.
    shop.drain().await;
    let mine = ann.get("/orders").await.ok(200);
    let skus: Vec<_> = mine["orders"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|order| (order["sale_id"].clone(), order["items"][0]["sku"].clone()))
        .collect();
    assert!(skus.contains(&(json!(old), json!("phone-15"))), "{skus:?}");
    assert!(skus.contains(&(json!(new), json!("pad"))), "{skus:?}");
    shop.audit().await;
}

#[tokio::test]
async fn a_current_sale_that_was_cleared_says_so() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut admin = shop.admin().await;
    admin.put("/current-sale", json!({ "sale_id": sale })).await.ok(200);
    admin.post(&format!("/sales/{sale}/close"), Value::Null).await.ok(200);
    admin.delete(&format!("/sales/{sale}")).await.ok(200);
    admin.refused(Method::GET, "/current-sale", Value::Null, 410, "sale_cleared").await;
    let body = json!({ "sale_id": sale });
    admin.refused(Method::PUT, "/current-sale", body, 410, "sale_cleared").await;
    // Who claims asks the engine alone, and that has forgotten it.
    let path = "/current-sale/claims";
    shop.buyer("ann").await.refused(Method::POST, path, Value::Null, 404, "no_such_sale").await;
}

#[tokio::test]
async fn the_voucher_address_claims_as_the_other_does() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    let path = format!("/voucher-order/seckill/{sale}");
    let mut ann = shop.buyer("ann").await;
    let key = [("idempotency-key", "once")];
    let claim = ann.ask(Method::POST, &path, &key, "").await.ok(201);
    assert_eq!(claim["claim_id"], format!("{sale}-1"));
    assert_eq!(ann.ask(Method::POST, &path, &key, "").await.ok(200), claim);
    ann.ask(Method::POST, &path, &[], "").await.problem(409, "already_claimed");
    let none = ann.ask(Method::POST, "/voucher-order/seckill/12", &[], "").await;
    none.problem(404, "no_such_sale");
    let nobody = shop.stranger().await.ask(Method::POST, &path, &[], "").await;
    nobody.problem(401, "unauthenticated");
    shop.buyer("ben").await.ask(Method::POST, &path, &[], "").await.ok(201);
    let zh = [("accept-language", "zh")];
    let gone = shop.buyer("cat").await.ask(Method::POST, &path, &zh, "").await;
    assert_eq!(gone.problem_in("zh", 410, "sold_out")["title"], "已售罄");
}
