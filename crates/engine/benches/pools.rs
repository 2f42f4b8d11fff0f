//! What many small pools cost: memory, and the time of opening, claiming and clearing, as the number of
//! pools grows. Each pool has a few units, is sold, closed and cleared.
//!
//! `cargo xtask bench pools` starts a private Redis and runs this. By hand: give one in
//! `QIANG_BENCH_REDIS_NO`; it must be empty, and everything on it is thrown away. Without it only the
//! embedded engine is measured.
//!
//! In three ways: `one-by-one` lets pools live one after the other, a few at a time; `tombstones` gives ids
//! by hand, of which something stays; `at-once` opens all of them before the first is sold.
//! `--quick` takes up to 10,000 pools, `--most N` up to N; `--only`, which may be given several times,
//! takes `embedded`, `redis` or one of the three ways.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use qiang_core::{
    Cents, ClaimRequest, Command, Flow, Kind, LimitBy, Outcome, PoolId, PoolView, Reclaim, Supply,
    Terms, Timestamp, UserId,
};
use qiang_engine::redis::{self, Place, Time};
use qiang_engine::{Engine, Stopwatch, SystemClock, WriterOptions, embedded};

/// Pools that are opened, sold or cleared at the same time.
const CALLERS: u64 = 64;
const UNITS: u32 = 3;
const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];
const QUICK: u64 = 10_000;
/// Pools after which the logs are trimmed, as they are when the records have them.
const TRIM_EVERY: u64 = 2_000;
const TOMBSTONES: u64 = 100_000;
const REDIS: &str = "QIANG_BENCH_REDIS_NO";
const PARTITIONS: u16 = 16;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).map(|at| args.get(at + 1));
    let quick = args.iter().any(|arg| arg == "--quick");
    let most = match value("--most") {
        Some(most) => most.context("--most takes a number")?.parse()?,
        None if quick => QUICK,
        None => SIZES[SIZES.len() - 1],
    };
    let only = args.windows(2).filter(|pair| pair[0] == "--only").map(|pair| pair[1].clone());
    let only: Vec<String> = only.collect();
    let wants = |names: [&str; 2]| only.iter().all(|only| names.contains(&only.as_str()));
    let sizes: Vec<u64> = SIZES.into_iter().filter(|size| *size <= most).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!("| engine | pools | opened | claimed | cleared | memory |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for on in ["embedded", "redis"] {
        // By how much memory they leave: what an allocator has once it keeps.
        for way in ["one-by-one", "tombstones", "at-once"] {
            if wants([on, way]) {
                runtime.block_on(measure(on, way, &sizes))?;
            }
        }
    }
    Ok(())
}

async fn measure(on: &'static str, way: &'static str, sizes: &[u64]) -> Result<()> {
    let largest = sizes.last().copied().unwrap_or(QUICK);
    match way {
        "one-by-one" => {
            let Some(mut stage) = Stage::open(on).await? else { return Ok(()) };
            let mut lived = 0;
            // What every engine needs once is there.
            stage.live(PoolId::FIRST_MADE, 1_000).await?;
            for size in sizes {
                let times = stage.live(PoolId::FIRST_MADE + 1_000 + lived, size - lived).await?;
                lived = *size;
                stage.show(&format!("{}, one by one", count(lived)), &times, "").await?;
            }
            stage.close().await
        }
        "at-once" => {
            for size in sizes {
                let Some(mut stage) = Stage::open(on).await? else { return Ok(()) };
                stage.at_once(*size).await?;
                stage.close().await?;
            }
            Ok(())
        }
        _ => {
            let Some(mut stage) = Stage::open(on).await? else { return Ok(()) };
            let many = TOMBSTONES.min(largest);
            stage.live(1, 1_000).await?;
            let before = stage.memory().await?;
            let times = stage.live(1_001, many).await?;
            let each = stage.memory().await?.saturating_sub(before) / many;
            let note = format!(", {each} bytes for each that was");
            stage.show(&format!("{}, ids given by hand", count(many)), &times, &note).await?;
            stage.close().await
        }
    }
}

/// An engine, and where its memory is.
struct Stage {
    on: &'static str,
    engine: Engine,
    redis: Option<::redis::Client>,
    _folder: tempfile::TempDir,
    trimmed: u64,
}

/// How long things took.
#[derive(Default)]
struct Times {
    opened: Histogram,
    claimed: Histogram,
    cleared: Histogram,
}

impl Stage {
    async fn open(on: &'static str) -> Result<Option<Self>> {
        let folder = tempfile::tempdir()?;
        if on == "embedded" {
            let writer = WriterOptions { seed: 1, snapshot_bytes: 64 << 20 };
            let options = embedded::Options { folder: folder.path().into(), queue: 65_536, writer };
            let engine = Engine::Embedded(embedded::Engine::open(options, SystemClock)?);
            return Ok(Some(Self { on, engine, redis: None, _folder: folder, trimmed: 0 }));
        }
        let Ok(url) = std::env::var(REDIS) else {
            println!("| redis | skipped: {REDIS} is not set | | | | |");
            return Ok(None);
        };
        let client = ::redis::Client::open(url.as_str())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let keys: u64 = ::redis::cmd("DBSIZE").query_async(&mut connection).await?;
        ensure!(keys == 0, "{REDIS} names a server that is not empty: take a private one");
        let place = Place::parse(&format!("{url}?prefix=bench&partitions={PARTITIONS}"))?;
        let options = redis::Options { place, queue: 65_536, time: Time::Server, node: 1 };
        let engine = redis::Engine::open(options).await?;
        engine.set_up("bench").await?;
        engine.set_epoch_of_all("bench");
        let (engine, redis) = (Engine::Redis(engine), Some(client));
        Ok(Some(Self { on, engine, redis, _folder: folder, trimmed: 0 }))
    }

    async fn close(self) -> Result<()> {
        self.engine.shut_down().await;
        if let Some(client) = &self.redis {
            let mut connection = client.get_multiplexed_async_connection().await?;
            ::redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
        }
        Ok(())
    }

    /// Pools from `first` on, each from its opening to its clearing.
    async fn live(&mut self, first: u64, pools: u64) -> Result<Times> {
        let mut times = Times::default();
        for from in (first..first + pools).step_by(usize::try_from(TRIM_EVERY)?) {
            let to = (from + TRIM_EVERY).min(first + pools);
            times.add(&each(&self.engine, from, to, Step::Life).await?);
            self.trim().await?;
        }
        Ok(times)
    }

    async fn at_once(&mut self, pools: u64) -> Result<()> {
        let (first, mut times) = (PoolId::FIRST_MADE, Times::default());
        let mut most = 0;
        for step in [Step::Open, Step::Claim, Step::Clear] {
            for from in (first..first + pools).step_by(usize::try_from(TRIM_EVERY)?) {
                let to = (from + TRIM_EVERY).min(first + pools);
                times.add(&each(&self.engine, from, to, step).await?);
                self.trim().await?;
            }
            most = self.memory().await?.max(most);
        }
        let note = format!(", {} while all were open", mega(most));
        self.show(&format!("{}, all at once", count(pools)), &times, &note).await
    }

    /// What the records would have by now goes from the logs.
    async fn trim(&mut self) -> Result<()> {
        let positions = self.engine.positions().await?;
        let reached: u64 = positions.iter().sum();
        if reached > self.trimmed {
            self.trimmed = reached;
            for (partition, position) in (0..).zip(positions) {
                self.engine.consumed(partition, position).await?;
            }
        }
        Ok(())
    }

    /// Bytes of this process, or of Redis.
    async fn memory(&self) -> Result<u64> {
        let Some(client) = &self.redis else { return resident_bytes() };
        let mut connection = client.get_multiplexed_async_connection().await?;
        let said: String = ::redis::cmd("INFO").arg("memory").query_async(&mut connection).await?;
        let used = said.lines().find_map(|line| line.strip_prefix("used_memory:"));
        Ok(used.context("Redis tells its memory")?.trim().parse()?)
    }

    async fn show(&self, pools: &str, times: &Times, note: &str) -> Result<()> {
        let mut memory = mega(self.memory().await?);
        if self.redis.is_some() {
            memory = format!("{memory} (and {} here)", mega(resident_bytes()?));
        }
        let Times { opened, claimed, cleared } = times;
        println!("| {} | {pools} | {opened} | {claimed} | {cleared} | {memory}{note} |", self.on);
        Ok(())
    }
}

impl Times {
    fn add(&mut self, other: &Self) {
        self.opened.add(&other.opened);
        self.claimed.add(&other.claimed);
        self.cleared.add(&other.cleared);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Open,
    Claim,
    Clear,
    /// All of them.
    Life,
}

/// Does this with the pools from `from` up to `to`, some at a time.
async fn each(engine: &Engine, from: u64, to: u64, step: Step) -> Result<Times> {
    let next = Arc::new(AtomicU64::new(from));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (engine, next) = (engine.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                let mut times = Times::default();
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= to {
                        return Ok::<_, anyhow::Error>(times);
                    }
                    one(&engine, id, step, &mut times).await?;
                }
            })
        })
        .collect();
    let mut times = Times::default();
    for caller in callers {
        times.add(&caller.await??);
    }
    Ok(times)
}

async fn one(engine: &Engine, id: u64, step: Step, times: &mut Times) -> Result<()> {
    let pool = PoolId::new(id).context("a positive id")?;
    if matches!(step, Step::Open | Step::Life) {
        let command = Command::Open { pool, terms: Arc::new(terms()) };
        done(&times.opened.of(engine.ask(command)).await?.into_pool())?;
    }
    if matches!(step, Step::Claim | Step::Life) {
        for user in 0..UNITS {
            let wish = ClaimRequest {
                kind: Kind::Sale,
                pool,
                user: UserId::new(&format!("user{user:010}"))?,
                identity: None,
                request: None,
                quantity: NonZeroU32::MIN,
            };
            let claimed = times.claimed.of(engine.ask(Command::Claim(wish))).await?.into_claim();
            ensure!(matches!(claimed, Outcome::Done(_)), "not granted: {claimed:?}");
        }
    }
    if matches!(step, Step::Clear | Step::Life) {
        done(&engine.ask(Command::Close { pool }).await?.into_pool())?;
        done(&times.cleared.of(engine.ask(Command::Clear { pool })).await?.into_pool())?;
    }
    Ok(())
}

fn done(outcome: &Outcome<PoolView>) -> Result<()> {
    ensure!(matches!(outcome, Outcome::Done(_)), "not done: {outcome:?}");
    Ok(())
}

fn terms() -> Terms {
    Terms {
        kind: Kind::Sale,
        title: "bench".into(),
        sku: "bench".into(),
        supply: Supply::Units(UNITS),
        limit_per_user: 1,
        limit_by: LimitBy::User,
        price: Cents::new(100),
        price_steps: Vec::new(),
        opens_at: Timestamp::from_millis(0),
        closes_at: None,
        flow: Flow::Instant,
        reclaim: Reclaim::Allowed,
        buckets: 1,
    }
}

/// Times in steps of a sixteenth, in a room that does not grow: memory is measured beside it.
struct Histogram([u64; Self::STEPS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; Self::STEPS])
    }
}

impl Histogram {
    const STEPS: usize = 512;

    async fn of<T, E>(&mut self, asked: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let watch = Stopwatch::start();
        let answer = asked.await;
        self.0[Self::step(watch.elapsed())] += 1;
        answer
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own += other);
    }

    fn step(time: Duration) -> usize {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(16);
        let power = us.ilog2();
        let sixteenth = (us >> (power - 4)) - 16;
        let step = u64::from(power - 4) * 16 + sixteenth;
        usize::try_from(step).unwrap_or(usize::MAX).min(Self::STEPS - 1)
    }

    /// The time that so many of a hundred did not take longer than.
    fn percentile(&self, of_hundred: u64) -> Duration {
        let wanted = (self.0.iter().sum::<u64>() * of_hundred).div_ceil(100);
        let mut seen = 0;
        let found = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        let step = found.unwrap_or(0) as u64;
        Duration::from_micros((step % 16 + 17) << (step / 16))
    }
}

/// `p50 / p99`
impl std::fmt::Display for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |of_hundred| self.percentile(of_hundred).as_secs_f64() * 1_000.0;
        write!(f, "{:.2} / {:.2} ms", ms(50), ms(99))
    }
}

fn count(pools: u64) -> String {
    match pools {
        1_000_000.. => format!("{} M", pools / 1_000_000),
        _ => format!("{} k", pools / 1_000),
    }
}

fn mega(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Memory of this process.
fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line.context("Linux tells it")?.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
