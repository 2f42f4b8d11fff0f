//! Many connections: how soon each of a thousand who come at the same moment has an answer, and what
//! ten thousand cost that stay and say nothing.
//!
//! The crowd is one thread of this process. What it takes is in the times; memory is the server's.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Stage;
use super::figures::Figures;
use super::product::{Product, token};
use crate::stopwatch::Stopwatch;

/// Those who come at the same moment.
const AT_ONCE: usize = 1_000;
/// Those who stay.
const IDLE: usize = 10_000;
/// So many of those who stay ask at the same moment; then the next.
const IN_TURN: usize = 64;
/// Open files for that many, and for everything else.
const FILES: u64 = 12_000;
/// Until then everything that begins or ends with many connections has.
const SETTLED_AFTER: Duration = Duration::from_secs(3);
/// Until then the server has given back what it wants to: it looks every five seconds, and waits until
/// it has little to do.
const GIVEN_BACK_AFTER: Duration = Duration::from_secs(15);
/// Between two looks whether the server has accepted everybody.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

/// The ways in.
#[derive(Debug, Clone, Copy)]
enum Door {
    Http,
    Resp,
}

/// Measures both doors.
pub(super) fn measure(stage: &Stage<'_>, figures: &mut Figures) -> Result<()> {
    allow_files()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for door in [Door::Http, Door::Resp] {
        let rounds = if stage.quick { 1 } else { 5 };
        let mut times = Vec::new();
        for _ in 0..rounds {
            let server = Served::start(stage, door)?;
            times.push(runtime.block_on(first_answers(&server))?);
        }
        times.sort_by(f64::total_cmp);
        figures.hear(
            &json!({"name": "first_answer", "door": door.name(), "at_once": AT_ONCE,
                "p99_ms": times[rounds / 2]})
            .to_string(),
        );
        let server = Served::start(stage, door)?;
        for line in runtime.block_on(idle(&server))? {
            figures.hear(&line.to_string());
        }
    }
    Ok(())
}

/// This process needs as many open files as it has connections.
fn allow_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    ensure!(hard >= FILES, "{FILES} open files are needed, and {hard} allowed (`ulimit -Hn`)");
    if limit.current.is_some_and(|soft| soft < FILES) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum: limit.maximum })?;
    }
    Ok(())
}

/// A server with an open sale, and what a buyer says to it.
struct Served {
    product: Product,
    door: Door,
    claim: Vec<u8>,
    page: Vec<u8>,
}

impl Served {
    fn start(stage: &Stage<'_>, door: Door) -> Result<Self> {
        let data = stage.scratch.join("connections");
        if data.exists() {
            std::fs::remove_dir_all(&data)?;
        }
        let product = start(stage.binary, &data, door)?;
        let sale = json!({"title": "bench", "sku": "bench", "stock": 1_000_000, "price_cents": 100,
            "limit_per_user": 1_000_000, "flow": "instant"});
        let sale = product.ask("POST", "/api/v1/sales", &sale.to_string())?;
        let id = sale["id"].as_str().with_context(|| format!("no sale was opened: {sale}"))?;
        let (host, token) = (&product.http, &product.token);
        let (claim, page) = match door {
            Door::Http => (
                format!(
                    "POST /api/v1/sales/{id}/claims HTTP/1.1\r\nHost: {host}\r\n\
                     Authorization: {token}\r\n\r\n"
                ),
                format!("GET /api/v1/sales/{id} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            ),
            Door::Resp => (
                format!("AUTH {token}\r\nCLAIM {id} somebody\r\nPING\r\n"),
                format!("AUTH {token}\r\nPING\r\n"),
            ),
        };
        Ok(Self { product, door, claim: claim.into(), page: page.into() })
    }

    fn address(&self) -> &str {
        match self.door {
            Door::Http => &self.product.http,
            Door::Resp => &self.product.resp,
        }
    }

    /// Says something and waits for the whole answer.
    async fn ask(&self, stream: &mut TcpStream, words: &[u8]) -> Result<()> {
        stream.write_all(words).await?;
        let mut answer = Vec::new();
        while !self.door.is_whole(&answer)? {
            let read = stream.read_buf(&mut answer).await?;
            ensure!(read > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
        }
        Ok(())
    }

    async fn connect(&self, count: usize) -> Result<Vec<TcpStream>> {
        let mut streams = Vec::new();
        for _ in 0..count {
            streams.push(TcpStream::connect(self.address()).await?);
        }
        Ok(streams)
    }

    /// Everybody says the same, [`IN_TURN`] of them at a time.
    async fn each_asks(&self, crowd: &mut [TcpStream], words: &[u8]) -> Result<()> {
        for group in crowd.chunks_mut(IN_TURN) {
            let asked = group.iter_mut().map(|stream| self.ask(stream, words));
            futures_util::future::try_join_all(asked).await?;
        }
        Ok(())
    }

    /// How many sockets the server has.
    fn sockets(&self) -> Result<usize> {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.product.pid()))?;
        let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        Ok(targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count())
    }

    /// Waits until the server has so many sockets, and has done what comes with them.
    async fn settles_with(&self, wanted: usize) -> Result<()> {
        let watch = Stopwatch::start();
        loop {
            let sockets = self.sockets()?;
            if sockets == wanted {
                break;
            }
            ensure!(watch.elapsed() < PATIENCE, "the server has {sockets} sockets, not {wanted}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        tokio::time::sleep(SETTLED_AFTER).await;
        Ok(())
    }
}

/// A server that lets everybody in, however long they are silent.
fn start(binary: &Path, data: &Path, door: Door) -> Result<Product> {
    let (http, resp) = match door {
        Door::Http => ("11000", "100"),
        Door::Resp => ("100", "11000"),
    };
    let settings = [
        ("QIANG_HTTP__MAX_CONNECTIONS", http),
        ("QIANG_RESP__MAX_CONNECTIONS", resp),
        ("QIANG_HTTP__HEADER_TIMEOUT_MS", "600000"),
    ];
    Product::start_with(binary, data, token(binary, data, "bench")?, &settings)
}

impl Door {
    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Resp => "resp",
        }
    }

    /// Whether an answer has arrived to its end.
    fn is_whole(self, answer: &[u8]) -> Result<bool> {
        let text = String::from_utf8_lossy(answer);
        match self {
            Self::Http => {
                let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(false) };
                ensure!(head.starts_with("HTTP/1.1 2"), "answered {head}\n{body}");
                let lengths = head.lines().filter_map(|line| line.split_once(": "));
                let mut length =
                    lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
                let (_, length) = length.next().context("an answer without a length")?;
                Ok(body.len() >= length.parse()?)
            }
            Self::Resp => {
                ensure!(!text.starts_with('-') && !text.contains("\n-"), "answered {text}");
                Ok(text.ends_with("+PONG\r\n"))
            }
        }
    }
}

/// The 99th percentile of when those who connect at the same moment, and claim, have their answer.
async fn first_answers(server: &Served) -> Result<f64> {
    let watch = Stopwatch::start();
    let buyer = async || {
        let mut stream = TcpStream::connect(server.address()).await?;
        server.ask(&mut stream, &server.claim).await?;
        anyhow::Ok((watch.elapsed(), stream))
    };
    let answered = futures_util::future::try_join_all((0..AT_ONCE).map(|_| buyer())).await?;
    let mut times: Vec<Duration> = answered.iter().map(|(time, _)| *time).collect();
    times.sort();
    Ok(times[AT_ONCE * 99 / 100].as_secs_f64() * 1e3)
}

/// The memory of connections that stay: after they were accepted, after a page each, after a claim each;
/// and how much of it the server gives back when they close.
async fn idle(server: &Served) -> Result<[serde_json::Value; 4]> {
    // As many have claimed before. Memory that is taken once, and the tables of claims, which stay when a
    // connection closes, are not counted for the connections.
    // Whoever opened the sale has gone by then.
    tokio::time::sleep(SETTLED_AFTER).await;
    let nobody = server.sockets()?;
    let mut first = server.connect(IN_TURN).await?;
    server.each_asks(&mut first, &server.page).await?;
    for _ in 0..IDLE / IN_TURN {
        server.each_asks(&mut first, &server.claim).await?;
    }
    drop(first);
    server.settles_with(nobody).await?;
    let before = server.product.resident_bytes()?;
    let mut crowd = server.connect(IDLE).await?;
    server.settles_with(nobody + IDLE).await?;
    let accepted = server.product.resident_bytes()?;
    let mut asked = [0; 2];
    for (words, bytes) in [&server.page, &server.claim].into_iter().zip(&mut asked) {
        server.each_asks(&mut crowd, words).await?;
        tokio::time::sleep(SETTLED_AFTER).await;
        *bytes = server.product.resident_bytes()?;
    }
    drop(crowd);
    server.settles_with(nobody).await?;
    tokio::time::sleep(GIVEN_BACK_AFTER).await;
    let after = server.product.resident_bytes()?;
    let most = accepted.max(asked[0]).max(asked[1]);
    let each = |bytes: u64| bytes.saturating_sub(before) as f64 / IDLE as f64;
    let line = |state: &str, bytes: u64| {
        json!({"name": "idle_connections", "door": server.door.name(), "after": state,
            "bytes_each": each(bytes).round()})
    };
    let back = most.saturating_sub(after) as f64 / most.saturating_sub(before).max(1) as f64;
    Ok([
        line("accept", accepted),
        line("a page", asked[0]),
        line("a claim", asked[1]),
        json!({"name": "idle_connections", "door": server.door.name(), "after": "closing",
            "kept_mb": after.saturating_sub(before) as f64 / 1e6,
            "given_back_percent": back * 100.0}),
    ])
}
