//! Stopping: nothing new is taken, everything accepted is answered, and what was answered is
//! there after the next start.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::{HeaderName, HeaderValue, Method};
use bytes::Bytes;
use qiang::client::Client;
use qiang::server::Server;
use qiang_app::token::Role;
use qiang_core::PoolId;
use qiang_engine::SystemClock;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::raw;
use crate::shop::{Shop, config};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_accepted_is_answered_and_whoever_was_answered_is_in_the_journal() {
    const CROWD: usize = 24;
    for answers_before_stopping in [1, 50, 300] {
        let shop = Shop::open().await;
        let sale = shop.sale(1_000_000, json!({ "limit_per_user": 1_000_000 })).await;
        let (address, stopping) = (shop.address(), Arc::new(AtomicBool::new(false)));
        let (answered, mut answers) = mpsc::unbounded_channel();
        let mut crowd = Vec::new();
        for number in 0..CROWD {
            let token = shop.token(&format!("u{number}"), Role::Buyer, None);
            let path = format!("/api/v1/sales/{sale}/claims");
            let (answered, stopping) = (answered.clone(), Arc::clone(&stopping));
            crowd.push(tokio::spawn(async move {
                let token = HeaderValue::from_str(&token).expect("a header");
                let headers = [(HeaderName::from_static("authorization"), token)];
                let mut granted = Vec::new();
                let Ok(mut client) = Client::connect(address).await else { return granted };
                loop {
                    let sent = client.send(Method::POST, path.as_str(), &headers, Bytes::new());
                    let Ok(answer) = sent.await else {
                        assert!(stopping.load(Ordering::SeqCst), "refused before the stop");
                        return granted;
                    };
                    assert_eq!(answer.status, 201, "{:?}", answer.body);
                    let claim: Value = answer.json().expect("JSON");
                    granted.push(claim["claim_id"].as_str().expect("an id").to_owned());
                    // The test has heard enough, or not yet.
                    let _heard = answered.send(());
                    // Every second one comes anew each time.
                    if number % 2 == 0 {
                        match Client::connect(address).await {
                            Ok(fresh) => client = fresh,
                            Err(_) => return granted,
                        }
                    }
                }
            }));
        }
        for _ in 0..answers_before_stopping {
            answers.recv().await.expect("the crowd is at work");
        }
        stopping.store(true, Ordering::SeqCst);
        let shop = shop.restart(|_| ()).await;
        let mut granted = BTreeSet::new();
        for one in crowd {
            granted.extend(one.await.expect("no panic"));
        }
        assert!(granted.len() >= answers_before_stopping);
        let pool: PoolId = sale.parse().expect("an id");
        let mut kept = BTreeSet::new();
        let mut after = 0;
        loop {
            let page = shop.server.app.engine.claims(pool, after, 1_000).await.expect("it works");
            let Some(last) = page.last() else { break };
            after = last.id.number;
            kept.extend(page.iter().map(|claim| claim.id.to_string()));
        }
        assert_eq!(kept, granted, "as many claims as answers");
        shop.audit().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_half_way_in_when_the_stop_comes_is_finished() {
    let shop = Shop::open().await;
    let sale = shop.sale(10, json!({})).await;
    let address = shop.address();
    let head = raw::claim_head(&sale, &shop.token("ann", Role::Buyer, None), 2);
    let head = head.replacen("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n", 1);
    let mut stream = raw::connect(address).await;
    stream.write_all(head.as_bytes()).await.expect("sent");
    raw::read_until(&mut stream, "100 Continue\r\n\r\n").await;
    let restarting = tokio::spawn(shop.restart(|_| ()));
    // When nobody can connect any more, the stop is under way.
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.write_all(b"{}").await.expect("sent");
    let answer = raw::read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    let shop = restarting.await.expect("no panic");
    assert_eq!(shop.tally(&sale).await, [9, 0, 1, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_a_stop() {
    let shop = Shop::open().await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut stream = raw::connect(shop.address()).await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
        raw::read_until(&mut stream, "ok\n").await;
        idle.push(stream);
        idle.push(raw::connect(shop.address()).await);
    }
    let stopped = tokio::time::timeout(raw::PATIENCE / 3, shop.restart(|_| ())).await;
    assert!(stopped.is_ok(), "within half the grace");
}

#[tokio::test]
async fn the_folder_is_free_for_the_next_and_the_note_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let note = folder.path().join("server.addr");
    for _ in 0..3 {
        let server = Server::start(config(folder.path(), &[]), Arc::new(SystemClock)).await;
        let server = server.expect("it starts");
        let place = qiang::running::place(folder.path()).expect("a note");
        assert_eq!((place.address, place.tls), (server.address, false));
        server.stop().await;
        assert!(!note.exists());
    }
}
