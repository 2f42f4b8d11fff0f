//! Paying on the provider's page: a signed address there, the callback back, refunds shown to the buyer.

use qiang_sales::signature::Key;
use serde_json::{Value, json};

use crate::shop::{MINUTE, Shop};

const URL: &str = "https://pay.example/start?order={order_id}&amount={amount_cents}&return={return_url}\
                   &time={timestamp}&signature={signature}";

#[tokio::test]
async fn a_buyer_is_sent_to_the_provider_with_a_signed_amount() {
    let shop = Shop::with(&[
        ("QIANG_HTTP__PUBLIC_ORIGIN", "https://shop.example"),
        ("QIANG_PAYMENTS__CHECKOUT_URL", URL),
    ])
    .await;
    let sale = shop.sale(2, json!({})).await;
    let (mut ann, mut bob) = (shop.buyer("ann").await, shop.buyer("bob").await);
    let claim = ann.claim(&sale, 1).await.ok(201);
    let order = claim["order_id"].as_str().expect("an order");
    let path = format!("/orders/{order}/checkout");
    let url = ann.post(&path, Value::Null).await.ok(200)["url"].clone();
    let key = Key::new(&shop.secrets().callback_key);
    let back = format!("https://shop.example/pay?record_id={order}");
    let signed = format!("{order}.9900.{back}");
    let (time, signature) = key.sign(signed.as_bytes(), shop.server.app.now());
    let expected = format!(
        "https://pay.example/start?order={order}&amount=9900\
         &return=https%3A%2F%2Fshop.example%2Fpay%3Frecord_id%3D{order}\
         &time={time}&signature={}",
        signature.replace('=', "%3D")
    );
    assert_eq!(url, expected.as_str());
    bob.post(&path, Value::Null).await.problem(404, "no_such_order");
    ann.post(&format!("/orders/{order}/cancel"), Value::Null).await.ok(200);
    ann.post(&path, Value::Null).await.problem(409, "released");
}

#[tokio::test]
async fn a_buyer_sees_what_goes_back() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let (mut ann, mut bob) = (shop.buyer("ann").await, shop.buyer("bob").await);
    let order = ann.claim(&sale, 1).await.ok(201)["order_id"].clone();
    let order = order.as_str().expect("an order");
    let path = format!("/orders/{order}/refunds");
    ann.post(&format!("/orders/{order}/checkout"), Value::Null)
        .await
        .problem(403, "checkout_disabled");
    assert_eq!(ann.get(&path).await.ok(200)["refunds"], json!([]));
    shop.advance(60 * MINUTE).await;
    bob.claim(&sale, 1).await.ok(201);
    let late = ann.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
    assert_eq!(late["outcome"], "refund_due");
    let refunds = ann.get(&path).await.ok(200)["refunds"].clone();
    assert_eq!((&refunds[0]["reason"], &refunds[0]["status"]), (&json!("late"), &json!("due")));
    bob.get(&path).await.problem(404, "no_such_order");
}
