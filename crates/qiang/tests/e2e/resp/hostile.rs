//! Clients that are slow, cut off, deaf, too many or in the wrong place: they hurt only themselves.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::{Client, address, backend, command, commands, open, open_with, stranger, wrong};
use crate::raw;
use crate::shop::Shop;

/// Limits a test can wait for.
const QUICK: [(&str, &str); 2] =
    [("QIANG_HTTP__BODY_TIMEOUT_MS", "1000"), ("QIANG_HTTP__HEADER_TIMEOUT_MS", "1000")];

/// Somebody decent beside all that gets what they came for.
async fn goes_on(shop: &Shop, sale: &str, users: std::ops::Range<u32>) {
    let mut good = backend(shop).await;
    for user in users {
        assert_eq!(good.ask(&format!("CLAIM {sale} good-{user}")).await[0], 1);
    }
}

#[tokio::test]
async fn byte_by_byte_is_as_good_as_at_once() {
    let shop = open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut client = stranger(&shop).await;
    let mut all = command(&["AUTH", super::PASSWORD]);
    all.extend(commands(&[format!("CLAIM {sale} ann"), "PING".into()]));
    all.extend(format!("CLAIM {sale} ben\r\n").into_bytes());
    for byte in all {
        client.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    let answers = client.answers(4).await;
    assert_eq!(answers[1], json!([1, 1, format!("{sale}-1")]));
    assert_eq!(answers[3], json!([1, 2, format!("{sale}-2")]));
}

#[tokio::test]
async fn a_command_that_stops_in_the_middle_is_given_up() {
    let shop = open_with(&QUICK).await;
    let sale = shop.sale(100, json!({})).await;
    let whole = command(&["CLAIM", &sale, "slow"]);
    let mut slow = Vec::new();
    for cut in [1, 3, 9, whole.len() - 1] {
        let mut client = backend(&shop).await;
        client.send(&whole[..cut]).await;
        slow.push(client);
    }
    goes_on(&shop, &sale, 0..20).await;
    for mut client in slow {
        let answers = client.rest().await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        wrong(&answers[0], "ERR", &["did not arrive in time"]);
    }
    assert_eq!(shop.tally(&sale).await, [80, 0, 20, 0], "nothing of it was done");
}

#[tokio::test]
async fn dripping_does_not_stretch_the_time() {
    let shop = open_with(&QUICK).await;
    for mut client in [backend(&shop).await, stranger(&shop).await] {
        // An array that goes on for as long as anybody listens.
        client.send(b"*200\r\n").await;
        let drip = async {
            for byte in b"$1\r\nx\r\n".iter().cycle() {
                let _closed = client.stream.write_all(&[*byte]).await;
                let pause = Duration::from_millis(20);
                if let Ok(said) = tokio::time::timeout(pause, client.next()).await {
                    return said;
                }
            }
            unreachable!("a cycle has no end")
        };
        let said = tokio::time::timeout(raw::PATIENCE, drip).await.expect("closed long before");
        let said = said.expect("with a word why").to_string();
        assert!(said.contains("in time"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_never_signs_in_is_sent_away_however_talkative() {
    let shop = open_with(&QUICK).await;
    let mut silent = stranger(&shop).await;
    let answers = silent.rest().await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    wrong(&answers[0], "NOAUTH", &["in time"]);
    let mut talkative = stranger(&shop).await;
    let mut refused = 0;
    while let Ok(()) = talkative.stream.write_all(b"PING\r\n").await {
        let Some(answer) = talkative.next().await else { break };
        wrong(&answer, "NOAUTH", &[]);
        refused += 1;
    }
    assert!(refused > 0);
    // Not even a flood that leaves no moment to look at the clock.
    let Client { stream, .. } = stranger(&shop).await;
    let (mut reader, mut writer) = stream.into_split();
    let flood =
        tokio::spawn(
            async move { while writer.write_all(&b"PING\r\n".repeat(1_000)).await.is_ok() {} },
        );
    let mut sink = tokio::io::sink();
    let drain = tokio::io::copy(&mut reader, &mut sink);
    let _reset = tokio::time::timeout(raw::PATIENCE, drain).await.expect("closed long before");
    tokio::time::timeout(raw::PATIENCE, flood).await.expect("it ends").expect("no panic");
    // Whoever has signed in may be silent for longer than all that.
    let mut quiet = backend(&shop).await;
    let silence = tokio::time::timeout(Duration::from_millis(2_500), quiet.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    assert_eq!(quiet.ask("PING").await, json!("+PONG"));
}

#[tokio::test]
async fn lengths_nobody_means_end_the_connection_at_once() {
    let shop = open().await;
    let sale = shop.sale(50, json!({})).await;
    for (input, said) in [
        (&b"*99999\r\n"[..], "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*18446744073709551616\r\n", "invalid multibulk length"),
        (b"*1\r\n$999999999\r\n", "invalid bulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n$9999999999999999999999\r\n", "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGPING\r\n", "expected CRLF"),
        (b"*1\r\n:1\r\n", "expected '$'"),
        (b"\x16\x03\x01\x02\x00\x01", "this is TLS"),
        (b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n", "this is HTTP"),
        (b"POST /api/v1/sales/1/claims HTTP/1.1\r\n", "this is HTTP"),
        (&[b'x'; 5_000], "too big inline request"),
        (b"CLAIM \"1\r\n", "unbalanced quotes"),
    ] {
        for mut client in [backend(&shop).await, stranger(&shop).await] {
            client.send(input).await;
            let answers = client.rest().await;
            assert_eq!(answers.len(), 1, "{answers:?}");
            wrong(&answers[0], "ERR", &["Protocol error", said]);
        }
    }
    // Whoever has not signed in has less to say.
    let mut nobody = stranger(&shop).await;
    nobody.send(b"*2\r\n$4\r\nAUTH\r\n$60000\r\n").await;
    nobody.send(&[b'x'; 20_000]).await;
    wrong(&nobody.rest().await[0], "ERR", &["before signing in"]);
    // One word below the longest is only an unknown command; one above it ends.
    let mut client = backend(&shop).await;
    let long = "x".repeat(60_000);
    assert_eq!(client.say(&["ECHO", &long]).await, json!(long));
    client.send(&command(&["ECHO", &"x".repeat(65_000), &"x".repeat(65_000)])).await;
    wrong(&client.rest().await[0], "ERR", &["at most 65536 bytes"]);
    goes_on(&shop, &sale, 0..5).await;
}

#[tokio::test]
async fn resp_at_the_http_door_is_turned_away() {
    let shop = open().await;
    let request = command(&["PING"]);
    let answer = raw::exchange(shop.address(), &request).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_is_cut_off() {
    let shop = open_with(&QUICK).await;
    let sale = shop.sale(100, json!({})).await;
    let mut deaf = Vec::new();
    for _ in 0..5 {
        let client = backend(&shop).await;
        deaf.push(tokio::spawn(async move {
            let Client { mut stream, .. } = client;
            let pool = commands(&vec!["COMMAND DOCS"; 64]);
            // Until nothing goes through any more, and then until the connection is gone.
            let mut sent = 0;
            while stream.write_all(&pool).await.is_ok() {
                sent += pool.len();
                assert!(sent < 256 << 20, "somebody keeps all those answers");
            }
        }));
    }
    goes_on(&shop, &sale, 0..50).await;
    for one in deaf {
        let cut = tokio::time::timeout(raw::PATIENCE, one).await;
        cut.expect("cut off").expect("no panic");
    }
    assert_eq!(shop.tally(&sale).await, [50, 0, 50, 0]);
}

#[tokio::test]
async fn connections_beyond_the_number_wait_their_turn() {
    let shop = open_with(&[("QIANG_RESP__MAX_CONNECTIONS", "2")]).await;
    let (one, two) = (backend(&shop).await, backend(&shop).await);
    let mut third = stranger(&shop).await;
    third.send(&command(&["AUTH", super::PASSWORD])).await;
    let early = tokio::time::timeout(Duration::from_millis(100), third.next()).await;
    assert!(early.is_err(), "{early:?}");
    drop(one);
    assert_eq!(third.answer().await, json!("+OK"));
    drop(two);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_talks_nonsense_takes_nothing_from_the_good() {
    let shop = open().await;
    let sale = shop.sale(300, json!({})).await;
    let at = address(&shop);
    let mut crowd = Vec::new();
    for place in 0..200_u8 {
        crowd.push(tokio::spawn(async move {
            let mut stream = raw::connect(at).await;
            let junk: Vec<u8> =
                (0..=255_u8).cycle().take(2_000).map(|n| n.wrapping_mul(place)).collect();
            match place % 4 {
                0 => drop(stream.write_all(&junk).await),
                1 => drop(stream.write_all(b"*3\r\n$5\r\nCLAIM\r\n$").await),
                2 => drop(stream.write_all(&command(&["AUTH", "guess"]).repeat(9)).await),
                _ => {}
            }
            stream
        }));
    }
    goes_on(&shop, &sale, 0..100).await;
    let mut streams = Vec::new();
    for one in crowd {
        streams.push(one.await.expect("no panic"));
    }
    goes_on(&shop, &sale, 100..200).await;
    drop(streams);
    goes_on(&shop, &sale, 200..300).await;
    assert_eq!(shop.tally(&sale).await, [0, 0, 300, 0]);
    let mut client = backend(&shop).await;
    assert_eq!(client.ask(&format!("CLAIM {sale} late")).await, json!([0, "sold_out"]));
    assert_eq!(client.ask("QUIT").await, json!("+OK"));
    assert_eq!(client.rest().await, [] as [Value; 0]);
    shop.audit().await;
}
