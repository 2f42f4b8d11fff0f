//! Clients that dawdle: they are told so, or closed, and nobody else waits for them.

use axum::http::Method;
use qiang_app::token::Role;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::raw;
use crate::shop::Shop;

const QUICK: [(&str, &str); 2] =
    [("QIANG_HTTP__BODY_TIMEOUT_MS", "200"), ("QIANG_HTTP__HEADER_TIMEOUT_MS", "200")];

#[tokio::test]
async fn a_body_that_does_not_come_is_a_timeout_and_nothing_happened() {
    let shop = Shop::with(&QUICK).await;
    let sale = shop.sale(10, json!({})).await;
    let before = shop.view(&sale).await;
    let token = shop.token("ann", Role::Buyer, None);
    let request = format!("{}{{\"quan", raw::claim_head(&sale, &token, 14));
    let answer = raw::exchange(shop.address(), request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("\"code\":\"request_timeout\""), "{answer}");
    assert_eq!(shop.view(&sale).await, before);
}

#[tokio::test]
async fn headers_that_do_not_come_end_the_connection() {
    let shop = Shop::with(&QUICK).await;
    for begun in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n",
        "POST /api/v1/sales/1/claims HTTP/1.1\r\nhost: shop\r\nx-slow: ",
    ] {
        let answer = raw::exchange(shop.address(), begun.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    // Nor does a connection stay that was used once and then forgotten.
    let once = b"GET /healthz HTTP/1.1\r\nhost: shop\r\n\r\n";
    let answer = raw::exchange(shop.address(), once).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn nobody_waits_for_the_slow() {
    let shop = Shop::open().await;
    let sale = shop.sale(1_000, json!({})).await;
    let token = shop.token("slow", Role::Buyer, None);
    let mut slow = Vec::new();
    for number in 0..200 {
        let mut stream = raw::connect(shop.address()).await;
        let head = raw::claim_head(&sale, &token, 14);
        let begun = if number % 2 == 0 { &head[..head.len() - 2] } else { &head[..] };
        stream.write_all(begun.as_bytes()).await.expect("sent");
        slow.push(stream);
    }
    for number in 0..50 {
        shop.buyer(&format!("u{number}")).await.granted(&sale).await;
    }
    assert_eq!(shop.tally(&sale).await, [950, 0, 50, 0]);
    // Those who were slow and then went on are served.
    let mut stream = slow.pop().expect("many");
    stream.write_all(b"{\"quantity\":1}").await.expect("sent");
    let answer = raw::read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

/// Asks for something larger than the buffers between two sockets, and reads nothing of it.
async fn never_reads(shop: &Shop) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4 << 10).expect("a small buffer");
    let mut stream = socket.connect(shop.address()).await.expect("somebody listens");
    let request = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: shop\r\n\r\n";
    stream.write_all(request).await.expect("sent");
    stream
}

#[tokio::test]
async fn health_checks_have_a_door_of_their_own() {
    let shop = Shop::with(&[
        ("QIANG_HTTP__MAX_CONNECTIONS", "2"),
        ("QIANG_HTTP__HEALTH_LISTEN", "127.0.0.1:0"),
        ("QIANG_HTTP__HEADER_TIMEOUT_MS", "600000"),
    ])
    .await;
    let _all = [shop.stranger().await, shop.stranger().await];
    let address = shop.server.health_address.expect("it listens");
    let mut probe = crate::person::Person::arrive(address, None).await;
    for path in ["/healthz", "/readyz", "/metrics"] {
        let asked = probe.ask(Method::GET, path, &[], "");
        let answered = tokio::time::timeout(raw::PATIENCE, asked).await;
        assert_eq!(answered.expect("nobody is in the way").status, 200, "{path}");
    }
    // Nor is a crowd in the way that holds connections to it and asks nothing.
    let mut crowd = Vec::new();
    for _ in 0..300 {
        crowd.push(raw::connect(address).await);
    }
    let late = async {
        let mut late = crate::person::Person::arrive(address, None).await;
        late.ask(Method::GET, "/healthz", &[], "").await.status
    };
    let answered = tokio::time::timeout(raw::PATIENCE, late).await;
    assert_eq!(answered.expect("it is let in"), 200);
    drop(crowd);
    let mut probe = crate::person::Person::arrive(address, None).await;
    let other = probe.ask(Method::GET, "/api/v1/sales", &[], "").await;
    other.problem(404, "no_such_route");
    let claim = probe.ask(Method::POST, "/api/v1/sales/1/claims", &[], "").await;
    claim.problem(404, "no_such_route");
}

#[tokio::test]
async fn who_never_reads_the_answer_gives_the_place_free() {
    let shop = Shop::with(&[
        ("QIANG_HTTP__MAX_CONNECTIONS", "2"),
        ("QIANG_HTTP__WRITE_TIMEOUT_MS", "200"),
        // Not because it asks nothing more.
        ("QIANG_HTTP__HEADER_TIMEOUT_MS", "600000"),
    ])
    .await;
    let _deaf = [never_reads(&shop).await, never_reads(&shop).await];
    let third = async {
        let mut third = shop.stranger().await;
        third.ask(Method::GET, "/healthz", &[], "").await.status
    };
    let status = tokio::time::timeout(raw::PATIENCE, third).await;
    assert_eq!(status.expect("somebody leaves"), 200);
}

#[tokio::test]
async fn who_reads_slowly_gets_it_all() {
    let shop = Shop::with(&[("QIANG_HTTP__WRITE_TIMEOUT_MS", "1000")]).await;
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(64 << 10).expect("a buffer");
    let mut stream = socket.connect(shop.address()).await.expect("somebody listens");
    let request =
        "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut buffer = vec![0; 16 << 10];
    let mut pause = tokio::time::interval(std::time::Duration::from_millis(20));
    let mut all = 0;
    loop {
        pause.tick().await;
        match stream.read(&mut buffer).await.expect("the connection holds") {
            0 => break,
            read => all += read,
        }
    }
    assert!(all > 1_000_000, "{all} bytes");
}

#[tokio::test]
async fn connections_beyond_the_number_wait_their_turn() {
    let shop = Shop::with(&[("QIANG_HTTP__MAX_CONNECTIONS", "2")]).await;
    let (one, two) = (shop.stranger().await, shop.stranger().await);
    // The third is only accepted when one of the first leaves.
    let third = async {
        let mut third = shop.stranger().await;
        third.ask(Method::GET, "/healthz", &[], "").await.status
    };
    let leave = async {
        drop(one);
        drop(two);
    };
    let (status, ()) = tokio::join!(third, leave);
    assert_eq!(status, 200);
}
