//! The proxy does to real connections what it is told, and nothing else.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use qiang_testkit::Proxy;
use qiang_testkit::servers::{Redis, Value, or_skip, redis};

/// Longer than anything here takes: a test fails rather than hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that answers each line with the same line, for as long as the process runs.
fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    port
}

fn echo_behind_proxy() -> Proxy {
    Proxy::start(echo()).expect("a proxy can be started")
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    stream
}

fn send(mut stream: &TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).expect("nobody has cut it yet");
}

fn receive(mut stream: &TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("the bytes come");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What is left until the connection ends, politely or not.
fn receive_rest(mut stream: &TcpStream) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ask(stream: &TcpStream, text: &str) -> String {
    send(stream, text);
    receive(stream, text.len())
}

#[tokio::test]
async fn untold_it_forwards_and_counts() {
    let proxy = echo_behind_proxy();
    let client = connect(&proxy);
    let long = "x".repeat(300_000);
    let answer = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&client, &long));
        let answer = receive(&client, long.len());
        sender.join().map(|()| answer)
    });
    assert!(answer.unwrap() == long);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receive_rest(&client), "");
    let counts = proxy.until(|counts| counts.open == 0).await.unwrap();
    assert_eq!((counts.connections, counts.cut, counts.swallowed_bytes), (1, 0, 0));
    assert_eq!((counts.request_bytes, counts.reply_bytes), (300_000, 300_000));
}

#[tokio::test]
async fn a_swallowed_reply_leaves_the_deed_done() {
    let Some(redis) = or_skip(Redis::start(&redis::Options::default())) else { return };
    let proxy = Proxy::start(redis.port()).unwrap();
    assert_eq!(proxy.url(&redis.url()), format!("redis://127.0.0.1:{}", proxy.port()));
    let client = connect(&proxy);
    send(&client, "SET stock 7\r\n");
    assert_eq!(receive(&client, 5), "+OK\r\n");

    proxy.swallow_next_reply();
    send(&client, "DECR stock\r\n");
    assert_eq!(receive_rest(&client), "");
    let counts = proxy.until(|counts| counts.cut == 1).await.unwrap();
    assert_eq!((counts.swallowed_bytes, counts.reply_bytes), (4, 5));
    assert_eq!(redis.command(&["GET", "stock"]).unwrap(), Value::Text("6".into()));

    // Whoever asks again is answered.
    let client = connect(&proxy);
    send(&client, "GET stock\r\n");
    assert_eq!(receive(&client, 7), "$1\r\n6\r\n");
}

#[tokio::test]
async fn every_reply_is_swallowed_until_told_otherwise() {
    let proxy = echo_behind_proxy();
    proxy.swallow_replies();
    for _ in 0..2 {
        let client = connect(&proxy);
        send(&client, "a");
        assert_eq!(receive_rest(&client), "");
    }
    let counts = proxy.until(|counts| counts.cut == 2).await.unwrap();
    assert_eq!((counts.request_bytes, counts.swallowed_bytes, counts.reply_bytes), (2, 2, 0));
    proxy.deliver_replies();
    assert_eq!(ask(&connect(&proxy), "b"), "b");
}

#[tokio::test]
async fn a_reply_can_end_in_the_middle() {
    let proxy = echo_behind_proxy();
    let client = connect(&proxy);
    proxy.cut_after_reply_bytes(5);
    assert_eq!(ask(&client, "abc"), "abc");
    send(&client, "defg");
    assert_eq!(receive_rest(&client), "de");
    let counts = proxy.until(|counts| counts.cut == 1).await.unwrap();
    assert_eq!((counts.reply_bytes, counts.swallowed_bytes), (5, 2));
    assert_eq!(ask(&connect(&proxy), "defg"), "defg");
}

#[tokio::test]
async fn cutting_ends_what_is_open_and_nothing_else() {
    let proxy = echo_behind_proxy();
    let clients = [connect(&proxy), connect(&proxy)];
    for client in &clients {
        assert_eq!(ask(client, "a"), "a");
    }
    proxy.cut();
    for client in &clients {
        assert_eq!(receive_rest(client), "");
    }
    assert_eq!(proxy.until(|counts| counts.cut == 2).await.unwrap().open, 0);
    assert_eq!(ask(&connect(&proxy), "b"), "b");
}

#[test]
fn refusing_is_for_those_who_come_new() {
    let proxy = echo_behind_proxy();
    let client = connect(&proxy);
    assert_eq!(ask(&client, "a"), "a");
    proxy.refuse().unwrap();
    let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask(&client, "b"), "b");
    proxy.admit().unwrap();
    proxy.admit().unwrap();
    assert_eq!(ask(&connect(&proxy), "c"), "c");
}

#[tokio::test]
async fn what_is_paused_comes_later() {
    let proxy = echo_behind_proxy();
    let client = connect(&proxy);
    assert_eq!(ask(&client, "a"), "a");

    proxy.pause_replies();
    send(&client, "b");
    proxy.until(|counts| counts.request_bytes == 2).await.unwrap();
    assert_eq!(proxy.counts().reply_bytes, 1);
    proxy.resume();
    assert_eq!(receive(&client, 1), "b");

    proxy.pause();
    send(&client, "c");
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!((&client).read(&mut [0]).is_err());
    assert_eq!(proxy.counts().request_bytes, 2);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    proxy.heal().unwrap();
    assert_eq!(receive(&client, 1), "c");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a real delay takes real time")]
fn each_way_can_be_slow() {
    let proxy = echo_behind_proxy();
    let client = connect(&proxy);
    let delay = Duration::from_millis(60);
    let slow: [fn(&Proxy, Duration); 2] = [Proxy::delay_requests, Proxy::delay_replies];
    for slow_down in slow {
        slow_down(&proxy, delay);
        let sent = Instant::now();
        assert_eq!(ask(&client, "a"), "a");
        assert!(sent.elapsed() >= delay);
        proxy.heal().unwrap();
    }
    assert_eq!(ask(&client, "b"), "b");
}

#[test]
fn a_server_that_is_down_shows_through() {
    let Some(redis) = or_skip(Redis::start(&redis::Options::default())) else { return };
    let proxy = Proxy::start(redis.port()).unwrap();
    let client = connect(&proxy);
    redis.kill().unwrap();
    assert_eq!(receive_rest(&client), "");
    assert_eq!(receive_rest(&connect(&proxy)), "");
    redis.restart().unwrap();
    let client = connect(&proxy);
    send(&client, "PING\r\n");
    assert_eq!(receive(&client, 7), "+PONG\r\n");
}

#[tokio::test]
async fn only_clients_with_a_silenced_address_hear_nothing() {
    let proxy = echo_behind_proxy();
    let near = connect(&proxy);
    assert_eq!(ask(&near, "a"), "a");
    proxy.silence(Ipv4Addr::new(127, 0, 0, 9).into());
    assert_eq!(ask(&near, "b"), "b");
    proxy.silence(Ipv4Addr::LOCALHOST.into());
    send(&near, "c");
    let new = connect(&proxy);
    send(&new, "d");
    proxy.until(|counts| counts.connections == 2).await.unwrap();
    assert_eq!(proxy.counts().request_bytes, 2);
    proxy.heal().unwrap();
    assert_eq!((receive(&near, 1), receive(&new, 1)), ("c".to_owned(), "d".to_owned()));
}
