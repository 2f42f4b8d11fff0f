//! Clients that dawdle over HTTP/2: they are closed as over HTTP/1, and a steady one gets everything.

use std::time::Duration;

use axum::http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::raw;
use crate::shop::Shop;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
/// The headers are whole, and no body follows.
const WHOLE: u8 = 5;
/// `SETTINGS_INITIAL_WINDOW_SIZE` is 0.
const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];

const LARGE: &str = "/docs/swagger-ui-bundle.js";
/// No test waits for it.
const NEVER: &str = "600000";
const SOON: &str = "300";
/// Several times in [`SOON`].
const OFTEN: Duration = Duration::from_millis(30);

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short frame");
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

fn get(path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("a short path");
    // GET, http, the path, the host.
    let headers = [&[0x82, 0x86, 0x04, length], path.as_bytes(), b"\x01\x04shop"].concat();
    frame(HEADERS, WHOLE, 1, &headers)
}

/// One place, and these times.
async fn shop(header_timeout: &str, write_timeout: &str) -> Shop {
    Shop::with(&[
        ("QIANG_HTTP__MAX_CONNECTIONS", "1"),
        ("QIANG_HTTP__HEADER_TIMEOUT_MS", header_timeout),
        ("QIANG_HTTP__WRITE_TIMEOUT_MS", write_timeout),
    ])
    .await
}

/// Says hello with these settings, and asks for something.
async fn ask(shop: &Shop, settings: &[u8], path: &str) -> TcpStream {
    let mut stream = raw::connect(shop.address()).await;
    let hello = [PREFACE, &frame(SETTINGS, 0, 0, settings), &get(path)].concat();
    stream.write_all(&hello).await.expect("sent");
    stream
}

/// Sends a frame again and again, until the server has closed.
fn repeat(mut stream: TcpStream, frame: Vec<u8>) {
    tokio::spawn(async move {
        let mut pause = tokio::time::interval(OFTEN);
        while stream.write_all(&frame).await.is_ok() {
            pause.tick().await;
        }
    });
}

/// Expects that the only place is given free.
async fn place_is_free(shop: &Shop) {
    let next = async {
        let mut next = shop.stranger().await;
        next.ask(Method::GET, "/healthz", &[], "").await.status
    };
    let status = tokio::time::timeout(raw::PATIENCE, next).await;
    assert_eq!(status.expect("the slow one is closed"), 200);
}

#[tokio::test]
async fn who_gives_no_window_is_closed() {
    let shop = shop(NEVER, SOON).await;
    let _slow = ask(&shop, &NO_WINDOW, "/healthz").await;
    place_is_free(&shop).await;
}

#[tokio::test]
async fn who_never_reads_is_closed() {
    let shop = shop(NEVER, SOON).await;
    let _slow = ask(&shop, &[], LARGE).await;
    place_is_free(&shop).await;
}

#[tokio::test]
async fn who_takes_it_byte_by_byte_is_closed() {
    let shop = shop(NEVER, SOON).await;
    let slow = ask(&shop, &NO_WINDOW, LARGE).await;
    repeat(slow, frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]));
    place_is_free(&shop).await;
}

#[tokio::test]
async fn pings_keep_no_connection_open() {
    let shop = shop(SOON, SOON).await;
    let slow = ask(&shop, &[], "/healthz").await;
    repeat(slow, frame(PING, 0, 0, b"anybody?"));
    place_is_free(&shop).await;
}

#[tokio::test]
async fn who_has_its_answer_and_asks_nothing_more_is_closed() {
    let shop = shop(SOON, NEVER).await;
    let stream = raw::connect(shop.address()).await;
    let (client, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.expect("it holds");
    let request = axum::http::Request::get("http://shop/healthz").body(()).expect("a request");
    let (answer, _) = client.send_request(request, true).expect("it holds");
    assert_eq!(answer.await.expect("an answer").status(), 200);
    // It says goodbye, which is no error.
    let ended = tokio::time::timeout(raw::PATIENCE, connection).await;
    ended.expect("it is closed").expect("no panic").expect("without an error");
}

#[tokio::test]
async fn who_reads_slowly_gets_it_all() {
    let shop = shop(SOON, "1000").await;
    let stream = raw::connect(shop.address()).await;
    let (client, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    let mut client = client.ready().await.expect("it holds");
    let uri = format!("http://shop{LARGE}");
    let request = axum::http::Request::get(uri).body(()).expect("a request");
    let (answer, _) = client.send_request(request, true).expect("it holds");
    let mut body = answer.await.expect("an answer").into_body();
    let mut pause = tokio::time::interval(OFTEN);
    let mut all = 0;
    while let Some(part) = body.data().await {
        let part = part.expect("the connection holds");
        all += part.len();
        pause.tick().await;
        body.flow_control().release_capacity(part.len()).expect("it was taken");
    }
    assert!(all > 1_000_000, "{all} bytes");
}

#[tokio::test]
async fn one_that_is_closed_for_its_silence_is_told() {
    let shop = shop(SOON, SOON).await;
    let mut slow = ask(&shop, &[], "/healthz").await;
    let mut heard = Vec::new();
    let all = tokio::time::timeout(raw::PATIENCE, slow.read_to_end(&mut heard)).await;
    all.expect("it is closed").expect("no reset");
    // GOAWAY, without an error.
    let goodbye = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    assert!(heard.windows(goodbye.len()).any(|bytes| bytes == goodbye), "{heard:?}");
}
