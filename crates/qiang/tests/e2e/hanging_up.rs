//! Clients that leave: what the server accepted is decided all the same.

use qiang_app::token::Role;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::raw::{self, PATIENCE};
use crate::shop::Shop;

/// Waits until so many events are durable.
async fn decided(shop: &Shop, events: u64) {
    let engine = &shop.server.app.engine;
    let decided = async {
        while engine.positions().await.expect("the engine works").iter().sum::<u64>() < events {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, decided).await.expect("what was accepted is decided");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_right_after_its_claim_has_it() {
    const CROWD: u64 = 40;
    let shop = Shop::open().await;
    let sale = shop.sale(1_000, json!({})).await;
    for number in 0..CROWD {
        let token = shop.token(&format!("u{number}"), Role::Buyer, None);
        let body = if number % 2 == 0 { "" } else { "{\"quantity\":1}" };
        let request = format!("{}{body}", raw::claim_head(&sale, &token, body.len()));
        let mut stream = raw::connect(shop.address()).await;
        stream.write_all(request.as_bytes()).await.expect("sent");
        drop(stream);
    }
    decided(&shop, 1 + CROWD).await;
    assert_eq!(shop.tally(&sale).await, [1_000 - CROWD, 0, CROWD, 0]);
    // Each of them finds it: the second try names the claim.
    for number in 0..CROWD {
        let mut user = shop.buyer(&format!("u{number}")).await;
        let problem = user.claim(&sale, 1).await.problem(409, "already_claimed");
        assert_eq!(user.state(problem["claim_id"].as_str().expect("an id")).await, "ordered");
    }
    shop.audit().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_after_the_body_was_asked_for_has_it() {
    let shop = Shop::open().await;
    let sale = shop.sale(10, json!({})).await;
    for number in 0..5 {
        let token = shop.token(&format!("u{number}"), Role::Buyer, None);
        let head = raw::claim_head(&sale, &token, 2);
        let head = head.replacen("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n", 1);
        let mut stream = raw::connect(shop.address()).await;
        stream.write_all(head.as_bytes()).await.expect("sent");
        raw::read_until(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n").await;
        stream.write_all(b"{}").await.expect("sent");
        drop(stream);
    }
    decided(&shop, 6).await;
    assert_eq!(shop.tally(&sale).await, [5, 0, 5, 0]);
}

#[tokio::test]
async fn a_client_that_hangs_up_in_the_middle_of_its_body_asked_for_nothing() {
    let shop = Shop::open().await;
    let sale = shop.sale(10, json!({})).await;
    let before = shop.view(&sale).await;
    let token = shop.token("ann", Role::Buyer, None);
    for cut in ["", "{", "{\"quantity\":"] {
        let request = format!("{}{cut}", raw::claim_head(&sale, &token, 14));
        let mut stream = raw::connect(shop.address()).await;
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream.shutdown().await.expect("open");
        // Whatever the server has to say to that, it is no success.
        let answer = raw::read_to_end(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(shop.view(&sale).await, before);
}

#[tokio::test]
async fn a_client_that_has_said_everything_may_still_listen() {
    let shop = Shop::open().await;
    let sale = shop.sale(10, json!({})).await;
    for (user, body) in [("ann", ""), ("ben", "{}")] {
        let token = shop.token(user, Role::Buyer, None);
        let request = format!("{}{body}", raw::claim_head(&sale, &token, body.len()));
        let mut stream = raw::connect(shop.address()).await;
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream.shutdown().await.expect("open");
        let answer = raw::read_to_end(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 201 "), "{user}: {answer}");
    }
}
