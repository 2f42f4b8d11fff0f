//! Money that comes too late is never lost: it buys the claim anew, or it is owed back, once and
//! for everybody in the shop to see.

use axum::http::Method;
use serde_json::{Value, json};

use crate::shop::{MINUTE, Shop};

#[tokio::test]
async fn p21_a_late_payment_buys_the_claim_anew_while_there_is_stock() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let order = ann.granted(&sale).await;
    shop.advance(30 * MINUTE).await;
    assert_eq!(ann.state(&order).await, "released");
    let late = shop.callback("p", &order, 9_900).await.ok(200);
    assert_eq!((&late["outcome"], &late["replayed"]), (&json!("regranted"), &json!(false)));
    let anew = late["order"]["order_id"].as_str().expect("an id").to_owned();
    assert_eq!(anew, format!("{sale}-2"));
    assert_eq!(late["order"]["status"], "PAID");
    let claim = ann.get(&format!("/claims/{anew}")).await.ok(200);
    assert_eq!((&claim["state"], &claim["replaces"]), (&json!("paid"), &json!(order)));
    assert_eq!(ann.state(&order).await, "released");
    let again = shop.callback("p", &order, 9_900).await.ok(200);
    assert_eq!((&again["outcome"], &again["replayed"]), (&json!("regranted"), &json!(true)));
    assert_eq!(again["order"]["order_id"], anew);
    // A second one finds the order replaced and paid.
    let second = shop.callback("p2", &order, 9_900).await.ok(200);
    assert_eq!(second["refund"]["reason"], "already_paid");
    assert_eq!(shop.tally(&sale).await, [1, 0, 0, 1]);
    let problem = ann.claim(&sale, 1).await.problem(409, "already_claimed");
    assert_eq!(problem["claim_id"], anew);
    shop.audit().await;
}

#[tokio::test]
async fn p21_a_late_payment_that_finds_nothing_left_is_owed_back_once_and_visibly() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let order = shop.buyer("ann").await.granted(&sale).await;
    shop.advance(30 * MINUTE).await;
    shop.buyer("ben").await.granted(&sale).await;
    let mut admin = shop.admin().await;
    assert_eq!(admin.get("/admin/refunds").await.ok(200), json!({ "refunds": [] }));
    let late = shop.callback("p-1", &order, 9_900).await.ok(200);
    let refund = json!({
        "sale_id": sale, "order_id": order, "payment_id": "p-1", "amount_cents": 9_900,
        "reason": "late", "status": "due", "due_at": "2027-01-15T08:30:00.000Z",
        "settled_at": null,
    });
    assert_eq!((&late["outcome"], &late["refund"]), (&json!("refund_due"), &refund));
    shop.advance(MINUTE).await;
    let again = shop.callback("p-1", &order, 9_900).await.ok(200);
    assert_eq!((&again["replayed"], &again["refund"]), (&json!(true), &refund));
    assert_eq!(admin.get("/admin/refunds").await.ok(200), json!({ "refunds": [refund] }));
    let path = format!("/admin/refunds/{sale}/p-1/settle");
    let settled = admin.post(&path, Value::Null).await.ok(200);
    assert_eq!(settled["status"], "settled");
    assert_eq!(settled["settled_at"], "2027-01-15T08:31:00.000Z");
    shop.advance(MINUTE).await;
    assert_eq!(admin.post(&path, Value::Null).await.ok(200), settled, "settled once");
    assert_eq!(admin.get("/admin/refunds").await.ok(200), json!({ "refunds": [] }));
    let listed = admin.get("/admin/refunds?status=settled").await.ok(200);
    assert_eq!(listed, json!({ "refunds": [settled] }));
    let again = shop.callback("p-1", &order, 9_900).await.ok(200);
    assert_eq!(again["refund"], settled, "whoever asks later hears that it was sent");
    assert_eq!(shop.tally(&sale).await, [0, 0, 1, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn a_late_payment_of_somebody_who_has_another_claim_by_now_goes_back() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let order = ann.granted(&sale).await;
    ann.post(&format!("/orders/{order}/cancel"), Value::Null).await.ok(200);
    ann.granted(&sale).await;
    let late = shop.callback("p", &order, 9_900).await.ok(200);
    assert_eq!(
        (&late["outcome"], &late["refund"]["reason"]),
        (&json!("refund_due"), &json!("late"))
    );
    assert_eq!(shop.tally(&sale).await, [4, 0, 1, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn pay_and_expiry_meet_at_one_moment_and_one_of_them_wins() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    let (mut ann, mut ben) = (shop.buyer("ann").await, shop.buyer("ben").await);
    let (in_time, late) = (ann.granted(&sale).await, ben.granted(&sale).await);
    shop.clock.advance_millis(30 * MINUTE - 1);
    assert_eq!(shop.callback("a", &in_time, 9_900).await.ok(200)["outcome"], "paid");
    // Nobody made the engine look: the payment itself must find the order expired.
    shop.clock.advance_millis(1);
    assert_eq!(shop.callback("b", &late, 9_900).await.ok(200)["outcome"], "regranted");
    assert_eq!(shop.tally(&sale).await, [0, 0, 0, 2]);
    shop.audit().await;
}

#[tokio::test]
async fn after_clearing_a_known_payment_is_repeated_and_an_unknown_one_goes_back() {
    after_clearing(json!({ "id": "77" })).await;
}

/// The engine has forgotten the sale, and the records have not.
#[tokio::test]
async fn what_is_paid_for_a_forgotten_sale_is_repeated_or_goes_back_once() {
    after_clearing(json!({})).await;
}

async fn after_clearing(id: Value) {
    let shop = Shop::open().await;
    let sale = shop.sale(3, id).await;
    let paid = shop.buyer("ann").await.granted(&sale).await;
    let mut ben = shop.buyer("ben").await;
    let lapsed = ben.granted(&sale).await;
    let regranted = shop.buyer("cat").await.granted(&sale).await;
    let first = shop.callback("p-ann", &paid, 9_900).await.ok(200);
    shop.callback("p-ann-2", &paid, 9_900).await.ok(200);
    shop.advance(30 * MINUTE).await;
    let anew = shop.callback("p-cat", &regranted, 9_900).await.ok(200);
    assert_eq!(anew["outcome"], "regranted");
    let mut admin = shop.admin().await;
    admin.post(&format!("/sales/{sale}/close"), Value::Null).await.ok(200);
    admin.delete(&format!("/sales/{sale}")).await.ok(200);
    for restarted in [false, true] {
        let again = shop.callback("p-ann", &paid, 9_900).await.ok(200);
        assert_eq!((&again["outcome"], &again["replayed"]), (&json!("paid"), &json!(true)));
        assert_eq!(again["order"], first["order"]);
        let again = shop.callback("p-cat", &regranted, 9_900).await.ok(200);
        assert_eq!((&again["outcome"], &again["replayed"]), (&json!("regranted"), &json!(true)));
        assert_eq!(again["order"], anew["order"]);
        let again = shop.callback("p-ann-2", &paid, 9_900).await.ok(200);
        assert_eq!((&again["outcome"], &again["replayed"]), (&json!("refund_due"), &json!(true)));
        let late = shop.callback("p-ben", &lapsed, 9_900).await.ok(200);
        assert_eq!(
            (&late["outcome"], &late["replayed"]),
            (&json!("refund_due"), &json!(restarted))
        );
        assert_eq!(late["refund"]["reason"], "late");
        shop.callback("p-ann", &lapsed, 9_900).await.problem(409, "payment_conflict");
        shop.callback("p", &format!("{sale}-9"), 9_900).await.problem(404, "no_such_order");
    }
    let due = admin.get("/admin/refunds").await.ok(200);
    assert_eq!(due["refunds"].as_array().expect("a list").len(), 2, "{due}");
    let path = format!("/orders/{lapsed}/pay");
    let body = json!({ "payment_id": "p-ben" });
    assert_eq!(ben.post(&path, body).await.ok(200)["replayed"], true);
    let shop = shop.restart(|_| ()).await;
    let again = shop.callback("p-ben", &lapsed, 9_900).await.ok(200);
    assert_eq!((&again["outcome"], &again["replayed"]), (&json!("refund_due"), &json!(true)));
    shop.callback("p-ben", &lapsed, 9_901).await.problem(409, "payment_conflict");
    shop.callback("p-ben", &paid, 9_900).await.problem(409, "payment_conflict");
    shop.audit().await;
}

#[tokio::test]
async fn refunds_come_in_pages_oldest_first() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let order = shop.buyer("ann").await.granted(&sale).await;
    shop.callback("first", &order, 9_900).await.ok(200);
    let mut made = Vec::new();
    for number in 0..25 {
        let payment = format!("p {number}/?&_é");
        shop.callback(&payment, &order, 9_900).await.ok(200);
        shop.advance(i64::from(number % 3 == 0)).await;
        made.push(payment);
    }
    let mut admin = shop.admin().await;
    let mut seen = Vec::new();
    let mut path = "/admin/refunds?limit=7".to_owned();
    loop {
        let page = admin.get(&path).await.ok(200);
        let refunds = page["refunds"].as_array().expect("a list");
        seen.extend(refunds.iter().map(|r| r["payment_id"].as_str().expect("text").to_owned()));
        let Some(next) = page["next_after"].as_str() else { break };
        path = format!("/admin/refunds?limit=7&after={}", percent(next));
    }
    seen.sort();
    made.sort();
    assert_eq!(seen, made);
    let settle = format!("/admin/refunds/{sale}/{}/settle", percent(&made[0]));
    assert_eq!(admin.post(&settle, Value::Null).await.ok(200)["payment_id"], made[0]);
    for query in ["status=lost", "after=x", "after=1_2", "limit=0", "limit=101", "page=2"] {
        let path = format!("/admin/refunds?{query}");
        admin.refused(Method::GET, &path, Value::Null, 422, "invalid_field").await;
    }
}

/// Everything but letters and digits as `%XX`.
fn percent(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
