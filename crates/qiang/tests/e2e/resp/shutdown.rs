//! Stopping: what was heard is answered, what was answered is kept, and nobody holds it up.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{address, backend, commands, open, stranger};
use crate::raw;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_answered_is_there_afterwards_and_busy_clients_do_not_hold_it_up() {
    let shop = open().await;
    let sale = shop.sale(1_000_000, json!({ "limit_per_user": 1_000_000 })).await;
    let (heard, mut hearing) = tokio::sync::mpsc::unbounded_channel();
    let mut crowd = Vec::new();
    for place in 0..6 {
        let mut client = backend(&shop).await;
        let (sale, heard) = (sale.clone(), heard.clone());
        crowd.push(tokio::spawn(async move {
            let lines = vec![format!("CLAIM {sale} u{place}"); 20];
            let mut granted = Vec::new();
            // Two pipelines under way at any time, so that something always waits to be read.
            client.send(&commands(&lines)).await;
            loop {
                use tokio::io::AsyncWriteExt as _;
                let _closing = client.stream.write_all(&commands(&lines)).await;
                for _ in 0..lines.len() {
                    let Some(answer) = client.next().await else { return granted };
                    assert_eq!(answer[0], 1, "{answer}");
                    granted.push(answer[2].as_str().expect("an id").to_owned());
                }
                let _listening = heard.send(());
            }
        }));
    }
    for _ in 0..20 {
        hearing.recv().await.expect("the crowd is at work");
    }
    let stopped = tokio::time::timeout(raw::PATIENCE / 3, shop.restart(|_| ())).await;
    let shop = stopped.expect("within half the grace");
    let mut granted = BTreeSet::new();
    for one in crowd {
        granted.extend(one.await.expect("no panic"));
    }
    assert!(granted.len() >= 400, "{}", granted.len());
    let kept = shop.view(&sale).await["ordered"].as_u64().expect("a count");
    assert_eq!(kept, granted.len() as u64, "as many claims as answers");
    shop.audit().await;
}

#[tokio::test]
async fn idle_clients_are_let_go() {
    let shop = open().await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut client = backend(&shop).await;
        client.send(b"*1\r\n$4\r\nPI").await;
        idle.push(client);
        idle.push(backend(&shop).await);
        idle.push(stranger(&shop).await);
    }
    let before = address(&shop);
    let stopped = tokio::time::timeout(raw::PATIENCE / 3, shop.restart(|_| ())).await;
    let shop = stopped.expect("within half the grace");
    for mut client in idle {
        assert_eq!(client.rest().await, [] as [Value; 0]);
    }
    assert_ne!(before.port(), 0);
    assert_eq!(backend(&shop).await.ask("PING").await, json!("+PONG"));
}
