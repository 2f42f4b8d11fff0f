//! Clients people use, unchanged: redis-cli, redis-benchmark, redis-py, node-redis, redis-rs. What
//! is not on this machine is left out with a word.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use qiang_app::token::Role;
use qiang_testkit::servers::{NODE, NODE_REDIS, Program, REDIS, REDIS_PY, or_skip};
use redis::{AsyncConnectionConfig, RedisResult};
use serde_json::{Value, json};

use super::{PASSWORD, address, commands, open};
use crate::shop::Shop;

/// Where a program is; `None` after saying that it is not.
fn found(program: Program) -> Option<PathBuf> {
    or_skip(program.find().map_err(Into::into))
}

/// Runs a program to its end beside the server, and gives it this to read.
async fn run(mut command: Command, input: Vec<u8>) -> Output {
    let ran = tokio::task::spawn_blocking(move || {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut stdin = child.stdin.take().expect("piped");
        let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("it ends");
        feeding.join().expect("no panic");
        output
    });
    ran.await.expect("no panic")
}

/// Runs a program that must succeed, and gives what it printed.
async fn printed(command: Command, input: Vec<u8>) -> String {
    let output = run(command, input).await;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    stdout
}

fn redis_cli(shop: &Shop, said: &str, words: &[&str]) -> Command {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &address(shop).port().to_string()]).args(words);
    command.env("REDISCLI_AUTH", said);
    command
}

#[tokio::test]
async fn redis_cli_shows_what_was_decided() {
    if found(REDIS).is_none() {
        return;
    }
    let shop = open().await;
    let sale = shop.sale(2, json!({ "flow": "hold" })).await;
    let claim = format!("{sale}-1");
    for (words, said) in [
        (&["CLAIM", &sale, "ann"][..], format!("1\n1\n{claim}\n")),
        (&["CLAIM", &sale, "ann"], format!("2\n1\n{claim}\n")),
        (&["CLAIM", "99", "ann"], "0\nno_such_sale\n".to_owned()),
        (&["ORDER", &claim, "ann"], format!("1\n1\n{claim}\n")),
        (&["PAY", &claim, "p-1", "9900"], format!("1\npaid\n{claim}\n")),
        (&["RELEASE", &claim], "0\nalready_paid\n".to_owned()),
        (&["POOL", "99"], "\n".to_owned()),
    ] {
        assert_eq!(printed(redis_cli(&shop, PASSWORD, words), Vec::new()).await, said, "{words:?}");
    }
    let pool = redis_cli(&shop, PASSWORD, &["-3", "--json", "POOL", &sale]);
    let pool: Value = serde_json::from_str(&printed(pool, Vec::new()).await).expect("JSON");
    assert_eq!(pool, shop.view(&sale).await);
    // A token is as good as the password, and a wrong one is said to be.
    let token = shop.token("ben", Role::Buyer, None);
    let lines = format!("CLAIM {sale} ben\nCLAIM {sale} ann\nPAY {claim} p 1\n").into_bytes();
    let said = printed(redis_cli(&shop, &token, &[]), lines).await;
    assert!(said.starts_with(&format!("1\n2\n{sale}-2\nNOPERM ")), "{said}");
    let output = run(redis_cli(&shop, "open sesame", &["PING"]), Vec::new()).await;
    let all = [output.stdout, output.stderr].concat();
    let all = String::from_utf8_lossy(&all);
    assert!(all.contains("WRONGPASS") && all.contains("NOAUTH"), "{all}");
}

#[tokio::test]
async fn redis_cli_pipes_a_whole_file() {
    if found(REDIS).is_none() {
        return;
    }
    let shop = open().await;
    let sale = shop.sale(700, json!({})).await;
    let lines: Vec<String> = (0..1_000).map(|user| format!("CLAIM {sale} u{user}")).collect();
    let said = printed(redis_cli(&shop, PASSWORD, &["--pipe"]), commands(&lines)).await;
    assert!(said.contains("errors: 0, replies: 1000"), "{said}");
    assert_eq!(shop.tally(&sale).await, [0, 0, 700, 0]);
    shop.audit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_benchmark_takes_no_more_than_there_is() {
    if found(REDIS).is_none() {
        return;
    }
    let shop = open().await;
    let sale = shop.sale(1_000, json!({})).await;
    for pipeline in ["1", "16"] {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &address(&shop).port().to_string(), "-a", PASSWORD]);
        command.args(["-c", "20", "-n", "10000", "-r", "5000", "-P", pipeline, "--csv"]);
        command.args(["CLAIM", &sale, "user:__rand_int__"]);
        let said = printed(command, Vec::new()).await;
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with(&format!("\"CLAIM {sale} user:")), "{said}");
    }
    assert_eq!(shop.tally(&sale).await, [0, 0, 1_000, 0]);
    shop.audit().await;
}

/// A script of a client, told where the shop is and what to say there. It looks at every answer
/// itself, and says `ok` at its end.
async fn script(shop: &Shop, mut command: Command, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/resp/clients").join(name);
    let (first, second) =
        (shop.sale(1_000, json!({ "flow": "hold" })).await, shop.sale(500, json!({})).await);
    command.arg(path);
    command.env("PORT", address(shop).port().to_string()).env("PASSWORD", PASSWORD);
    command.env("TOKEN", shop.token("ann", Role::Buyer, None));
    command.env("SALE", &first).env("POOL_SALE", &second);
    assert_eq!(printed(command, Vec::new()).await, "ok\n");
    // What the script did is what the shop has.
    assert_eq!(shop.tally(&first).await, [937, 61, 0, 2]);
    assert_eq!(shop.tally(&second).await, [300, 0, 200, 0]);
    shop.audit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_needs_no_change() {
    let Some(package) = found(REDIS_PY) else { return };
    let folder = package.parent().and_then(Path::parent).expect("it has a folder");
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", folder).env("PYTHONDONTWRITEBYTECODE", "1");
    script(&open().await, python, "redis_py.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redis_needs_no_change() {
    let (Some(node), Some(package)) = (found(NODE), found(NODE_REDIS)) else { return };
    let modules = package.parent().and_then(Path::parent).expect("it has a folder");
    let mut node = Command::new(node);
    node.env("NODE_PATH", modules);
    script(&open().await, node, "node_redis.cjs").await;
}

#[tokio::test]
async fn redis_rs_needs_no_change() {
    let shop = open().await;
    let sale = shop.sale(100, json!({ "flow": "hold" })).await;
    for (round, protocol) in (0..).zip(["resp2", "resp3"]) {
        let password = PASSWORD.replace(' ', "%20");
        let url = format!("redis://:{password}@{}/?protocol={protocol}", address(&shop));
        let client = redis::Client::open(url).expect("a URL");
        let config = AsyncConnectionConfig::new();
        let connected = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut shop = connected.expect("it connects");
        let (user, number) = (format!("u{round}"), 1 + 4 * round);
        let claim = format!("{sale}-{number}");
        let granted: (i64, i64, String) =
            redis::cmd("CLAIM").arg(&sale).arg(&user).query_async(&mut shop).await.expect("typed");
        assert_eq!(granted, (1, number, claim.clone()));
        let refused: (i64, String) =
            redis::cmd("CLAIM").arg(99).arg(&user).query_async(&mut shop).await.expect("typed");
        assert_eq!(refused, (0, "no_such_sale".to_owned()));
        let (ordered, paid): ((i64, i64, String), (i64, String, String)) = redis::pipe()
            .cmd("ORDER")
            .arg(&claim)
            .cmd("PAY")
            .arg(&claim)
            .arg(format!("p-{round}"))
            .arg(9_900)
            .query_async(&mut shop)
            .await
            .expect("typed");
        assert_eq!(ordered, (1, number, claim.clone()));
        assert_eq!(paid, (1, "paid".to_owned(), claim));
        let pool: std::collections::HashMap<String, redis::Value> =
            redis::cmd("POOL").arg(&sale).query_async(&mut shop).await.expect("a map");
        assert_eq!(pool["available"], redis::Value::Int(99 - 4 * round));
        let none: Option<String> =
            redis::cmd("POOL").arg(99).query_async(&mut shop).await.expect("nothing");
        assert_eq!(none, None);
        let mut pipe = redis::pipe();
        for place in 0..3 {
            pipe.cmd("CLAIM").arg(&sale).arg(format!("{user}-{place}"));
        }
        let many: Vec<(i64, i64, String)> = pipe.query_async(&mut shop).await.expect("typed");
        assert!(many.iter().all(|one| one.0 == 1), "{many:?}");
        let wrong: RedisResult<()> = redis::cmd("CLAIM").query_async(&mut shop).await;
        assert!(wrong.is_err_and(|error| error.to_string().contains("wrong number")));
    }
    shop.audit().await;
}
