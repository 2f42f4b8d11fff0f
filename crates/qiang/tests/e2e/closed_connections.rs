//! Memory of connections that closed goes back to the operating system.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::person::Person;
use crate::process::{Process, command, run};
use crate::raw;
use crate::shop::{changed, terms_of};

/// Connections to each of the two doors.
const CROWD: usize = 1_500;
/// Between two looks at the server's memory.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Much longer than it takes; only a server that keeps its memory meets it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Memory of a process, in bytes.
fn resident(process: &Process) -> u64 {
    let status = format!("/proc/{}/status", process.id());
    let status = std::fs::read_to_string(status).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}

/// A door, what a buyer says there, and how the answer ends.
struct Door {
    address: SocketAddr,
    claim: String,
    end: &'static str,
}

impl Door {
    /// Buyers who have all claimed, and stay.
    async fn crowd(&self, size: usize) -> Vec<TcpStream> {
        let mut crowd = Vec::new();
        for _ in 0..size {
            let mut stream = raw::connect(self.address).await;
            stream.write_all(self.claim.as_bytes()).await.expect("sent");
            raw::read_until(&mut stream, self.end).await;
            crowd.push(stream);
        }
        crowd
    }
}

#[tokio::test]
async fn memory_of_closed_connections_is_given_back() {
    qiang::listener::raise_open_files();
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = command(folder.path(), &[]);
    // Nobody is closed because they are silent for long.
    command.env("QIANG_HTTP__HEADER_TIMEOUT_MS", "600000");
    command.env("QIANG_RESP__LISTEN", "127.0.0.1:0");
    let process = Process::start(&mut command).expect("it starts");
    let resp = process.hear("RESP").rsplit_once('/').expect("an address").1.to_owned();
    let token = run(folder.path(), &["tokens", "--user", "admin", "--role", "admin"]);
    let token = token.stdout.trim();
    let mut admin = Person::arrive(process.address, Some(token.to_owned())).await;
    let terms = changed(&terms_of(10_000), &json!({"limit_per_user": 10_000, "flow": "instant"}));
    let sale = admin.post("/sales", terms).await.ok(201);
    let sale = sale["id"].as_str().expect("an id");
    let doors = [
        Door {
            address: process.address,
            claim: format!("{}{{\"quantity\":1}}", raw::claim_head(sale, token, 14)),
            end: "\"quantity\":1",
        },
        Door {
            address: resp.parse().expect("an address"),
            claim: format!("AUTH {token}\r\nCLAIM {sale} ann\r\nPING\r\n"),
            end: "+PONG\r\n",
        },
    ];
    // What is made once is there already.
    for door in &doors {
        drop(door.crowd(1).await);
    }
    let before = resident(&process);
    let crowds = [doors[0].crowd(CROWD).await, doors[1].crowd(CROWD).await];
    let taken = resident(&process).saturating_sub(before);
    assert!(taken > 2 * CROWD as u64 * 1_000, "connections take memory, not {taken} bytes");
    drop(crowds);

    let mut looks = tokio::time::interval(LOOK_EVERY);
    let given_back = async {
        while resident(&process) > before + taken / 2 {
            looks.tick().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, given_back).await;
    let kept = resident(&process).saturating_sub(before);
    assert!(waited.is_ok(), "of {taken} bytes {kept} are still there");
}
