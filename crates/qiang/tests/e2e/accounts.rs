//! Money over HTTP: balances, statements, transfers, holds; every refusal of them.

use serde_json::{Value, json};

use crate::person::Person;
use crate::shop::{MINUTE, START_TEXT, Shop};

/// What a user has: balance, held, available.
async fn has(person: &mut Person) -> [i64; 3] {
    let account = person.get("/accounts/me").await.ok(200);
    ["balance_cents", "held_cents", "available_cents"]
        .map(|name| account[name].as_i64().expect("cents"))
}

async fn top_up(shop: &Shop, user: &str, cents: i64) {
    let path = format!("/accounts/{user}/topups");
    let key = format!("topup-{user}-{cents}");
    shop.admin().await.post_as(&key, &path, json!({ "amount_cents": cents })).await.ok(201);
}

#[tokio::test]
async fn money_comes_in_moves_and_goes_out() {
    let shop = Shop::open().await;
    let (mut boss, mut ann, mut bob) =
        (shop.admin().await, shop.buyer("ann").await, shop.buyer("bob").await);
    assert_eq!(has(&mut ann).await, [0, 0, 0]);
    top_up(&shop, "ann", 1_000).await;
    let body = json!({ "to": "bob", "amount_cents": 300 });
    let moved = ann.post_as("k1", "/transfers", body).await.ok(201);
    assert_eq!((&moved["from"], &moved["to"]), (&json!("user:ann"), &json!("user:bob")));
    let body = json!({ "amount_cents": 100 });
    boss.post_as("k2", "/accounts/bob/withdrawals", body).await.ok(201);
    assert_eq!(has(&mut ann).await, [700, 0, 700]);
    assert_eq!(has(&mut bob).await, [200, 0, 200]);
    let seen = boss.get("/accounts/bob").await.ok(200);
    assert_eq!((&seen["user_id"], &seen["balance_cents"]), (&json!("bob"), &json!(200)));
    let page = bob.get("/accounts/me/entries?limit=1").await.ok(200);
    let first = &page["entries"][0];
    assert_eq!((&first["seq"], &first["kind"]), (&json!(2), &json!("withdrawal")));
    assert_eq!(
        (&first["amount_cents"], &first["balance_after_cents"]),
        (&json!(-100), &json!(200))
    );
    assert_eq!(first["at"], START_TEXT);
    let page = bob.get("/accounts/me/entries?limit=1&before=2").await.ok(200);
    assert_eq!(page["entries"][0]["transfer_id"], moved["transfer_id"]);
    assert_eq!(page["entries"][0]["kind"], "transfer");
    assert_eq!(page.get("next_before"), None);
    let all = boss.get("/accounts/ann/entries").await.ok(200);
    assert_eq!(all["entries"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn asking_again_moves_nothing_and_a_key_is_used_for_one_thing() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (shop.buyer("ann").await, shop.buyer("bob").await);
    top_up(&shop, "ann", 1_000).await;
    top_up(&shop, "bob", 1_000).await;
    let body = json!({ "to": "bob", "amount_cents": 300 });
    let first = ann.post_as("k", "/transfers", body.clone()).await.ok(201);
    assert_eq!(ann.post_as("k", "/transfers", body.clone()).await.ok(200), first);
    let other = json!({ "to": "bob", "amount_cents": 301 });
    ann.post_as("k", "/transfers", other).await.problem(422, "idempotency_key_reused");
    let hold = json!({ "to": "bob", "amount_cents": 300, "expires_at": "2027-01-15T09:00:00Z" });
    ann.post_as("k", "/holds", hold).await.problem(422, "idempotency_key_reused");
    // The same key of somebody else is another one.
    let back = json!({ "to": "ann", "amount_cents": 5 });
    bob.post_as("k", "/transfers", back).await.ok(201);
    assert_eq!(has(&mut ann).await, [705, 0, 705]);
    ann.post("/transfers", body).await.problem(400, "missing_idempotency_key");
}

#[tokio::test]
async fn what_cannot_move_is_refused_and_changes_nothing() {
    let shop = Shop::open().await;
    let (mut boss, mut ann) = (shop.admin().await, shop.buyer("ann").await);
    top_up(&shop, "ann", 100).await;
    let give = |to: &str, cents: Value| json!({ "to": to, "amount_cents": cents });
    let asked = ann.post_as("a", "/transfers", give("bob", json!(101))).await;
    let refused = asked.problem(409, "insufficient_funds");
    assert_eq!(refused["available_cents"], 100);
    ann.post_as("b", "/transfers", give("ann", json!(1))).await.problem(422, "same_account");
    for bad in [json!(0), json!(-5), json!(1_000_000_000_001_i64), json!(0.5), json!("5")] {
        ann.post_as("c", "/transfers", give("bob", bad)).await.problem(422, "invalid_field");
    }
    ann.post_as("d", "/transfers", give("", json!(1))).await.problem(422, "invalid_field");
    ann.post_as("e", "/transfers", json!({ "to": "bob", "amount_cents": 1, "currency": "EUR" }))
        .await
        .problem(422, "unknown_field");
    let most = json!({ "amount_cents": 1_000_000_000_000_i64 });
    boss.post_as("f", "/accounts/ann/topups", most).await.problem(409, "balance_too_large");
    ann.post_as("g", "/accounts/ann/topups", json!({ "amount_cents": 1 }))
        .await
        .problem(403, "forbidden");
    ann.get("/accounts/bob").await.problem(403, "forbidden");
    shop.stranger().await.get("/accounts/me").await.problem(401, "unauthenticated");
    assert_eq!(has(&mut ann).await, [100, 0, 100]);
}

/// Holds an amount for bob until an hour from the start, and gives its id.
async fn hold(ann: &mut Person, key: &str, cents: i64) -> String {
    let body = json!({ "to": "bob", "amount_cents": cents, "expires_at": "2027-01-15T09:00:00Z" });
    let hold = ann.post_as(key, "/holds", body).await.ok(201);
    hold["hold_id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_hold_is_posted_whole_or_in_part_or_voided_once() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (shop.buyer("ann").await, shop.buyer("bob").await);
    top_up(&shop, "ann", 1_000).await;
    let (one, two, three) = (
        hold(&mut ann, "1", 300).await,
        hold(&mut ann, "2", 300).await,
        hold(&mut ann, "3", 300).await,
    );
    assert_eq!(has(&mut ann).await, [1_000, 900, 100]);
    let give = json!({ "to": "bob", "amount_cents": 101 });
    ann.post_as("4", "/transfers", give).await.problem(409, "insufficient_funds");
    let above = json!({ "amount_cents": 301 });
    let refused = bob.post(&format!("/holds/{one}/post"), above).await.problem(422, "above_hold");
    assert_eq!(refused["held_cents"], 300);
    let posted = bob.post(&format!("/holds/{one}/post"), Value::Null).await.ok(200);
    assert_eq!(posted["amount_cents"], 300);
    assert_eq!(bob.post(&format!("/holds/{one}/post"), Value::Null).await.ok(200), posted);
    let part = json!({ "amount_cents": 100 });
    let other = bob.post(&format!("/holds/{one}/post"), part.clone()).await;
    assert_eq!(other.problem(409, "hold_over")["by"], "post");
    ann.post(&format!("/holds/{two}/post"), part).await.ok(200);
    bob.post(&format!("/holds/{three}/void"), Value::Null).await.ok(200);
    bob.post(&format!("/holds/{three}/void"), Value::Null).await.ok(200);
    let late = bob.post(&format!("/holds/{three}/post"), Value::Null).await;
    assert_eq!(late.problem(409, "hold_over")["by"], "void");
    assert_eq!(has(&mut ann).await, [600, 0, 600]);
    assert_eq!(has(&mut bob).await, [400, 0, 400]);
}

#[tokio::test]
async fn a_hold_is_a_promise_that_strangers_do_not_see() {
    let shop = Shop::open().await;
    let (mut ann, mut bob, mut eve) =
        (shop.buyer("ann").await, shop.buyer("bob").await, shop.buyer("eve").await);
    top_up(&shop, "ann", 500).await;
    let id = hold(&mut ann, "1", 300).await;
    ann.post(&format!("/holds/{id}/void"), Value::Null).await.problem(403, "forbidden");
    for end in ["post", "void"] {
        let path = format!("/holds/{id}/{end}");
        eve.post(&path, Value::Null).await.problem(404, "no_such_hold");
        bob.post(&format!("/holds/0/{end}"), Value::Null).await.problem(404, "no_such_hold");
    }
    for bad in ["2027-01-15T08:00:00Z", "2029-01-15T08:00:00Z", "tomorrow"] {
        let body = json!({ "to": "bob", "amount_cents": 1, "expires_at": bad });
        ann.post_as("2", "/holds", body).await.problem(422, "invalid_field");
    }
    shop.advance(60 * MINUTE).await;
    // Its time has come: nobody can post it any more, and soon it is free.
    let late = bob.post(&format!("/holds/{id}/post"), Value::Null).await;
    assert_eq!(late.problem(409, "hold_over")["by"], "expire");
    while has(&mut ann).await != [500, 0, 500] {
        tokio::task::yield_now().await;
    }
}
