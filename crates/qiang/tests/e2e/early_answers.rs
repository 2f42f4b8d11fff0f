//! Requests that are answered before their body was read: neither their connection nor the others
//! on it come to harm, and who is to be cut off is told.

use bytes::Bytes;
use qiang_app::token::Role;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::raw;
use crate::shop::Shop;

/// More refusals than a client of HTTP/2 forgives resets.
const REFUSALS: usize = 60;

#[tokio::test]
async fn a_refusal_resets_no_stream_of_http2() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let token = shop.token("ann", Role::Buyer, None);
    let stream = raw::connect(shop.address()).await;
    let (client, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    let connection = tokio::spawn(connection);
    let ask = |token: &str| {
        let uri = format!("http://shop/api/v1/sales/{sale}/claims");
        let request = axum::http::Request::post(uri).header("authorization", token);
        request.header("content-type", "application/json").body(()).expect("a request")
    };
    let mut client = client.ready().await.expect("it holds");
    for number in 0..REFUSALS {
        let (answer, mut body) = client.send_request(ask("nobody"), false).expect("it holds");
        body.send_data(Bytes::from_static(b"{"), false).expect("it is open");
        let answer = answer.await.expect("an answer");
        assert_eq!(answer.status(), 401);
        drop(answer.into_body());
        client = client.ready().await.expect("it holds");
        // The rest of the body comes after the answer.
        body.send_data(Bytes::from_static(b"}"), true)
            .unwrap_or_else(|error| panic!("request {number} was cut off: {error}"));
    }
    let (answer, mut body) = client.send_request(ask(&token), false).expect("it holds");
    body.send_data(Bytes::from_static(b"{}"), true).expect("it is open");
    assert_eq!(answer.await.expect("an answer").status(), 201);
    drop(client);
    connection.abort();
}

#[tokio::test]
async fn whoever_is_cut_off_is_told_and_nobody_else_is() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut stream = raw::connect(shop.address()).await;
    // A body that has arrived is thrown away, and the connection goes on.
    for _ in 0..3 {
        let whole = raw::claim_head(&sale, "nobody", 2) + "{}";
        // Not one for the fast lane.
        let whole = whole.replace("application/json", "application/json; charset=utf-8");
        stream.write_all(whole.as_bytes()).await.expect("it holds");
        let answer = raw::read_until(&mut stream, "\r\n\r\n").await.to_ascii_lowercase();
        assert!(answer.starts_with("http/1.1 401"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
    // One that is still to come ends it.
    for (length, status) in [(200, "401"), (100_000_000, "401")] {
        let mut stream = raw::connect(shop.address()).await;
        let head = raw::claim_head(&sale, "nobody", length);
        stream.write_all(head.as_bytes()).await.expect("it holds");
        let answer = raw::read_to_end(&mut stream).await.to_ascii_lowercase();
        assert!(answer.starts_with(&format!("http/1.1 {status}")), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
    let token = shop.token("ann", Role::Buyer, None);
    let mut stream = raw::connect(shop.address()).await;
    let head = raw::claim_head(&sale, &token, 100_000_000);
    stream.write_all(head.as_bytes()).await.expect("it holds");
    let answer = raw::read_to_end(&mut stream).await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 413"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn a_header_that_may_be_given_once_is_refused_when_given_twice() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({ "limit_per_user": 5 })).await;
    let token = shop.token("ann", Role::Buyer, None);
    let head = raw::claim_head(&sale, &token, 0);
    for (header, other) in [("authorization", "nobody"), ("idempotency-key", "k2")] {
        let twice = format!("host: shop\r\nidempotency-key: k1\r\n{header}: {other}\r\n");
        let request = head
            .replace("host: shop\r\n", &twice)
            .replace("content-length: 0\r\n", "content-length: 0\r\nconnection: close\r\n");
        let answer = raw::exchange(shop.address(), request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(answer.contains("\"code\":\"repeated_header\""), "{answer}");
        assert!(answer.contains(&format!("\"header\":\"{header}\"")), "{answer}");
    }
    assert_eq!(shop.tally(&sale).await, [5, 0, 0, 0], "nothing was done");
}
