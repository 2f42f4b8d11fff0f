//! What is checked before the engine is asked is checked for every door, and knows where a command
//! comes from.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use qiang_app::problem::{Code, Problem};
use qiang_app::token::Role;
use qiang_app::{Check, Origin};
use qiang_core::Command;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::{backend, open};
use crate::raw;

/// Turns one buyer away, and notes who asked from where.
#[derive(Debug)]
struct NotMallory(Arc<Mutex<Vec<(String, IpAddr)>>>);

impl Check for NotMallory {
    fn check(&self, command: &Command, origin: &Origin) -> Result<(), Problem> {
        let Command::Claim(wish) = command else { return Ok(()) };
        self.0.lock().expect("no panic").push((wish.user.to_string(), origin.peer));
        if wish.user.as_str() == "mallory" { Err(Problem::new(Code::Forbidden)) } else { Ok(()) }
    }
}

#[tokio::test]
async fn every_door_asks_the_same_checks() {
    let shop = open().await;
    let sale = shop.sale(10, json!({})).await;
    let seen = Arc::default();
    assert!(shop.server.app.check_with(vec![Box::new(NotMallory(Arc::clone(&seen)))]));

    let path = format!("/api/v1/sales/{sale}/claims");
    // The lane takes the first, and leaves the second to the general server.
    for elsewhere in ["", "trailer: nothing\r\n"] {
        for (user, status) in [("mallory", "403"), ("bob", "20")] {
            let token = shop.token(user, Role::Buyer, None);
            let mut stream = raw::connect(shop.address()).await;
            let request = format!(
                "POST {path} HTTP/1.1\r\nhost: shop\r\nauthorization: Bearer {token}\r\n\
                 idempotency-key: k\r\n{elsewhere}content-length: 0\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.expect("it listens");
            let answer = raw::read_until(&mut stream, "\r\n\r\n").await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        }
    }
    let mut backend = backend(&shop).await;
    let claims = ["carol", "mallory", "dave"].map(|user| format!("CLAIM {sale} {user}"));
    let answers = backend.pipeline(&claims).await;
    assert_eq!(answers[0][0], json!(1), "{answers:?}");
    assert_eq!(answers[1], json!([0, "forbidden"]), "{answers:?}");
    assert_eq!(answers[2][0], json!(1), "{answers:?}");

    let seen = seen.lock().expect("no panic").clone();
    let users: Vec<&str> = seen.iter().map(|(user, _)| user.as_str()).collect();
    assert_eq!(users, ["mallory", "bob", "mallory", "bob", "carol", "mallory", "dave"]);
    assert!(seen.iter().all(|(_, peer)| peer.is_loopback()), "{seen:?}");
}
