//! The fast lane for claims answers as the general server does, byte by byte but for the date,
//! and hands over whatever is none of its business.

use qiang_app::token::Role;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::raw::{self, PATIENCE};
use crate::shop::Shop;

/// A header that means nothing, and that the lane leaves to the general server.
const ELSEWHERE: &str = "trailer: nothing";

/// One answer: the status line, the headers in order but without the date, the body.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: String,
    headers: Vec<String>,
    body: String,
}

async fn answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        read_some(stream, &mut bytes).await;
    };
    let head = String::from_utf8(bytes[..end].to_vec()).expect("UTF-8");
    let mut lines = head.trim_end().lines();
    let status = lines.next().expect("a status").to_owned();
    let mut headers: Vec<String> = lines.map(str::to_owned).collect();
    let length = headers.iter().find_map(|header| header.strip_prefix("content-length: "));
    let length: usize = length.expect("a length").parse().expect("a number");
    while bytes.len() < end + length {
        read_some(stream, &mut bytes).await;
    }
    let dates = headers.iter().filter(|header| header.starts_with("date: ")).count();
    assert_eq!(dates, 1, "{head}");
    headers.retain(|header| !header.starts_with("date: "));
    headers.sort();
    let body = String::from_utf8(bytes[end..end + length].to_vec()).expect("UTF-8");
    assert_eq!(bytes.len(), end + length, "one answer at a time");
    Answer { status, headers, body }
}

async fn read_some(stream: &mut TcpStream, bytes: &mut Vec<u8>) {
    // An answer is read to its end and no further.
    let mut byte = [0];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut byte)).await;
    assert_eq!(read.expect("it answers").expect("it holds"), 1, "closed after {bytes:?}");
    bytes.push(byte[0]);
}

fn post(path: &str, headers: &[&str], body: &str) -> String {
    let mut request = format!("POST {path} HTTP/1.1\r\nhost: shop\r\n");
    for header in headers {
        request.push_str(header);
        request.push_str("\r\n");
    }
    if !body.is_empty() {
        request.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    request + "\r\n" + body
}

#[tokio::test]
async fn both_ways_give_the_same_answers() {
    let shop = Shop::open().await;
    let terms = json!({"limit_per_user": 3, "flow": "hold", "hold_secs": 60, "pay_secs": 60});
    let sales = [shop.sale(9, terms.clone()).await, shop.sale(9, terms).await];
    let later = json!({"opens_at": "2027-01-15T09:00:00Z"});
    let scheduled = [shop.sale(6, later.clone()).await, shop.sale(6, later).await];
    let ann = format!("authorization: Bearer {}", shop.token("ann", Role::Buyer, None));
    let bob = format!("Authorization: {}", shop.token("bob", Role::Buyer, None));
    let cyd = format!("AUTHORIZATION: bearer {}", shop.token("cyd", Role::Buyer, None));
    let forged = format!("{}x", ann.trim_end());
    let dan = format!("cookie: a=b; {}", shop.cookie("dan"));
    let (ours, theirs) = ("Sec-Fetch-Site: same-origin", "sec-fetch-site: cross-site");
    let json = "content-type: application/json";
    let zh = "accept-language: zh-CN,en;q=0.5";
    let one = "idempotency-key: one";
    let requests: &[(&[&str], &str)] = &[
        (&[&ann], ""),
        (&[&dan], ""),
        (&[&dan, theirs], ""),
        (&[&dan, ours], ""),
        (&[&dan, ours, json], r#"{"quantity":2}"#),
        (&[&dan, &dan, ours], ""),
        (&[&dan, &ann, theirs], ""),
        (&["cookie: qiang_session=x.y.z", ours], ""),
        (&["cookie: qiang_session=", ours], ""),
        (&["cookie: other=1", ours], ""),
        (&[&ann, json], "{}"),
        (&[&ann, json], r#"{"quantity":2}"#),
        (&[&ann, json, zh], r#"{"quantity":2}"#),
        (&[&bob, one], ""),
        (&[&bob, one], ""),
        (&[&bob, one, json], r#"{"quantity":2}"#),
        (&[&bob, "Idempotency-Key: two", "Connection: keep-alive"], ""),
        (&[&bob, "idempotency-key:"], ""),
        (&[&bob, "idempotency-key: caf\u{e9}"], ""),
        (&[&bob, json], r#"{"quantity":0}"#),
        (&[&bob, json], r#"{"quantity":-1}"#),
        (&[&bob, json], r#"{"quantity":1.5}"#),
        (&[&bob, json], r#"{"quantity":99999999999}"#),
        (&[&bob, json], r#"{"amount":1}"#),
        (&[&bob, json], r#"{"quantity":1"#),
        (&[&bob, json], "[1]"),
        (&[&bob, json], "{} {}"),
        (&[&bob, "content-type: text/plain"], "{}"),
        (&[&bob, "content-type: application/json; charset=utf-8"], r#"{"quantity":1}"#),
        (&[&bob, "content-type: text/plain", json], "{}"),
        (&[&bob, json, "content-type: text/plain"], "{}"),
        (&[&bob], "{}"),
        (&[], ""),
        (&[zh], ""),
        (&["authorization: "], ""),
        (&["authorization: Bearer"], ""),
        (&["authorization: Bearer nonsense"], ""),
        (&[&forged], ""),
        (&[&forged, zh], ""),
        (&[&ann, "content-length: 0"], ""),
        (&[&ann, json, zh], r#"{"quantity":3}"#),
        (&[&cyd], ""),
        (&[&cyd, json, zh], r#"{"quantity":3}"#),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for pair in [&sales, &scheduled] {
        for (headers, body) in requests {
            let [here, elsewhere] = [0, 1].map(|way| {
                let extra = if way == 0 { "x-trailer: nothing" } else { ELSEWHERE };
                let headers = [*headers, &[extra]].concat();
                post(&format!("/api/v1/sales/{}/claims", pair[way]), &headers, body)
            });
            let mut stream = raw::connect(shop.address()).await;
            stream.write_all(here.as_bytes()).await.expect("sent");
            let mut answered = answer(&mut stream).await;
            let mut stream = raw::connect(shop.address()).await;
            stream.write_all(elsewhere.as_bytes()).await.expect("sent");
            let wanted = answer(&mut stream).await;
            answered.body = answered.body.replace(&pair[0], &pair[1]);
            assert_eq!(answered, wanted, "{here}");
            seen.insert(answered.status);
        }
    }
    let seen: Vec<&str> = seen.iter().filter_map(|status| status.get(9..12)).collect();
    assert_eq!(seen, ["200", "201", "400", "401", "403", "409", "410", "415", "422", "425"]);
    shop.audit().await;
}

#[tokio::test]
async fn no_such_sale_is_said_in_the_same_words() {
    let shop = Shop::open().await;
    let ann = format!("authorization: {}", shop.token("ann", Role::Buyer, None));
    for sale in ["77", "0", "007", "abc", "18446744073709551616", "%37", "7?x=1", "", "7/"] {
        for path in
            [format!("/api/v1/sales/{sale}/claims"), format!("/voucher-order/seckill/{sale}")]
        {
            let mut answers = Vec::new();
            for extra in ["x-trailer: nothing", ELSEWHERE] {
                let mut stream = raw::connect(shop.address()).await;
                let request = post(&path, &[&ann, extra], "");
                stream.write_all(request.as_bytes()).await.expect("sent");
                answers.push(answer(&mut stream).await);
            }
            assert!(answers[0].status.starts_with("HTTP/1.1 40"), "{path}: {answers:?}");
            assert_eq!(answers[0], answers[1], "{path}");
        }
    }
}

#[tokio::test]
async fn a_request_may_come_in_two_pieces_cut_anywhere() {
    let shop = Shop::open().await;
    let sale = shop.sale(10_000, json!({})).await;
    let path = format!("/voucher-order/seckill/{sale}");
    let whole = |user: &str| {
        let token = format!("authorization: {}", shop.token(user, Role::Buyer, None));
        post(&path, &[&token, "content-type: application/json"], "{\"quantity\":1}")
    };
    for cut in (1..whole("u000").len()).step_by(7) {
        let request = whole(&format!("u{cut:03}"));
        let mut stream = raw::connect(shop.address()).await;
        stream.write_all(&request.as_bytes()[..cut]).await.expect("sent");
        tokio::task::yield_now().await;
        stream.write_all(&request.as_bytes()[cut..]).await.expect("sent");
        let answered = answer(&mut stream).await;
        assert_eq!(answered.status, "HTTP/1.1 201 Created", "cut at {cut}");
    }
}

#[tokio::test]
async fn claims_and_other_requests_share_a_connection_in_order() {
    let shop = Shop::open().await;
    let sale = shop.sale(3, json!({})).await;
    let claim = |user: &str| {
        let token = format!("authorization: {}", shop.token(user, Role::Buyer, None));
        post(&format!("/api/v1/sales/{sale}/claims"), &[&token], "")
    };
    let look = format!("GET /api/v1/sales/{sale} HTTP/1.1\r\nhost: shop\r\n\r\n");
    let all: Vec<String> = vec![claim("a"), claim("b"), look.clone(), claim("c"), claim("d"), look];
    let mut stream = raw::connect(shop.address()).await;
    stream.write_all(all.concat().as_bytes()).await.expect("sent");
    let mut said = Vec::new();
    for _ in &all {
        let answered = answer(&mut stream).await;
        let body: Value = serde_json::from_str(&answered.body).expect("JSON");
        let what = ["number", "available", "code"]
            .into_iter()
            .find_map(|name| body.get(name).map(|value| format!("{name} {value}")));
        said.push(what.expect("one of them"));
    }
    assert_eq!(
        said,
        ["number 1", "number 2", "available 1", "number 3", "code \"sold_out\"", "available 0"]
    );
    shop.audit().await;
}
