//! Red packets over HTTP and RESP: sent, grabbed, recycled, looked at, verified. Every cent is
//! accounted for.

mod grabbing;
mod killed;
mod recycling;
mod secrets;
mod sending;
mod views;

use qiang_core::PoolId;
use qiang_store::accounts::Account;
use serde_json::{Value, json};

use crate::person::Person;
use crate::shop::{Shop, changed};

/// Puts money on an account.
async fn top_up(shop: &Shop, user: &str, cents: i64) {
    let path = format!("/accounts/{user}/topups");
    let body = json!({ "amount_cents": cents });
    shop.admin().await.post_as(&format!("topup-{user}"), &path, body).await.ok(201);
}

/// Somebody who has 100,000 cents.
async fn rich(shop: &Shop, user: &str) -> Person {
    top_up(shop, user, 100_000).await;
    shop.buyer(user).await
}

/// What a user has.
async fn has(person: &mut Person) -> i64 {
    person.get("/accounts/me").await.ok(200)["balance_cents"].as_i64().expect("cents")
}

/// A lucky packet of 1,000 cents in five shares, but for `more`.
fn lucky(more: &Value) -> Value {
    changed(&json!({ "kind": "lucky", "total_cents": 1_000, "shares": 5 }), more)
}

/// Sends a packet and gives its id.
async fn send(person: &mut Person, key: &str, body: Value) -> String {
    let packet = person.post_as(key, "/packets", body).await.ok(201);
    packet["packet_id"].as_str().expect("an id").to_owned()
}

fn grabs(packet: &str) -> String {
    format!("/packets/{packet}/grabs")
}

/// Grabs a portion and gives its amount.
async fn grab(person: &mut Person, packet: &str) -> i64 {
    let grab = person.post(&grabs(packet), Value::Null).await.ok(201);
    grab["amount_cents"].as_i64().expect("cents")
}

async fn look(person: &mut Person, packet: &str) -> Value {
    person.get(&format!("/packets/{packet}")).await.ok(200)
}

/// Waits until the packet is what it should be, and gives it.
async fn becomes(person: &mut Person, packet: &str, status: &str) -> Value {
    loop {
        let seen = look(person, packet).await;
        if seen["status"] == status {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

fn pool(packet: &str) -> PoolId {
    packet.split_once('-').and_then(|(pool, _)| pool.parse().ok()).expect("an id")
}

/// What the packet's own account has, after all accounts were added up.
async fn in_packet(shop: &Shop, packet: &str) -> i64 {
    shop.drain().await;
    let store = &shop.server.app.store;
    assert!(store.sums().await.expect("readable").add_up());
    store.balance(&Account::Packet(pool(packet))).await.expect("readable").posted.get()
}
