//! TLS at the HTTP door: claims by HTTP/1.1 and HTTP/2, certificates that change under load, and
//! clients that do not belong here.

mod commands;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use axum::http::Request;
use bytes::Bytes;
use qiang_app::token::Role;
use qiang_testkit::servers::Authority;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::raw::{self, PATIENCE};
use crate::shop::Shop;

/// An authority, and the files of a door that has a certificate of it.
pub(crate) struct Files {
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        let authority = Authority::new().expect("made");
        let files = Self { authority, folder: tempfile::tempdir().expect("a folder") };
        files.renew();
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.authority.ca()
    }

    /// Puts a new certificate and its key in the place of the old ones.
    pub(crate) fn renew(&self) {
        let made = self.authority.issue(&["localhost", "127.0.0.1"]).expect("issued");
        for (from, to) in [(made.key, "key.pem"), (made.cert, "cert.pem")] {
            std::fs::rename(from, self.path(to)).expect("the same disk");
        }
    }

    /// Puts a key there that is of another certificate.
    pub(crate) fn mix_up(&self) {
        let other = self.authority.issue(&["other.example"]).expect("issued");
        std::fs::rename(other.key, self.path("key.pem")).expect("the same disk");
    }

    /// The certificate in the file.
    fn certificate(&self) -> Vec<u8> {
        CertificateDer::from_pem_file(self.path("cert.pem")).expect("a certificate").to_vec()
    }

    async fn shop(&self, settings: &[(&str, &str)]) -> Shop {
        let (cert, key) = (self.text("cert.pem"), self.text("key.pem"));
        let own = [("QIANG_HTTP__TLS_CERT", &*cert), ("QIANG_HTTP__TLS_KEY", &*key)];
        Shop::with(&[&own, settings].concat()).await
    }

    /// Somebody who trusts the authority, and speaks these protocols.
    async fn client(&self, shop: &Shop, protocols: &[&str]) -> TlsStream<TcpStream> {
        self.try_client(shop, protocols).await.expect("hands are shaken")
    }

    async fn try_client(
        &self,
        shop: &Shop,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.ca()).expect("a certificate");
        roots.add(ca).expect("a root");
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().expect("there are some");
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = raw::connect(shop.address()).await;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

/// What a door shows to whoever comes now.
async fn shown(files: &Files, shop: &Shop) -> Vec<u8> {
    let stream = files.client(shop, &[]).await;
    let (_, session) = stream.get_ref();
    session.peer_certificates().expect("they were sent")[0].to_vec()
}

fn claim(shop: &Shop, sale: &str, user: &str) -> String {
    let token = shop.token(user, Role::Buyer, None);
    raw::claim_head(sale, &token, 14) + "{\"quantity\":1}"
}

/// The next answer: its status, and its body.
async fn answer(stream: &mut TlsStream<TcpStream>) -> (u16, Value) {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut byte)).await;
        assert_eq!(read.expect("it answers").expect("it holds"), 1, "closed after {bytes:?}");
        bytes.push(byte[0]);
        if bytes.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8(bytes).expect("UTF-8");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    stream.read_exact(&mut body).await.expect("a whole body");
    (head[9..12].parse().expect("a status"), serde_json::from_slice(&body).expect("JSON"))
}

/// A number of the page of metrics.
async fn metric(shop: &Shop, name: &str) -> u64 {
    let page = shop.stranger().await.ask(axum::http::Method::GET, "/metrics", &[], "").await.text;
    let value = page.lines().find_map(|line| line.strip_prefix(name));
    let value = value.unwrap_or_else(|| panic!("{name} is missing from\n{page}"));
    value.trim().parse().expect("a number")
}

#[tokio::test]
async fn claims_take_the_fast_lane_and_everything_else_the_general_server() {
    let files = Files::new();
    let shop = files.shop(&[]).await;
    assert!(shop.server.url().starts_with("https://127.0.0.1:"), "{}", shop.server.url());
    let sale = shop.sale(3, json!({})).await;
    let mut stream = files.client(&shop, &["h2", "http/1.1"][1..]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let look = format!("GET /api/v1/sales/{sale} HTTP/1.1\r\nhost: shop\r\n\r\n");
    let all = [claim(&shop, &sale, "a"), look.clone(), claim(&shop, &sale, "b"), look];
    // At once, and then one after the other: the lane gives the connection away and gets it back.
    stream.write_all(all.concat().as_bytes()).await.expect("sent");
    let mut said = Vec::new();
    for _ in &all {
        said.push(answer(&mut stream).await);
    }
    for request in [claim(&shop, &sale, "c"), claim(&shop, &sale, "d")] {
        stream.write_all(request.as_bytes()).await.expect("sent");
        said.push(answer(&mut stream).await);
    }
    let statuses: Vec<u16> = said.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [201, 200, 201, 200, 201, 410]);
    assert_eq!((&said[1].1["available"], &said[3].1["available"]), (&json!(2), &json!(1)));
    assert_eq!(said[5].1["code"], "sold_out");
    shop.audit().await;
}

#[tokio::test]
async fn claims_go_over_http2() {
    let files = Files::new();
    let shop = files.shop(&[]).await;
    let sale = shop.sale(10, json!({})).await;
    let stream = files.client(&shop, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (send, connection) = h2::client::handshake(stream).await.expect("both speak it");
    let connection = tokio::spawn(connection);
    let mut send = send.ready().await.expect("it listens");
    let mut answers = Vec::new();
    for user in 0..11 {
        let request = Request::post(format!("https://localhost/api/v1/sales/{sale}/claims"))
            .header("authorization", shop.token(&format!("u{user}"), Role::Buyer, None))
            .header("content-type", "application/json");
        let request = request.body(()).expect("a request");
        let (answer, mut body) = send.send_request(request, false).expect("sent");
        body.send_data(Bytes::from_static(b"{}"), true).expect("sent");
        answers.push(answer);
    }
    let mut statuses = Vec::new();
    for answer in answers {
        let answer = tokio::time::timeout(PATIENCE, answer).await.expect("it answers");
        statuses.push(answer.expect("an answer").status().as_u16());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [[201].repeat(10), vec![410]].concat());
    drop(send);
    connection.await.expect("no panic").expect("it ends well");
    shop.audit().await;
}

#[tokio::test]
async fn cookies_do_not_travel_without_tls() {
    let files = Files::new();
    let shop = files.shop(&[]).await;
    let answer = shop.stranger().await.post("/session", json!({ "user_id": "ann" })).await;
    assert_eq!(answer.ok(201)["signed_in"], true);
    assert!(answer.header("set-cookie").ends_with("; Secure"), "{answer:?}");
    let plain = Shop::open().await;
    let answer = plain.stranger().await.post("/session", json!({ "user_id": "ann" })).await;
    assert!(!answer.header("set-cookie").contains("Secure"), "{answer:?}");
}

#[tokio::test]
async fn a_client_that_trusts_somebody_else_is_refused_and_hurts_nobody() {
    let (files, others) = (Files::new(), Files::new());
    let shop = files.shop(&[]).await;
    for _ in 0..20 {
        let refused = others.try_client(&shop, &[]).await.expect_err("not trusted");
        assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
    }
    let sale = shop.sale(1, json!({})).await;
    shop.buyer("ann").await.granted(&sale).await;
    let failed = "qiang_tls_handshakes_total{door=\"http\",outcome=\"failed\"}";
    assert_eq!(metric(&shop, failed).await, 20);
}

#[tokio::test]
async fn whoever_comes_without_tls_is_told_and_closed() {
    let files = Files::new();
    let shop = files.shop(&[]).await;
    for request in ["GET / HTTP/1.1\r\nhost: shop\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n", "x"] {
        let answer = raw::exchange(shop.address(), request.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 400 ") && head.contains("connection: close"), "{head}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{answer}");
        assert!(body.contains("TLS only") && body.contains("https://"), "{body}");
    }
    let plain = "qiang_tls_handshakes_total{door=\"http\",outcome=\"plain\"}";
    assert_eq!(metric(&shop, plain).await, 3);
}

#[tokio::test]
async fn a_handshake_that_does_not_end_ends_in_time() {
    let files = Files::new();
    let quick = ("QIANG_HTTP__HEADER_TIMEOUT_MS", "300");
    let shop = files.shop(&[quick]).await;
    // Nothing said, a handshake that stops, and one that is none.
    for begun in [&b""[..], b"\x16\x03\x01\x00", b"\x16\x03\x01\x00\x05hello"] {
        let answer = raw::exchange(shop.address(), begun).await;
        assert!(!answer.contains("HTTP"), "{answer}");
    }
    // Whoever has shaken hands and asks nothing is closed with a word, so that it is no cut.
    let mut idle = files.client(&shop, &[]).await;
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, idle.read_to_end(&mut rest)).await;
    assert_eq!(closed.expect("closed").expect("with a word"), 0);
    let late = "qiang_tls_handshakes_total{door=\"http\",outcome=\"late\"}";
    assert_eq!(metric(&shop, late).await, 2);
}

/// A few hundred handshakes that never end keep nobody out: the oldest gives way.
#[tokio::test]
async fn stalled_handshakes_take_at_most_half_of_the_places() {
    let files = Files::new();
    let settings =
        [("QIANG_HTTP__MAX_CONNECTIONS", "200"), ("QIANG_HTTP__HEADER_TIMEOUT_MS", "600000")];
    let shop = files.shop(&settings).await;
    let mut stalled = Vec::new();
    for _ in 0..400 {
        let mut stream = raw::connect(shop.address()).await;
        stream.write_all(b"\x16\x03\x01\x00").await.expect("sent");
        stalled.push(stream);
    }
    let sale = shop.sale(1, json!({})).await;
    shop.buyer("ann").await.granted(&sale).await;
    let displaced = "qiang_tls_handshakes_total{door=\"http\",outcome=\"displaced\"}";
    assert!(metric(&shop, displaced).await >= 300);
}

/// It asks for something larger than all buffers, and reads nothing of it.
#[tokio::test]
async fn a_client_that_takes_nothing_loses_its_place() {
    let files = Files::new();
    let settings = [
        ("QIANG_HTTP__MAX_CONNECTIONS", "1"),
        ("QIANG_HTTP__WRITE_TIMEOUT_MS", "300"),
        ("QIANG_HTTP__HEADER_TIMEOUT_MS", "600000"),
    ];
    let shop = files.shop(&settings).await;
    let mut stuck = files.client(&shop, &["http/1.1"]).await;
    let request = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: shop\r\n\r\n";
    stuck.write_all(&request.repeat(8)).await.expect("sent");
    stuck.flush().await.expect("sent");
    let next = async { shop.stranger().await.get("/sales").await.status };
    let status = tokio::time::timeout(PATIENCE, next).await;
    assert_eq!(status.expect("the slow one is closed"), 200);
}

#[tokio::test]
async fn a_long_answer_arrives_whole() {
    let files = Files::new();
    let shop = files.shop(&[]).await;
    let mut person = shop.stranger().await;
    let path = "/docs/swagger-ui-bundle.js";
    let first = person.ask(axum::http::Method::GET, path, &[], "").await.text;
    assert!(first.len() > 1 << 20, "{}", first.len());
    for _ in 0..5 {
        assert!(person.ask(axum::http::Method::GET, path, &[], "").await.text == first);
    }
}

#[tokio::test]
async fn a_certificate_changes_under_load_and_no_request_is_lost() {
    const CROWD: usize = 6;
    let files = Arc::new(Files::new());
    let shop = Arc::new(files.shop(&[]).await);
    let sale = shop.sale(1_000_000, json!({})).await;
    let (over, granted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let crowd: Vec<_> = (0..CROWD)
        .map(|member| {
            let (files, shop, sale) = (Arc::clone(&files), Arc::clone(&shop), sale.clone());
            let (over, granted) = (Arc::clone(&over), Arc::clone(&granted));
            tokio::spawn(async move {
                let mut stream = files.client(&shop, &["http/1.1"]).await;
                let mut number = 0;
                while !over.load(Ordering::Relaxed) {
                    // Some come anew each time, the others stay.
                    if member % 2 == 0 {
                        stream = files.client(&shop, &["http/1.1"]).await;
                    }
                    number += 1;
                    let request = claim(&shop, &sale, &format!("u{member}-{number}"));
                    stream.write_all(request.as_bytes()).await.expect("sent");
                    assert_eq!(answer(&mut stream).await.0, 201);
                    granted.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut before = shown(&files, &shop).await;
    for _ in 0..10 {
        files.renew();
        shop.server.certificates.clone().read_again().await;
        let now = shown(&files, &shop).await;
        assert!(now == files.certificate() && now != before, "the new one is shown");
        before = now;
        let reached = granted.load(Ordering::Relaxed) + 20;
        while granted.load(Ordering::Relaxed) < reached {
            tokio::task::yield_now().await;
        }
    }
    over.store(true, Ordering::Relaxed);
    for member in crowd {
        member.await.expect("everybody was answered");
    }
    let claimed = u64::from(granted.load(Ordering::Relaxed));
    assert_eq!(shop.tally(&sale).await, [1_000_000 - claimed, 0, claimed, 0]);
    let done = "qiang_tls_reloads_total{door=\"http\",outcome=\"done\"}";
    assert_eq!(metric(&shop, done).await, 10);
    shop.audit().await;
}

#[tokio::test]
async fn changed_files_are_noticed_and_a_pair_that_does_not_fit_changes_nothing() {
    let files = Files::new();
    let shop = files.shop(&[]).await;
    let first = shown(&files, &shop).await;
    files.mix_up();
    let mut pause = tokio::time::interval(std::time::Duration::from_millis(20));
    let trouble = || shop.server.app.workers.all()["certificates"].trouble.clone();
    while trouble().is_none() {
        pause.tick().await;
    }
    let said = trouble().expect("just seen");
    assert!(said.contains("goes on with the old certificate"), "{said}");
    assert!(said.contains("does not fit"), "{said}");
    assert!(shown(&files, &shop).await == first);
    let failed = "qiang_tls_reloads_total{door=\"http\",outcome=\"failed\"}";
    assert_eq!(metric(&shop, failed).await, 1);
    assert_eq!(metric(&shop, "qiang_worker_up{worker=\"certificates\"}").await, 0);
    files.renew();
    while shown(&files, &shop).await == first {
        pause.tick().await;
    }
    assert!(shown(&files, &shop).await == files.certificate());
    while trouble().is_some() {
        pause.tick().await;
    }
    let until = metric(&shop, "qiang_tls_certificate_not_after_seconds{door=\"http\"}").await;
    // As the maker of certificates has it, unless told: the beginning of the year 4096.
    assert_eq!(until, 67_090_118_400);
}
