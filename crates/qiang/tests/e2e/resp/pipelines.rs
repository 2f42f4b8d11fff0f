//! Many commands in one write: decided in their order, answered in their order, whatever they are.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::{backend, commands, open, paired, wrong};
use crate::shop::Shop;

fn ids(sale: &str, number: u32) -> String {
    format!("{sale}-{number}")
}

#[tokio::test]
async fn mixed_commands_see_what_those_before_them_did() {
    let shop = open().await;
    let sale = shop.sale(1, json!({})).await;
    let mut client = backend(&shop).await;
    let answers = client
        .pipeline(&[
            format!("CLAIM {sale} ann"),
            format!("CLAIM {sale} ben"),
            format!("RELEASE {}", ids(&sale, 1)),
            format!("CLAIM {sale} ben"),
            format!("POOL {sale}"),
            "CLAIM".to_owned(),
            format!("PAY {} p 9900", ids(&sale, 2)),
            format!("CLAIM {sale} eve"),
            "PING".to_owned(),
            "CLAIM nothing eve".to_owned(),
            format!("POOL {sale}"),
        ])
        .await;
    assert_eq!(answers[0], json!([1, 1, ids(&sale, 1)]));
    assert_eq!(answers[1], json!([0, "sold_out"]));
    assert_eq!(answers[2], json!([1, 1, ids(&sale, 1)]));
    assert_eq!(answers[3], json!([1, 2, ids(&sale, 2)]));
    assert_eq!(paired(&answers[4])["ordered"], 1);
    wrong(&answers[5], "ERR", &["wrong number of arguments"]);
    assert_eq!(answers[6], json!([1, "paid", ids(&sale, 2)]));
    assert_eq!(
        answers[7..10],
        [json!([0, "sold_out"]), json!("+PONG"), json!([0, "no_such_sale"])]
    );
    assert_eq!(paired(&answers[10])["paid"], 1);
    shop.audit().await;
}

#[tokio::test]
async fn what_is_given_up_is_there_for_the_claim_behind_it() {
    let shop = open().await;
    let sale = shop.sale(1, json!({})).await;
    let mut client = backend(&shop).await;
    client.ask(&format!("CLAIM {sale} u0")).await;
    let crowd: Vec<String> = (0..300).map(|user| format!("CLAIM {sale} late-{user}")).collect();
    for number in 1..10_u32 {
        // So many heard that it is sold out that an engine may remember it.
        let next = format!("CLAIM {sale} u{number}");
        for _ in 0..3 {
            let refused = client.pipeline(&crowd).await;
            assert!(refused.iter().all(|answer| *answer == json!([0, "sold_out"])));
        }
        let (last, this) = (ids(&sale, number), ids(&sale, number + 1));
        let lines = [&format!("RELEASE {last}"), &next, &next];
        let expected =
            [json!([1, number, last]), json!([1, number + 1, this]), json!([2, number + 1, this])];
        assert_eq!(client.pipeline(&lines).await, expected);
    }
    shop.audit().await;
}

#[tokio::test]
async fn a_hold_is_claimed_ordered_and_paid_in_one_breath() {
    let shop = open().await;
    let sale = shop.sale(100, json!({ "flow": "hold" })).await;
    let mut client = backend(&shop).await;
    let lines: Vec<String> = (1..=50_u32)
        .flat_map(|number| {
            let id = ids(&sale, number);
            [
                format!("CLAIM {sale} u{number}"),
                format!("ORDER {id} u{number}"),
                format!("PAY {id} p-{number} 9900"),
                format!("RELEASE {id}"),
            ]
        })
        .collect();
    for (answers, number) in client.pipeline(&lines).await.chunks(4).zip(1_u32..) {
        let id = ids(&sale, number);
        let expected = [
            json!([1, number, id]),
            json!([1, number, id]),
            json!([1, "paid", id]),
            json!([0, "already_paid"]),
        ];
        assert_eq!(answers, expected);
    }
    assert_eq!(shop.tally(&sale).await, [50, 0, 0, 50]);
    shop.audit().await;
}

/// As many as fill several batches and several sends, and as fit on an engine that is slow.
async fn long_pipeline(shop: &Shop) -> (String, Vec<String>) {
    let sale = shop.sale(2_000, json!({})).await;
    let lines = (0..3_000).map(|number| format!("CLAIM {sale} user-{number}")).collect();
    (sale, lines)
}

#[tokio::test]
async fn thousands_in_one_write_are_answered_in_their_order() {
    let shop = open().await;
    let (sale, lines) = long_pipeline(&shop).await;
    let mut client = backend(&shop).await;
    let answers = client.pipeline(&lines).await;
    for (answer, number) in answers.iter().zip(1_u32..) {
        let expected = match number {
            ..=2_000 => json!([1, number, ids(&sale, number)]),
            _ => json!([0, "sold_out"]),
        };
        assert_eq!(*answer, expected, "{number}");
    }
    assert_eq!(shop.tally(&sale).await, [0, 0, 2_000, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn a_client_that_closes_its_side_still_gets_every_answer() {
    let shop = open().await;
    let (sale, lines) = long_pipeline(&shop).await;
    let mut client = backend(&shop).await;
    client.send(&commands(&lines)).await;
    client.send(b"*2\r\n$4\r\nPING\r\n$9\r\ncut").await;
    client.stream.shutdown().await.expect("half closed");
    let answers = client.rest().await;
    assert_eq!(answers.len(), lines.len());
    assert_eq!(answers[1_999], json!([1, 2_000, ids(&sale, 2_000)]));
    assert!(answers[2_000..].iter().all(|answer| *answer == json!([0, "sold_out"])));
    shop.audit().await;
}

#[tokio::test]
async fn what_stands_before_nonsense_is_done_and_answered() {
    let shop = open().await;
    let (sale, lines) = long_pipeline(&shop).await;
    let mut client = backend(&shop).await;
    client.send(&commands(&lines[..500])).await;
    client.send(b"*1\r\n?\r\n").await;
    // What follows is never looked at, and does not get in the way of the answers either.
    let _closed = client.stream.write_all(&commands(&lines[500..])).await;
    let answers = client.rest().await;
    assert_eq!(answers.len(), 501);
    assert_eq!(answers[499], json!([1, 500, ids(&sale, 500)]));
    wrong(&answers[500], "ERR", &["Protocol error", "expected '$'"]);
    assert_eq!(shop.tally(&sale).await, [1_500, 0, 500, 0]);
    shop.audit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_pipelines_takes_exactly_what_there_is() {
    let shop = open().await;
    let sale = shop.sale(500, json!({})).await;
    let mut crowd = Vec::new();
    for place in 0..8 {
        let mut client = backend(&shop).await;
        // Every user asks on two connections.
        let lines: Vec<String> =
            (0..200).map(|n| format!("CLAIM {sale} u{}", n + 200 * (place / 2))).collect();
        crowd.push(tokio::spawn(async move { client.pipeline(&lines).await }));
    }
    let mut granted = std::collections::BTreeSet::new();
    for one in crowd {
        for answer in one.await.expect("no panic") {
            match answer[0].as_i64() {
                Some(1) => assert!(granted.insert(answer[1].as_u64()), "{answer} twice"),
                Some(2) => assert!(answer[2].is_string()),
                _ => assert_eq!(answer, json!([0, "sold_out"])),
            }
        }
    }
    assert_eq!(granted.len(), 500);
    assert_eq!(shop.tally(&sale).await, [0, 0, 500, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn a_transaction_is_refused_as_a_whole() {
    let shop = open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut client = backend(&shop).await;
    let claim = format!("CLAIM {sale} ann");
    // Clients send it in one piece, and would not look at the answers in the middle.
    for end in ["EXEC", "DISCARD"] {
        let answers = client.pipeline(&["MULTI", &claim, "PING", "WATCH x", end]).await;
        for answer in &answers[..4] {
            wrong(answer, "ERR", &["no transactions", "transaction=False"]);
        }
        wrong(&answers[4], "EXECABORT", &["nothing of this one was done"]);
        assert_eq!(shop.tally(&sale).await, [5, 0, 0, 0]);
    }
    assert_eq!(client.ask(&claim).await[0], 1, "and then it goes on");
    assert_eq!(client.pipeline(&["MULTI", "RESET"]).await[1], json!("+RESET"));
    assert_eq!(client.say(&["AUTH", super::PASSWORD]).await, json!("+OK"));
    assert_eq!(client.ask(&claim).await[0], 2);
}

#[tokio::test]
async fn quit_is_the_last_word() {
    let shop = open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut client = backend(&shop).await;
    let lines = [format!("CLAIM {sale} ann"), "QUIT".into(), format!("CLAIM {sale} ben")];
    client.send(&commands(&lines)).await;
    assert_eq!(client.rest().await, [json!([1, 1, ids(&sale, 1)]), Value::from("+OK")]);
    assert_eq!(shop.tally(&sale).await, [4, 0, 1, 0]);
}
