//! A process that does not fit the others, or has nothing to work with, does not begin, and says
//! why without saying a password.

use qiang_sql::Dialect;
use qiang_testkit::servers::{Mariadb, Redis, free_port, mariadb, or_skip, redis, shared};
use serde_json::json;

use crate::crowd::{self, Person};
use crate::shop::{Node, Shop, run};

const PASSWORD: &str = "correct-horse-battery";

/// It does not start, tells all of `why`, and nothing of a password.
#[track_caller]
fn is_refused(shop: &Shop, variables: &[(&str, &str)], why: &[&str]) {
    for roles in ["api", "worker"] {
        let mut command = shop.serving(roles);
        command.envs(variables.iter().copied());
        let Err(ended) = Node::start(&mut command) else { panic!("it started") };
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        for word in why {
            assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
        }
        assert!(!ended.stderr.contains(PASSWORD), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_other_keys_is_refused_and_one_with_the_same_is_trusted() {
    let Some(redis) = shared::redis() else { return };
    let Some(shop) = Shop::on(&redis, Dialect::Postgres).await else { return };
    let (one, two) = (shop.start("api,worker"), shop.start("api,worker"));
    let sale = crowd::sale(one.address, 1, json!({})).await;
    // A token made with the keys of the environment is good at both.
    let mut tokens = shop.command(&["tokens", "--user", "ann"]);
    let token = run(&mut tokens).stderr;
    let token = token.split_whitespace().find(|word| word.matches('.').count() == 2);
    let token = token.expect("a token");
    let claim = Person::at(one.address, token).claim(&sale, "a").await;
    assert_eq!(Person::at(two.address, token).claim(&sale, "a").await, claim);

    let other = "somebody else's keys are not ours at all";
    let why = ["other processes on this database have other keys", "keys_fingerprint"];
    is_refused(&shop, &[("QIANG_AUTH__JWT_SECRET", other)], &why);
    is_refused(&shop, &[("QIANG_PAYMENTS__CALLBACK_SECRET", other)], &why);
    shop.audit_ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_cannot_be_used_is_refused() {
    let password = Some(PASSWORD.to_owned());
    let options = redis::Options { password, ..Default::default() };
    let Some(redis) = or_skip(Redis::start(&options)) else { return };
    let Some(shop) = Shop::on(&redis.url(), Dialect::Postgres).await else { return };
    let wrong = "wrong-".to_owned() + PASSWORD;
    let with = |from: &str, to: &str| shop.engine().replace(from, to);
    let engine = "QIANG_ENGINE__URL";
    is_refused(&shop, &[(engine, &with(PASSWORD, &wrong))], &["refused the login", "password"]);
    is_refused(&shop, &[(engine, &with(&format!(":{PASSWORD}@"), ""))], &["cannot use"]);
    let nobody = format!(":{}", free_port().expect("a port"));
    let nowhere = with(&format!(":{}", redis.port()), &nobody);
    is_refused(&shop, &[(engine, &nowhere)], &["cannot be reached", &nobody]);

    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).expect("it runs");
    is_refused(&shop, &[], &["allkeys-lru", "noeviction"]);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).expect("it runs");

    let _node = shop.start("api,worker");
    is_refused(&shop, &[(engine, &with("partitions=4", "partitions=8"))], &["?partitions=4"]);
    shop.audit_ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_that_cannot_be_used_is_refused() {
    let Some(redis) = shared::redis() else { return };
    let Some(server) = or_skip(Mariadb::start(&mariadb::Options::default())) else { return };
    let address = format!("127.0.0.1:{}", server.port());
    let shop = Shop::new(&redis, &format!("mysql://root@{address}/qiang"));
    let database = "QIANG_DATABASE__URL";
    let nobody = format!("127.0.0.1:{}", free_port().expect("a port"));
    let nowhere = format!("mysql://root:{PASSWORD}@{nobody}/qiang");
    is_refused(&shop, &[(database, &nowhere)], &[&nobody]);
    let stranger = format!("mysql://stranger:{PASSWORD}@{address}/qiang");
    is_refused(&shop, &[(database, &stranger)], &["Access denied"]);
    let unknown = format!("mysql://root@{address}/nothing_here");
    is_refused(&shop, &[(database, &unknown)], &["nothing_here"]);
    drop(shop.start("api,worker"));
    shop.audit_ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_cannot_be_used_is_refused() {
    let Some(redis) = shared::redis() else { return };
    let Some(shop) = Shop::on(&redis, Dialect::Postgres).await else { return };
    let (server, _) = shop.database().rsplit_once('/').expect("a database");
    let (_, address) = server.rsplit_once('@').expect("a user");
    let database = "QIANG_DATABASE__URL";
    let nobody = format!("127.0.0.1:{}", free_port().expect("a port"));
    let nowhere = format!("postgres://postgres:{PASSWORD}@{nobody}/qiang");
    is_refused(&shop, &[(database, &nowhere)], &[&nobody]);
    let stranger = format!("postgres://stranger:{PASSWORD}@{address}/postgres");
    is_refused(&shop, &[(database, &stranger)], &["stranger"]);
    is_refused(&shop, &[(database, &format!("{server}/nothing_here"))], &["nothing_here"]);
    drop(shop.start("api,worker"));
    shop.audit_ok();
}
