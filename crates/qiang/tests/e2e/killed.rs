//! The promise of the whole thing: a server that is killed under load, again and again, loses
//! nothing it said, doubles nothing it did not, and never sells more than there is.

mod load;
mod tally;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use qiang_testkit::Random;
use tokio::sync::mpsc;

use crate::process::{Process, command, run};
use load::Market;
use tally::Tally;

const ROUNDS: u32 = 24;
const CONNECTIONS: u32 = 16;
/// The server is killed when it has given up to so many answers in a round.
const MOST_ANSWERS: u32 = 700;
const DATA: &str = "data";

/// Small snapshots, so that they are begun, finished and cut off many times in one run.
fn server(folder: &Path) -> Command {
    let mut command = command(folder, &["--data", DATA]);
    command.env("QIANG_ENGINE__SNAPSHOT_BYTES", "65536").env("QIANG_LOG__FILTER", "error");
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p05_what_was_acknowledged_survives_every_kill() {
    let seed = seed();
    println!("QIANG_SEED={seed}");
    let mut random = Random::new(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join(DATA);
    let mut tally = Tally::default();
    for round in 0..ROUNDS {
        if random.percent(25) {
            // In the middle of its start, wherever that is.
            Process::start_and_kill(&mut server(folder.path()), random.below(2) as usize);
        }
        let mut process = Process::start(&mut server(folder.path())).expect("it starts");
        let (answered, mut answers) = mpsc::unbounded_channel();
        let mut market = Market::enter(process.address, &data, answered).await;
        tally.settle(&mut market).await;
        tally.opened(market.open_sales().await);
        let market = Arc::new(market);
        let crowd: Vec<_> = (0..CONNECTIONS)
            .map(|place| {
                let own = Random::new(seed ^ u64::from(round << 16 | place) << 32);
                tokio::spawn(load::shop(Arc::clone(&market), own, format!("{round}-{place}")))
            })
            .collect();
        for _ in 0..random.between(1, MOST_ANSWERS) {
            answers.recv().await.expect("the crowd is at work");
        }
        process.kill();
        for one in crowd {
            tally.asked(one.await.expect("no panic"));
        }
    }
    let offline = run(folder.path(), &["audit", "--data", DATA]);
    assert_eq!(offline.code, Some(0), "{}{}", offline.stdout, offline.stderr);
    let process = Process::start(&mut server(folder.path())).expect("it starts");
    let mut market = Market::enter(process.address, &data, mpsc::unbounded_channel().0).await;
    tally.settle(&mut market).await;
    tally.check_all(&mut market).await;
    assert!(process.terminate().0.success());
    let offline = run(folder.path(), &["audit", "--data", DATA]);
    assert_eq!(offline.code, Some(0), "{}{}", offline.stdout, offline.stderr);
    println!("{}", tally.summary());
}

fn seed() -> u64 {
    let given = std::env::var("QIANG_SEED").ok();
    let given = given.map(|text| text.parse().expect("QIANG_SEED is a number"));
    given.unwrap_or_else(|| getrandom::u64().expect("randomness") % 1_000_000)
}
