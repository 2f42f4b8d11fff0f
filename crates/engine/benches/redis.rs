//! How many claims the engine takes through Redis, beside the usual flash-sale script on the same
//! server: `bench/seckill.lua`, called once for each claim.
//!
//! `cargo xtask bench redis --only engine` starts the servers and runs this. By hand: give private
//! servers in `QIANG_BENCH_REDIS_NO` (append-only file off) and `QIANG_BENCH_REDIS_ALWAYS` (synced
//! before each answer); they must be empty, and everything on them is thrown away after each round.
//!
//! Both are asked by the same number of callers at once, each for a new user, over connections of
//! the same library. Rounds alternate, so that both meet the same weather, and the ratio is that of
//! their medians. After each round what was granted is counted in Redis, so that nothing is
//! measured that did not happen. `--quick` takes fewer claims and rounds; `--only`, which may be
//! given several times, takes `no` or `always`, the name of a contender, a number of callers,
//! `claims`, `sold-out`, `buckets`, `life` or `longest`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use qiang_core::{
    Cents, ClaimId, ClaimRequest, Command, Flow, Kind, LimitBy, Outcome, PayRequest, PaymentId,
    PoolId, Reclaim, Refusal, ReleaseReason, RequestId, Supply, Terms, Timestamp, UserId,
};
use qiang_engine::Stopwatch;
use qiang_engine::redis::{Engine, Goes, Options, Place, Time, hash_tag};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, cmd};

const SERVERS: [(&str, &str); 2] =
    [("no", "QIANG_BENCH_REDIS_NO"), ("always", "QIANG_BENCH_REDIS_ALWAYS")];
const CALLERS: [usize; 3] = [64, 512, 4_096];
/// Connections of the peer when each carries one call at a time.
const CONNECTIONS: usize = 64;
/// Claims a second of the engine for each one of the script.
const TARGET: f64 = 3.0;
/// Of the engine's keys.
const PREFIX: &str = "bench";
const PAY_MS: u64 = 1_800_000;
/// What the sold-out sale had.
const FEW: u32 = 1_000;
/// Of a sale that is spread.
const BUCKETS: u16 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    /// The script, all callers over one connection that pipelines them.
    Script,
    /// The script over as many connections as callers, each carrying one call at a time.
    ScriptOneByOne,
    /// The engine: paid when granted.
    Instant,
    /// The engine: ordered when granted, with a deadline to pay.
    Order,
    /// As `Order`, and every claim has a request id, as over HTTP.
    OrderWithRequest,
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::ScriptOneByOne => "script-one-by-one",
            Self::Instant => "engine-instant",
            Self::Order => "engine-order",
            Self::OrderWithRequest => "engine-order-request",
        }
    }
}

/// One run of a contender.
struct Round {
    per_sec: f64,
    p50: Duration,
    p99: Duration,
    /// Claims in one command to Redis.
    batch: f64,
    /// Processor time of a claim in microseconds, at the server and here. Unlike the others it
    /// says the same on a busy machine.
    server_us: f64,
    client_us: f64,
    /// Memory of the server for a claim, in bytes: what stays, and what the log holds until it was
    /// read.
    kept: f64,
    logged: f64,
}

struct Bench {
    quick: bool,
    only: Vec<String>,
    url: String,
    server: &'static str,
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let names = args.windows(2).filter(|pair| pair[0] == "--only").map(|pair| pair[1].clone());
    let only: Vec<String> = names.collect();
    for (server, variable) in SERVERS {
        let Ok(url) = std::env::var(variable) else {
            println!("appendfsync {server}: skipped, {variable} is not set");
            continue;
        };
        let bench = Bench { quick, only: only.clone(), url, server };
        bench.ask::<()>(&cmd("PING")).await?;
        let keys: u64 = bench.ask(&cmd("DBSIZE")).await?;
        ensure!(keys == 0, "{variable} names a server that is not empty: take a private one");
        bench.one_by_one().await?;
        for callers in CALLERS {
            bench.claims(callers).await?;
        }
        bench.sold_out(512).await?;
        bench.buckets(512).await?;
        bench.life(512).await?;
        bench.longest(4_096).await?;
    }
    Ok(())
}

impl Bench {
    /// Whether each name asked for is one of these.
    fn wants(&self, names: &[&str]) -> bool {
        self.only.iter().all(|only| names.contains(&only.as_str()))
    }

    fn rounds(&self) -> usize {
        if self.quick { 3 } else { 7 }
    }

    fn count(&self) -> u64 {
        if self.quick { 60_000 } else { 200_000 }
    }

    async fn one_by_one(&self) -> Result<()> {
        if !self.wants(&[self.server, Contender::ScriptOneByOne.name()]) {
            return Ok(());
        }
        let mut rounds = Vec::new();
        for _ in 0..self.rounds().min(3) {
            let count = self.count() / 2;
            rounds.push(self.round(Contender::ScriptOneByOne, CONNECTIONS, count).await?);
        }
        self.report(Contender::ScriptOneByOne, CONNECTIONS, &rounds, None);
        Ok(())
    }

    async fn claims(&self, callers: usize) -> Result<()> {
        use Contender as C;
        let number = callers.to_string();
        let wanted =
            |contender: &C| self.wants(&[self.server, "claims", &number, contender.name()]);
        let contenders = [C::Script, C::Instant, C::Order, C::OrderWithRequest];
        let contenders: Vec<C> = contenders.into_iter().filter(wanted).collect();
        let mut all: Vec<Vec<Round>> = contenders.iter().map(|_| Vec::new()).collect();
        for turn in 0..self.rounds() {
            for place in 0..contenders.len() {
                // Nobody always goes first.
                let place = (place + turn) % contenders.len();
                let count = self.count().max(callers as u64 * 50);
                all[place].push(self.round(contenders[place], callers, count).await?);
            }
        }
        let peer = contenders.iter().position(|contender| *contender == C::Script);
        let peer = peer.map(|place| median(&all[place]));
        for (contender, rounds) in contenders.into_iter().zip(&all) {
            self.report(contender, callers, rounds, peer.filter(|_| contender != C::Script));
        }
        Ok(())
    }

    async fn round(&self, contender: Contender, callers: usize, count: u64) -> Result<Round> {
        let round = match contender {
            Contender::Script | Contender::ScriptOneByOne => {
                self.script(contender, callers, count).await?
            }
            Contender::Instant | Contender::Order | Contender::OrderWithRequest => {
                self.engine(contender, callers, count).await?
            }
        };
        self.ask::<()>(cmd("FLUSHALL").arg("SYNC")).await?;
        Ok(round)
    }

    async fn script(&self, contender: Contender, callers: usize, count: u64) -> Result<Round> {
        let peer = Peer::new(self, count).await?;
        let memory = self.memory().await?;
        let connections = if contender == Contender::Script { 1 } else { callers };
        let mut lines = Vec::new();
        for _ in 0..connections {
            lines.push(self.connection().await?);
        }
        let lines: Arc<[_]> = lines.into();
        let asked = peer.clone();
        let timed = self.crowd(callers, count, move |caller, user| {
            let (mut line, call) = (lines[caller % lines.len()].clone(), asked.call(user));
            async move {
                let (code, ..): (u8, u64, String) = call.query_async(&mut line).await?;
                ensure!(code == 1, "not granted but {code}");
                Ok(())
            }
        });
        let timed = timed.await?;
        peer.check(self, count).await?;
        let kept = self.memory().await? - memory;
        Ok(timed.round(count, count, [kept, 0.0]))
    }

    async fn engine(&self, contender: Contender, callers: usize, count: u64) -> Result<Round> {
        let flow = match contender {
            Contender::Instant => Flow::Instant,
            _ => Flow::Order { pay_ms: PAY_MS },
        };
        let engine = self.open().await?;
        let pool = sale(&engine, 1, u32::try_from(count)? + 1, flow).await?;
        let before = engine.stats().batches.load(Ordering::Relaxed);
        let memory = self.memory().await?;
        let asked = engine.clone();
        let timed = self.crowd(callers, count, move |_, user| {
            let wish = wish(pool, user, contender == Contender::OrderWithRequest);
            let engine = asked.clone();
            async move {
                match engine.ask(Command::Claim(wish?)).await?.into_claim() {
                    Outcome::Done(_) => Ok(()),
                    other => bail!("not granted but {other:?}"),
                }
            }
        });
        let timed = timed.await?;
        let calls = engine.stats().batches.load(Ordering::Relaxed) - before;
        self.check(&engine, pool, count).await?;
        let full = self.memory().await?;
        let partition = engine.partitions_of(pool, 1)[0];
        engine.trim(partition, engine.known(partition)).await?;
        let trimmed = self.memory().await?;
        Ok(timed.round(count, calls, [trimmed - memory, full - trimmed]))
    }

    /// Every claim is in the pool, in its own record, and in the log.
    async fn check(&self, engine: &Engine, pool: PoolId, count: u64) -> Result<()> {
        let view = engine.pool(pool).await?.context("the pool is there")?;
        let partition = engine.partitions_of(pool, 1)[0];
        let held = |what: &str| {
            let key = format!("{PREFIX}:{{{}}}:{what}:{pool}/0", hash_tag(partition));
            cmd("HLEN").arg(key).to_owned()
        };
        let (mut claims, mut last) = (0, 0);
        loop {
            let page = engine.claims(pool, last, 1_000).await?;
            let Some(end) = page.last() else { break };
            (claims, last) = (claims + page.len() as u64, end.id.number);
        }
        let buyers: u64 = self.ask(&held("buyers")).await?;
        let (mut logged, mut after) = (0, 0);
        loop {
            let (events, through) = engine.read_log(partition, after, 10_000).await?;
            if through == after {
                break;
            }
            logged += events.len() as u64;
            after = through;
        }
        // The first event opened the pool.
        let found = [view.claims.into(), view.tally.taken().into(), claims, buyers, logged - 1];
        ensure!(found == [count; 5], "{count} were granted, but Redis holds {found:?}");
        Ok(())
    }

    /// The crowd that comes too late: everybody is new and nothing is left.
    async fn sold_out(&self, callers: usize) -> Result<()> {
        if !self.wants(&[self.server, "sold-out"]) {
            return Ok(());
        }
        let count = self.count();
        let (mut scripts, mut engines, mut calls) = (Vec::new(), Vec::new(), 0);
        for _ in 0..self.rounds().min(3) {
            let peer = Peer::new(self, 0).await?;
            let line = self.connection().await?;
            let asked = peer.clone();
            let timed = self.crowd(callers, count, move |_, user| {
                let (mut line, call) = (line.clone(), asked.call(user));
                async move {
                    let answer: Vec<u8> = call.query_async(&mut line).await?;
                    ensure!(answer == [0], "not sold out but {answer:?}");
                    Ok(())
                }
            });
            scripts.push(timed.await?.round(count, count, [0.0; 2]));
            peer.check(self, 0).await?;

            let engine = self.open().await?;
            let pool = sale(&engine, 1, FEW, Flow::Instant).await?;
            let asked = engine.clone();
            let refused = move |user: u64| {
                let (wish, engine) = (wish(pool, user, false), asked.clone());
                async move {
                    match engine.ask(Command::Claim(wish?)).await?.into_claim() {
                        Outcome::Refused(Refusal::SoldOut) => Ok(()),
                        Outcome::Done(_) if user < u64::from(FEW) => Ok(()),
                        other => bail!("not sold out but {other:?}"),
                    }
                }
            };
            // One after the other, so that the first ones are the buyers.
            let first = refused.clone();
            self.crowd(1, u64::from(FEW), move |_, user| first(user)).await?;
            let before = engine.stats().batches.load(Ordering::Relaxed);
            let late =
                self.crowd(callers, count, move |_, user| refused(user + u64::from(FEW))).await?;
            calls += engine.stats().batches.load(Ordering::Relaxed) - before;
            engines.push(late.round(count, 1, [0.0; 2]));
            self.check(&engine, pool, FEW.into()).await?;
            self.ask::<()>(cmd("FLUSHALL").arg("SYNC")).await?;
        }
        let (script, engine) = (median(&scripts), median(&engines));
        println!(
            "appendfsync {:<7} {callers:>5} callers  sold out: script {script:>9.0}/s  engine \
             {engine:>9.0}/s  {:>6.2} x  {calls} calls to Redis for {} refusals",
            self.server,
            engine / script,
            count * engines.len() as u64,
        );
        Ok(())
    }

    /// What a claim takes in memory while it is held, ordered and paid, and after it was put back.
    async fn life(&self, callers: usize) -> Result<()> {
        if !self.wants(&[self.server, "life"]) {
            return Ok(());
        }
        let count = self.count() / 4;
        let engine = self.open().await?;
        let flow = Flow::Hold { hold_ms: PAY_MS, pay_ms: PAY_MS };
        let pool = sale(&engine, 1, u32::try_from(count)?, flow).await?;
        let partition = engine.partitions_of(pool, 1)[0];
        let before = self.memory().await?;
        let bytes = async || -> Result<f64> {
            engine.trim(partition, engine.known(partition)).await?;
            Ok((self.memory().await? - before) / count as f64)
        };
        let order = move |user| -> Result<ClaimId> {
            Ok(ClaimId { pool, number: u32::try_from(user + 1)? })
        };
        let asked = engine.clone();
        let claimed = self.crowd(callers, count, move |_, user| {
            let engine = asked.clone();
            async move {
                let wish = ClaimRequest {
                    user: UserId::new(&format!("u{user:07}"))?,
                    ..wish(pool, user, false)?
                };
                engine.ask(Command::Claim(wish)).await?;
                Ok(())
            }
        });
        claimed.await?;
        let held = bytes().await?;
        let asked = engine.clone();
        let ordered = self.crowd(callers, count, move |_, user| {
            let engine = asked.clone();
            async move {
                engine.ask(Command::Order { claim: order(user)?, by: None }).await?;
                Ok(())
            }
        });
        ordered.await?;
        let ordered = bytes().await?;
        let asked = engine.clone();
        let paid = self.crowd(callers, count, move |_, user| {
            let engine = asked.clone();
            async move {
                let payment = PaymentId::new(&format!("p{user:07}"))?;
                let pay = PayRequest { order: order(user)?, payment, amount: Cents::new(100) };
                engine.ask(Command::Pay(pay)).await?;
                Ok(())
            }
        });
        paid.await?;
        let paid = bytes().await?;
        let view = engine.pool(pool).await?.context("the pool is there")?;
        ensure!(u64::from(view.tally.paid) == count, "{count} were paid, but {view:?}");
        let record = engine.salvage(pool).await?.context("the pool is there")?;
        let restore = engine.restore_as(1);
        restore.suspend(partition).await?;
        restore.pool(&record).await?;
        restore.resume(partition, "bench", Goes::OnWithItsLog).await?;
        let put_back = bytes().await?;
        println!(
            "appendfsync {:<7} bytes for a claim, ids of 8 bytes: held {held:.0}, ordered {ordered:.0}, \
             paid {paid:.0}, paid and put back by a repair {put_back:.0}",
            self.server
        );
        self.ask::<()>(cmd("FLUSHALL").arg("SYNC")).await
    }

    /// A hot sale sold to its last unit, in one bucket and in several that have to lend each other units at
    /// the end; and how often they did. All lie on one server here, so this shows what buckets cost, not
    /// what they are for.
    async fn buckets(&self, callers: usize) -> Result<()> {
        if !self.wants(&[self.server, "buckets"]) {
            return Ok(());
        }
        let count = self.count();
        let (mut whole, mut spread, mut transfers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds() {
            whole.push(self.sell_out(callers, count, 1).await?.0);
            let (round, moved) = self.sell_out(callers, count, BUCKETS).await?;
            spread.push(round);
            transfers.push(moved);
        }
        transfers.sort_unstable();
        println!(
            "appendfsync {:<7} {callers:>5} callers  all {count} units sold: in one bucket {:.0} claims/s, {:.2} \
             us of Redis for each, {:.1} in a call; in {BUCKETS} buckets {:.0} claims/s, {:.2} us, {:.1} in a \
             call, {} transfers between them",
            self.server,
            median(&whole),
            middle(&whole, |round| round.server_us),
            middle(&whole, |round| round.batch),
            median(&spread),
            middle(&spread, |round| round.server_us),
            middle(&spread, |round| round.batch),
            transfers[transfers.len() / 2],
        );
        Ok(())
    }

    /// Sells every unit, and says how many transfers that took.
    async fn sell_out(&self, callers: usize, count: u64, buckets: u16) -> Result<(Round, u64)> {
        let engine = self.open().await?;
        let flow = Flow::Order { pay_ms: PAY_MS };
        let pool = sale_of(&engine, 1, u32::try_from(count)?, flow, buckets).await?;
        let partitions = engine.partitions_of(pool, buckets);
        let logged = || partitions.iter().map(|partition| engine.known(*partition)).sum::<u64>();
        let (before, calls) = (logged(), engine.stats().batches.load(Ordering::Relaxed));
        let asked = engine.clone();
        let timed = self.crowd(callers, count, move |_, user| {
            let (engine, wish) = (asked.clone(), wish(pool, user, false));
            async move {
                let wish = wish?;
                loop {
                    match engine.ask(Command::Claim(wish.clone())).await {
                        Ok(reply) => match reply.into_claim() {
                            Outcome::Done(_) => return Ok(()),
                            other => bail!("not granted but {other:?}"),
                        },
                        // Others were faster with what was borrowed, again and again.
                        Err(qiang_engine::Error::Overloaded) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        });
        let timed = timed.await?;
        let calls = engine.stats().batches.load(Ordering::Relaxed) - calls;
        let view = engine.pool(pool).await?.context("the pool is there")?;
        ensure!(u64::from(view.tally.taken()) == count, "{count} were sold, but {view:?}");
        // Each is lent and received; everything else in the logs is a claim.
        let transfers = (logged() - before - count) / 2;
        self.ask::<()>(cmd("FLUSHALL").arg("SYNC")).await?;
        Ok((timed.round(count, calls, [0.0; 2]), transfers))
    }

    /// The longest that Redis was busy with one command in each step of a large sale's life, by its own
    /// account. While it is, every other sale of that server waits.
    async fn longest(&self, callers: usize) -> Result<()> {
        if !self.wants(&[self.server, "longest"]) {
            return Ok(());
        }
        let count = self.count();
        let engine = self.open().await?;
        let flow = Flow::Order { pay_ms: PAY_MS };
        let pool = sale(&engine, 1, u32::try_from(count)?, flow).await?;
        let partition = engine.partitions_of(pool, 1)[0];
        self.ask::<()>(cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(200)).await?;
        self.ask::<()>(cmd("CONFIG").arg("SET").arg("slowlog-max-len").arg(100_000)).await?;
        self.ask::<()>(cmd("SLOWLOG").arg("RESET")).await?;
        let mut steps = Vec::new();
        let asked = engine.clone();
        let claimed = self.crowd(callers, count, move |_, user| {
            let (engine, wish) = (asked.clone(), wish(pool, user, true));
            async move {
                engine.ask(Command::Claim(wish?)).await?;
                Ok(())
            }
        });
        claimed.await?;
        steps.push(("a batch of claims", self.slowest_ms().await?));
        // Half of them pay; the payments of the other half come with the wrong amount and are owed back.
        let asked = engine.clone();
        let paid = self.crowd(callers, count, move |_, user| {
            let engine = asked.clone();
            async move {
                let order = ClaimId { pool, number: u32::try_from(user + 1)? };
                let payment = PaymentId::new(&format!("p{user:07}"))?;
                let amount = Cents::new(if user % 2 == 0 { 100 } else { 99 });
                engine.ask(Command::Pay(PayRequest { order, payment, amount })).await?;
                Ok(())
            }
        });
        paid.await?;
        steps.push(("payments and refunds", self.slowest_ms().await?));
        let record = engine.salvage(pool).await?.context("the pool is there")?;
        steps.push(("reading it out", self.slowest_ms().await?));
        let restore = engine.restore_as(1);
        restore.suspend(partition).await?;
        restore.pool(&record).await?;
        restore.resume(partition, "bench", Goes::OnWithItsLog).await?;
        steps.push(("putting it back", self.slowest_ms().await?));
        let asked = engine.clone();
        let released = self.crowd(callers, count / 2, move |_, user| {
            let engine = asked.clone();
            async move {
                let claim = ClaimId { pool, number: u32::try_from(user * 2 + 2)? };
                let reason = ReleaseReason::Cancelled;
                engine.ask(Command::Release { claim, by: None, reason }).await?;
                Ok(())
            }
        });
        released.await?;
        steps.push(("giving units back", self.slowest_ms().await?));
        engine.trim(partition, engine.known(partition)).await?;
        steps.push(("trimming the log", self.slowest_ms().await?));
        engine.ask(Command::Close { pool }).await?;
        let cleared = engine.ask(Command::Clear { pool }).await?.into_pool();
        ensure!(
            matches!(&cleared, Outcome::Done(view) if view.cleared),
            "not cleared: {cleared:?}"
        );
        steps.push(("closing and clearing", self.slowest_ms().await?));
        let steps: Vec<String> =
            steps.iter().map(|(step, ms)| format!("{step} {ms:.1} ms")).collect();
        println!(
            "appendfsync {:<7} longest command in the life of a sale of {count}: {}",
            self.server,
            steps.join(", ")
        );
        self.ask::<()>(cmd("FLUSHALL").arg("SYNC")).await
    }

    /// How long the slowest command since the last look took.
    async fn slowest_ms(&self) -> Result<f64> {
        let log: Vec<Vec<redis::Value>> = self.ask(cmd("SLOWLOG").arg("GET").arg(100_000)).await?;
        self.ask::<()>(cmd("SLOWLOG").arg("RESET")).await?;
        let mut slowest = 0;
        for entry in log {
            let [_, _, micros, command, ..] = entry.as_slice() else { bail!("{entry:?}") };
            let command: Vec<Vec<u8>> = redis::from_redis_value(command.clone())?;
            // The bench's own look at this very list takes time, too.
            if command.first().is_none_or(|name| !name.eq_ignore_ascii_case(b"slowlog")) {
                slowest = slowest.max(redis::from_redis_value::<u64>(micros.clone())?);
            }
        }
        Ok(slowest as f64 / 1e3)
    }

    fn report(&self, contender: Contender, callers: usize, rounds: &[Round], peer: Option<f64>) {
        let name = contender.name();
        let per_sec = median(rounds);
        let middle = |of| middle(rounds, of);
        let p50 = middle(|round| round.p50.as_secs_f64() * 1e3);
        let p99 = middle(|round| round.p99.as_secs_f64() * 1e3);
        let batch = middle(|round| round.batch);
        let server = middle(|round| round.server_us);
        let client = middle(|round| round.client_us);
        let (kept, logged) = (middle(|round| round.kept), middle(|round| round.logged));
        let verdict = peer.map_or(String::new(), |peer| {
            let ratio = per_sec / peer;
            let word = if ratio >= TARGET { "ok" } else { "missed" };
            format!("  {ratio:>5.2} x  {word}")
        });
        println!(
            "appendfsync {:<7} {callers:>5} callers  {name:<20} {per_sec:>8.0} claims/s  p50 \
             {p50:>7.2} ms  p99 {p99:>7.2} ms  {batch:>5.1} in a call  {server:>5.1} + {client:>4.1} us  \
             {kept:>4.0} + {logged:>3.0} bytes{verdict}",
            self.server,
        );
    }

    /// Does something for users `0..count`, `callers` at a time.
    async fn crowd<F>(
        &self,
        callers: usize,
        count: u64,
        ask: impl Fn(usize, u64) -> F + Clone + Send + 'static,
    ) -> Result<Timed>
    where
        F: Future<Output = Result<()>> + Send,
    {
        let next = Arc::new(AtomicU64::new(0));
        let before = self.processor_us().await?;
        let watch = Stopwatch::start();
        let crowd: Vec<_> = (0..callers)
            .map(|caller| {
                let (next, ask) = (Arc::clone(&next), ask.clone());
                tokio::spawn(async move {
                    let mut latencies_us = Vec::new();
                    loop {
                        let user = next.fetch_add(1, Ordering::Relaxed);
                        if user >= count {
                            return Ok::<_, anyhow::Error>(latencies_us);
                        }
                        let watch = Stopwatch::start();
                        ask(caller, user).await?;
                        let us = watch.elapsed().as_micros();
                        latencies_us.push(u32::try_from(us).unwrap_or(u32::MAX));
                    }
                })
            })
            .collect();
        let mut latencies_us = Vec::new();
        for caller in crowd {
            latencies_us.extend(caller.await??);
        }
        let took = watch.elapsed();
        let after = self.processor_us().await?;
        Ok(Timed {
            took,
            latencies_us,
            server_us: after[0] - before[0],
            client_us: after[1] - before[1],
        })
    }

    /// One that waits for its answers as long as they take.
    async fn connection(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(self.url.as_str())?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        connection.context("cannot connect")
    }

    async fn ask<T: FromRedisValue>(&self, ask: &Cmd) -> Result<T> {
        Ok(ask.query_async(&mut self.connection().await?).await?)
    }

    /// Processor time in microseconds so far: of the server, and of this process.
    async fn processor_us(&self) -> Result<[f64; 2]> {
        let info: String = self.ask(cmd("INFO").arg("cpu")).await?;
        let seconds = |name: &str| -> Result<f64> {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            Ok(line.with_context(|| format!("no {name}"))?.trim().parse()?)
        };
        // The main thread's: what others do in its shadow is not waited for.
        let server = seconds("used_cpu_user_main_thread")? + seconds("used_cpu_sys_main_thread")?;
        Ok([server * 1e6, own_cpu_us()?])
    }

    /// Memory of the server in bytes.
    async fn memory(&self) -> Result<f64> {
        let info: String = self.ask(cmd("INFO").arg("memory")).await?;
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        Ok(used.context("no used_memory")?.trim().parse()?)
    }

    async fn open(&self) -> Result<Engine> {
        let place = Place::parse(&format!("{}?prefix={PREFIX}", self.url))?;
        let options = Options { place, queue: 65_536, time: Time::Server, node: 1 };
        let engine = Engine::open(options).await?;
        engine.set_up("bench").await?;
        engine.set_epoch_of_all("bench");
        Ok(engine)
    }
}

/// The usual script and its four keys.
#[derive(Debug, Clone)]
struct Peer {
    hash: String,
}

impl Peer {
    const SCRIPT: &str = include_str!("../../../bench/seckill.lua");
    /// One hash tag, as a cluster would demand.
    const KEYS: [&str; 4] = ["{sale}:stock", "{sale}:req_seq", "{sale}:uid2req", "{sale}:orders"];
    /// Longer than any round, so that every order can be counted afterwards.
    const LONGEST_STREAM: u32 = 1_000_000;

    async fn new(bench: &Bench, stock: u64) -> Result<Self> {
        let hash = bench.ask(cmd("SCRIPT").arg("LOAD").arg(Self::SCRIPT)).await?;
        bench.ask::<()>(cmd("SET").arg(Self::KEYS[0]).arg(stock)).await?;
        Ok(Self { hash })
    }

    fn call(&self, user: u64) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.hash).arg(Self::KEYS.len()).arg(&Self::KEYS).arg(name(user));
        call.arg("0").arg("1700000000000").arg(Self::LONGEST_STREAM);
        call
    }

    /// All four keys agree with what was granted.
    async fn check(&self, bench: &Bench, count: u64) -> Result<()> {
        let [stock, counter, owners, orders] = Self::KEYS;
        let left: u64 = bench.ask(cmd("GET").arg(stock)).await?;
        let granted: Option<u64> = bench.ask(cmd("GET").arg(counter)).await?;
        let users: u64 = bench.ask(cmd("HLEN").arg(owners)).await?;
        let orders: u64 = bench.ask(cmd("XLEN").arg(orders)).await?;
        let found = [granted.unwrap_or(0), users, orders, count - left];
        ensure!(found == [count; 4], "{count} were granted, but Redis holds {found:?}");
        Ok(())
    }
}

/// How long everything took, and each call.
struct Timed {
    took: Duration,
    latencies_us: Vec<u32>,
    server_us: f64,
    client_us: f64,
}

impl Timed {
    fn round(mut self, count: u64, calls: u64, [kept, logged]: [f64; 2]) -> Round {
        self.latencies_us.sort_unstable();
        let at = |part: usize| {
            let place = (self.latencies_us.len() * part / 100).min(self.latencies_us.len() - 1);
            Duration::from_micros(self.latencies_us[place].into())
        };
        Round {
            per_sec: count as f64 / self.took.as_secs_f64(),
            p50: at(50),
            p99: at(99),
            batch: count as f64 / calls as f64,
            server_us: self.server_us / count as f64,
            client_us: self.client_us / count as f64,
            kept: kept / count as f64,
            logged: logged / count as f64,
        }
    }
}

/// Processor time of all threads of this process, in steps of 10 ms.
fn own_cpu_us() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let ticks = |at: usize| -> Result<f64> { Ok(fields.get(at).context("too short")?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) * 1e4)
}

fn median(rounds: &[Round]) -> f64 {
    middle(rounds, |round| round.per_sec)
}

fn middle(rounds: &[Round], of: fn(&Round) -> f64) -> f64 {
    let mut all: Vec<f64> = rounds.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn name(user: u64) -> String {
    format!("user{user:010}")
}

fn wish(pool: PoolId, user: u64, with_request: bool) -> Result<ClaimRequest> {
    let request = with_request.then(|| RequestId::new(&format!("{user:016x}"))).transpose()?;
    Ok(ClaimRequest {
        kind: Kind::Sale,
        pool,
        user: UserId::new(&name(user))?,
        identity: None,
        request,
        quantity: NonZeroU32::MIN,
    })
}

async fn sale(engine: &Engine, id: u64, stock: u32, flow: Flow) -> Result<PoolId> {
    sale_of(engine, id, stock, flow, 1).await
}

async fn sale_of(engine: &Engine, id: u64, stock: u32, flow: Flow, buckets: u16) -> Result<PoolId> {
    let pool = PoolId::new(id).context("a positive id")?;
    let terms = Terms {
        kind: Kind::Sale,
        title: "bench".into(),
        sku: "bench".into(),
        supply: Supply::Units(stock),
        limit_per_user: 1,
        limit_by: LimitBy::User,
        price: Cents::new(100),
        price_steps: Vec::new(),
        opens_at: Timestamp::from_millis(0),
        closes_at: None,
        flow,
        reclaim: Reclaim::Allowed,
        buckets,
    };
    engine.ask(Command::Open { pool, terms: Arc::new(terms) }).await?;
    Ok(pool)
}
