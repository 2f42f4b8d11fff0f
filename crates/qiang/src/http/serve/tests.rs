//! A connection leaves hyper when it has nothing to do, with everything answered and nothing lost.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::until_idle;
use crate::http::wire::{Answer, Wire};
use crate::tls::Stream;

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

async fn pair() -> (TcpStream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    (client.expect("connected"), Either::Left(accepted.expect("accepted").0))
}

/// Serves until idle; every answer has this body.
async fn serve(stream: Stream, begun: &'static [u8], body: &str) -> Option<(Stream, Bytes)> {
    let wire = Wire::new(stream, Bytes::from_static(begun), PATIENCE);
    let progress = wire.progress();
    let answer = |_: hyper::Request<Incoming>| {
        let (request, body) = (progress.request(), body.to_owned());
        async move {
            tokio::task::yield_now().await;
            Ok(Response::new(Answer::new(Body::from(body), request)))
        }
    };
    let (builder, stop) = (http1::Builder::new(), CancellationToken::new());
    let served = until_idle(&builder, wire, answer, &stop);
    tokio::time::timeout(PATIENCE, served).await.expect("it has nothing to do, and says so")
}

/// How many whole answers with this body came, once the server has hung up.
async fn answers(mut client: TcpStream, body: &str) -> usize {
    let mut all = String::new();
    client.read_to_string(&mut all).await.expect("text");
    let whole = format!("\r\n\r\n{body}");
    assert!(all.ends_with(&whole), "{all}");
    all.matches(&whole).count()
}

#[tokio::test]
async fn it_comes_back_with_what_was_read_of_the_next_request() {
    let (mut client, stream) = pair().await;
    client.write_all(&[GET, GET, b"GET /ne"].concat()).await.expect("sent");
    let (stream, begun) = serve(stream, GET, "done").await.expect("it goes on");
    assert_eq!(begun, b"GET /ne"[..]);
    client.write_all(b"xt HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    let (stream, begun) = serve(stream, b"GET /ne", "done").await.expect("it goes on");
    assert!(begun.is_empty());
    drop(stream);
    assert_eq!(answers(client, "done").await, 4);
}

#[tokio::test]
async fn a_long_answer_is_sent_to_its_end_first() {
    let body = "x".repeat(8 << 20);
    let (client, stream) = pair().await;
    // Longer than all buffers of the kernel: it waits for the reader.
    let served = async {
        let (stream, _) = serve(stream, GET, &body).await.expect("it goes on");
        drop(stream);
    };
    let (count, ()) = tokio::join!(answers(client, &body), served);
    assert_eq!(count, 1);
}

#[tokio::test]
async fn one_that_is_to_be_closed_does_not_come_back() {
    let (client, stream) = pair().await;
    let begun = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    assert!(serve(stream, begun, "done").await.is_none());
    assert_eq!(answers(client, "done").await, 1);
}
