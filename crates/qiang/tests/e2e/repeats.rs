//! Asking again is not asking twice: `Idempotency-Key`, duplicate clicks, and what a key means.

use axum::http::Method;
use serde_json::{Value, json};

use crate::shop::{MINUTE, Shop};

#[tokio::test]
async fn the_same_key_gives_the_first_claim_again_whatever_has_happened_since() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let path = format!("/sales/{sale}/claims");
    let mut ann = shop.buyer("ann").await;
    let claim = ann.post_as("k1", &path, json!({ "quantity": 1 })).await.ok(201);
    let id = claim["claim_id"].as_str().expect("an id").to_owned();
    assert_eq!(ann.post_as("k1", &path, Value::Null).await.ok(200), claim);
    shop.advance(MINUTE).await;
    ann.post(&format!("/orders/{id}/pay"), Value::Null).await.ok(200);
    shop.admin().await.post(&format!("/sales/{sale}/close"), Value::Null).await.ok(200);
    let again = ann.post_as("k1", &path, json!({})).await.ok(200);
    assert_eq!((&again["claim_id"], &again["state"]), (&json!(id), &json!("paid")));
    let shop = shop.restart(|_| ()).await;
    let again = shop.buyer("ann").await.post_as("k1", &path, json!({})).await.ok(200);
    assert_eq!(again["claim_id"], id);
    assert_eq!(shop.tally(&sale).await, [0, 0, 0, 1]);
    shop.audit().await;
}

#[tokio::test]
async fn a_key_used_for_something_else_is_refused() {
    let shop = Shop::open().await;
    let sale = shop.sale(9, json!({ "limit_per_user": 5 })).await;
    let path = format!("/sales/{sale}/claims");
    let mut ann = shop.buyer("ann").await;
    ann.post_as("k1", &path, json!({ "quantity": 2 })).await.ok(201);
    let before = shop.view(&sale).await;
    let other = ann.post_as("k1", &path, json!({ "quantity": 1 })).await;
    other.problem(422, "idempotency_key_reused");
    let headers = [("idempotency-key", "k1"), ("accept-language", "zh")];
    let other = ann.send(Method::POST, &path, json!({ "quantity": 3 }), &headers).await;
    assert_eq!(
        other.problem_in("zh", 422, "idempotency_key_reused")["title"],
        "Idempotency-Key 已被使用"
    );
    assert_eq!(shop.view(&sale).await, before);
    // Another user's key of the same name, and the same name in another sale, are other keys.
    shop.buyer("ben").await.post_as("k1", &path, json!({ "quantity": 1 })).await.ok(201);
    let elsewhere = shop.sale(9, json!({ "limit_per_user": 5 })).await;
    let path = format!("/sales/{elsewhere}/claims");
    ann.post_as("k1", &path, json!({ "quantity": 1 })).await.ok(201);
}

#[tokio::test]
async fn a_key_that_got_a_refusal_may_be_used_again() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let path = format!("/sales/{sale}/claims");
    let (mut ann, mut ben) = (shop.buyer("ann").await, shop.buyer("ben").await);
    let first = ann.granted(&sale).await;
    ben.post_as("k", &path, json!({})).await.problem(410, "sold_out");
    ann.delete(&format!("/claims/{first}")).await.ok(200);
    ben.post_as("k", &path, json!({})).await.ok(201);
    ben.post_as("k", &path, json!({})).await.ok(200);
}

#[tokio::test]
async fn keys_are_bounded_and_printable() {
    let shop = Shop::open().await;
    let sale = shop.sale(9, json!({ "limit_per_user": 5 })).await;
    let path = format!("/sales/{sale}/claims");
    let before = shop.view(&sale).await;
    let mut ann = shop.buyer("ann").await;
    for key in ["", &"k".repeat(129), "a\tb", "ключ"] {
        let answer = ann.post_as(key, &path, json!({})).await;
        answer.problem(400, "invalid_idempotency_key");
    }
    assert_eq!(shop.view(&sale).await, before);
    ann.post_as(&"k".repeat(128), &path, json!({})).await.ok(201);
    ann.post_as(" a \"quoted\" key ", &path, json!({})).await.ok(201);
    ann.post_as("a \"quoted\" key", &path, json!({})).await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p19_a_hundred_clicks_at_once_take_one_unit() {
    let shop = Shop::open().await;
    let (keyed, bare) = (shop.sale(50, json!({})).await, shop.sale(50, json!({})).await);
    let mut clicks = Vec::new();
    for number in 0..100 {
        let mut ann = shop.buyer("ann").await;
        let path = format!("/sales/{}/claims", if number % 2 == 0 { &keyed } else { &bare });
        clicks.push(tokio::spawn(async move {
            if number % 2 == 0 {
                ann.post_as("click", &path, json!({})).await
            } else {
                ann.post(&path, json!({})).await
            }
        }));
    }
    let mut statuses = std::collections::BTreeMap::new();
    for click in clicks {
        let answer = click.await.expect("no panic");
        *statuses.entry(answer.status).or_insert(0) += 1;
        let named = answer.json()["claim_id"].as_str().expect("every answer names it").to_owned();
        assert!([format!("{keyed}-1"), format!("{bare}-1")].contains(&named), "{named}");
    }
    assert_eq!(statuses, [(200, 49), (201, 2), (409, 49)].into());
    assert_eq!(shop.tally(&keyed).await, [49, 0, 1, 0]);
    assert_eq!(shop.tally(&bare).await, [49, 0, 1, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn p20_a_repeat_names_the_very_claim_and_no_other_of_the_same_user() {
    let shop = Shop::open().await;
    let sale = shop.sale(9, json!({ "limit_per_user": 3 })).await;
    let path = format!("/sales/{sale}/claims");
    let mut ann = shop.buyer("ann").await;
    let mut ids = Vec::new();
    for key in ["a", "b", "c"] {
        let claim = ann.post_as(key, &path, json!({})).await.ok(201);
        ids.push(claim["claim_id"].clone());
    }
    for (key, id) in ["a", "b", "c"].iter().zip(&ids) {
        assert_eq!(ann.post_as(key, &path, json!({})).await.ok(200)["claim_id"], *id);
    }
    ann.post_as("d", &path, json!({})).await.problem(409, "over_limit");
    assert_eq!(shop.tally(&sale).await, [6, 0, 3, 0]);
}
