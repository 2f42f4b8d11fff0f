//! Redis behind TLS: who is trusted, under which name, and what is said when it does not fit.

use std::path::Path;

use qiang_engine::redis::{Engine, Options, Place, Time};
use qiang_testkit::servers::{Authority, Cluster, Redis, cluster, or_skip, redis};

use crate::fixture::{PARTITIONS, granted, node, number, open, orders, pool, prefix, wish};

fn shown(ca: &Path) -> String {
    format!("ca={}", ca.display())
}

/// Why it does not open.
async fn refused(url: &str) -> String {
    let place = Place::parse(url).expect("a good url");
    let options = Options { place, queue: 16, time: Time::Server, node: number() };
    qiang_engine::chain(&Engine::open(options).await.expect_err("it does not fit"))
}

#[tokio::test]
async fn a_server_with_a_certificate_of_an_own_ca_is_worked_with() {
    let authority = Authority::new().expect("made");
    let identity = authority.issue(&["localhost", "127.0.0.1"]).expect("made");
    let options = redis::Options { tls: Some(identity), ..Default::default() };
    let Some(server) = or_skip(Redis::start(&options)) else { return };
    let (port, ca) = (server.tls_port().expect("it has one"), shown(&authority.ca()));
    // By name and by address, both of which are in the certificate.
    for host in ["localhost", "127.0.0.1"] {
        let engine = node(&format!("rediss://{host}:{port}?{ca}"), &prefix()).await;
        open(&engine, pool(1), orders(10)).await;
        granted(&engine, wish(pool(1), "ann")).await;
        server.disconnect_clients().expect("it answers");
        granted(&engine, wish(pool(1), "bob")).await;
    }
}

#[tokio::test]
async fn what_does_not_fit_is_said() {
    let (authority, stranger) = (Authority::new().expect("made"), Authority::new().expect("made"));
    let identity = authority.issue(&["redis.example"]).expect("made");
    let options = redis::Options { tls: Some(identity), ..Default::default() };
    let Some(server) = or_skip(Redis::start(&options)) else { return };
    let (plain, port) = (server.port(), server.tls_port().expect("it has one"));
    let (ca, other) = (shown(&authority.ca()), shown(&stranger.ca()));
    for (url, why) in [
        (format!("rediss://localhost:{port}?{other}"), "is not trusted; name the CA"),
        (format!("rediss://localhost:{port}?{ca}"), "is for another name"),
        (format!("redis://localhost:{port}"), "if it speaks TLS there, write rediss://"),
        (format!("redis://:secret@localhost:{port}"), "if it speaks TLS there, write rediss://"),
        (format!("rediss://localhost:{plain}?{ca}"), "if it does not speak TLS at that port"),
        (format!("rediss://localhost:{port}?ca=/nowhere/ca.pem"), "cannot read /nowhere/ca.pem"),
        (format!("rediss://localhost:{port}?ca=/dev/null"), "a PEM file with certificates"),
    ] {
        let told = refused(&url).await;
        assert!(told.contains(why), "{url}: {told}");
    }
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_shown_one() {
    let authority = Authority::new().expect("made");
    let identity = authority.issue(&["localhost"]).expect("made");
    let own = authority.issue(&["shop"]).expect("made");
    let options = redis::Options { tls: Some(identity), ..Default::default() };
    let options = options.with("tls-auth-clients", "yes");
    let Some(server) = or_skip(Redis::start(&options)) else { return };
    let port = server.tls_port().expect("it has one");
    let url = format!("rediss://localhost:{port}?{}", shown(&authority.ca()));
    let told = refused(&url).await;
    assert!(told.contains("it may want `cert` and `key`"), "{told}");
    let with = |key: &Path| format!("{url}&cert={}&key={}", own.cert.display(), key.display());
    let engine = node(&with(&own.key), &prefix()).await;
    open(&engine, pool(1), orders(10)).await;
    granted(&engine, wish(pool(1), "ann")).await;
    let other = authority.issue(&["other"]).expect("made");
    let told = refused(&with(&other.key)).await;
    assert!(told.contains("does not fit the certificate"), "{told}");
}

/// Every master is found under its own name, whatever it announces.
#[tokio::test]
async fn a_cluster_is_worked_with_by_name_and_by_address() {
    let authority = Authority::new().expect("made");
    for (names, settings) in [
        (["127.0.0.1"], &[][..]),
        // Addresses are announced, and names beside them.
        (["localhost"], &[("cluster-announce-hostname", "localhost")][..]),
        (
            ["localhost"],
            &[
                ("cluster-announce-hostname", "localhost"),
                ("cluster-preferred-endpoint-type", "hostname"),
            ],
        ),
    ] {
        let identity = authority.issue(&names).expect("made");
        let mut node_options = redis::Options { tls: Some(identity), ..Default::default() };
        for (name, value) in settings {
            node_options = node_options.with(name, *value);
        }
        let options = cluster::Options { node: node_options, ..Default::default() };
        let Some(cluster) = or_skip(Cluster::start(&options)) else { return };
        let url = cluster.tls_url(names[0]).expect("it speaks TLS");
        let engine = node(&format!("{url}?{}", shown(&authority.ca())), &prefix()).await;
        for id in (1..=2 * u64::from(PARTITIONS)).map(pool) {
            open(&engine, id, orders(10)).await;
            granted(&engine, wish(id, "ann")).await;
        }
        let ends = engine.ends().await.expect("all answer");
        assert!(ends.iter().all(|end| end.is_some_and(|end| end > 0)), "{ends:?}");
    }
}
