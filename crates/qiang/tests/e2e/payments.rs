//! Money: sandbox and signed callbacks, each payment counted once by its id.

use axum::http::Method;
use serde_json::{Value, json};

use crate::process::run;
use crate::shop::{MINUTE, SECOND, START_TEXT, Shop};

#[tokio::test]
async fn a_sandbox_payment_pays_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let order = ann.granted(&sale).await;
    let path = format!("/orders/{order}/pay");
    let paid = ann.post(&path, Value::Null).await.ok(200);
    assert_eq!((&paid["outcome"], &paid["replayed"]), (&json!("paid"), &json!(false)));
    assert_eq!(paid["order"]["status"], "PAID");
    assert_eq!(paid["order"]["paid_at"], START_TEXT);
    assert!(paid.get("refund").is_none());
    let again = ann.post(&path, json!({})).await.ok(200);
    assert_eq!((&again["outcome"], &again["replayed"]), (&json!("paid"), &json!(true)));
    assert_eq!(again["order"], paid["order"]);
    assert_eq!(shop.tally(&sale).await, [4, 0, 0, 1]);
    let report = shop.audit().await;
    assert_eq!((&report["payments"], &report["refunds"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn where_the_sandbox_is_off_nobody_pays_without_money() {
    let shop = Shop::with(&[("QIANG_PAYMENTS__SANDBOX", "false")]).await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let order = ann.granted(&sale).await;
    let before = shop.view(&sale).await;
    let path = format!("/orders/{order}/pay");
    ann.refused(Method::POST, &path, Value::Null, 403, "sandbox_disabled").await;
    shop.admin().await.refused(Method::POST, &path, Value::Null, 403, "sandbox_disabled").await;
    assert_eq!(shop.view(&sale).await, before);
    assert_eq!(shop.callback("p1", &order, 9_900).await.ok(200)["outcome"], "paid");
}

#[tokio::test]
async fn a_signed_callback_pays_and_told_again_says_the_same() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let order = ann.granted(&sale).await;
    let paid = shop.callback("p-1", &order, 9_900).await.ok(200);
    assert_eq!((&paid["outcome"], &paid["replayed"]), (&json!("paid"), &json!(false)));
    // The provider tells until it is answered, each time with a fresh signature.
    for _ in 0..3 {
        shop.advance(MINUTE).await;
        let again = shop.callback("p-1", &order, 9_900).await.ok(200);
        assert_eq!((&again["outcome"], &again["replayed"]), (&json!("paid"), &json!(true)));
        assert_eq!(again["order"], paid["order"]);
    }
    let shop = shop.restart(|_| ()).await;
    assert_eq!(shop.callback("p-1", &order, 9_900).await.ok(200)["replayed"], true);
    assert_eq!(shop.tally(&sale).await, [4, 0, 0, 1]);
    let report = shop.audit().await;
    assert_eq!((&report["payments"], &report["refunds"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn a_callback_is_believed_only_with_a_fresh_signature_over_its_very_bytes() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let order = ann.granted(&sale).await;
    let before = shop.view(&sale).await;
    let body = json!({ "payment_id": "p", "order_id": order, "amount_cents": 9_900 }).to_string();
    let key = &shop.server.domains.sales.callbacks;
    let (stamp, signature) = key.sign(body.as_bytes(), shop.server.app.now());
    let cheaper = body.replace("9900", "9901");
    let flipped =
        signature.replace(&signature[10..11], if &signature[10..11] == "0" { "1" } else { "0" });
    let stranger_key = qiang_sales::signature::Key::new(&shop.secrets().jwt_key);
    let (_, foreign) = stranger_key.sign(body.as_bytes(), shop.server.app.now());
    let later = (stamp.parse::<i64>().expect("seconds") + 1).to_string();
    for (stamp, signature, body) in [
        (Some(&stamp), None, &body),
        (None, Some(&signature), &body),
        (None, None, &body),
        (Some(&stamp), Some(&flipped), &body),
        (Some(&stamp), Some(&foreign), &body),
        (Some(&stamp), Some(&signature), &cheaper),
        (Some(&later), Some(&signature), &body),
        (Some(&stamp), Some(&"sha256=".to_owned()), &body),
        (Some(&"now".to_owned()), Some(&signature), &body),
    ] {
        let stamp = stamp.map(|value| ("x-qiang-timestamp", value.as_str()));
        let signature = signature.map(|value| ("x-qiang-signature", value.as_str()));
        let mut headers: Vec<_> = stamp.into_iter().chain(signature).collect();
        let path = "/api/v1/payments/callback";
        let answer = ann.ask(Method::POST, path, &headers, body.clone()).await;
        answer.problem(401, "bad_signature");
        headers.push(("accept-language", "zh"));
        let answer = ann.ask(Method::POST, path, &headers, body.clone()).await;
        answer.problem_in("zh", 401, "bad_signature");
    }
    assert_eq!(shop.view(&sale).await, before);
    // Recorded and sent again: within the window it is the same payment, after it nothing.
    let headers = [("x-qiang-timestamp", &*stamp), ("x-qiang-signature", &*signature)];
    let path = "/api/v1/payments/callback";
    shop.advance(300 * SECOND).await;
    ann.ask(Method::POST, path, &headers, body.clone()).await.ok(200);
    let again = ann.ask(Method::POST, path, &headers, body.clone()).await.ok(200);
    assert_eq!(again["replayed"], true);
    shop.advance(1).await;
    ann.ask(Method::POST, path, &headers, body.clone()).await.problem(401, "stale_signature");
    assert_eq!(shop.tally(&sale).await, [4, 0, 0, 1]);
    shop.audit().await;
}

#[tokio::test]
async fn a_wrong_amount_buys_nothing_and_goes_back() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let order = ann.granted(&sale).await;
    for (payment, cents) in [("less", 9_899), ("more", 9_901)] {
        let due = shop.callback(payment, &order, cents).await.ok(200);
        assert_eq!(due["outcome"], "refund_due");
        assert_eq!(due["refund"]["reason"], "amount_mismatch");
        assert_eq!(due["refund"]["amount_cents"], cents);
        assert!(due.get("order").is_none());
    }
    assert_eq!(ann.state(&order).await, "ordered");
    assert_eq!(shop.callback("right", &order, 9_900).await.ok(200)["outcome"], "paid");
    let report = shop.audit().await;
    assert_eq!((&report["payments"], &report["refunds"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn a_second_payment_for_a_paid_order_goes_back() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let order = ann.granted(&sale).await;
    shop.callback("first", &order, 9_900).await.ok(200);
    let path = format!("/orders/{order}/pay");
    let due = ann.post(&path, json!({ "payment_id": "second" })).await.ok(200);
    assert_eq!(
        (&due["outcome"], &due["refund"]["reason"]),
        (&json!("refund_due"), &json!("already_paid"))
    );
    let again = shop.callback("second", &order, 9_900).await.ok(200);
    assert_eq!((&again["outcome"], &again["replayed"]), (&json!("refund_due"), &json!(true)));
    assert_eq!(shop.tally(&sale).await, [4, 0, 0, 1]);
    shop.audit().await;
}

#[tokio::test]
async fn a_payment_id_belongs_to_one_order() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let one = shop.buyer("ann").await.granted(&sale).await;
    let two = shop.buyer("ben").await.granted(&sale).await;
    shop.callback("p", &one, 9_900).await.ok(200);
    let before = shop.view(&sale).await;
    shop.callback("p", &two, 9_900).await.problem(409, "payment_conflict");
    let path = format!("/orders/{two}/pay");
    let body = json!({ "payment_id": "p" });
    let mut ben = shop.buyer("ben").await;
    ben.refused(Method::POST, &path, body, 409, "payment_conflict").await;
    assert_eq!(shop.view(&sale).await, before);
    shop.audit().await;
}

/// One payment id, told for orders of two sales.
async fn paid_twice(shop: &Shop) -> (String, String) {
    let mut orders = Vec::new();
    for _ in 0..2 {
        let sale = shop.sale(5, json!({})).await;
        let order = shop.buyer("ann").await.granted(&sale).await;
        assert_eq!(shop.callback("p", &order, 9_900).await.ok(200)["outcome"], "paid");
        orders.push(order);
        shop.advance(SECOND).await;
    }
    let [first, later] = <[String; 2]>::try_from(orders).expect("two");
    (first, later)
}

async fn pending_metric(shop: &Shop) -> String {
    let page = shop.stranger().await.ask(Method::GET, "/metrics", &[], "").await;
    let line = page.text.lines().find_map(|l| l.strip_prefix("qiang_orders_pending_review "));
    line.expect("it is counted").to_owned()
}

#[tokio::test]
async fn p21_a_payment_of_two_sales_is_left_to_a_person() {
    let shop = Shop::open().await;
    let (first, later) = paid_twice(&shop).await;
    // Told again, each is what it was.
    for order in [&first, &later] {
        let again = shop.callback("p", order, 9_900).await.ok(200);
        assert_eq!((&again["outcome"], &again["replayed"]), (&json!("paid"), &json!(true)));
    }
    let (mut admin, mut ann) = (shop.admin().await, shop.buyer("ann").await);
    let listed = admin.get("/admin/reviews").await.ok(200);
    let review = &listed["reviews"][0];
    assert_eq!(listed["reviews"].as_array().map(Vec::len), Some(1), "{listed}");
    for (member, value) in [
        ("order_id", json!(later)),
        ("first_order_id", json!(first)),
        ("payment_id", json!("p")),
        ("status", json!("pending")),
        ("ended_at", Value::Null),
    ] {
        assert_eq!(review[member], value, "{member}");
    }
    let orders = ann.get("/orders").await.ok(200);
    assert_eq!(orders["orders"][0]["order_id"], later);
    assert_eq!(orders["orders"][0]["review"], "pending");
    assert_eq!(orders["orders"][0]["status"], "PAID");
    assert!(orders["orders"][1].get("review").is_none(), "{orders}");
    assert_eq!(admin.get("/admin/refunds").await.ok(200), json!({ "refunds": [] }));
    assert_eq!(pending_metric(&shop).await, "1");
    let report = shop.audit().await;
    assert_eq!(report["pending_reviews"], 1);
    assert_eq!(report["reviews"][0]["order_id"], later);

    let path = format!("/admin/reviews/{later}/end");
    shop.advance(SECOND).await;
    let ended = admin.post(&path, Value::Null).await.ok(200);
    assert_eq!(ended["status"], "ended");
    assert!(ended["ended_at"].is_string());
    shop.advance(SECOND).await;
    assert_eq!(admin.post(&path, Value::Null).await.ok(200), ended, "the first word stands");
    assert_eq!(admin.get("/admin/reviews").await.ok(200), json!({ "reviews": [] }));
    let all = admin.get("/admin/reviews?status=ended").await.ok(200);
    assert_eq!(all, json!({ "reviews": [ended] }));
    let order = &ann.get("/orders").await.ok(200)["orders"][0];
    assert!(order.get("review").is_none() && order["status"] == "PAID", "{order}");
    assert_eq!(pending_metric(&shop).await, "0");
    let refused = format!("/admin/reviews/{first}/end");
    admin.refused(Method::POST, &refused, Value::Null, 404, "no_such_review").await;
    for query in ["status=x", "after=x", "limit=0", "limit=101"] {
        admin.get(&format!("/admin/reviews?{query}")).await.problem(422, "invalid_field");
    }
    assert_eq!(shop.audit().await["pending_reviews"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_names_a_payment_of_two_sales_and_is_content() {
    let shop = Shop::open().await;
    let (first, later) = paid_twice(&shop).await;
    let token = shop.token("auditor", qiang_app::token::Role::Admin, None);
    let url = shop.server.url();
    let ended = run(shop.folder(), &["audit", "--url", &url, "--token", &token]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let line = format!("{later}\treview\tpayment p had paid order {first} before");
    assert!(ended.stdout.starts_with(&line), "{}", ended.stdout);
    assert!(ended.stderr.contains("1 paid orders are left to a person"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_refund_names_the_order_that_its_payment_paid_in_another_sale() {
    let shop = Shop::open().await;
    let mut orders = Vec::new();
    for _ in 0..2 {
        let sale = shop.sale(5, json!({})).await;
        orders.push(shop.buyer("ann").await.granted(&sale).await);
    }
    shop.callback("p", &orders[0], 9_900).await.ok(200);
    for payment in ["p", "q"] {
        let told = shop.callback(payment, &orders[1], 1).await.ok(200);
        assert_eq!(told["refund"]["reason"], "amount_mismatch");
    }
    let mut admin = shop.admin().await;
    let refunds = admin.get("/admin/refunds").await.ok(200);
    let shown: Vec<_> = refunds["refunds"].as_array().expect("a list").iter().collect();
    assert_eq!(
        (&shown[0]["payment_id"], &shown[0]["paid_order_id"]),
        (&json!("p"), &json!(orders[0]))
    );
    assert!(shown[1].get("paid_order_id").is_none(), "{refunds}");
    assert_eq!(admin.get("/admin/reviews").await.ok(200), json!({ "reviews": [] }));
    let sale = shown[0]["sale_id"].as_str().expect("an id");
    let settled = admin.post(&format!("/admin/refunds/{sale}/p/settle"), Value::Null).await.ok(200);
    assert_eq!(settled["paid_order_id"], json!(orders[0]));
}
