//! Numbers, texts and times a sale or a claim cannot have: each is named, and nothing changes.

use axum::http::Method;
use serde_json::{Value, json};

use crate::shop::{Shop, changed, terms_of};

#[tokio::test]
async fn terms_that_make_no_sense_are_named() {
    let shop = Shop::open().await;
    let mut admin = shop.admin().await;
    let step = |after: i64, cents: i64| json!({ "after_sold": after, "price_cents": cents });
    for (field, change) in [
        ("stock", json!({ "stock": 0 })),
        ("stock", json!({ "stock": -1 })),
        ("stock", json!({ "stock": 2_147_483_649_u64 })),
        ("stock", json!({ "stock": u64::MAX })),
        ("stock", json!({ "stock": 1e30 })),
        ("stock", json!({ "stock": 1.5 })),
        ("stock", json!({ "stock": "10" })),
        ("stock", json!({ "stock": null })),
        ("limit_per_user", json!({ "limit_per_user": 0 })),
        ("limit_per_user", json!({ "limit_per_user": -1 })),
        ("limit_per_user", json!({ "limit_per_user": 2_147_483_649_u64 })),
        ("limit_by", json!({ "limit_by": "device" })),
        ("price_cents", json!({ "price_cents": -1 })),
        ("price_cents", json!({ "price_cents": 1_000_000_001 })),
        ("price_cents", json!({ "price_cents": i64::MIN })),
        ("price_cents", json!({ "price_cents": 99.5 })),
        ("price_steps", json!({ "price_steps": [step(0, 10_000)] })),
        ("price_steps", json!({ "price_steps": [step(-1, 10_000)] })),
        ("price_steps", json!({ "price_steps": [step(5, 9_900)] })),
        ("price_steps", json!({ "price_steps": [step(5, 10_000), step(5, 11_000)] })),
        ("price_steps", json!({ "price_steps": [step(5, 11_000), step(6, 10_000)] })),
        ("price_cents", json!({ "price_steps": [step(5, 1_000_000_001)] })),
        ("price_steps", json!({ "price_steps": vec![step(1, 10_000); 101] })),
        ("title", json!({ "title": "" })),
        ("title", json!({ "title": "  " })),
        ("title", json!({ "title": "x".repeat(201) })),
        ("title", json!({ "title": "a\u{0}b" })),
        ("sku", json!({ "sku": "a\nb" })),
        ("sku", json!({ "sku": "" })),
        ("sku", json!({ "sku": "x".repeat(65) })),
        ("closes_at", json!({ "closes_at": "2027-01-15T08:00:00Z" })),
        ("closes_at", json!({ "closes_at": "2027-01-15T07:59:59Z" })),
        (
            "closes_at",
            json!({
                "opens_at": "2027-01-15T10:00:00Z", "closes_at": "2027-01-15T09:00:00Z",
            }),
        ),
        (
            "closes_at",
            json!({
                "opens_at": "2027-01-15T10:00:00+08:00", "closes_at": "2027-01-15T02:00:00Z",
            }),
        ),
        ("opens_at", json!({ "opens_at": "tomorrow" })),
        ("opens_at", json!({ "opens_at": 1_800_000_000 })),
        ("opens_at", json!({ "opens_at": "2027-01-15" })),
        ("opens_at", json!({ "opens_at": "2027-02-30T00:00:00Z" })),
        ("flow", json!({ "flow": "queue" })),
        ("hold_secs", json!({ "hold_secs": 60 })),
        ("hold_secs", json!({ "flow": "hold", "hold_secs": 0 })),
        ("hold_secs", json!({ "flow": "hold", "hold_secs": -5 })),
        ("hold_secs", json!({ "flow": "hold", "hold_secs": i64::MAX })),
        ("pay_secs", json!({ "pay_secs": 0 })),
        ("pay_secs", json!({ "pay_secs": 31_622_401 })),
        ("pay_secs", json!({ "flow": "instant", "pay_secs": 60 })),
        ("reclaim", json!({ "reclaim": "sometimes" })),
        ("id", json!({ "id": "0" })),
        ("id", json!({ "id": "007" })),
        ("id", json!({ "id": "-1" })),
        ("id", json!({ "id": "abc" })),
        ("id", json!({ "id": "9223372036854775808" })),
        ("id", json!({ "id": 5 })),
    ] {
        let body = changed(&terms_of(5), &change);
        let problem = admin.refused(Method::POST, "/sales", body, 422, "invalid_field").await;
        assert_eq!(problem["field"], field, "{change}: {problem}");
        assert!(problem["detail"].as_str().expect("text").contains('`'), "{problem}");
    }
    for field in ["title", "sku", "stock", "price_cents"] {
        let mut body = terms_of(5);
        body.as_object_mut().expect("an object").remove(field);
        let problem = admin.refused(Method::POST, "/sales", body, 422, "invalid_field").await;
        assert_eq!(problem["field"], field);
    }
    assert_eq!(admin.get("/sales").await.ok(200)["sales"], json!([]));
}

#[tokio::test]
async fn quantities_that_make_no_sense_take_nothing() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({ "limit_per_user": 3 })).await;
    let path = format!("/sales/{sale}/claims");
    let before = shop.view(&sale).await;
    let mut ann = shop.buyer("ann").await;
    for quantity in [
        json!(0),
        json!(-1),
        json!(i64::MIN),
        json!(2_147_483_649_u64),
        json!(4_294_967_296_u64),
        json!(4_294_967_297_u64),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(1.5),
        json!("1"),
        json!([1]),
        Value::Null,
    ] {
        let body = json!({ "quantity": quantity });
        let problem = ann.refused(Method::POST, &path, body, 422, "invalid_field").await;
        assert_eq!(problem["field"], "quantity", "{quantity}");
    }
    for quantity in [4, 2_147_483_648_u64] {
        let body = json!({ "quantity": quantity });
        ann.refused(Method::POST, &path, body, 409, "over_limit").await;
    }
    assert_eq!(shop.view(&sale).await, before);
    // The same number as 3.
    ann.post(&path, json!({ "quantity": 3.0 })).await.ok(201);
}

#[tokio::test]
async fn texts_are_counted_in_characters() {
    let shop = Shop::open().await;
    let (title, sku) = ("抢".repeat(200), "🧧".repeat(64));
    let sale = shop.sale(1, json!({ "title": title, "sku": sku })).await;
    let mut ann = shop.buyer("ann").await;
    ann.granted(&sale).await;
    shop.drain().await;
    let item = &ann.get("/orders").await.ok(200)["orders"][0]["items"][0];
    assert_eq!((&item["title"], &item["sku"]), (&json!(title), &json!(sku)));
}

#[tokio::test]
async fn ids_that_are_none_name_nothing() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    ann.granted(&sale).await;
    let before = shop.view(&sale).await;
    let mut admin = shop.admin().await;
    let big = "9".repeat(300);
    for id in ["12", "0", "007", "-1", "+1", "abc", "1.0", "9223372036854775808", "%20", &big] {
        for (method, path) in [
            (Method::GET, format!("/sales/{id}")),
            (Method::DELETE, format!("/sales/{id}")),
            (Method::POST, format!("/sales/{id}/close")),
            (Method::POST, format!("/sales/{id}/claims")),
        ] {
            admin.refused(method, &path, Value::Null, 404, "no_such_sale").await;
        }
    }
    let [unknown, zero, padded, far] =
        ["2", "0", "01", "4294967296"].map(|n| format!("{sale}-{n}"));
    for id in [&unknown, &zero, &padded, &far, "1-1", &sale, "x-1", "1-", "-1", "1-1-1"] {
        for (method, path, code) in [
            (Method::GET, format!("/claims/{id}"), "no_such_claim"),
            (Method::DELETE, format!("/claims/{id}"), "no_such_claim"),
            (Method::POST, format!("/claims/{id}/order"), "no_such_claim"),
            (Method::GET, format!("/orders/{id}"), "no_such_order"),
            (Method::POST, format!("/orders/{id}/pay"), "no_such_order"),
            (Method::POST, format!("/orders/{id}/cancel"), "no_such_order"),
        ] {
            admin.refused(method, &path, Value::Null, 404, code).await;
        }
    }
    // Not even text: no address at all.
    for path in ["/sales/%ff", "/claims/%ff", "/orders/%ff", "/orders/1-%c0%80"] {
        admin.refused(Method::GET, path, Value::Null, 404, "no_such_route").await;
    }
    for (sale, payment) in [("12", "p"), ("x", "p"), (&*sale, "nothing"), (&*sale, "%0a")] {
        let path = format!("/admin/refunds/{sale}/{payment}/settle");
        let code = if sale == "x" { "no_such_sale" } else { "no_such_refund" };
        admin.refused(Method::POST, &path, Value::Null, 404, code).await;
    }
    for order in ["12-1", "x", "1-", &*format!("{sale}-1")] {
        let path = format!("/admin/reviews/{order}/end");
        admin.refused(Method::POST, &path, Value::Null, 404, "no_such_review").await;
    }
    assert_eq!(shop.view(&sale).await, before);
}

#[tokio::test]
async fn another_users_things_are_not_there() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({ "flow": "hold" })).await;
    let (mut ann, mut eve) = (shop.buyer("ann").await, shop.buyer("eve").await);
    let held = ann.granted(&sale).await;
    let before = shop.view(&sale).await;
    for (method, path) in [
        (Method::GET, format!("/claims/{held}")),
        (Method::DELETE, format!("/claims/{held}")),
        (Method::POST, format!("/claims/{held}/order")),
    ] {
        eve.refused(method, &path, Value::Null, 404, "no_such_claim").await;
    }
    assert_eq!(shop.view(&sale).await, before);
    // The shop itself may touch everything.
    let mut admin = shop.admin().await;
    assert_eq!(admin.state(&held).await, "held");
    admin.delete(&format!("/claims/{held}")).await.ok(200);
    assert_eq!(ann.state(&held).await, "released");
}
