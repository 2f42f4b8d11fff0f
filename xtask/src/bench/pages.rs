//! `cargo xtask bench pages`: what the pages take from the claims, and how fast a page is sent.
//!
//! Claims are driven as in `bench http`, alone and while twenty consoles watch: each reads the live
//! stream, which says something once a second, and asks for the list of sales as often, as the script of
//! the console does. A page that
//! is the same for everybody stands beside a handler that does nothing. All take turns, and the median
//! round counts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail, ensure};
use qiang_testkit::servers::WRK;

use super::http::{Bench, Noop, STOCK, asked};
use super::product::{self, Product};
use super::{Stage, empty_scratch};
use crate::servers;

/// Consoles that watch.
const CONSOLES: usize = 20;
const CONNECTIONS: &str = "64";

/// Measures and prints ratios.
pub(super) fn run(args: &[String]) -> Result<ExitCode> {
    let (mut quick, mut binary) = (false, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => quick = true,
            "--binary" => binary = Some(PathBuf::from(args.next().context("which binary?")?)),
            other => bail!("`{other}`? `cargo xtask help` lists what there is"),
        }
    }
    if !servers::ensure_installed(WRK)? {
        return Ok(ExitCode::FAILURE);
    }
    let root = crate::root()?;
    let scratch = empty_scratch(&root)?;
    let binary = binary.map_or_else(|| product::build(&root), Ok)?;
    let stage = Stage { root: &root, binary: &binary, scratch: &scratch, quick };
    let (rounds, seconds) = if quick { (1, 2) } else { (5, 5) };
    let bench = Bench::new(&stage, seconds);
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    let (mut noop, mut page) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        bench.claims(STOCK, None, &mut alone, |_| Ok(()))?;
        bench.claims(STOCK, None, &mut watched, Consoles::open)?;
        let peer = Noop::start()?;
        noop.push(drive(&format!("http://{}/", peer.address), seconds)?);
        drop(peer);
        let data = scratch.join("pages");
        let server = Product::start(&binary, &data)?;
        page.push(drive(&format!("http://{}/en/", server.http), seconds)?);
        drop(server);
        std::fs::remove_dir_all(&data)?;
    }
    let [alone, watched, noop, page] = [alone, watched, noop, page].map(median);
    println!("claims a second, alone                   {alone:>10.0}");
    println!(
        "claims a second, {CONSOLES} consoles open        {watched:>10.0}  {:.3}× (goal ≥ 0.98)",
        watched / alone
    );
    println!("requests a second, a handler of nothing  {noop:>10.0}");
    println!(
        "requests a second, the first page        {page:>10.0}  {:.3}× (goal ≥ 0.85)",
        page / noop
    );
    Ok(ExitCode::SUCCESS)
}

fn median(mut speeds: Vec<f64>) -> f64 {
    speeds.sort_by(f64::total_cmp);
    speeds[speeds.len() / 2]
}

/// Plain GETs, as fast as they go.
fn drive(url: &str, seconds: u64) -> Result<f64> {
    let mut wrk = Command::new("wrk");
    wrk.args([
        "-t",
        "1",
        "-c",
        CONNECTIONS,
        "-d",
        &seconds.to_string(),
        "-H",
        "Accept-Encoding: gzip",
        url,
    ]);
    let printed = crate::output_of(&mut wrk)?;
    let asked = asked(&printed).with_context(|| format!("wrk printed no speed: {printed}"))?;
    ensure!(asked.refused == 0, "{} answers of {url} were no success", asked.refused);
    Ok(asked.per_sec)
}

/// Consoles that watch until this is dropped.
pub(super) struct Consoles {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Consoles {
    /// Opens them, and waits until each has heard something.
    fn open(server: &Product) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let mut consoles = Self { over: Arc::clone(&over), threads: Vec::new() };
        for _ in 0..CONSOLES {
            let ask = |path: &str| {
                format!(
                    "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: {}\r\n\r\n",
                    server.http, server.token
                )
            };
            let mut stream = TcpStream::connect(&server.http)?;
            stream.write_all(ask("/api/v1/admin/live").as_bytes())?;
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while !line.starts_with("data:") {
                line.clear();
                ensure!(
                    stream.read_line(&mut line)? > 0,
                    "the live stream ended before its first message"
                );
            }
            let (mut asks, list, over) = (
                TcpStream::connect(&server.http)?,
                ask("/api/v1/sales?limit=100"),
                Arc::clone(&over),
            );
            consoles.threads.push(std::thread::spawn(move || {
                let mut heard = [0; 16 << 10];
                while !over.load(Ordering::Relaxed)
                    && stream.read(&mut heard).is_ok_and(|read| read > 0)
                {
                    if asks.write_all(list.as_bytes()).is_err() || asks.read(&mut heard).is_err() {
                        break;
                    }
                }
            }));
        }
        Ok(consoles)
    }
}

impl Drop for Consoles {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}
