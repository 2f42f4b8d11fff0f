//! Traces: a collector gets the spans of requests, with their names and what became of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use qiang_app::token::Role;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::process::run;
use crate::raw;
use crate::shop::Shop;

/// Takes what is sent to `/v1/traces`, and hands it on.
async fn collector() -> (SocketAddr, UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (tell, told) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(take(stream, tell.clone()));
        }
    });
    (address, told)
}

async fn take(mut stream: TcpStream, tell: UnboundedSender<ExportTraceServiceRequest>) {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        assert!(stream.read_buf(&mut bytes).await.expect("it holds") > 0, "cut off");
    };
    let head = String::from_utf8(bytes[..end].to_vec()).expect("UTF-8").to_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.expect("a length").parse().expect("a number");
    while bytes.len() < end + length {
        assert!(stream.read_buf(&mut bytes).await.expect("it holds") > 0, "cut off");
    }
    let request = ExportTraceServiceRequest::decode(&bytes[end..]).expect("protobuf");
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("sent");
    // The test may have ended.
    let _told = tell.send(request);
}

fn text(value: &Value) -> String {
    match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn attributes(span: &Span) -> BTreeMap<String, String> {
    let of = |value: &opentelemetry_proto::tonic::common::v1::KeyValue| {
        let inner = value.value.as_ref()?.value.as_ref()?;
        Some((value.key.clone(), text(inner)))
    };
    span.attributes.iter().filter_map(of).collect()
}

#[tokio::test]
async fn spans_arrive_with_their_names_and_what_a_claim_got() {
    let (address, mut told) = collector().await;
    let endpoint = format!("http://{address}");
    let settings =
        [("QIANG_TRACES__ENDPOINT", &*endpoint), ("QIANG_TRACES__PER_MILLION", "1000000")];
    let shop = Shop::with(&settings).await;
    let sale = shop.sale(1, json!({})).await;
    // By the fast lane, and by the general server, which a header has to itself.
    shop.buyer("ann").await.claim(&sale, 1).await.ok(201);
    shop.buyer("bob").await.claim(&sale, 1).await.problem(410, "sold_out");
    let token = shop.token("cyd", Role::Buyer, None);
    let head = raw::claim_head(&sale, &token, 2).replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let answer = raw::exchange(shop.address(), format!("{head}{{}}").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 410 "), "{answer}");
    shop.view(&sale).await;
    shop.stranger().await.get("/nothing").await.problem(404, "no_such_route");
    // Stopping sends what was recorded.
    let _again = shop.restart(|_| ()).await;
    let mut seen = Vec::new();
    while seen.len() < 6 {
        let request = tokio::time::timeout(raw::PATIENCE, told.recv()).await;
        let request = request.expect("spans come").expect("it goes on");
        for resource in request.resource_spans {
            let named = resource.resource.expect("a resource").attributes;
            assert!(named.iter().any(|one| one.key == "service.name"), "{named:?}");
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
                assert!(span.parent_span_id.is_empty(), "a trace of its own");
                let had = attributes(&span);
                let what = |key: &str| had.get(key).cloned().unwrap_or_default();
                seen.push((span.name, what("http.response.status_code"), what("qiang.outcome")));
            }
        }
    }
    let seen: Vec<_> = seen.iter().map(|(name, status, is)| (&**name, &**status, &**is)).collect();
    let claims = "POST /api/v1/sales/{sale_id}/claims";
    for wanted in [
        ("POST /api/v1/sales", "201", "done"),
        (claims, "201", "granted"),
        ("GET /api/v1/sales/{sale_id}", "200", "done"),
        ("GET (no route)", "404", "no_such_route"),
    ] {
        assert!(seen.contains(&wanted), "{wanted:?} is missing from {seen:#?}");
    }
    let sold_out = seen.iter().filter(|span| **span == (claims, "410", "sold_out")).count();
    assert_eq!(sold_out, 2, "{seen:#?}");
}

#[tokio::test]
async fn a_collector_that_is_gone_harms_nobody() {
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
    let endpoint = format!("http://{gone}");
    let settings =
        [("QIANG_TRACES__ENDPOINT", &*endpoint), ("QIANG_TRACES__PER_MILLION", "1000000")];
    let shop = Shop::with(&settings).await;
    let sale = shop.sale(5, json!({})).await;
    shop.buyer("ann").await.granted(&sale).await;
    let shop = tokio::time::timeout(raw::PATIENCE, shop.restart(|_| ())).await.expect("it stops");
    assert_eq!(shop.tally(&sale).await, [4, 0, 1, 0]);
}

#[test]
fn an_address_that_is_none_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("qiang.toml"), "[traces]\nendpoint = \"localhost:4318\"\n")
        .expect("written");
    let ended = run(folder.path(), &["config", "check"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for word in ["qiang.toml:2:1", "`traces.endpoint`", "http://127.0.0.1:4318"] {
        assert!(ended.stderr.contains(word), "{ended:?}");
    }
}
