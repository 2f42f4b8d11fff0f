//! The commands as an operator runs them, against real servers and real folders.

use qiang_testkit::servers::wait;
use rusqlite::Connection;
use serde_json::Value;

use crate::person::Person;
use crate::process::{Process, command, run};
use crate::shop::terms_of;

#[tokio::test]
async fn a_crowds_tokens_are_good_at_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let ended = run(folder.path(), &["tokens", "--count", "20", "--out", "crowd.csv"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let process = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    let admin = run(folder.path(), &["tokens", "--user", "boss", "--role", "admin"]);
    let mut admin = Person::arrive(process.address, Some(admin.stdout.trim().to_owned())).await;
    let sale = admin.post("/sales", terms_of(15)).await.ok(201);
    let sale = sale["id"].as_str().expect("an id");
    let csv = std::fs::read_to_string(folder.path().join("crowd.csv")).expect("written");
    for (number, line) in csv.lines().skip(1).enumerate() {
        let (user, token) = line.split_once(',').expect("two columns");
        let mut person = Person::arrive(process.address, Some(token.to_owned())).await;
        let answer = person.claim(sale, 1).await;
        if number < 15 {
            assert_eq!(answer.ok(201)["user_id"], user);
        } else {
            answer.problem(410, "sold_out");
        }
    }
    assert_eq!(csv.lines().count(), 21);
    // The audit finds the server by itself, or where it is told to look.
    let ended = run(folder.path(), &["audit"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let asking = format!("asking the server at http://{}", process.address);
    for word in [&*asking, "1 sale, 15 claims, 15 orders", "all books agree"] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
    let url = format!("http://{}", process.address);
    let ended = run(folder.path(), &["audit", "--url", &url, "--json"]);
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((ended.code, &report["ok"]), (Some(0), &Value::Bool(true)));
    let buyer = csv.lines().nth(1).and_then(|line| line.split_once(',')).expect("a token").1;
    let ended = run(folder.path(), &["audit", "--url", &url, "--token", buyer]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("403"), "{}", ended.stderr);
    for (wrong, code) in [
        ("ftp://127.0.0.1:1", 2),
        ("https://127.0.0.1:1", 1),
        ("nonsense", 1),
        ("http://127.0.0.1:1", 1),
    ] {
        let ended = run(folder.path(), &["audit", "--url", wrong]);
        assert_eq!(ended.code, Some(code), "{wrong}: {}", ended.stderr);
        assert!(ended.stderr.starts_with("error: "), "{wrong}: {}", ended.stderr);
    }
    assert!(process.terminate().0.success());
}

#[tokio::test]
async fn the_audit_of_a_folder_at_rest_tells_by_its_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let ended = run(folder.path(), &["audit"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("there is no journal") && ended.stderr.contains("--data"));
    let ended = run(folder.path(), &["export", "sales.jsonl"]);
    assert!(ended.code == Some(1) && ended.stderr.contains("there is no journal"));
    assert!(!folder.path().join("qiang-data").exists(), "looking makes no folder");

    let mut process = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    let admin = run(folder.path(), &["tokens", "--user", "boss", "--role", "admin"]);
    let mut admin = Person::arrive(process.address, Some(admin.stdout.trim().to_owned())).await;
    let sale = admin.post("/sales", terms_of(15)).await.ok(201);
    let claim = admin.granted(sale["id"].as_str().expect("an id")).await;
    process.kill();
    let ended = run(folder.path(), &["audit"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("no server runs"), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 claim, 1 order"), "{}", ended.stderr);

    let db = Connection::open(folder.path().join("qiang-data/qiang.db")).expect("the records");
    db.execute("UPDATE claims SET quantity = 3", []).expect("ours");
    db.execute("UPDATE orders SET status = 'PAID'", []).expect("ours");
    db.close().expect("closed");
    let ended = run(folder.path(), &["audit"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stdout.starts_with(&format!("{claim}\trecords\t")), "{}", ended.stdout);
    let ended = run(folder.path(), &["audit", "--json"]);
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((ended.code, &report["differences"][0]["claim_id"]), (Some(1), &claim.into()));
    let ended = run(folder.path(), &["audit", "--repair"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(run(folder.path(), &["audit"]).code, Some(0));
}

#[test]
fn the_demo_sells_out_and_agrees_with_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let ended = run(folder.path(), &["demo", "--exit", "--users", "2000", "--stock", "100"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for line in ["granted   100", "sold_out  1900", "2,000 claims decided", "all books agree"] {
        assert!(ended.stdout.contains(line), "{line}: {}", ended.stdout);
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("readable").collect();
    assert!(left.is_empty(), "it works in a temporary folder: {left:?}");
    // More units than users: everybody gets one.
    let ended = run(folder.path(), &["demo", "--exit", "--users", "50", "--stock", "60"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("granted   50"), "{}", ended.stdout);
}

#[test]
fn the_database_is_migrated_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = || run(folder.path(), &["migrate", "--check"]);
    let before = check();
    assert_eq!(before.code, Some(1), "{}", before.stderr);
    assert!(before.stderr.contains("pending"), "{}", before.stderr);
    assert!(!folder.path().join("qiang-data").exists(), "looking makes no folder");
    let first = run(folder.path(), &["migrate"]);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert!(first.stdout.starts_with("0001 records"), "{}", first.stdout);
    assert!(first.stderr.contains("applied"), "{}", first.stderr);
    for ended in [check(), run(folder.path(), &["migrate"])] {
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
        assert!(ended.stderr.contains("up to date"), "{}", ended.stderr);
    }
    Process::start(&mut command(folder.path(), &[])).expect("it starts on it");
    // Also while a server works on the folder.
    let process = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    assert_eq!(check().code, Some(0));
    assert!(process.terminate().0.success());
}

#[test]
fn the_configuration_that_is_shown_is_the_one_a_server_starts_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let shown = run(folder.path(), &["config", "check", "--data", "here"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    std::fs::write(folder.path().join("shown.toml"), &shown.stdout).expect("writable");
    let again = run(folder.path(), &["config", "check", "--config", "shown.toml"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let values = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.split(" # ").next());
        lines.map(|line| line.trim().to_owned()).collect()
    };
    assert_eq!(values(&again.stdout), values(&shown.stdout));
    let mut server = command(folder.path(), &["--config", "shown.toml"]);
    Process::start(&mut server).expect("it starts");
    assert!(folder.path().join("here/journal.db").exists());
}

#[test]
fn a_terminal_that_is_closed_stops_the_server_cleanly() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = command(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let words = [server.get_program()].into_iter().chain(server.get_args());
    let words: Vec<&str> = words.map(|word| word.to_str().expect("UTF-8")).collect();
    // A terminal with a server in it, whose log is a file because the terminal goes.
    let mut terminal = std::process::Command::new("script");
    terminal.args(["--quiet", "--command", &format!("{} 2>log", words.join(" ")), "/dev/null"]);
    terminal.current_dir(folder.path()).env_clear().env("PATH", "/usr/bin:/bin");
    terminal.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    let mut terminal = terminal.spawn().expect("script runs");
    let said = |word: &str| {
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        log.contains(word)
    };
    wait_until(|| said("is ready"));
    assert!(folder.path().join("qiang-data/server.addr").exists());
    terminal.kill().expect("it runs");
    terminal.wait().expect("it ended");
    wait_until(|| said("stopped"));
    assert!(!folder.path().join("qiang-data/server.addr").exists());
}

/// Only a server that hangs lets it fail.
fn wait_until(is_so: impl Fn() -> bool) {
    let look = || if is_so() { Ok(()) } else { Err(anyhow::anyhow!("it does not come")) };
    wait("the log says so", crate::raw::PATIENCE, look).expect("it is said");
}

#[test]
fn a_server_under_nohup_outlives_its_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = command(folder.path(), &[]);
    let mut nohup = std::process::Command::new("nohup");
    nohup.arg(server.get_program()).current_dir(folder.path()).stdin(std::process::Stdio::null());
    let process = Process::start(&mut nohup).expect("it starts");
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("Linux");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a set");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("a number");
    assert_eq!(ignored & 1, 1, "SIGHUP is still ignored: {ignored:x}");
    let (status, said) = process.terminate();
    assert!(status.success() && said.contains("stopped"), "{status}: {said}");
}

#[test]
fn a_server_whose_journal_is_deleted_ends_and_says_so_and_starts_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    std::fs::remove_file(folder.path().join("qiang-data/journal.db")).expect("it was there");
    let (status, said) = process.ended();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("ERROR") && said.contains("was deleted or replaced"), "{said}");
    assert!(said.ends_with("nothing is lost: start again"), "{said}");
    let again = Process::start(&mut command(folder.path(), &[])).expect("it starts again");
    assert!(again.terminate().0.success());
}

#[test]
fn tokens_of_a_folder_without_keys_say_that_they_made_some() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["tokens", "--user", "ann", "--data", "mistyped"];
    let ended = run(folder.path(), &args);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("no keys in mistyped: new ones were made"), "{}", ended.stderr);
    assert_eq!(run(folder.path(), &args).stderr, "", "the second time they are there");
}

#[test]
fn the_demo_offers_no_flags_that_it_refuses() {
    let folder = tempfile::tempdir().expect("a folder");
    let help = run(folder.path(), &["demo", "--help"]).stdout;
    assert!(help.contains("--stock") && !help.contains("--data"), "{help}");
    assert!(!help.contains("--config"), "{help}");
    for args in [["demo", "--data", "x"], ["--data", "x", "demo"], ["demo", "--config", "x"]] {
        let ended = run(folder.path(), &args);
        assert_eq!(ended.code, Some(2), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("a folder of its own"), "{}", ended.stderr);
    }
}
