//! Orders paid from the buyer's balance: held, paid, posted; or nothing at all.

use qiang_core::{Cents, UserId};
use qiang_store::accounts::{Account, Moved, Movement, What};
use serde_json::{Value, json};

use crate::person::Person;
use crate::shop::{MINUTE, Shop};

/// Balance and what is held of it.
async fn has(person: &mut Person) -> (i64, i64) {
    let account = person.get("/accounts/me").await.ok(200);
    let cents = |name: &str| account[name].as_i64().expect("cents");
    (cents("balance_cents"), cents("held_cents"))
}

async fn rich(shop: &Shop, user: &str) -> Person {
    let body = json!({ "amount_cents": 20_000 });
    let path = format!("/accounts/{user}/topups");
    shop.admin().await.post_as(user, &path, body).await.ok(201);
    shop.buyer(user).await
}

fn from_account() -> Value {
    json!({ "from": "account" })
}

#[tokio::test]
async fn an_order_is_paid_from_the_balance_once() {
    let shop = Shop::with(&[("QIANG_PAYMENTS__SANDBOX", "false")]).await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = rich(&shop, "ann").await;
    let order = ann.granted(&sale).await;
    let path = format!("/orders/{order}/pay");
    ann.post(&path, Value::Null).await.problem(403, "sandbox_disabled");
    let paid = ann.post(&path, from_account()).await.ok(200);
    assert_eq!((&paid["outcome"], &paid["replayed"]), (&json!("paid"), &json!(false)));
    assert_eq!(has(&mut ann).await, (10_100, 0));
    assert_eq!(ann.post(&path, from_account()).await.ok(200)["replayed"], true);
    assert_eq!(has(&mut ann).await, (10_100, 0));
    let entries = ann.get("/accounts/me/entries?limit=1").await.ok(200);
    assert_eq!(entries["entries"][0]["kind"], "order_payment");
    shop.audit().await;
}

#[tokio::test]
async fn what_cannot_be_paid_holds_nothing() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({ "price_cents": 20_001 })).await;
    let (mut ann, mut boss) = (rich(&shop, "ann").await, shop.admin().await);
    let order = ann.granted(&sale).await;
    let path = format!("/orders/{order}/pay");
    let refused = ann.post(&path, from_account()).await.problem(409, "insufficient_funds");
    assert_eq!(refused["available_cents"], 20_000);
    boss.post(&path, from_account()).await.problem(403, "forbidden");
    let mut eve = shop.buyer("eve").await;
    eve.post(&path, from_account()).await.problem(404, "no_such_order");
    for bad in [json!({ "from": "bank" }), json!({ "from": "account", "payment_id": "p" })] {
        ann.post(&path, bad).await.problem(422, "invalid_field");
    }
    assert_eq!(has(&mut ann).await, (20_000, 0));
    ann.post(&path, Value::Null).await.ok(200);
    ann.post(&path, from_account()).await.problem(409, "already_paid");
    assert_eq!(has(&mut ann).await, (20_000, 0));
}

#[tokio::test]
async fn money_that_comes_too_late_stays_and_what_is_refunded_comes_back() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let (mut ann, mut bob) = (rich(&shop, "ann").await, rich(&shop, "bob").await);
    let late = ann.granted(&sale).await;
    shop.advance(30 * MINUTE).await;
    let order = bob.granted(&sale).await;
    // Somebody else has it by now.
    let lost = ann.post(&format!("/orders/{late}/pay"), from_account()).await.ok(200);
    assert_eq!(lost["outcome"], "refund_due");
    assert_eq!(has(&mut ann).await, (20_000, 0));
    bob.post(&format!("/orders/{order}/pay"), from_account()).await.ok(200);
    assert_eq!(has(&mut bob).await, (10_100, 0));
    let mut boss = shop.admin().await;
    boss.post(&format!("/admin/orders/{order}/refund"), Value::Null).await.ok(200);
    while has(&mut bob).await != (20_000, 0) {
        tokio::task::yield_now().await;
    }
    while boss.get("/admin/refunds").await.ok(200)["refunds"] != json!([]) {
        tokio::task::yield_now().await;
    }
    let settled = boss.get("/admin/refunds?status=settled").await.ok(200);
    assert_eq!(settled["refunds"].as_array().map(Vec::len), Some(2));
    assert_eq!(has(&mut ann).await, (20_000, 0));
    let entries = bob.get("/accounts/me/entries?limit=1").await.ok(200);
    assert_eq!(entries["entries"][0]["kind"], "order_refund");
    shop.audit().await;
}

/// What a process that dies right behind the hold leaves.
#[tokio::test]
async fn a_payment_that_was_begun_is_finished() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let mut ann = rich(&shop, "ann").await;
    let order = ann.granted(&sale).await;
    let (key, app) = (format!("order:{order}:pay"), &shop.server.app);
    let what = What::Hold {
        from: Account::User(UserId::new("ann").expect("a user")),
        to: Account::Outside,
        amount: Cents::new(9_900),
        expires_at: None,
    };
    let hold = Movement { key: &key, request_hash: "derived", what };
    let held = app.store.move_money(&[hold], app.now()).await.expect("written");
    assert!(matches!(held[..], [Moved::Done(_)]), "{held:?}");
    while ann.state(&order).await != "paid" || has(&mut ann).await != (10_100, 0) {
        tokio::task::yield_now().await;
    }
    let paid = ann.post(&format!("/orders/{order}/pay"), from_account()).await.ok(200);
    assert_eq!(paid["replayed"], true);
}
