//! Claims: granted, looked at, ordered, given up, and refused for every reason there is.

use axum::http::Method;
use serde_json::{Value, json};

use crate::person::Person;
use crate::shop::{MINUTE, SECOND, START_TEXT, Shop};

/// A minute after the start.
const LATER: &str = "2027-01-15T08:01:00.000Z";

async fn refused(person: &mut Person, sale: &str, quantity: u32, status: u16, code: &str) -> Value {
    let (path, body) = (format!("/sales/{sale}/claims"), json!({ "quantity": quantity }));
    person.refused(Method::POST, &path, body, status, code).await
}

#[tokio::test]
async fn p10_a_claim_can_be_read_the_moment_it_was_granted() {
    let shop = Shop::open().await;
    let sale = shop.sale(10, json!({ "limit_per_user": 3 })).await;
    let mut ann = shop.buyer("ann").await;
    let claim = ann.claim(&sale, 2).await.ok(201);
    let expected = json!({
        "claim_id": format!("{sale}-1"), "sale_id": sale, "user_id": "ann", "number": 1,
        "quantity": 2, "unit_price_cents": 9_900, "state": "ordered",
        "order_id": format!("{sale}-1"), "hold_until": null,
        "pay_by": "2027-01-15T08:30:00.000Z", "created_at": START_TEXT,
    });
    assert_eq!(claim, expected);
    // Nothing was drained: neither the claim nor its order waits for the records.
    assert_eq!(ann.get(&format!("/claims/{sale}-1")).await.ok(200), expected);
    let order = ann.get(&format!("/orders/{sale}-1")).await.ok(200);
    assert_eq!((&order["status"], &order["amount_cents"]), (&json!("PENDING"), &json!(19_800)));
    let mine = ann.get("/orders").await.ok(200);
    assert_eq!(mine["orders"], json!([order]));
}

#[tokio::test]
async fn a_claim_without_a_body_is_for_one_unit() {
    let shop = Shop::open().await;
    let sale = shop.sale(10, json!({})).await;
    let path = format!("/sales/{sale}/claims");
    let claim = shop.buyer("ann").await.post(&path, Value::Null).await.ok(201);
    assert_eq!(claim["quantity"], 1);
    let claim = shop.buyer("ben").await.post(&path, json!({})).await.ok(201);
    assert_eq!((&claim["quantity"], &claim["number"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn every_refusal_has_its_status_and_code_and_changes_nothing() {
    let shop = Shop::open().await;
    let (mut ann, mut ben) = (shop.buyer("ann").await, shop.buyer("ben").await);
    refused(&mut ann, "12", 1, 404, "no_such_sale").await;

    let later = shop.sale(1, json!({ "opens_at": "2027-01-15T08:00:01Z" })).await;
    let problem = refused(&mut ann, &later, 1, 425, "not_open_yet").await;
    assert_eq!(problem["opens_at"], "2027-01-15T08:00:01.000Z");

    let over = shop.sale(1, json!({ "closes_at": "2027-01-15T08:00:01Z" })).await;
    let single = shop.sale(3, json!({})).await;
    let several = shop.sale(3, json!({ "limit_per_user": 4 })).await;
    let persons = shop.sale(3, json!({ "limit_by": "identity" })).await;
    let first = ann.granted(&single).await;
    ann.claim(&several, 2).await.ok(201);
    let sales = [&later, &over, &single, &several, &persons];
    shop.advance(SECOND - 1).await;
    refused(&mut ann, &later, 1, 425, "not_open_yet").await;
    shop.advance(1).await;
    let mut before = Vec::new();
    for sale in sales {
        before.push(shop.view(sale).await);
    }
    refused(&mut ann, &over, 1, 410, "closed").await;
    let problem = refused(&mut ann, &single, 1, 409, "already_claimed").await;
    assert_eq!(problem["claim_id"], first);
    let problem = refused(&mut ben, &single, 2, 409, "over_limit").await;
    assert_eq!((&problem["had"], &problem["limit"]), (&json!(0), &json!(1)));
    let problem = refused(&mut ann, &several, 3, 409, "over_limit").await;
    assert_eq!((&problem["had"], &problem["limit"]), (&json!(2), &json!(4)));
    refused(&mut ann, &several, 2, 410, "sold_out").await;
    refused(&mut ben, &several, 2, 410, "sold_out").await;
    refused(&mut ben, &persons, 1, 403, "not_eligible").await;
    for (sale, before) in sales.into_iter().zip(before) {
        assert_eq!(shop.view(sale).await, before);
    }
    ann.granted(&later).await;
    shop.audit().await;
}

#[tokio::test]
async fn refusals_come_in_their_order() {
    let shop = Shop::open().await;
    // Not open, no identity, over the limit and not enough: the first of them is said.
    let terms = json!({
        "opens_at": "2027-01-15T08:01:00Z", "closes_at": "2027-01-15T08:02:00Z",
        "limit_by": "identity",
    });
    let sale = shop.sale(1, terms).await;
    let mut nobody = shop.buyer("nobody").await;
    let mut ann = shop.known_buyer("ann", "p1").await;
    let mut ann_too = shop.known_buyer("ann2", "p1").await;
    let mut ben = shop.known_buyer("ben", "p2").await;
    refused(&mut nobody, &sale, 9, 425, "not_open_yet").await;
    shop.advance(MINUTE).await;
    refused(&mut nobody, &sale, 9, 403, "not_eligible").await;
    ann.granted(&sale).await;
    // Another account has it, whose claim this one could not open.
    let problem = refused(&mut ann_too, &sale, 9, 409, "over_limit").await;
    assert_eq!((&problem["had"], &problem["claim_id"]), (&json!(1), &Value::Null));
    refused(&mut ben, &sale, 9, 409, "over_limit").await;
    refused(&mut ben, &sale, 1, 410, "sold_out").await;
    shop.advance(MINUTE).await;
    refused(&mut nobody, &sale, 9, 410, "closed").await;
}

#[tokio::test]
async fn p23_accounts_of_one_person_share_one_limit() {
    let shop = Shop::open().await;
    let terms = json!({ "limit_by": "identity", "limit_per_user": 2 });
    let sale = shop.sale(10, terms).await;
    shop.known_buyer("ann", "p1").await.claim(&sale, 1).await.ok(201);
    shop.known_buyer("ann-work", "p1").await.claim(&sale, 1).await.ok(201);
    let mut third = shop.known_buyer("ann-home", "p1").await;
    let problem = refused(&mut third, &sale, 1, 409, "over_limit").await;
    assert_eq!((&problem["had"], &problem["limit"]), (&json!(2), &json!(2)));
    shop.known_buyer("ben", "p2").await.claim(&sale, 2).await.ok(201);
    assert_eq!(shop.tally(&sale).await, [6, 0, 4, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn the_price_rises_with_what_is_taken_and_is_fixed_at_the_grant() {
    let shop = Shop::open().await;
    let steps = json!([
        { "after_sold": 2, "price_cents": 200 }, { "after_sold": 4, "price_cents": 300 },
    ]);
    let terms = json!({ "price_cents": 100, "price_steps": steps, "limit_per_user": 3 });
    let sale = shop.sale(10, terms).await;
    let mut claims = Vec::new();
    for (user, quantity, price) in [("a", 1, 100), ("b", 2, 100), ("c", 1, 200), ("d", 1, 300)] {
        assert_eq!(shop.view(&sale).await["price_cents"], price);
        let claim = shop.buyer(user).await.claim(&sale, quantity).await.ok(201);
        assert_eq!(claim["unit_price_cents"], price, "{user}");
        claims.push(claim["claim_id"].as_str().expect("an id").to_owned());
    }
    // What comes back lowers the price for the next, not for those who have theirs.
    shop.buyer("b").await.delete(&format!("/claims/{}", claims[1])).await.ok(200);
    assert_eq!(shop.view(&sale).await["price_cents"], 200);
    let order = shop.buyer("d").await.get(&format!("/orders/{}", claims[3])).await.ok(200);
    assert_eq!(order["amount_cents"], 300);
    shop.audit().await;
}

#[tokio::test]
async fn a_hold_is_ordered_by_its_owner_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(3, json!({ "flow": "hold" })).await;
    let (mut ann, mut ben) = (shop.buyer("ann").await, shop.buyer("ben").await);
    let held = ann.claim(&sale, 1).await.ok(201);
    assert_eq!((&held["state"], &held["order_id"]), (&json!("held"), &Value::Null));
    assert_eq!(held["hold_until"], "2027-01-15T08:05:00.000Z");
    let id = held["claim_id"].as_str().expect("an id");
    ann.refused(Method::GET, &format!("/orders/{id}"), Value::Null, 404, "no_such_order").await;
    let pay = format!("/orders/{id}/pay");
    ann.refused(Method::POST, &pay, Value::Null, 409, "not_ordered").await;
    let path = format!("/claims/{id}/order");
    ben.refused(Method::POST, &path, Value::Null, 404, "no_such_claim").await;
    shop.advance(MINUTE).await;
    let ordered = ann.post(&path, Value::Null).await.ok(201);
    assert_eq!((&ordered["state"], &ordered["order_id"]), (&json!("ordered"), &json!(id)));
    assert_eq!(ordered["pay_by"], "2027-01-15T08:31:00.000Z");
    assert_eq!(ann.post(&path, Value::Null).await.ok(200), ordered);
    assert_eq!(shop.tally(&sale).await, [2, 0, 1, 0]);
    ann.delete(&format!("/claims/{id}")).await.ok(200);
    ann.refused(Method::POST, &path, Value::Null, 409, "released").await;
    shop.audit().await;
}

#[tokio::test]
async fn giving_up_returns_the_unit_and_the_quota_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let (mut ann, mut ben) = (shop.buyer("ann").await, shop.buyer("ben").await);
    let id = ann.granted(&sale).await;
    let path = format!("/claims/{id}");
    ben.refused(Method::DELETE, &path, Value::Null, 404, "no_such_claim").await;
    for _ in 0..2 {
        let released = ann.delete(&path).await.ok(200);
        assert_eq!(
            (&released["state"], &released["release_reason"]),
            (&json!("released"), &json!("gave_up"))
        );
        assert_eq!(shop.tally(&sale).await, [1, 0, 0, 0]);
    }
    let second = ann.granted(&sale).await;
    assert_eq!(second, format!("{sale}-2"));
    ann.post(&format!("/orders/{second}/pay"), Value::Null).await.ok(200);
    let path = format!("/claims/{second}");
    ann.refused(Method::DELETE, &path, Value::Null, 409, "already_paid").await;
    assert_eq!(shop.tally(&sale).await, [0, 0, 0, 1]);
    shop.audit().await;
}

#[tokio::test]
async fn where_reclaiming_is_off_the_quota_stays_used() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({ "reclaim": "never" })).await;
    let mut ann = shop.buyer("ann").await;
    let id = ann.granted(&sale).await;
    ann.delete(&format!("/claims/{id}")).await.ok(200);
    assert_eq!(shop.tally(&sale).await, [2, 0, 0, 0]);
    refused(&mut ann, &sale, 1, 409, "released").await;
    shop.buyer("ben").await.granted(&sale).await;
    shop.audit().await;
}

#[tokio::test]
async fn an_instant_claim_is_paid_at_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({ "flow": "instant", "price_cents": 0 })).await;
    let mut ann = shop.buyer("ann").await;
    let claim = ann.claim(&sale, 1).await.ok(201);
    assert_eq!((&claim["state"], &claim["pay_by"]), (&json!("paid"), &Value::Null));
    let id = claim["claim_id"].as_str().expect("an id");
    let order = ann.get(&format!("/orders/{id}")).await.ok(200);
    assert_eq!((&order["status"], &order["paid_at"]), (&json!("PAID"), &json!(START_TEXT)));
    shop.advance(1_000 * MINUTE).await;
    assert_eq!(ann.state(id).await, "paid");
    shop.audit().await;
}

#[tokio::test]
async fn an_order_that_costs_nothing_is_paid_as_it_is_placed() {
    let shop = Shop::with(&[("QIANG_PAYMENTS__SANDBOX", "false")]).await;
    let order = shop.sale(2, json!({ "flow": "order", "price_cents": 0 })).await;
    let hold = shop.sale(2, json!({ "flow": "hold", "price_cents": 0 })).await;
    let mut ann = shop.buyer("ann").await;
    let claim = ann.claim(&order, 1).await.ok(201);
    assert_eq!((&claim["state"], &claim["pay_by"]), (&json!("paid"), &Value::Null));
    let held = ann.granted(&hold).await;
    assert_eq!(ann.state(&held).await, "held");
    shop.advance(MINUTE).await;
    let ordered = ann.post(&format!("/claims/{held}/order"), Value::Null).await.ok(201);
    assert_eq!((&ordered["state"], &ordered["pay_by"]), (&json!("paid"), &Value::Null));
    shop.advance(1_000 * MINUTE).await;
    for (id, at) in [(claim["claim_id"].as_str().expect("an id"), START_TEXT), (&held, LATER)] {
        let order = ann.get(&format!("/orders/{id}")).await.ok(200);
        assert_eq!(
            (&order["status"], &order["created_at"], &order["paid_at"]),
            (&json!("PAID"), &json!(at), &json!(at))
        );
    }
    assert_eq!(shop.tally(&order).await, [1, 0, 0, 1]);
    assert_eq!(shop.tally(&hold).await, [1, 0, 0, 1]);
    shop.drain().await;
    let report = shop.audit().await;
    assert_eq!((&report["payments"], &report["refunds"]), (&json!(0), &json!(0)));
    let shop = shop.restart(|_| ()).await;
    assert_eq!(shop.tally(&hold).await, [1, 0, 0, 1]);
}

#[tokio::test]
async fn paying_nothing_for_a_free_order_owes_nothing_back() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({ "price_cents": 0 })).await;
    let mut ann = shop.buyer("ann").await;
    let id = ann.granted(&sale).await;
    let path = format!("/orders/{id}/pay");
    ann.post(&path, Value::Null).await.problem(409, "already_paid");
    ann.post(&path, json!({ "payment_id": "p" })).await.problem(409, "already_paid");
    assert_eq!(shop.audit().await["refunds"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_said_at_once_and_nothing_happened() {
    const CROWD: usize = 32;
    let shop = Shop::with(&[("QIANG_ENGINE__QUEUE", "1")]).await;
    let sale = shop.sale(1_000_000, json!({ "limit_per_user": 1_000_000 })).await;
    let (mut granted, mut overloaded) = (0, 0);
    for round in 0..100 {
        let mut crowd = Vec::new();
        for number in 0..CROWD {
            let mut person = shop.buyer(&format!("{round}-{number}")).await;
            let sale = sale.clone();
            crowd.push(tokio::spawn(async move { person.claim(&sale, 1).await }));
        }
        for person in crowd {
            let answer = person.await.expect("no panic");
            if answer.status == 201 {
                granted += 1;
            } else {
                let problem = answer.problem(503, "overloaded");
                assert_eq!(
                    (answer.header("retry-after"), &problem["retry_after"]),
                    ("1", &json!(1))
                );
                overloaded += 1;
            }
        }
        if overloaded > 0 && granted > 0 {
            break;
        }
    }
    assert!(overloaded > 0, "{granted} claims of {CROWD} at a time never met a queue of one");
    let ordered = loop {
        // Looking goes through the same queue.
        let answer = shop.stranger().await.get(&format!("/sales/{sale}")).await;
        if answer.status == 200 {
            break answer.json()["ordered"].clone();
        }
    };
    assert_eq!(ordered, granted);
}
