//! The client sends a request at most once, and says whether it can have arrived.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, Uri};
use bytes::Bytes;
use qiang::client::{Client, Error};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// What the server does with one request on a connection.
#[derive(Clone, Copy)]
enum Reaction {
    Answer(&'static str),
    AnswerAndClose(&'static str),
    Close,
    KeepSilent,
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 11\r\nx-note: hi\r\n\r\n{\"ok\":true}";

/// A server that follows a script, one list for each connection, and reports every request.
async fn server(script: Vec<Vec<Reaction>>) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (seen, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for reactions in script {
            let (stream, _) = listener.accept().await.expect("a connection");
            let seen = seen.clone();
            tokio::spawn(async move { serve(stream, reactions, seen).await });
        }
    });
    (address, requests)
}

async fn serve(
    mut stream: TcpStream,
    reactions: Vec<Reaction>,
    seen: mpsc::UnboundedSender<String>,
) {
    let mut buffer = vec![0; 65536];
    for reaction in reactions {
        let len = stream.read(&mut buffer).await.expect("readable");
        if len == 0 {
            return;
        }
        seen.send(String::from_utf8_lossy(&buffer[..len]).into_owned()).expect("the test listens");
        match reaction {
            Reaction::Answer(answer) => stream.write_all(answer.as_bytes()).await.expect("open"),
            Reaction::AnswerAndClose(answer) => {
                return stream.write_all(answer.as_bytes()).await.expect("open");
            }
            Reaction::Close => return,
            Reaction::KeepSilent => {}
        }
    }
}

async fn post(client: &mut Client) -> Result<u16, Error> {
    let answer = client.send(Method::POST, "/claims", &[], Bytes::from_static(b"{}")).await?;
    Ok(answer.status.as_u16())
}

#[tokio::test]
async fn requests_share_a_connection_and_carry_what_they_were_given() {
    let script = vec![vec![Reaction::Answer(OK), Reaction::Answer(OK), Reaction::Answer(OK)]];
    let (address, mut requests) = server(script).await;
    let mut client = Client::connect_url(&format!("http://localhost:{}", address.port()), None)
        .await
        .expect("it listens");
    let headers =
        [(HeaderName::from_static("authorization"), HeaderValue::from_static("Bearer x"))];
    let path = Uri::from_static("/api/v1/sales/1/claims");
    let answer = client
        .send(Method::POST, path, &headers, Bytes::from_static(b"{}"))
        .await
        .expect("an answer");
    assert_eq!((answer.status.as_u16(), answer.header("x-note")), (200, Some("hi")));
    let request = requests.recv().await.expect("it arrived");
    assert!(request.starts_with("POST /api/v1/sales/1/claims HTTP/1.1\r\n"), "{request}");
    for header in ["host: localhost:", "authorization: Bearer x", "content-length: 2"] {
        assert!(request.contains(header), "{request}");
    }
    let (status, body): (_, Value) = client.get_json("/x", &headers).await.expect("JSON");
    assert_eq!((status.as_u16(), body), (200, json!({"ok": true})));
    assert!(requests.recv().await.expect("it arrived").starts_with("GET /x HTTP/1.1"));
    let answer = client.send_json(Method::PUT, "/y", &[], &json!({"a": 1})).await.expect("OK");
    assert_eq!(answer.json::<Value>().expect("JSON"), json!({"ok": true}));
    let request = requests.recv().await.expect("it arrived");
    assert!(request.contains("content-type: application/json"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"a\":1}"), "{request}");
}

#[tokio::test]
async fn a_connection_lost_after_sending_leaves_the_outcome_open_and_nothing_is_resent() {
    let (address, mut requests) =
        server(vec![vec![Reaction::Close], vec![Reaction::Answer(OK)]]).await;
    let mut client = Client::connect(address).await.expect("it listens");
    let error = post(&mut client).await.expect_err("the server hung up");
    assert!(error.outcome_unknown(), "{error:?}");
    let error = post(&mut client).await.expect_err("the connection is gone");
    assert!(matches!(error, Error::NotSent(_)) && !error.outcome_unknown(), "{error:?}");
    client.reconnect().await.expect("the caller chose to");
    assert_eq!(post(&mut client).await.expect("an answer"), 200);
    requests.recv().await.expect("the first");
    requests.recv().await.expect("the one after reconnecting");
    assert!(requests.try_recv().is_err(), "something was sent twice");
}

#[tokio::test]
async fn a_connection_closed_between_requests_is_seen_before_sending() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let (address, mut requests) = server(vec![vec![Reaction::AnswerAndClose(closing)]]).await;
    let mut client = Client::connect(address).await.expect("it listens");
    assert_eq!(post(&mut client).await.expect("an answer"), 200);
    let error = post(&mut client).await.expect_err("closed");
    assert!(matches!(error, Error::NotSent(_)), "{error:?}");
    assert!(!client.is_open());
    requests.recv().await.expect("the first");
    assert!(requests.try_recv().is_err(), "nothing more was sent");
}

#[tokio::test]
async fn silence_ends_in_a_timeout_and_the_connection_is_not_used_again() {
    let (address, mut requests) = server(vec![vec![Reaction::KeepSilent; 2]]).await;
    let mut client = Client::connect(address).await.expect("it listens");
    client.set_timeout(Duration::from_millis(50));
    let error = post(&mut client).await.expect_err("no answer");
    assert!(matches!(error, Error::Timeout(_)) && error.outcome_unknown(), "{error:?}");
    let error = post(&mut client).await.expect_err("its answer could be mistaken for the first's");
    assert!(!error.outcome_unknown(), "{error:?}");
    requests.recv().await.expect("the first");
    assert!(requests.try_recv().is_err(), "nothing more was sent");
}

#[tokio::test]
async fn an_answer_cut_short_leaves_the_outcome_open() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"ok\"";
    let (address, _requests) = server(vec![vec![Reaction::AnswerAndClose(cut)]]).await;
    let mut client = Client::connect(address).await.expect("it listens");
    let error = post(&mut client).await.expect_err("cut short");
    assert!(matches!(error, Error::Body(_)) && error.outcome_unknown(), "{error:?}");
}

#[tokio::test]
async fn bad_addresses_are_told_apart_from_silent_ones() {
    for url in
        ["", "127.0.0.1", "http://127.0.0.1:1", "/x", "http://", "http://u:p@h:1", "ftp://h:1"]
    {
        let error = Client::connect_url(url, None).await.expect_err("no address");
        assert!(matches!(error, Error::BadUrl { .. } | Error::Connect { .. }), "{url}: {error:?}");
    }
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
    let error = Client::connect(free).await.expect_err("nobody listens");
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    let (address, _requests) = server(vec![vec![]]).await;
    let mut client = Client::connect(address).await.expect("it listens");
    let error = client.send(Method::GET, "no path", &[], Bytes::new()).await;
    assert!(matches!(error, Err(Error::BadRequest(_))));
}
