//! TLS at the RESP door: checked at start, kept to afterwards.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use qiang_testkit::servers::{REDIS, or_skip};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::{Client, PASSWORD, address, command, commands, open_with, stranger, wrong};
use crate::process::{Process, command as qiang};
use crate::raw;
use crate::shop::Shop;

/// A certificate for this machine, and its files.
struct Identity {
    made: CertifiedKey<rcgen::KeyPair>,
    folder: tempfile::TempDir,
}

impl Identity {
    fn make() -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = generate_simple_self_signed(names).expect("made");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).expect("written");
        let key = made.signing_key.serialize_pem();
        std::fs::write(folder.path().join("key.pem"), key).expect("written");
        Self { made, folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    async fn shop(&self) -> Shop {
        let (cert, key) = (self.path("cert.pem"), self.path("key.pem"));
        let quick = ("QIANG_HTTP__HEADER_TIMEOUT_MS", "2000");
        open_with(&[("QIANG_RESP__TLS_CERT", &cert), ("QIANG_RESP__TLS_KEY", &key), quick]).await
    }

    /// Somebody who trusts it.
    async fn client(&self, shop: &Shop) -> Client<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.made.cert.der().clone()).expect("a root");
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().expect("there are some");
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = raw::connect(address(shop)).await;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        Client::new(stream.expect("hands are shaken"))
    }
}

#[tokio::test]
async fn everything_goes_through_tls() {
    let identity = Identity::make();
    let shop = identity.shop().await;
    let sale = shop.sale(2_000, json!({})).await;
    let mut client = identity.client(&shop).await;
    assert_eq!(client.say(&["AUTH", PASSWORD]).await, json!("+OK"));
    let lines: Vec<String> = (0..2_001).map(|user| format!("CLAIM {sale} u{user}")).collect();
    let answers = client.pipeline(&lines).await;
    assert_eq!(answers[1_999], json!([1, 2_000, format!("{sale}-2000")]));
    assert_eq!(answers[2_000], json!([0, "sold_out"]));
    // What was said before the client closed its side is answered, here as well.
    client.send(&commands(&["PING a", "PING b", "QUIT"])).await;
    client.stream.shutdown().await.expect("half closed");
    assert_eq!(client.rest().await, [json!("a"), json!("b"), json!("+OK")]);
    let mut last = identity.client(&shop).await;
    last.send(&command(&["AUTH", PASSWORD])).await;
    assert_eq!(last.answer().await, json!("+OK"));
    let stopped = tokio::time::timeout(raw::PATIENCE / 3, shop.restart(|_| ())).await;
    stopped.expect("within half the grace").audit().await;
}

#[tokio::test]
async fn whoever_comes_without_is_told_and_whoever_dawdles_is_closed() {
    let identity = Identity::make();
    let shop = identity.shop().await;
    let mut plain = stranger(&shop).await;
    plain.send(&command(&["AUTH", PASSWORD])).await;
    let answers = plain.rest().await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    wrong(&answers[0], "ERR", &["TLS only", "--tls"]);
    // Nothing said, a handshake that stops, and one that is none.
    for begun in [&b""[..], b"\x16\x03\x01\x00", b"\x16\x03\x01\x00\x05hello"] {
        let mut stream = raw::connect(address(&shop)).await;
        stream.write_all(begun).await.expect("sent");
        let mut all = Vec::new();
        let ended = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut all);
        let _reset = tokio::time::timeout(raw::PATIENCE, ended).await.expect("closed");
    }
    let mut client = identity.client(&shop).await;
    assert_eq!(client.say(&["AUTH", PASSWORD]).await, json!("+OK"));
    let mut silent = identity.client(&shop).await;
    wrong(&silent.rest().await[0], "NOAUTH", &["in time"]);
}

#[tokio::test]
async fn redis_cli_verifies_us() {
    let identity = Identity::make();
    let shop = identity.shop().await;
    let cert = identity.path("cert.pem");
    if or_skip(REDIS.find().map_err(Into::into)).is_none() {
        return;
    }
    let run = move |port: u16, flags: &[&str], words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "localhost", "-p", &port.to_string()]).args(flags);
        command.env("REDISCLI_AUTH", PASSWORD).args(words).output().expect("it runs")
    };
    let port = address(&shop).port();
    let asked = tokio::task::spawn_blocking(move || {
        let good = run(port, &["--tls", "--cacert", &cert], &["PING"]);
        let stranger = run(port, &["--tls"], &["PING"]);
        (good, stranger)
    });
    let (good, stranger) = asked.await.expect("no panic");
    assert_eq!(String::from_utf8_lossy(&good.stdout).trim(), "PONG", "{good:?}");
    assert!(!stranger.status.success(), "{stranger:?}");
}

#[test]
fn what_is_wrong_with_the_files_is_said_at_start() {
    let (good, other) = (Identity::make(), Identity::make());
    let folder = good.folder.path();
    std::fs::write(folder.join("empty.pem"), "").expect("written");
    std::fs::write(folder.join("cut.pem"), &good.made.cert.pem()[..200]).expect("written");
    std::fs::write(folder.join("junk.pem"), [0xff; 400]).expect("written");
    let others = other.path("key.pem");
    for (cert, key, said) in [
        (
            "none.pem",
            "key.pem",
            &["cannot read none.pem", "`tls_cert` in [resp]", "No such file"][..],
        ),
        ("cert.pem", "none.pem", &["cannot read none.pem", "`tls_key` in [resp]"]),
        ("empty.pem", "key.pem", &["empty.pem has no certificate in it", "`tls_cert`"]),
        ("key.pem", "key.pem", &["key.pem has no certificate in it"]),
        ("junk.pem", "key.pem", &["junk.pem", "`tls_cert`"]),
        ("cut.pem", "key.pem", &["cut.pem", "`tls_cert`"]),
        ("cert.pem", "empty.pem", &["empty.pem has no private key in it", "`tls_key`"]),
        ("cert.pem", "cert.pem", &["cert.pem has no private key in it"]),
        ("cert.pem", &others, &["does not fit the certificate in cert.pem"]),
        ("cert.pem", "", &["`resp.tls_cert` is set, and `tls_key` is not", "neither"]),
    ] {
        let mut command = qiang(folder, &["serve", "--listen", "127.0.0.1:0"]);
        command.args(["--resp", "127.0.0.1:0"]);
        command.env("QIANG_RESP__TLS_CERT", cert).env("QIANG_RESP__TLS_KEY", key);
        let ended = match Process::begin(&mut command) {
            Ok(_) => panic!("it started with {cert} and {key}"),
            Err(ended) => ended,
        };
        for word in said {
            assert!(ended.stderr.contains(word), "{word:?} is missing from:\n{}", ended.stderr);
        }
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        assert!(!Path::new(folder).join("qiang-data").exists(), "nothing was opened in vain");
    }
}

#[tokio::test]
async fn a_client_that_trusts_somebody_else_hurts_nobody() {
    let (identity, other) = (Identity::make(), Identity::make());
    let shop = identity.shop().await;
    let mut roots = RootCertStore::empty();
    roots.add(other.made.cert.der().clone()).expect("a root");
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().expect("there are some");
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    for _ in 0..20 {
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = raw::connect(address(&shop)).await;
        let refused = TlsConnector::from(Arc::clone(&config)).connect(name, stream).await;
        assert!(refused.is_err());
    }
    let mut client = identity.client(&shop).await;
    assert_eq!(client.say(&["AUTH", PASSWORD]).await, json!("+OK"));
    assert_ne!(client.ask("INFO").await, Value::Null);
}
