//! Starting: whatever stands in the way is said in one sentence with what to do, the exit code
//! tells, and nothing was touched.

use std::net::TcpListener;
use std::path::Path;

use axum::http::Method;
use qiang_engine::ManualClock;
use rusqlite::Connection;
use serde_json::json;

use crate::person::Person;
use crate::process::{Ended, Process, command, run};
use crate::shop::{START, Shop, changed, terms_of};

/// Expects that a server does not start, and gives what it said.
fn refused(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = command(folder, args);
    match Process::start(command.envs(variables.iter().copied())) {
        Ok(_) => panic!("it started"),
        Err(ended) => ended,
    }
}

/// The same, with the address left to the configuration.
fn misconfigured(folder: &Path, variables: &[(&str, &str)]) -> Ended {
    let mut command = command(folder, &["serve"]);
    match Process::begin(command.envs(variables.iter().copied())) {
        Ok(_) => panic!("it started"),
        Err(ended) => ended,
    }
}

#[track_caller]
fn says(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "{word:?} is missing from:\n{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

/// A folder with a journal of one sale and one claim, in which nobody works.
async fn used_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let config = crate::shop::config(folder.path(), &[]);
    let clock = std::sync::Arc::new(ManualClock::new(START));
    let server = qiang::server::Server::start(config, clock).await.expect("it starts");
    let secrets = qiang_app::secrets::Secrets::load_or_create(folder.path()).expect("made");
    let key = qiang_app::token::Key::new(&secrets.jwt_key);
    let token = key.mint(
        &qiang_app::token::Principal {
            user: qiang_core::UserId::new("boss").expect("an id"),
            role: qiang_app::token::Role::Admin,
            identity: None,
            expires_at: START.plus_millis(1_000_000),
        },
        START,
    );
    let mut boss = Person::arrive(server.address, Some(token)).await;
    let sale = boss.post("/sales", terms_of(5)).await.ok(201);
    boss.granted(sale["id"].as_str().expect("an id")).await;
    server.stop().await;
    folder
}

#[tokio::test]
async fn the_first_start_needs_nothing_and_says_how_to_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut process = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    let mut person = Person::arrive(process.address, None).await;
    person.ask(Method::GET, "/readyz", &[], "").await.ok(200);
    let data = folder.path().join("qiang-data");
    for file in ["journal.db", "qiang.db", "secrets.toml", "lock", "server.addr"] {
        assert!(data.join(file).exists(), "{file}");
    }
    let token = run(folder.path(), &["tokens", "--user", "admin", "--role", "admin"]);
    let mut admin = Person::arrive(process.address, Some(token.stdout.trim().to_owned())).await;
    admin.post("/sales", terms_of(5)).await.ok(201);
    process.kill();
    // The note of a killed server stays and does no harm.
    assert!(data.join("server.addr").exists());
    let process = Process::start(&mut command(folder.path(), &[])).expect("it starts again");
    let (status, said) = process.terminate();
    assert!(status.success(), "{said}");
    assert!(said.contains("admin") && said.contains("stopped"), "{said}");
    assert!(!data.join("server.addr").exists());
}

#[test]
fn a_port_in_use_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let ended = run(folder.path(), &["serve", "--listen", &address]);
    says(&ended, 1, &[&address, "is in use", "--listen"]);
    assert!(!folder.path().join("qiang-data").exists(), "nothing was opened in vain");
    let ended = run(folder.path(), &["serve", "--listen", "192.0.2.1:80"]);
    says(&ended, 1, &["cannot listen on 192.0.2.1:80", "--listen"]);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "in the way").expect("writable");
    for data in ["file", "file/below", "/proc/qiang"] {
        let ended = refused(folder.path(), &["--data", data], &[]);
        says(&ended, 1, &[data, "cannot be used", "--data"]);
    }
    assert_eq!(std::fs::read_to_string(&file).expect("readable"), "in the way");
}

#[test]
fn a_folder_in_use_is_named_with_its_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    let ended = refused(folder.path(), &[], &[]);
    let owner = format!("process {}", first.id());
    says(&ended, 1, &["qiang-data", "in use by another qiang", &owner, "--data"]);
    let (status, _) = first.terminate();
    assert!(status.success());
    Process::start(&mut command(folder.path(), &[])).expect("it is free again");
}

#[tokio::test]
async fn a_journal_of_a_newer_version_is_left_alone() {
    let folder = used_folder().await;
    let journal = folder.path().join("journal.db");
    let db = Connection::open(&journal).expect("a journal");
    db.execute("UPDATE meta SET value = 999 WHERE key = 'format'", []).expect("ours");
    db.close().expect("closed");
    let before = std::fs::read(&journal).expect("readable");
    let data = folder.path().to_str().expect("UTF-8");
    let ended = refused(folder.path(), &["--data", data], &[]);
    says(&ended, 1, &["journal.db", "999", "newer qiang"]);
    says(&run(folder.path(), &["audit", "--data", data]), 1, &["999", "newer qiang"]);
    assert_eq!(std::fs::read(&journal).expect("readable"), before);
}

#[tokio::test]
async fn records_of_a_newer_version_are_left_alone() {
    let folder = used_folder().await;
    let db = Connection::open(folder.path().join("qiang.db")).expect("records");
    db.execute_batch(
        "INSERT INTO _sqlx_migrations SELECT 999, 'later', installed_on, success, checksum,
         execution_time FROM _sqlx_migrations LIMIT 1",
    )
    .expect("ours");
    db.close().expect("closed");
    let data = folder.path().to_str().expect("UTF-8");
    says(&refused(folder.path(), &["--data", data], &[]), 1, &["migration 999", "newer"]);
}

#[tokio::test]
async fn a_flipped_bit_in_the_journal_is_found_and_placed() {
    let folder = used_folder().await;
    let journal = folder.path().join("journal.db");
    let db = Connection::open(&journal).expect("a journal");
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("all in one file");
    db.close().expect("closed");
    let mut bytes = std::fs::read(&journal).expect("readable");
    // The sale's title is in the first batch, in plain sight.
    let place = bytes.windows(5).position(|window| window == b"Phone").expect("the title");
    bytes[place] ^= 1;
    std::fs::write(&journal, &bytes).expect("writable");
    let data = folder.path().to_str().expect("UTF-8");
    let ended = refused(folder.path(), &["--data", data], &[]);
    says(&ended, 1, &["journal.db", "corrupt at batch 1 to 1", "checksum"]);
    let ended = run(folder.path(), &["audit", "--data", data]);
    says(&ended, 1, &["corrupt at batch 1 to 1"]);
    assert_eq!(std::fs::read(&journal).expect("readable"), bytes, "nothing was mended or dropped");
    bytes[place] ^= 1;
    std::fs::write(&journal, &bytes).expect("writable");
    let ended = run(folder.path(), &["audit", "--data", data]);
    says(&ended, 0, &["all books agree"]);
}

#[tokio::test]
async fn a_flipped_bit_in_what_a_kill_left_behind_is_not_taken_for_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut process = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    let token = run(folder.path(), &["tokens", "--user", "admin", "--role", "admin"]);
    let mut admin = Person::arrive(process.address, Some(token.stdout.trim().to_owned())).await;
    let body = changed(&terms_of(50), &json!({ "limit_per_user": 50 }));
    let sale = admin.post("/sales", body).await.ok(201);
    for _ in 0..20 {
        admin.granted(sale["id"].as_str().expect("an id")).await;
    }
    // Reading one's own writes: the records have all of it.
    admin.get("/orders").await.ok(200);
    process.kill();
    let log = folder.path().join("qiang-data/journal.db-wal");
    let mut bytes = std::fs::read(&log).expect("a killed server leaves its log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, &bytes).expect("writable");
    let words = ["journal.db", "corrupt at frame ", "of its write-ahead log", "lie behind it"];
    says(&refused(folder.path(), &[], &[]), 1, &words);
    says(&run(folder.path(), &["audit"]), 1, &words);
    assert!(std::fs::read(&log).expect("readable") == bytes, "nothing was mended or dropped");
    bytes[middle] ^= 1;
    std::fs::write(&log, &bytes).expect("writable");
    let ended = run(folder.path(), &["audit"]);
    says(&ended, 0, &["20 claims", "all books agree"]);
}

#[tokio::test]
async fn a_batch_that_is_gone_is_missed() {
    let folder = used_folder().await;
    let db = Connection::open(folder.path().join("journal.db")).expect("a journal");
    db.execute("DELETE FROM batch WHERE first_seq = 1", []).expect("ours");
    db.close().expect("closed");
    let data = folder.path().to_str().expect("UTF-8");
    let ended = refused(folder.path(), &["--data", data], &[]);
    says(&ended, 1, &["corrupt at batch 2 to 2", "position 1 should stand here"]);
}

#[tokio::test]
async fn a_journal_older_than_the_records_is_not_gone_on_with() {
    let folder = used_folder().await;
    for file in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        // Some of them are not there.
        let _gone = std::fs::remove_file(folder.path().join(file));
    }
    let data = folder.path().to_str().expect("UTF-8");
    let ended = refused(folder.path(), &["--data", data], &[]);
    says(&ended, 1, &["records", "journal"]);
}

#[test]
fn a_file_that_is_no_journal_is_said_to_be_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("UTF-8");
    std::fs::write(folder.path().join("journal.db"), "this is no database at all".repeat(100))
        .expect("writable");
    says(&refused(folder.path(), &["--data", data], &[]), 1, &["journal.db"]);
    assert!(!folder.path().join("qiang.db").exists());
}

#[test]
fn a_bad_configuration_is_told_with_file_line_and_fix() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("qiang.toml");
    for (text, words) in [
        (
            "[http]\nlisen = \"127.0.0.1:1\"\n",
            ["qiang.toml:2:1", "`http.lisen`", "did you mean `listen`"],
        ),
        ("[http]\nlisten = \"localhost:1\"\n", ["qiang.toml:2:1", "`http.listen`", "127.0.0.1:1"]),
        ("[http]\n\nbody_limit_bytes = 1\n", ["qiang.toml:3:1", "`http.body_limit_bytes`", "1024"]),
        ("[http]\nlisten = 5\n", ["qiang.toml:2:1", "`http.listen`", "text"]),
        ("[engine]\nurl = \"redis://h?wait=99\"\n", ["qiang.toml:2:1", "wait", "from 0 to 16"]),
        ("[database]\nurl = \"mongo://h/d\"\n", ["qiang.toml:2:1", "mongo:", "mysql://"]),
        ("roles = \"api\"\n", ["qiang.toml:1:1", "embedded engine", "redis://"]),
        ("[bus]\nurl = \"kafka://h\"\n", ["qiang.toml:2:1", "Kafka", "log:"]),
        ("[engine]\nurl = \"ftp://h\"\n", ["qiang.toml:2:1", "scheme ftp:", "embedded:"]),
        (
            "[database]\nurl = \"sqlite::memory:\"\n",
            ["qiang.toml:2:1", "lose every record", "name a file"],
        ),
        ("[nonsense]\n", ["qiang.toml:1:", "nonsense", "[http]"]),
        ("listen = \n", ["qiang.toml:1:", "not valid TOML", "key = value"]),
    ] {
        std::fs::write(&file, text).expect("writable");
        let ended = misconfigured(folder.path(), &[]);
        says(&ended, 2, &words);
    }
    std::fs::remove_file(&file).expect("ours");
    assert!(!folder.path().join("qiang-data").exists());
}

#[test]
fn a_bad_variable_is_told_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, value, word) in [
        ("QIANG_HTTP__LISTEN", "nowhere", "127.0.0.1:8080"),
        ("QIANG_HTTP__BODY_TIMEOUT_MS", "soon", "number"),
        ("QIANG_HTTP__PORT", "80", "QIANG_HTTP__LISTEN"),
        ("QIANG_HTTP_LISTEN", "127.0.0.1:1", "QIANG_HTTP__LISTEN"),
        ("QIANG_ENGINE__URL", "postgres://h", "embedded:"),
        ("QIANG_PAYMENTS__SANDBOX", "maybe", "true"),
        ("QIANG_AUTH__JWT_SECRET", "short", "32"),
    ] {
        let ended = misconfigured(folder.path(), &[(name, value)]);
        says(&ended, 2, &[name, word]);
        assert!(name != "QIANG_AUTH__JWT_SECRET" || !ended.stderr.contains("\"short\""));
    }
    assert!(!folder.path().join("qiang-data").exists());
}

#[tokio::test]
async fn what_a_server_could_not_open_is_closed_again() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let shop = shop
        .restart(|folder| {
            let db = folder.join("qiang.db");
            let aside = folder.join("aside.db");
            std::fs::rename(&db, &aside).expect("ours");
            std::fs::create_dir(&db).expect("ours");
            let data = folder.to_str().expect("UTF-8");
            says(
                &refused(folder, &["--data", data], &[]),
                1,
                &["qiang.db", "cannot open the database"],
            );
            std::fs::remove_dir(&db).expect("ours");
            std::fs::rename(&aside, &db).expect("ours");
        })
        .await;
    assert_eq!(shop.tally(&sale).await, [5, 0, 0, 0]);
}

/// The binary, in a shell that allows it so many open files.
fn with_open_files(folder: &Path, limits: &str) -> std::process::Command {
    let mut command = std::process::Command::new("/bin/sh");
    let binary = env!("CARGO_BIN_EXE_qiang");
    command.args(["-c", &format!("{limits}; exec \"$0\" \"$@\""), binary]);
    command.current_dir(folder).env_clear().stdin(std::process::Stdio::null());
    command
}

#[tokio::test]
async fn a_low_soft_limit_on_open_files_is_raised() {
    const CROWD: usize = 300;
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(&mut with_open_files(folder.path(), "ulimit -Sn 128"));
    let process = process.expect("it starts");
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(Person::arrive(process.address, None).await);
    }
    let last = crowd.last_mut().expect("many");
    let asked = last.ask(Method::GET, "/healthz", &[], "");
    let answered = tokio::time::timeout(std::time::Duration::from_secs(20), asked).await;
    assert_eq!(answered.expect("everybody is accepted").status, 200);
}

/// Files that run out would keep everybody out, the engine's own included.
#[tokio::test]
async fn files_do_not_run_out_however_many_connect() {
    const CROWD: usize = 400;
    let folder = tempfile::tempdir().expect("a folder");
    let health = free_address();
    let mut command = with_open_files(folder.path(), "ulimit -n 300");
    let process = Process::start(command.env("QIANG_HTTP__HEALTH_LISTEN", &health));
    let process = process.expect("it starts");
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(Person::arrive(process.address, None).await);
    }
    // By the time the first of them are answered, as many were let in as there is room for.
    for person in &mut crowd[..150] {
        assert_eq!(person.ask(Method::GET, "/healthz", &[], "").await.status, 200);
    }
    let mut probe = Person::arrive(health.parse().expect("an address"), None).await;
    let asked = probe.ask(Method::GET, "/readyz", &[], "");
    let answered = tokio::time::timeout(std::time::Duration::from_secs(20), asked).await;
    assert_eq!(answered.expect("there is a place").status, 200);
    let (_, said) = process.terminate();
    assert!(!said.contains("could not be accepted"), "{said}");
}

fn free_address() -> String {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("an address").to_string()
}

#[test]
fn too_few_open_files_for_all_connections_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    // What is said before it serves is heard from a start that fails.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let start = |limits| {
        let mut command = with_open_files(folder.path(), limits);
        match Process::begin(command.args(["serve", "--listen", &address])) {
            Ok(_) => panic!("it started"),
            Err(ended) => ended.stderr,
        }
    };
    let said = start("ulimit -n 512");
    assert!(said.contains("512 open files are allowed"), "{said}");
    assert!(said.contains("LimitNOFILE") && said.contains("max_connections"), "{said}");
    assert!(!start("true").contains("open files"), "there are enough here");
}
