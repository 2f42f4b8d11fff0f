//! The peer: Redis with the usual flash-sale script, called once for each claim.
//!
//! After each round the books are compared, so that a script that did nothing is never taken for a
//! fast one.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use qiang_testkit::servers::Redis;
use qiang_testkit::servers::redis::{Durability, Options};

use super::resp::{CONNECTIONS, Load, Speed};

const STOCK: u64 = 1_000_000_000;
/// Longer than any round, so that every order can be counted afterwards.
const LONGEST_STREAM: u32 = 1_000_000;
/// One hash tag, as a cluster would demand.
const KEYS: [&str; 4] = ["{sale}:stock", "{sale}:req_seq", "{sale}:uid2req", "{sale}:orders"];

/// What the protocol itself allows: the shortest command there is, on a server that keeps nothing.
pub(super) fn ping(scratch: &Path, load: Load) -> Result<Speed> {
    let server = start(scratch, Durability::None)?;
    load.drive("127.0.0.1", &server.port().to_string(), &["PING"])
}

/// Claims by the script, each by a user of its own, of stock that never runs out.
pub(super) fn claims(
    script: &Path,
    scratch: &Path,
    durability: Durability,
    load: Load,
) -> Result<Speed> {
    let server = start(scratch, durability)?;
    let text = File::open(script).with_context(|| format!("cannot open {}", script.display()))?;
    let sha = crate::output_of(cli(&server).args(["-x", "SCRIPT", "LOAD"]).stdin(text))?;
    crate::output_of(cli(&server).args(["SET", KEYS[0], &STOCK.to_string()]))?;
    let longest = LONGEST_STREAM.to_string();
    let mut command = vec!["EVALSHA", sha.trim(), "4"];
    command.extend(KEYS);
    command.extend(["__rand_int__", "0", "1700000000000", &longest]);
    let speed = load.drive("127.0.0.1", &server.port().to_string(), &command)?;
    compare_books(&server, load.requests)?;
    Ok(speed)
}

fn start(scratch: &Path, durability: Durability) -> Result<Redis> {
    Redis::start(&Options { durability, base: scratch.to_owned(), ..Default::default() })
}

/// Every request was a grant or a repetition by the same user, and all four keys agree.
fn compare_books(server: &Redis, requests: u64) -> Result<()> {
    let left = number(server, &["GET", KEYS[0]])?;
    let granted = number(server, &["GET", KEYS[1]])?;
    let users = number(server, &["HLEN", KEYS[2]])?;
    let orders = number(server, &["XLEN", KEYS[3]])?;
    ensure!(
        granted == users && granted == orders && STOCK - left == granted,
        "the books differ: {granted} granted, {users} users, {orders} orders, {left} left"
    );
    // redis-benchmark may send up to one pipeline for each connection more than asked for.
    let extra = u64::from(CONNECTIONS * 64);
    ensure!(
        granted * 100 >= requests * 99 && granted <= requests + extra,
        "{granted} grants for {requests} requests: the load was not what it should be"
    );
    Ok(())
}

fn number(server: &Redis, command: &[&str]) -> Result<u64> {
    let printed = crate::output_of(cli(server).args(command))?;
    printed.trim().parse().with_context(|| format!("{command:?} printed {printed:?}"))
}

fn cli(server: &Redis) -> Command {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port().to_string()]);
    command
}
