//! Orders: a buyer's own, newest first, page by page; cancelled, or paid.

use axum::http::Method;
use serde_json::{Value, json};

use crate::shop::{MINUTE, SECOND, START_TEXT, Shop};

#[tokio::test]
async fn an_order_says_what_was_bought_and_whose_it_is() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({ "limit_per_user": 2 })).await;
    let mut ann = shop.buyer("ann").await;
    ann.claim(&sale, 2).await.ok(201);
    let id = format!("{sale}-1");
    let order = ann.get(&format!("/orders/{id}")).await.ok(200);
    let expected = json!({
        "order_id": id, "claim_id": id, "sale_id": sale, "user_id": "ann", "status": "PENDING",
        "amount_cents": 19_800, "created_at": START_TEXT, "pay_by": "2027-01-15T08:30:00.000Z",
        "paid_at": null, "cancelled_at": null,
        "items": [{ "sku": "phone-15", "title": "Phone", "quantity": 2, "unit_price_cents": 9_900 }],
    });
    assert_eq!(order, expected);
    let mut ben = shop.buyer("ben").await;
    for (method, path) in [
        (Method::GET, format!("/orders/{id}")),
        (Method::POST, format!("/orders/{id}/pay")),
        (Method::POST, format!("/orders/{id}/cancel")),
    ] {
        ben.refused(method, &path, Value::Null, 404, "no_such_order").await;
    }
    assert_eq!(shop.admin().await.get(&format!("/orders/{id}")).await.ok(200), expected);
    assert_eq!(ben.get("/orders").await.ok(200), json!({ "orders": [] }));
}

#[tokio::test]
async fn a_cancelled_order_returns_its_units_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let (mut ann, mut ben) = (shop.buyer("ann").await, shop.buyer("ben").await);
    let id = ann.granted(&sale).await;
    shop.advance(SECOND).await;
    let path = format!("/orders/{id}/cancel");
    for _ in 0..2 {
        let order = ann.post(&path, Value::Null).await.ok(200);
        assert_eq!(order["status"], "CANCELLED");
        assert_eq!(order["cancelled_at"], "2027-01-15T08:00:01.000Z");
        assert_eq!(shop.tally(&sale).await, [1, 0, 0, 0]);
    }
    let claim = ann.get(&format!("/claims/{id}")).await.ok(200);
    assert_eq!(claim["release_reason"], "cancelled");
    let id = ben.granted(&sale).await;
    ben.post(&format!("/orders/{id}/pay"), Value::Null).await.ok(200);
    let path = format!("/orders/{id}/cancel");
    ben.refused(Method::POST, &path, Value::Null, 409, "already_paid").await;
    shop.audit().await;
}

#[tokio::test]
async fn a_hold_that_was_never_ordered_is_nowhere_among_the_orders() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({ "flow": "hold" })).await;
    let mut ann = shop.buyer("ann").await;
    let id = ann.granted(&sale).await;
    assert_eq!(ann.get("/orders").await.ok(200)["orders"], json!([]));
    let path = format!("/orders/{id}/cancel");
    ann.refused(Method::POST, &path, Value::Null, 409, "not_ordered").await;
    ann.delete(&format!("/claims/{id}")).await.ok(200);
    ann.refused(Method::GET, &format!("/orders/{id}"), Value::Null, 404, "no_such_order").await;
    assert_eq!(ann.get("/orders").await.ok(200)["orders"], json!([]));
}

#[tokio::test]
async fn many_orders_come_in_pages_that_miss_none_and_repeat_none() {
    const ORDERS: usize = 123;
    let shop = Shop::open().await;
    let terms = json!({ "limit_per_user": 1_000 });
    let sales = [shop.sale(1_000, terms.clone()).await, shop.sale(1_000, terms).await];
    let (mut ann, mut ben) = (shop.buyer("ann").await, shop.buyer("ben").await);
    let mut made = Vec::new();
    for number in 0..ORDERS {
        made.insert(0, ann.granted(&sales[number % 2]).await);
        ben.granted(&sales[0]).await;
        // Several orders of the same millisecond, too.
        shop.advance(i64::from(number % 3 == 0)).await;
    }
    for limit in [1, 7, 50] {
        let mut seen = Vec::new();
        let mut path = format!("/orders?limit={limit}");
        loop {
            let page = ann.get(&path).await.ok(200);
            let orders = page["orders"].as_array().expect("a list");
            assert!(orders.len() <= limit);
            seen.extend(orders.iter().map(|o| o["order_id"].as_str().expect("an id").to_owned()));
            let Some(next) = page["next_before"].as_str() else { break };
            path = format!("/orders?limit={limit}&before={next}");
        }
        let mut sorted = (seen.clone(), made.clone());
        sorted.0.sort();
        sorted.1.sort();
        assert_eq!(sorted.0, sorted.1, "pages of {limit}");
    }
    let default = ann.get("/orders").await.ok(200);
    assert_eq!(default["orders"].as_array().expect("a list").len(), 50);
    let times: Vec<_> = default["orders"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|order| order["created_at"].as_str().expect("a time").to_owned())
        .collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "newest first");
    for query in ["limit=0", "limit=51", "before=", "before=x", "before=1_2", "before=_1-1", "p=1"]
    {
        let path = format!("/orders?{query}");
        ann.refused(Method::GET, &path, Value::Null, 422, "invalid_field").await;
    }
}

#[tokio::test]
async fn what_was_done_a_moment_ago_is_in_the_list() {
    let shop = Shop::open().await;
    let mut ann = shop.buyer("ann").await;
    for round in 0..20 {
        let sale = shop.sale(1, json!({})).await;
        let id = ann.granted(&sale).await;
        let first = |page: Value| page["orders"][0].clone();
        let order = first(ann.get("/orders?limit=1").await.ok(200));
        assert_eq!((&order["order_id"], &order["status"]), (&json!(id), &json!("PENDING")));
        let (action, status) =
            if round % 2 == 0 { ("pay", "PAID") } else { ("cancel", "CANCELLED") };
        ann.post(&format!("/orders/{id}/{action}"), Value::Null).await.ok(200);
        assert_eq!(first(ann.get("/orders?limit=1").await.ok(200))["status"], status);
        shop.advance(MINUTE).await;
    }
    shop.audit().await;
}
