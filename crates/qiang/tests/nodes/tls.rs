//! Nodes on servers that let nobody in without TLS.

use qiang_testkit::servers::{
    Authority, Mariadb, Postgres, Redis, mariadb, or_skip, postgres, redis,
};
use serde_json::json;

use crate::crowd::{self, Person, Told};
use crate::shop::{Node, Shop};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shop_on_servers_that_speak_tls_only() {
    let (authority, stranger) = (Authority::new().expect("made"), Authority::new().expect("made"));
    let identity = authority.issue(&["localhost"]).expect("made");
    let options = redis::Options { tls: Some(identity.clone()), ..Default::default() };
    let Some(redis) = or_skip(Redis::start(&options)) else { return };
    let options = postgres::Options { tls: Some(identity.clone()), ..Default::default() };
    let Some(postgres) = or_skip(Postgres::start(&options)) else { return };
    postgres.allow_only_tls().expect("it takes new rules");
    let strict = vec![("require-secure-transport".into(), "ON".into())];
    let tls = Some(identity);
    let options = mariadb::Options { tls, settings: strict, ..Default::default() };
    let Some(mariadb) = or_skip(Mariadb::start(&options)) else { return };

    let (ca, other) = (authority.ca(), stranger.ca());
    let engine = format!("rediss://localhost:{}", redis.tls_port().expect("it has one"));
    for (database, mode) in [
        (
            format!("postgres://postgres@localhost:{}/postgres", postgres.port()),
            "sslmode=verify-full",
        ),
        (format!("mysql://root@localhost:{}/qiang", mariadb.port()), "ssl-mode=VERIFY_IDENTITY"),
    ] {
        let url = |ca: &std::path::Path| format!("{database}?{mode}&sslrootcert={}", ca.display());
        let shop =
            Shop::new(&engine, &url(&ca)).with_engine_setting("ca", &ca.display().to_string());
        let (node, _worker) = (shop.start("api"), shop.start("worker"));
        let sale = crowd::sale(node.address, 10, json!({})).await;
        let told = Person::buyer(node.address, "ann").claim(&sale, "k").await;
        assert!(matches!(told, Told::Granted(_)), "{told:?}");
        crowd::recorded(node.address).await;
        shop.audit_ok();
        // Somebody else's word is not taken, on either side.
        let of_redis = shop.engine().replace(&*ca.to_string_lossy(), &other.to_string_lossy());
        for (variable, value, why) in [
            ("QIANG_ENGINE__URL", of_redis, "the certificate that Redis shows is not trusted"),
            ("QIANG_DATABASE__URL", url(&other), "is not trusted; name the CA it is from"),
            ("QIANG_DATABASE__URL", database.clone(), "sslmode=verify-full"),
        ] {
            let Err(ended) = Node::start(shop.serving("api").env(variable, value)) else {
                panic!("it started")
            };
            assert_eq!(ended.code, Some(1), "{}", ended.stderr);
            assert!(ended.stderr.contains(why), "{why}: {}", ended.stderr);
        }
    }
}
