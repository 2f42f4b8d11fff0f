//! How many durable claims the engine takes in process, how that holds up as a pool grows, what
//! a claim costs in memory, and how long recovery takes. Prints one JSON object a line.
//!
//! `--quick` shortens the runs and leaves out the pool of five million.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use qiang_core::{
    Cents, ClaimRequest, Command, Flow, Kind, LimitBy, Outcome, PoolId, Reclaim, Supply, Terms,
    Timestamp, UserId,
};
use qiang_engine::embedded::{Engine, Options};
use qiang_engine::{Stopwatch, SystemClock, WriterOptions};

const IN_FLIGHT: [usize; 2] = [512, 4_096];

fn main() -> Result<()> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let claims = if quick { 300_000 } else { 2_000_000 };
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    // First, while the process is small: what a claim takes is read off the whole of it.
    growth(&runtime, quick)?;
    for in_flight in IN_FLIGHT {
        let folder = tempfile::tempdir()?;
        let engine = open(folder.path())?;
        let pool = runtime.block_on(sale(&engine, 1, u32::MAX / 2))?;
        let per_sec = runtime.block_on(crowd(&engine, pool, 0, claims, in_flight))?;
        println!(r#"{{"name":"engine_claims","in_flight":{in_flight},"per_sec":{per_sec:.0}}}"#);
        let empty = runtime.block_on(sale(&engine, 2, 1))?;
        runtime.block_on(crowd(&engine, empty, 0, 1, 1))?;
        let before = engine.stats().batches.load(Ordering::Relaxed);
        let per_sec = runtime.block_on(crowd(&engine, empty, 1, claims, in_flight))?;
        let journal = engine.stats().batches.load(Ordering::Relaxed) - before;
        println!(
            r#"{{"name":"engine_sold_out","in_flight":{in_flight},"per_sec":{per_sec:.0},"journal_writes":{journal}}}"#
        );
        engine.shut_down();
    }
    Ok(())
}

/// Fills one pool and measures a slice of claims at several sizes.
fn growth(runtime: &tokio::runtime::Runtime, quick: bool) -> Result<()> {
    let sizes: &[u64] = if quick { &[10_000, 1_000_000] } else { &[10_000, 1_000_000, 5_000_000] };
    let slice = if quick { 200_000 } else { 500_000 };
    let folder = tempfile::tempdir()?;
    let engine = open(folder.path())?;
    let pool = runtime.block_on(sale(&engine, 1, u32::MAX / 2))?;
    let empty_bytes = resident_bytes()?;
    let mut filled = 0;
    for size in sizes {
        runtime.block_on(crowd(&engine, pool, filled, size - filled, 4_096))?;
        let bytes = (resident_bytes()?.saturating_sub(empty_bytes)) / size;
        println!(r#"{{"name":"engine_memory","claims":{size},"bytes_per_claim":{bytes}}}"#);
        if *size == 1_000_000 {
            let seconds = recovery(folder.path())?;
            println!(r#"{{"name":"engine_recovery","claims":{size},"seconds":{seconds:.3}}}"#);
        }
        let per_sec = runtime.block_on(crowd(&engine, pool, *size, slice, 4_096))?;
        println!(r#"{{"name":"engine_growth","claims":{size},"per_sec":{per_sec:.0}}}"#);
        filled = size + slice;
    }
    engine.shut_down();
    Ok(())
}

/// Recovers a copy of the folder, as after a kill.
fn recovery(folder: &Path) -> Result<f64> {
    let copy = tempfile::tempdir()?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("journal") {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name()))?;
        }
    }
    let watch = Stopwatch::start();
    let recovered = open(copy.path())?;
    let seconds = watch.elapsed().as_secs_f64();
    recovered.shut_down();
    Ok(seconds)
}

fn open(folder: &Path) -> Result<Engine> {
    let writer = WriterOptions { seed: 1, snapshot_bytes: 64 << 20 };
    let options = Options { folder: folder.into(), queue: 65_536, writer };
    Ok(Engine::open(options, SystemClock)?)
}

async fn sale(engine: &Engine, id: u64, stock: u32) -> Result<PoolId> {
    let pool = PoolId::new(id).context("a positive id")?;
    let terms = Terms {
        kind: Kind::Sale,
        title: "bench".into(),
        sku: "bench".into(),
        supply: Supply::Units(stock.min(qiang_core::MAX_UNITS)),
        limit_per_user: 1,
        limit_by: LimitBy::User,
        price: Cents::new(100),
        price_steps: Vec::new(),
        opens_at: Timestamp::from_millis(0),
        closes_at: None,
        flow: Flow::Instant,
        reclaim: Reclaim::Allowed,
        buckets: 1,
    };
    engine.ask(Command::Open { pool, terms: Arc::new(terms) }).await?;
    Ok(pool)
}

/// Claims for users `from..from + count`, `in_flight` at a time; claims a second.
async fn crowd(
    engine: &Engine,
    pool: PoolId,
    from: u64,
    count: u64,
    in_flight: usize,
) -> Result<f64> {
    let next = Arc::new(AtomicU64::new(from));
    let watch = Stopwatch::start();
    let buyers: Vec<_> = (0..in_flight)
        .map(|_| {
            let (engine, next) = (engine.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let user = next.fetch_add(1, Ordering::Relaxed);
                    if user >= from + count {
                        return Ok::<_, anyhow::Error>(());
                    }
                    let wish = ClaimRequest {
                        kind: Kind::Sale,
                        pool,
                        user: UserId::new(&format!("user{user:010}"))?,
                        identity: None,
                        request: None,
                        quantity: NonZeroU32::MIN,
                    };
                    let outcome = engine.ask(Command::Claim(wish)).await?.into_claim();
                    debug_assert!(!matches!(outcome, Outcome::Replayed(_)));
                }
            })
        })
        .collect();
    for buyer in buyers {
        buyer.await??;
    }
    Ok(count as f64 / watch.elapsed().as_secs_f64())
}

fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kib * 1024)
}
