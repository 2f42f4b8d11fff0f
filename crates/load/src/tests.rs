//! Whole runs against a server that does what a test wants: stalls, hangs up, talks nonsense.

use std::future::Future;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::http::Http;
use super::tally::Books;
use super::wire::Wire;
use super::*;

const SOLD_OUT: &str = r#"{"code":"sold_out"}"#;

fn plan(users: u32) -> Plan {
    Plan {
        scenario: Scenario::Sellout,
        pace: Pace::Open { per_sec: 2_000.0, spacing: Spacing::Uniform },
        duration: Duration::from_secs(60),
        users,
        connections: 1,
        depth: 1,
        seed: 1,
    }
}

/// Runs against whatever `serve` does with the listener.
async fn start<F>(plan: Plan, serve: impl FnOnce(TcpListener) -> F) -> Running
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(serve(listener));
    let http = Http::new("here", "7", "run", vec!["token".into(); 1_000]);
    Running::start(plan, Door { address, tls: None, wire: Wire::Http(http) })
        .await
        .expect("it begins")
}

/// Reads one request without a body; `None` when the client has gone.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with("\r\n\r\n") {
        if stream.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        text.push(char::from(byte[0]));
    }
    Some(text)
}

async fn answer(stream: &mut TcpStream, status: u16, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).await.expect("it listens");
}

fn count(work: &Work, name: &str) -> u64 {
    let desk = work.desk();
    let outcomes = desk.recorder.outcomes().values().flatten();
    outcomes.filter(|(outcome, _)| outcome.name == name).map(|(_, count)| count).sum()
}

#[test]
fn the_line_is_bounded_whatever_the_rate() {
    assert_eq!(line_bound(0.1), SHORTEST_LINE);
    assert_eq!(line_bound(2_000.0), 20_000);
    assert_eq!(line_bound(1e30), LONGEST_LINE);
}

/// The reason for an open loop: who waits because the server stalls is not left out.
#[tokio::test]
async fn a_server_that_stalls_cannot_hide_it() {
    let (open, gate) = oneshot::channel::<()>();
    let mut running = start(plan(200), |listener| async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut gate = Some(gate);
        while request(&mut stream).await.is_some() {
            if let Some(gate) = gate.take() {
                gate.await.expect("opened");
            }
            answer(&mut stream, 410, SOLD_OUT).await;
        }
    })
    .await;
    // One is on its way, everybody else arrives all the same.
    while running.work.waiting() < 199 {
        tokio::task::yield_now().await;
    }
    open.send(()).expect("it waits");
    running.ended().await;
    let work = running.join();
    assert_eq!(count(&work, "sold_out"), 200);
    let (latency, service) = {
        let desk = work.desk();
        (desk.recorder.latency(), desk.recorder.service())
    };
    assert_eq!((latency.count, service.count), (200, 200));
    assert!(latency.p50_us > service.p50_us, "{latency:?} {service:?}");
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_under_the_same_key() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut running = start(plan(1), |listener| async move {
        let (mut first, _) = listener.accept().await.expect("a client");
        tell.send(request(&mut first).await).expect("heard");
        drop(first);
        let (mut second, _) = listener.accept().await.expect("the client again");
        tell.send(request(&mut second).await).expect("heard");
        answer(&mut second, 200, r#"{"claim_id":"7-1","number":1}"#).await;
    })
    .await;
    running.ended().await;
    let work = running.join();
    let (first, second) = (told.recv().await.flatten(), told.recv().await.flatten());
    assert!(first.as_ref().is_some_and(|text| text.contains("Idempotency-Key: run-0\r\n")));
    assert_eq!(first, second);
    let desk = work.desk();
    assert_eq!(desk.recorder.resent, 1);
    let books = Books { stock: 1, ordered: 1, ..Books::default() };
    let verdict = desk.tally.verdict(&books, 1);
    assert!(verdict.exact, "{verdict:?}");
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_no_answer() {
    let mut running = start(plan(1), |listener| async move {
        for reply in ["220 mail.example.com\r\n", "HTTP/1.1 201 X\r\nContent-Length: 2\r\n\r\n{}"] {
            let (mut stream, _) = listener.accept().await.expect("a client");
            request(&mut stream).await.expect("asked");
            stream.write_all(reply.as_bytes()).await.expect("it listens");
        }
        let (mut stream, _) = listener.accept().await.expect("a client");
        request(&mut stream).await.expect("asked");
        answer(&mut stream, 410, SOLD_OUT).await;
    })
    .await;
    running.ended().await;
    let work = running.join();
    assert_eq!(count(&work, "sold_out"), 1);
    assert_eq!(work.desk().recorder.resent, 2);
}

#[tokio::test]
async fn who_is_in_line_when_it_is_stopped_goes_home_and_is_counted() {
    let (open, gate) = oneshot::channel::<()>();
    let mut running = start(plan(1_000), |listener| async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        request(&mut stream).await.expect("asked");
        gate.await.expect("opened");
        answer(&mut stream, 410, SOLD_OUT).await;
    })
    .await;
    while running.work.waiting() < 10 {
        tokio::task::yield_now().await;
    }
    running.work.hurry();
    open.send(()).expect("it waits");
    running.ended().await;
    let work = running.join();
    assert_eq!(count(&work, "sold_out"), 1);
    assert!(count(&work, fault::NOT_SENT) >= 10);
    assert_eq!(work.waiting(), 0);
}
