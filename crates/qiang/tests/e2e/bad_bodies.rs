//! Bodies that are no JSON, no JSON by their own word, too large, or not what was asked for:
//! each is a 4xx with a code, and nothing changes.

use axum::http::Method;
use qiang_app::token::Role;
use serde_json::{Value, json};

use crate::raw;
use crate::shop::{Shop, changed, terms_of};

const JSON: (&str, &str) = ("content-type", "application/json");

/// Every address that takes a body, with one it would take.
fn taking_bodies(sale: &str) -> [(Method, String, Value); 5] {
    [
        (Method::POST, "/api/v1/sales".into(), terms_of(5)),
        (Method::POST, format!("/api/v1/sales/{sale}/claims"), json!({ "quantity": 1 })),
        (Method::POST, format!("/api/v1/sales/{sale}/restock"), json!({ "units": 1 })),
        (Method::PUT, "/api/v1/current-sale".into(), json!({ "sale_id": sale })),
        (Method::POST, format!("/voucher-order/seckill/{sale}"), json!({})),
    ]
}

#[tokio::test]
async fn what_is_no_json_is_not_understood() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let before = (shop.view(&sale).await, shop.stranger().await.get("/sales").await.ok(200));
    let mut admin = shop.admin().await;
    let deep = "[".repeat(10_000);
    for (method, path, good) in taking_bodies(&sale) {
        let good = good.to_string();
        let cut = &good[..good.len() - 1];
        let more = format!("{good}{good}");
        for body in [cut, &more, "{", "nonsense", "\u{feff}{}", " "] {
            let answer = admin.ask(method.clone(), &path, &[JSON], body.to_owned()).await;
            answer.problem(400, "bad_json");
        }
        let answer = admin.ask(method.clone(), &path, &[JSON], &b"{\"title\":\"\xff\"}"[..]).await;
        assert!([400, 422].contains(&answer.status), "{answer:?}");
        // JSON, but no object of the kind.
        for body in ["null", "[1]", " [\"12\"]", "5", "\"text\"", "true", &deep] {
            let answer = admin.ask(method.clone(), &path, &[JSON], body.to_owned()).await;
            answer.problem(422, "invalid_field");
        }
    }
    let after = (shop.view(&sale).await, shop.stranger().await.get("/sales").await.ok(200));
    assert_eq!(after, before);
    admin.refused(Method::GET, "/current-sale", Value::Null, 404, "no_current_sale").await;
}

#[tokio::test]
async fn a_field_nobody_knows_is_named() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let before = shop.view(&sale).await;
    let mut admin = shop.admin().await;
    for (method, path, good) in taking_bodies(&sale) {
        let body = changed(&good, &json!({ "quantitty": 1 }));
        let zh = [JSON, ("accept-language", "zh")];
        let answer = admin.ask(method.clone(), &path, &zh, body.to_string()).await;
        assert_eq!(answer.problem_in("zh", 422, "unknown_field")["title"], "未知字段");
        let problem = admin.ask(method, &path, &[JSON], body.to_string()).await;
        let problem = problem.problem(422, "unknown_field");
        assert_eq!(problem["field"], "quantitty");
        assert!(problem["detail"].as_str().expect("text").contains("quantitty"));
    }
    let steps = json!([{ "after_sold": 1, "price_cents": 10_000, "colour": 1 }]);
    let body = changed(&terms_of(5), &json!({ "price_steps": steps }));
    let problem = admin.refused(Method::POST, "/sales", body, 422, "unknown_field").await;
    assert_eq!(problem["field"], "colour");
    assert_eq!(shop.view(&sale).await, before);
}

#[tokio::test]
async fn a_body_must_say_that_it_is_json() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let before = shop.view(&sale).await;
    let mut admin = shop.admin().await;
    for (method, path, good) in taking_bodies(&sale) {
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
            let headers = [("content-type", kind)];
            let answer = admin.ask(method.clone(), &path, &headers, good.to_string()).await;
            answer.problem(415, "unsupported_media_type");
        }
        let answer = admin.ask(method, &path, &[], good.to_string()).await;
        answer.problem(415, "unsupported_media_type");
    }
    assert_eq!(shop.view(&sale).await, before);
    let path = format!("/api/v1/sales/{sale}/claims");
    for (user, kind) in [("a", "Application/JSON; charset=utf-8"), ("b", "application/json;x=y")] {
        let headers = [("content-type", kind)];
        shop.buyer(user).await.ask(Method::POST, &path, &headers, "{}").await.ok(201);
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_by_its_length_or_when_it_is_reached() {
    const LIMIT: usize = 1_024;
    let shop = Shop::with(&[("QIANG_HTTP__BODY_LIMIT_BYTES", "1024")]).await;
    let sale = shop.sale(5, json!({})).await;
    let before = shop.view(&sale).await;
    let padded = |length: usize| format!("{{\"quantity\":1{}}}", " ".repeat(length - 14));
    let path = format!("/api/v1/sales/{sale}/claims");
    let mut ann = shop.buyer("ann").await;
    for length in [LIMIT + 1, 10 * LIMIT] {
        let answer = ann.ask(Method::POST, &path, &[JSON], padded(length)).await;
        assert_eq!(answer.problem(413, "body_too_large")["limit_bytes"], LIMIT);
    }
    let token = shop.token("ann", Role::Buyer, None);
    // The length alone is enough; nobody waits for the bytes.
    let head = raw::claim_head(&sale, &token, usize::MAX / 2);
    let answer = raw::exchange(shop.address(), head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // In pieces, without a length.
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: shop\r\nauthorization: {token}\r\nconnection: close\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let piece = format!("{:x}\r\n{}\r\n", LIMIT / 2, " ".repeat(LIMIT / 2));
    let chunked = format!("{head}{}0\r\n\r\n", piece.repeat(3));
    let answer = raw::exchange(shop.address(), chunked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("\"code\":\"body_too_large\""), "{answer}");
    assert_eq!(shop.view(&sale).await, before);
    // Exactly the limit is not too large, whole or in pieces.
    ann.ask(Method::POST, &path, &[JSON], padded(LIMIT)).await.ok(201);
    let token = shop.token("ben", Role::Buyer, None);
    let head = head.replace(&shop.token("ann", Role::Buyer, None), &token);
    let body = padded(LIMIT);
    let chunked = format!("{head}200\r\n{}\r\n200\r\n{}\r\n0\r\n\r\n", &body[..512], &body[512..]);
    let answer = raw::exchange(shop.address(), chunked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

#[tokio::test]
async fn callbacks_and_payments_check_their_bodies_too() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let order = ann.granted(&sale).await;
    let before = shop.view(&sale).await;
    let pay = format!("/orders/{order}/pay");
    for (body, code) in [
        (json!({ "payment_id": "" }), "invalid_field"),
        (json!({ "payment_id": "x".repeat(129) }), "invalid_field"),
        (json!({ "payment_id": "a\nb" }), "invalid_field"),
        (json!({ "payment_id": 5 }), "invalid_field"),
        (json!({ "payment": "p" }), "unknown_field"),
    ] {
        ann.refused(Method::POST, &pay, body, 422, code).await;
    }
    let good = json!({ "payment_id": "p", "order_id": order, "amount_cents": 9_900 });
    for (change, status, code) in [
        (json!({ "amount_cents": 0 }), 422, "invalid_field"),
        (json!({ "amount_cents": -9_900 }), 422, "invalid_field"),
        (json!({ "amount_cents": "9900" }), 422, "invalid_field"),
        (json!({ "amount_cents": 99.5 }), 422, "invalid_field"),
        (json!({ "payment_id": "" }), 422, "invalid_field"),
        (json!({ "payment_id": "x".repeat(129) }), 422, "invalid_field"),
        (json!({ "currency": "CNY" }), 422, "unknown_field"),
        (json!({ "order_id": "x" }), 404, "no_such_order"),
        (json!({ "order_id": format!("{sale}-2") }), 404, "no_such_order"),
        (json!({ "order_id": "12-1" }), 404, "no_such_order"),
    ] {
        let body = changed(&good, &change).to_string();
        shop.signed(&body).await.problem(status, code);
    }
    shop.signed("{").await.problem(400, "bad_json");
    shop.signed("").await.problem(400, "bad_json");
    assert_eq!(shop.view(&sale).await, before);
    shop.audit().await;
}

#[tokio::test]
async fn what_needs_no_body_takes_none_that_makes_no_sense() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let claim = shop.buyer("ann").await.granted(&sale).await;
    let before = shop.view(&sale).await;
    let mut admin = shop.admin().await;
    for (method, path) in [
        (Method::POST, format!("/api/v1/sales/{sale}/close")),
        (Method::DELETE, format!("/api/v1/sales/{sale}")),
        (Method::POST, format!("/api/v1/claims/{claim}/order")),
        (Method::DELETE, format!("/api/v1/claims/{claim}")),
        (Method::POST, format!("/api/v1/orders/{claim}/cancel")),
        (Method::POST, "/api/v1/admin/audit/repair".to_owned()),
    ] {
        let answer = admin.ask(method.clone(), &path, &[JSON], "{bad".to_owned()).await;
        answer.problem(400, "bad_json");
        let answer = admin.ask(method.clone(), &path, &[JSON], r#"{"x":1}"#.to_owned()).await;
        answer.problem(422, "unknown_field");
        let answer = admin.ask(method, &path, &[], "hello".to_owned()).await;
        answer.problem(415, "unsupported_media_type");
    }
    assert_eq!(shop.view(&sale).await, before);
}

#[tokio::test]
async fn what_is_wrong_is_said_without_the_words_of_rust() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let path = format!("/api/v1/sales/{sale}/claims");
    for (body, wanted) in [
        ("null", "the body is null, and must be a JSON object"),
        ("7", "the body is 7, and must be a JSON object"),
        ("{\"quantity\":\"one\"}", "`quantity` is \"one\", and must be a whole number"),
        ("{\"quantity\":1.5}", "`quantity` is 1.5, and must be a whole number"),
    ] {
        let answer = ann.ask(Method::POST, &path, &[JSON], body.to_owned()).await;
        let problem = answer.problem(422, "invalid_field");
        let detail = problem["detail"].as_str().expect("text");
        assert_eq!(detail, wanted, "{body}");
    }
    let sales = ann.ask(Method::GET, "/api/v1/sales?limit=many", &[], String::new()).await;
    let problem = sales.problem(422, "invalid_field");
    assert_eq!(problem["detail"], "`limit` must be a whole number");
}
