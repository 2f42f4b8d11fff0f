//! `qiang bench` as a person runs it: every scenario, both doors, on a server of its own and on one
//! that runs, and what it says when that cannot be.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::person::Person;
use crate::process::{Ended, Process, command, run};
use crate::shop::terms_of;

/// Runs it to its end, and gives the result.
fn bench(folder: &Path, args: &[&str]) -> (Ended, Value) {
    let ended = run(folder, &[&["bench", "--json", "-"], args].concat());
    let result = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", ended.stdout, ended.stderr));
    (ended, result)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// How many ended so.
fn count(result: &Value, request: &str, outcome: &str) -> u64 {
    let outcomes = result["outcomes"].as_array().expect("a list").iter();
    let same = |one: &&Value| one["request"] == request && one["outcome"] == outcome;
    outcomes.filter(same).map(|one| number(&one["count"])).sum()
}

/// What must be so in every result of a run that went well.
fn sound(ended: &Ended, result: &Value) {
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(result["verdict"]["exact"], true, "{}", result["verdict"]);
    assert!(ended.stderr.lines().any(|line| line.starts_with("exact: ")), "{}", ended.stderr);
    assert_eq!(result["audit"]["ok"], true);
    let requests = number(&result["got"]["requests"]);
    let outcomes = result["outcomes"].as_array().expect("a list");
    assert_eq!(outcomes.iter().map(|one| number(&one["count"])).sum::<u64>(), requests);
    let series = result["series"].as_array().expect("a list");
    let in_slices = series
        .iter()
        .flat_map(|slice| slice["outcomes"].as_object().expect("an object").values().map(number));
    assert_eq!(in_slices.sum::<u64>(), requests, "every request is in one slice");
    assert_eq!(number(&result["latency"]["count"]), requests - number(&result["got"]["errors"]));
    assert_eq!(number(&result["got"]["errors"]), 0, "{outcomes:?}");
}

#[test]
fn a_sellout_is_exact_and_leaves_a_report_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["--rate", "600", "--duration", "1s", "--stock", "50", "--html", "report.html"];
    let (ended, result) = bench(folder.path(), &args);
    sound(&ended, &result);
    assert_eq!(number(&result["got"]["requests"]), 600, "an open loop sends what it planned");
    assert_eq!(count(&result, "claim", "granted"), 50);
    assert_eq!(count(&result, "claim", "sold_out"), 550);
    let line = "exact: 50 of 50 units granted to 50 users, books agree";
    assert_eq!(result["verdict"]["line"], line);
    let stock = result["stock"].as_array().expect("a list");
    assert_eq!(number(&stock[0]["available"]), 50);
    assert_eq!(stock.last().map(|level| number(&level["available"])), Some(0));
    let page = std::fs::read_to_string(folder.path().join("report.html")).expect("written");
    assert!(page.contains(line) && page.contains("<svg"), "{page}");
    let left = std::fs::read_dir(folder.path()).expect("readable").count();
    assert_eq!(left, 1, "its server works in a temporary folder");
    // Variables meant for other servers are none of its business.
    let mut strange = command(folder.path(), &["bench", "--duration", "100ms", "--quiet"]);
    let strange = strange.env("QIANG_TOKEN", "x").env("QIANG_HTTP__LISTEN", "nonsense").output();
    let strange = Ended::from(strange.expect("the binary runs"));
    assert_eq!(strange.code, Some(0), "{}", strange.stderr);
}

#[test]
fn every_scenario_over_every_door_is_exact() {
    let folder = tempfile::tempdir().expect("a folder");
    for door in [&["--protocol", "http"][..], &["--protocol", "resp", "--pipeline", "4"]] {
        let run = |args: &[&str]| {
            let common = ["--rate", "500", "--duration", "600ms", "--quiet", "--connections", "8"];
            let (ended, result) = bench(folder.path(), &[&common, door, args].concat());
            sound(&ended, &result);
            assert_eq!(number(&result["got"]["requests"]), 300);
            result
        };
        let storm = run(&["--scenario", "storm", "--users", "20", "--stock", "10"]);
        assert_eq!(count(&storm, "claim", "granted"), 10);
        assert!(count(&storm, "claim", "had_it_already") > 0, "{storm}");
        let steady = run(&["--scenario", "steady", "--arrivals", "uniform"]);
        assert_eq!(count(&steady, "claim", "granted"), 300);
        let mixed = run(&["--scenario", "mixed", "--users", "30", "--stock", "100000"]);
        for (request, outcome) in [
            ("claim", "granted"),
            ("order", "ordered"),
            ("pay", "paid"),
            ("release", "released"),
            ("look", "seen"),
        ] {
            assert!(count(&mixed, request, outcome) > 0, "{outcome}: {mixed}");
        }
        assert_eq!(
            number(&mixed["books"]["paid"]),
            count(&mixed, "pay", "paid"),
            "what was paid is paid"
        );
    }
}

#[test]
fn a_closed_loop_asks_until_everybody_has_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    for door in [&["--protocol", "http"][..], &["--protocol", "resp", "--pipeline", "16"]] {
        let args = ["--clients", "4", "--users", "400", "--stock", "400", "--duration", "1m"];
        let (ended, result) = bench(folder.path(), &[&args, door].concat());
        sound(&ended, &result);
        assert_eq!(count(&result, "claim", "granted"), 400);
        assert_eq!(result["wanted"]["rate"], Value::Null);
    }
}

#[tokio::test]
async fn on_a_server_that_runs_only_its_own_sale_is_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut serve = command(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let process = Process::begin(&mut serve).expect("it starts");
    let url = format!("http://{}", process.address);
    let admin = run(folder.path(), &["tokens", "--user", "boss", "--role", "admin"]);
    let admin = admin.stdout.trim().to_owned();
    let mut boss = Person::arrive(process.address, Some(admin.clone())).await;
    let other = boss.post("/sales", terms_of(15)).await.ok(201);
    let other = other["id"].as_str().expect("an id").to_owned();
    run(folder.path(), &["tokens", "--count", "100", "--out", "crowd.csv"]);

    let load = ["--url", &url, "--rate", "200", "--duration", "500ms", "--stock", "30"];
    let (ended, result) = bench(folder.path(), &load);
    sound(&ended, &result);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let crowd = folder.path().join("crowd.csv");
    let brought = ["--token", &admin, "--tokens", crowd.to_str().expect("UTF-8")];
    let (ended, brought) = bench(elsewhere.path(), &[&load[..], &brought].concat());
    sound(&ended, &brought);
    assert!(!brought["command"].as_str().expect("text").contains(&admin), "{brought}");
    assert_eq!(std::fs::read_dir(elsewhere.path()).expect("readable").count(), 0, "no keys made");
    let mut boss = Person::arrive(process.address, Some(admin.clone())).await;
    for result in [&result, &brought] {
        let sale = result["got"]["sale_id"].as_str().expect("an id");
        let sale = boss.get(&format!("/sales/{sale}")).await.ok(200);
        assert_eq!((&sale["status"], number(&sale["ordered"])), (&"closed".into(), 30));
    }
    let other = boss.get(&format!("/sales/{other}")).await.ok(200);
    assert_eq!((&other["status"], number(&other["available"])), (&"open".into(), 15));

    let buyer = std::fs::read_to_string(&crowd).expect("written");
    let buyer = buyer.lines().nth(1).and_then(|line| line.split_once(',')).expect("a token").1;
    let http = process.address.to_string();
    for (args, code, word) in [
        (&["--token", "nonsense"][..], 1, "does not take the admin's token"),
        (&["--token", buyer], 1, "not an admin's"),
        (&["--tokens", "crowd.csv", "--users", "101"], 1, "it has 100 tokens"),
        (&["--tokens", "none.csv"], 1, "cannot read the tokens"),
        (&["--protocol", "resp"], 2, "say with --resp where"),
        (&["--protocol", "resp", "--resp", "127.0.0.1:1"], 1, "cannot open connection 1 of 64"),
        (&["--protocol", "resp", "--resp", &http], 1, "makes no sense"),
    ] {
        let ended = run(folder.path(), &[&["bench"], &load[..], args].concat());
        assert_eq!(ended.code, Some(code), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(word), "{args:?}: {}", ended.stderr);
    }
    assert!(process.terminate().0.success());
}

#[test]
fn what_cannot_be_is_said_before_anything_is_done() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("a-folder")).expect("made");
    for (args, code, word) in [
        (&["--rate", "0"][..], 2, "0.01 to"),
        (&["--rate", "NaN"], 2, "0.01 to"),
        (&["--rate", "many"], 2, "not a number"),
        (&["--users", "0"], 2, "a whole number from 1 to"),
        (&["--stock", "0"], 2, "a whole number from 1 to"),
        (&["--clients", "0"], 2, "a whole number from 1 to"),
        (&["--duration", "soon"], 2, "not a time"),
        (&["--duration", "25h"], 2, "100ms to 24h"),
        (&["--rate", "5", "--clients", "5"], 2, "cannot be used with"),
        (&["--token", "t"], 2, "--url"),
        (&["--rate", "-5"], 2, "0.01 to"),
        (&["--stock", "-1"], 2, "a whole number from 1 to"),
        (&["--duration", "-1s"], 2, "not a time"),
        (&["--pipeline", "2"], 2, "--protocol resp"),
        (&["--data", "elsewhere"], 2, "leave out --data"),
        (&["--json", "no/such/folder/r.json"], 1, "cannot write no/such/folder/r.json"),
        (&["--html", "a-folder"], 1, "cannot write a-folder"),
        (&["--url", "http://127.0.0.1:1"], 1, "cannot connect to 127.0.0.1:1"),
        (&["--url", "http://192.0.2.1:8080"], 1, "say --remote"),
        (&["--url", "https://127.0.0.1:1"], 1, "cannot connect to 127.0.0.1:1"),
        (&["--url", "ftp://127.0.0.1:1"], 2, "not an address"),
    ] {
        let ended = run(folder.path(), &[&["bench"], args].concat());
        assert_eq!(ended.code, Some(code), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(word), "{args:?}: {}", ended.stderr);
    }
    let process = Process::start(&mut command(folder.path(), &["--data", "its-own"]));
    let process = process.expect("it starts");
    let url = format!("http://{}", process.address);
    let ended = run(folder.path(), &["bench", "--url", &url]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("there are no keys in ./qiang-data"), "{}", ended.stderr);
    assert!(!folder.path().join("qiang-data").exists(), "keys that nobody knows are not made");
}

#[test]
fn a_server_of_its_own_ends_with_the_bench_however_that_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bench = command(folder.path(), &["bench", "--rate", "50", "--duration", "1m"])
        .env("TMPDIR", folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(bench.stderr.take().expect("piped")).lines();
    let is_under_way = |line: std::io::Result<String>| line.is_ok_and(|line| line.contains("1 s "));
    assert!(lines.any(is_under_way), "it is under way");
    let folders = folder.path().read_dir().expect("a folder").flatten();
    let mut addresses = folders.map(|entry| entry.path().join("data/server.addr"));
    let address = addresses.find_map(|path| std::fs::read_to_string(path).ok()).expect("it runs");
    let mut stream = TcpStream::connect(address.trim()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    bench.kill().expect("it runs");
    bench.wait().expect("it ended");
    // It says nothing by itself; that this ends is that the server has.
    let ended = stream.read(&mut [0]);
    let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
    assert!(matches!(ended, Ok(0)) || ended.as_ref().is_err_and(reset), "{ended:?}");
}

/// Whatever was under way when the server died is asked again under the same key, and counts once.
#[test]
fn a_server_that_dies_under_load_and_comes_back_is_still_exact() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    let address = first.address.to_string();
    let url = format!("http://{address}");
    let load = ["--scenario", "storm", "--users", "5000", "--stock", "5000", "--clients", "8"];
    let args = [&["bench", "--url", &url, "--duration", "4s", "--json", "r.json"], &load[..]];
    let mut bench = command(folder.path(), &args.concat())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let stderr = BufReader::new(bench.stderr.take().expect("piped"));
    let mut lines = stderr.lines().map_while(Result::ok);
    // On a busy machine the first line may be that of a later second.
    let is_second = |line: String| {
        let second = line.trim_start().split_once(" s ").map(|(number, _)| number.parse::<u32>());
        matches!(second, Some(Ok(1..)))
    };
    assert!(lines.by_ref().any(is_second), "it is under way");
    first.kill();
    let again = Process::begin(&mut command(folder.path(), &["serve", "--listen", &address]));
    let again = again.expect("it starts again");
    let said: Vec<String> = lines.collect();
    let status = bench.wait().expect("it ended");
    let result = std::fs::read_to_string(folder.path().join("r.json")).expect("written");
    let result: Value = serde_json::from_str(&result).expect("JSON");
    assert!(number(&result["got"]["resent"]) > 0, "{said:#?}");
    assert_eq!(result["verdict"]["exact"], true, "{said:#?}");
    assert!(status.success(), "{said:#?}");
    drop(again);
}
