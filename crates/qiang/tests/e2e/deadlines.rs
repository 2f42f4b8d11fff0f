//! Deadlines: what runs out at T is released at T, not a millisecond before, and at once after
//! downtime; units and quota come back together, once.

use axum::http::Method;
use serde_json::{Value, json};

use crate::shop::{MINUTE, SECOND, Shop};

#[tokio::test]
async fn a_hold_runs_out_at_its_very_millisecond() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({ "flow": "hold", "hold_secs": 60 })).await;
    let (mut ann, mut ben) = (shop.buyer("ann").await, shop.buyer("ben").await);
    let held = ann.granted(&sale).await;
    shop.advance(MINUTE - 1).await;
    assert_eq!(ann.state(&held).await, "held");
    ben.claim(&sale, 1).await.problem(410, "sold_out");
    shop.advance(1).await;
    let claim = ann.get(&format!("/claims/{held}")).await.ok(200);
    assert_eq!(
        (&claim["state"], &claim["release_reason"]),
        (&json!("released"), &json!("hold_expired"))
    );
    let path = format!("/claims/{held}/order");
    ann.refused(Method::POST, &path, Value::Null, 409, "released").await;
    ben.granted(&sale).await;
    assert_eq!(shop.tally(&sale).await, [0, 1, 0, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn p09_hold_and_pay_deadlines_release_a_claim_once() {
    let shop = Shop::open().await;
    let terms = json!({ "flow": "hold", "hold_secs": 300, "pay_secs": 1_800 });
    let sale = shop.sale(2, terms).await;
    let mut ann = shop.buyer("ann").await;
    let id = ann.granted(&sale).await;
    shop.advance(5 * MINUTE - 1).await;
    ann.post(&format!("/claims/{id}/order"), Value::Null).await.ok(201);
    // The hold's deadline passes over the order and does nothing.
    shop.advance(1).await;
    assert_eq!(shop.tally(&sale).await, [1, 0, 1, 0]);
    shop.advance(30 * MINUTE - 2).await;
    assert_eq!(ann.state(&id).await, "ordered");
    shop.advance(1).await;
    let claim = ann.get(&format!("/claims/{id}")).await.ok(200);
    assert_eq!(
        (&claim["state"], &claim["release_reason"]),
        (&json!("released"), &json!("pay_expired"))
    );
    let order = ann.get(&format!("/orders/{id}")).await.ok(200);
    assert_eq!(
        (&order["status"], &order["cancelled_at"]),
        (&json!("CANCELLED"), &json!("2027-01-15T08:34:59.999Z"))
    );
    shop.advance(1_000 * MINUTE).await;
    ann.delete(&format!("/claims/{id}")).await.ok(200);
    assert_eq!(shop.tally(&sale).await, [2, 0, 0, 0], "given back once");
    shop.audit().await;
}

#[tokio::test]
async fn an_order_in_time_is_never_released() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({ "pay_secs": 10 })).await;
    let mut ann = shop.buyer("ann").await;
    let id = ann.granted(&sale).await;
    shop.advance(10 * SECOND - 1).await;
    ann.post(&format!("/orders/{id}/pay"), Value::Null).await.ok(200);
    shop.advance(1_000 * MINUTE).await;
    assert_eq!(ann.state(&id).await, "paid");
    assert_eq!(shop.tally(&sale).await, [1, 0, 0, 1]);
    shop.audit().await;
}

#[tokio::test]
async fn what_ran_out_while_the_server_was_down_is_released_before_the_first_answer() {
    let shop = Shop::open().await;
    let sale = shop.sale(3, json!({ "pay_secs": 60 })).await;
    let mut ids = Vec::new();
    for user in ["ann", "ben", "cat"] {
        ids.push(shop.buyer(user).await.granted(&sale).await);
    }
    shop.buyer("cat").await.post(&format!("/orders/{}/pay", ids[2]), Value::Null).await.ok(200);
    let clock = shop.clock.clone();
    let shop = shop.restart(|_| clock.advance_millis(MINUTE)).await;
    assert_eq!(shop.tally(&sale).await, [2, 0, 0, 1]);
    shop.buyer("dan").await.granted(&sale).await;
    shop.drain().await;
    shop.audit().await;
}

#[tokio::test]
async fn p08_a_limit_lives_as_long_as_the_sale() {
    let shop = Shop::open().await;
    let sale = shop.sale(9, json!({ "limit_per_user": 2 })).await;
    let mut ann = shop.buyer("ann").await;
    ann.claim(&sale, 2).await.ok(201);
    ann.post(&format!("/orders/{sale}-1/pay"), Value::Null).await.ok(200);
    for wait in [5 * MINUTE, 60 * MINUTE, 24 * 60 * MINUTE, 300 * 24 * 60 * MINUTE] {
        shop.advance(wait).await;
        ann.claim(&sale, 1).await.problem(409, "over_limit");
    }
    let shop = shop.restart(|_| ()).await;
    shop.buyer("ann").await.claim(&sale, 1).await.problem(409, "over_limit");
    assert_eq!(shop.tally(&sale).await, [7, 0, 0, 2]);
}

#[tokio::test]
async fn p17_what_is_released_can_be_bought_at_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    for round in 0..20 {
        let (mut one, mut two) =
            (shop.buyer(&format!("a{round}")).await, shop.buyer(&format!("b{round}")).await);
        let id = one.granted(&sale).await;
        two.claim(&sale, 1).await.problem(410, "sold_out");
        one.delete(&format!("/claims/{id}")).await.ok(200);
        let id = two.granted(&sale).await;
        two.delete(&format!("/claims/{id}")).await.ok(200);
    }
    shop.audit().await;
}
