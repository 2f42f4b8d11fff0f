//! Sales: opened once, looked at by everybody, restocked by deltas, closed, and cleared only when
//! nothing in them can change any more.

use axum::http::Method;
use serde_json::{Value, json};

use crate::shop::{MINUTE, START_TEXT, Shop, changed, terms_of};

#[tokio::test]
async fn a_sale_is_opened_with_defaults_that_are_said() {
    let shop = Shop::open().await;
    let answer = shop.admin().await.post("/sales", terms_of(7)).await;
    let sale = answer.ok(201);
    let id = sale["id"].as_str().expect("text");
    assert_eq!(answer.header("location"), format!("/api/v1/sales/{id}"));
    let expected = json!({
        "id": id, "title": "Phone", "sku": "phone-15", "status": "open", "stock": 7,
        "available": 7, "held": 0, "ordered": 0, "paid": 0, "limit_per_user": 1,
        "limit_by": "user", "price_cents": 9_900, "price_steps": [], "opens_at": START_TEXT,
        "closes_at": null, "closed_at": null, "flow": "order", "hold_secs": null,
        "pay_secs": 1_800, "reclaim": "allowed", "buckets": 1, "version": 1, "created_at": START_TEXT,
        "server_time": START_TEXT,
    });
    assert_eq!(sale, expected);
    assert_eq!(shop.view(id).await, expected);
}

#[tokio::test]
async fn every_term_can_be_said_and_is_kept() {
    let shop = Shop::open().await;
    let terms = json!({
        "id": "42", "title": "限量手机", "stock": 2_147_483_648_u64, "limit_per_user": 3,
        "limit_by": "identity", "price_steps": [{ "after_sold": 10, "price_cents": 10_900 }],
        "opens_at": "2027-01-15T16:30:00+08:00", "closes_at": "2027-01-15T09:00:00Z",
        "flow": "hold", "hold_secs": 60, "pay_secs": 600, "reclaim": "never",
    });
    let body = changed(&terms_of(1), &terms);
    let sale = shop.admin().await.post("/sales", body.clone()).await.ok(201);
    for (name, value) in terms.as_object().expect("an object") {
        if !name.ends_with("_at") {
            assert_eq!(sale[name], *value, "{name}");
        }
    }
    assert_eq!(sale["opens_at"], "2027-01-15T08:30:00.000Z");
    assert_eq!(sale["closes_at"], "2027-01-15T09:00:00.000Z");
    assert_eq!(sale["status"], "scheduled");
    shop.advance(30 * MINUTE).await;
    assert_eq!(shop.view("42").await["status"], "open");
    shop.advance(30 * MINUTE).await;
    assert_eq!(shop.view("42").await["status"], "closed");
    shop.audit().await;
}

#[tokio::test]
async fn p11_opening_again_is_the_same_sale_or_refused_and_never_a_reset() {
    let shop = Shop::open().await;
    let mut admin = shop.admin().await;
    let body = changed(&terms_of(5), &json!({ "id": "77" }));
    admin.post("/sales", body.clone()).await.ok(201);
    shop.buyer("ann").await.granted("77").await;
    shop.advance(MINUTE).await;
    let again = admin.post("/sales", body.clone()).await.ok(200);
    assert_eq!((&again["available"], &again["opens_at"]), (&json!(4), &json!(START_TEXT)));
    for other in [json!({ "stock": 6 }), json!({ "price_cents": 1 }), json!({ "title": "Pad" })] {
        let body = changed(&body, &other);
        admin.refused(Method::POST, "/sales", body, 409, "sale_exists").await;
    }
    assert_eq!(shop.tally("77").await, [4, 0, 1, 0]);
    let shop = shop.restart(|_| ()).await;
    let again = shop.admin().await.post("/sales", body).await.ok(200);
    assert_eq!(again["available"], 4);
}

#[tokio::test]
async fn sales_are_listed_newest_first_in_pages() {
    let shop = Shop::open().await;
    let mut made = Vec::new();
    for stock in 1..=5 {
        made.insert(0, shop.sale(stock, json!({})).await);
    }
    let mut stranger = shop.stranger().await;
    let answer = stranger.get("/sales").await;
    assert_eq!(answer.header("cache-control"), "public, max-age=1");
    let ids = |page: &Value| -> Vec<String> {
        let sales = page["sales"].as_array().expect("a list").iter();
        sales.map(|sale| sale["id"].as_str().expect("an id").to_owned()).collect()
    };
    let all = answer.ok(200);
    assert_eq!((ids(&all), all.get("next_before")), (made.clone(), None));
    let (mut seen, mut path) = (Vec::new(), "/sales?limit=2".to_owned());
    loop {
        let page = stranger.get(&path).await.ok(200);
        seen.extend(ids(&page));
        let Some(next) = page["next_before"].as_str() else { break };
        path = format!("/sales?limit=2&before={next}");
        // One that comes meanwhile is on no later page, and one that goes takes no other with it.
        shop.sale(1, json!({})).await;
        let (mut admin, last) = (shop.admin().await, seen.last().expect("a page of two"));
        admin.post(&format!("/sales/{last}/close"), Value::Null).await.ok(200);
        admin.delete(&format!("/sales/{last}")).await.ok(200);
    }
    assert_eq!(seen, made);
    for query in ["limit=0", "limit=101", "limit=x", "before=7", "before=1_0", "skip=1", "page=2"] {
        let path = format!("/sales?{query}");
        stranger.refused(Method::GET, &path, Value::Null, 422, "invalid_field").await;
    }
}

#[tokio::test]
async fn units_are_added_by_a_delta_that_counts_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let path = format!("/sales/{sale}/restock");
    let mut admin = shop.admin().await;
    shop.buyer("ann").await.granted(&sale).await;
    assert_eq!(shop.view(&sale).await["status"], "sold_out");
    for _ in 0..3 {
        let view = admin.post_as("truck-1", &path, json!({ "units": 5 })).await.ok(200);
        assert_eq!((&view["stock"], &view["available"]), (&json!(6), &json!(5)));
    }
    let reused = admin.post_as("truck-1", &path, json!({ "units": 6 })).await;
    reused.problem(422, "idempotency_key_reused");
    admin.post(&path, json!({ "units": 1 })).await.ok(200);
    admin.post(&path, json!({ "units": 1 })).await.ok(200);
    assert_eq!(shop.view(&sale).await["status"], "open");
    let before = shop.view(&sale).await;
    for units in [json!(0), json!(-1), json!(2_147_483_649_u64), json!(1.5), json!("1")] {
        let body = json!({ "units": units });
        admin.refused(Method::POST, &path, body, 422, "invalid_field").await;
    }
    let body = json!({ "units": 2_147_483_648_u64 });
    admin.refused(Method::POST, &path, body, 409, "cannot_restock").await;
    let body = json!({ "units": 1 });
    admin.refused(Method::POST, "/sales/12/restock", body.clone(), 404, "no_such_sale").await;
    shop.buyer("ann").await.refused(Method::POST, &path, body.clone(), 403, "forbidden").await;
    assert_eq!(shop.view(&sale).await, before);
    admin.post(&format!("/sales/{sale}/close"), Value::Null).await.ok(200);
    admin.refused(Method::POST, &path, body, 410, "closed").await;
    assert_eq!(shop.tally(&sale).await, [7, 0, 1, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn a_closed_sale_grants_nothing_and_lets_the_granted_go_on() {
    let shop = Shop::open().await;
    let sale = shop.sale(3, json!({})).await;
    let (mut ann, mut admin) = (shop.buyer("ann").await, shop.admin().await);
    let order = ann.granted(&sale).await;
    let path = format!("/sales/{sale}/close");
    ann.refused(Method::POST, &path, Value::Null, 403, "forbidden").await;
    let closed = admin.post(&path, Value::Null).await.ok(200);
    assert_eq!((&closed["status"], &closed["closed_at"]), (&json!("closed"), &json!(START_TEXT)));
    shop.advance(MINUTE).await;
    let again = admin.post(&path, Value::Null).await.ok(200);
    assert_eq!(again["closed_at"], START_TEXT);
    let claims = format!("/sales/{sale}/claims");
    shop.buyer("ben").await.refused(Method::POST, &claims, json!({}), 410, "closed").await;
    ann.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
    admin.refused(Method::POST, "/sales/12/close", Value::Null, 404, "no_such_sale").await;
}

#[tokio::test]
async fn p02_a_sale_is_cleared_when_it_is_over_and_recorded_and_its_id_is_never_used_again() {
    let shop = Shop::open().await;
    let body = changed(&terms_of(3), &json!({ "id": "500" }));
    let mut admin = shop.admin().await;
    admin.post("/sales", body.clone()).await.ok(201);
    let mut ann = shop.buyer("ann").await;
    let order = ann.granted("500").await;
    let path = "/sales/500";
    admin.refused(Method::DELETE, path, Value::Null, 409, "sale_in_use").await;
    admin.post("/sales/500/close", Value::Null).await.ok(200);
    admin.refused(Method::DELETE, path, Value::Null, 409, "sale_in_use").await;
    ann.refused(Method::DELETE, path, Value::Null, 403, "forbidden").await;
    ann.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
    // No drain before: clearing itself waits for the records.
    let cleared = admin.delete(path).await.ok(200);
    assert_eq!(cleared["status"], "cleared");
    assert_eq!(admin.delete(path).await.ok(200)["status"], "cleared");
    admin.refused(Method::GET, path, Value::Null, 410, "sale_cleared").await;
    let listed = admin.get("/sales").await.ok(200);
    assert_eq!(listed["sales"], json!([]));
    let path = "/sales/500/claims";
    shop.buyer("ben").await.refused(Method::POST, path, json!({}), 410, "sale_cleared").await;
    let shop = shop.restart(|_| ()).await;
    let (mut admin, mut ann) = (shop.admin().await, shop.buyer("ann").await);
    admin.refused(Method::POST, "/sales", body, 409, "sale_exists").await;
    admin.refused(Method::DELETE, "/sales/501", Value::Null, 404, "no_such_sale").await;
    // The buyer still has what they bought.
    assert_eq!(ann.state(&order).await, "paid");
    let kept = ann.get(&format!("/orders/{order}")).await.ok(200);
    assert_eq!((&kept["status"], &kept["items"][0]["sku"]), (&json!("PAID"), &json!("phone-15")));
    assert_eq!(ann.get("/orders").await.ok(200)["orders"], json!([kept]));
    for (method, path) in [
        (Method::DELETE, format!("/claims/{order}")),
        (Method::POST, format!("/claims/{order}/order")),
        (Method::POST, format!("/orders/{order}/cancel")),
    ] {
        ann.refused(method, &path, Value::Null, 410, "sale_cleared").await;
    }
    shop.audit().await;
}

/// Nothing of it stays in the engine, so that clearing many costs nothing; the records have it.
#[tokio::test]
async fn a_cleared_sale_whose_id_was_made_is_in_the_records_alone() {
    let shop = Shop::open().await;
    let (mut admin, mut ann) = (shop.admin().await, shop.buyer("ann").await);
    let (sale, other) = (shop.sale(3, json!({})).await, shop.sale(3, json!({})).await);
    let order = ann.granted(&sale).await;
    ann.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
    let path = format!("/sales/{sale}");
    let closed = admin.post(&format!("{path}/close"), Value::Null).await.ok(200);
    let cleared = admin.delete(&path).await.ok(200);
    assert_eq!((&cleared["status"], &cleared["paid"]), (&json!("cleared"), &json!(1)));
    let shop = shop.restart(|_| ()).await;
    let (mut admin, mut ann) = (shop.admin().await, shop.buyer("ann").await);
    let again = admin.delete(&path).await.ok(200);
    assert_eq!((&again["status"], &again["stock"]), (&json!("cleared"), &json!(3)));
    assert_eq!(again["created_at"], closed["created_at"]);
    admin.refused(Method::GET, &path, Value::Null, 410, "sale_cleared").await;
    let close = format!("{path}/close");
    admin.refused(Method::POST, &close, Value::Null, 410, "sale_cleared").await;
    let restock = format!("{path}/restock");
    admin.refused(Method::POST, &restock, json!({ "units": 1 }), 410, "sale_cleared").await;
    // A claim asks the engine and nobody else.
    let claims = format!("{path}/claims");
    ann.refused(Method::POST, &claims, json!({}), 404, "no_such_sale").await;
    assert_eq!(ann.state(&order).await, "paid");
    let kept = ann.get(&format!("/orders/{order}")).await.ok(200);
    assert_eq!(kept["status"], "PAID");
    for (method, path) in [
        (Method::DELETE, format!("/claims/{order}")),
        (Method::POST, format!("/claims/{order}/order")),
        (Method::POST, format!("/orders/{order}/cancel")),
    ] {
        ann.refused(method, &path, Value::Null, 410, "sale_cleared").await;
    }
    let listed = admin.get("/sales").await.ok(200);
    assert_eq!(listed["sales"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["sales"][0]["id"], json!(other));
    shop.audit().await;
}

/// Ids of that size are made by qiang, each once, so nobody may choose one.
#[tokio::test]
async fn an_id_that_qiang_makes_cannot_be_given_by_hand() {
    let shop = Shop::open().await;
    let mut admin = shop.admin().await;
    let made = shop.sale(3, json!({})).await;
    for id in [made.as_str(), "4611686018427387904", "9223372036854775807"] {
        let body = changed(&terms_of(3), &json!({ "id": id }));
        admin.refused(Method::POST, "/sales", body, 422, "invalid_field").await;
    }
    let body = changed(&terms_of(3), &json!({ "id": "4611686018427387903" }));
    admin.post("/sales", body).await.ok(201);
}

#[tokio::test]
async fn a_sale_whose_time_is_over_can_be_cleared_without_being_closed() {
    let shop = Shop::open().await;
    let sale = shop.sale(3, json!({ "closes_at": "2027-01-15T08:01:00Z" })).await;
    shop.advance(MINUTE).await;
    let cleared = shop.admin().await.delete(&format!("/sales/{sale}")).await.ok(200);
    assert_eq!(cleared["status"], "cleared");
}
