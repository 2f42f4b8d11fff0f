//! The shop second by second: the list of the last minutes, and the stream of what comes.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::person::Person;
use crate::process::{Process, command, run};
use crate::raw;
use crate::shop::terms_of;

fn token(folder: &std::path::Path, role: &str) -> String {
    run(folder, &["tokens", "--user", role, "--role", role]).stdout.trim().to_owned()
}

/// The next sample of a stream.
async fn next(stream: &mut tokio::net::TcpStream) -> Value {
    loop {
        let said = raw::read_until(stream, "}\n\n").await;
        let data = said.lines().rev().find_map(|line| line.strip_prefix("data: "));
        if let Some(sample) = data.and_then(|data| serde_json::from_str(data).ok()) {
            return sample;
        }
    }
}

#[tokio::test]
async fn a_stream_tells_each_second_and_ends_with_its_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    let (viewer, buyer) = (token(folder.path(), "viewer"), token(folder.path(), "buyer"));
    let mut admin = Person::arrive(process.address, Some(token(folder.path(), "admin"))).await;
    let sale = admin.post("/sales", terms_of(9)).await.ok(201)["id"].clone();
    let sale = sale.as_str().expect("an id");
    let mut ann = Person::arrive(process.address, Some(buyer)).await;
    ann.get("/admin/live").await.problem(403, "forbidden");
    ann.get("/admin/samples").await.problem(403, "forbidden");
    let mut stream = raw::connect(process.address).await;
    let ask = format!(
        "GET /api/v1/admin/live HTTP/1.1\r\nhost: shop\r\nauthorization: Bearer {viewer}\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await.expect("sent");
    let head = raw::read_until(&mut stream, "\r\n\r\n").await.to_lowercase();
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    ann.claim(sale, 1).await.ok(201);
    let mut before = String::new();
    let last = loop {
        let sample = next(&mut stream).await;
        let at = sample["at"].as_str().expect("a time").to_owned();
        assert!(at > before, "{at} came after {before}");
        before = at;
        if sample["sales"][0]["available"] == 8 && sample["lag_events"] == 0 {
            break sample;
        }
    };
    assert_eq!((&last["nodes"], &last["sales"][0]["ordered"]), (&json!(1), &json!(1)));
    let listed = admin.get("/admin/samples").await.ok(200);
    let listed = listed["samples"].as_array().expect("a list").clone();
    assert!(listed.contains(&last), "what was told is listed");
    // Who is slow misses seconds of the stream, and finds them in the list. What is left is read when a
    // second ends, so a claim can show there one second before it is counted.
    let counted = |list: &[Value]| -> u64 {
        list.iter().map(|one| one["granted"].as_u64().expect("a number")).sum()
    };
    let mut granted = counted(&listed);
    while granted == 0 {
        next(&mut stream).await;
        let listed = admin.get("/admin/samples").await.ok(200);
        granted = counted(listed["samples"].as_array().expect("a list"));
    }
    assert_eq!(granted, 1);
    let after = qiang_app::json_time::parse(last["at"].as_str().expect("a time")).expect("a time");
    let newer = admin.get(&format!("/admin/samples?after={}", after.millis())).await.ok(200);
    let newer = newer["samples"].as_array().expect("a list");
    assert!(newer.iter().all(|one| one["at"].as_str() > last["at"].as_str()), "{newer:?}");
    admin.get("/admin/samples?after=-1").await.problem(422, "invalid_field");
    // A stream has no end of its own, and holds up no shutdown.
    let (status, said) = process.terminate();
    assert!(status.success() && !said.contains("still open"), "{said}");
    assert!(raw::read_to_end(&mut stream).await.ends_with("0\r\n\r\n"), "it ended well");
}
