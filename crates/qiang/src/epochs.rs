//! Which state in Redis is the right one, and how it is put back when it was lost.
//!
//! The name of the right state (its epoch) is kept in the database and in every partition, and
//! every call names it together with a position that was seen before. So a Redis that was flushed,
//! went back to an old dump, or failed over to a replica that lacks something is noticed by the
//! first call; nothing is decided in the partitions concerned until they were repaired: made anew
//! from the newest of what the records and Redis still hold, under a new epoch, so that nothing
//! that was on its way to the lost state has an effect on the new one.

mod differences;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use qiang_core::{Claim, Event, PoolId, PoolState, Refund};
use qiang_engine::Engine;
use qiang_engine::redis::{self, PartitionState, PoolRecord, RestoreError};
use qiang_store::Store;
use tokio_util::sync::CancellationToken;

use self::differences::differences;
use crate::projector::consumer;

/// Where the epoch is kept: `<name> <setting up | ready>`.
const EPOCH: &str = "redis_epoch";
const READY: &str = "ready";
const SETTING_UP: &str = "setting-up";
/// How often it is looked whether what was lost was repaired.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often deadlines are looked at, and how often transfers between buckets are.
const TEND_EVERY: Duration = Duration::from_millis(200);
const TRANSFERS_EVERY: u32 = 50;
const PAGE: u32 = 1_000;

/// Why the right state cannot be told, or not be put back.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The records cannot be read or written.
    #[error(transparent)]
    Store(#[from] qiang_store::Error),
    /// Redis cannot be read or written.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The operating system gives no randomness.
    #[error("the operating system gives no random numbers")]
    Random(getrandom::Error),
    /// Redis holds the state of another installation.
    #[error(
        "Redis holds the sales of another database under this prefix: use that database, or give \
         the engine's URL another ?prefix="
    )]
    Foreign,
    /// A sale that is to be taken over is there.
    #[error("sale {0} is in Redis already: import into a Redis, or under a ?prefix=, without it")]
    Exists(PoolId),
    /// What was decided is not in the records yet.
    #[error("the records are not up to date: run `qiang audit` first")]
    Behind,
    /// Redis holds what did not happen.
    #[error("Redis has lost something: run `qiang audit --repair` first")]
    Lost,
    /// Somebody else does the same at this moment.
    #[error("somebody else repairs or sets up this Redis at this moment; try again")]
    Busy,
}

/// Tells a fresh engine which state is the right one; sets Redis up if it never was.
pub async fn attach(engine: &redis::Engine, store: &Store) -> Result<(), Error> {
    let kept = match store.setting(EPOCH).await? {
        Some(kept) => kept,
        None => {
            let states = engine.partition_states().await?;
            if states.iter().any(|state| !state.epoch.is_empty()) {
                return Err(Error::Foreign);
            }
            let new = format!("{} {SETTING_UP}", new_name()?);
            store.swap_setting(EPOCH, None, &new).await?;
            store.setting(EPOCH).await?.ok_or(Error::Busy)?
        }
    };
    let (name, state) = kept.split_once(' ').unwrap_or((&kept, READY));
    if state == SETTING_UP {
        // Whoever began did not finish; nothing was ever decided, so that doing it again is safe.
        engine.set_up(name).await?;
        store.swap_setting(EPOCH, Some(&kept), &format!("{name} {READY}")).await?;
    }
    let reached = reached(engine, store, name).await?;
    for (partition, reached) in (0_u16..).zip(&reached) {
        engine.raise_known(partition, reached.position);
    }
    engine.set_epoch(name);
    for (partition, _) in (0_u16..).zip(&reached).filter(|(_, reached)| reached.lost) {
        engine.lose(partition);
    }
    Ok(())
}

/// Takes over a new epoch when what was lost was repaired.
pub async fn watch(engine: redis::Engine, store: Store, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = stop.cancelled() => return,
        }
        if engine.lost().is_empty() {
            continue;
        }
        if let Err(error) = look(&engine, &store).await {
            tracing::warn!("the epoch was not read: {}", crate::chain(&error));
        }
    }
}

async fn look(engine: &redis::Engine, store: &Store) -> Result<(), Error> {
    let Some(kept) = store.setting(EPOCH).await? else { return Ok(()) };
    let (name, state) = kept.split_once(' ').unwrap_or((&kept, READY));
    if name == &*engine.epoch() {
        return tell_lost(engine, store, name).await;
    }
    if state == READY {
        tracing::info!("Redis was repaired; going on");
        engine.set_epoch(name);
    }
    Ok(())
}

/// Does what has to be done in Redis while nobody asks: releases what is overdue, finishes
/// transfers between buckets whose borrower died.
pub async fn tend(engine: redis::Engine, stop: CancellationToken) {
    for round in 0_u32.. {
        tokio::select! {
            () = tokio::time::sleep(TEND_EVERY) => {}
            () = stop.cancelled() => return,
        }
        // Whatever fails is tried again in a moment, and was told where it failed.
        let _later = engine.expire_due().await;
        if round.is_multiple_of(TRANSFERS_EVERY) {
            let _later = engine.finish_transfers().await;
        }
    }
}

/// What a repair did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Partitions that were made anew.
    pub partitions: usize,
    /// Pools that were put back.
    pub pools: usize,
    /// Claims that were put back.
    pub claims: usize,
    /// Claims Redis and the records disagree about although neither is newer; the records were
    /// believed, and somebody has to look at them.
    pub conflicts: Vec<String>,
}

/// Finds partitions whose state was lost, and makes them anew from the newest of what the records
/// and Redis hold.
pub async fn repair(engine: &redis::Engine, store: &Store) -> Result<Repaired, Error> {
    let mut repaired = Repaired::default();
    let Some(kept) = store.setting(EPOCH).await? else { return Ok(repaired) };
    let (name, _) = kept.split_once(' ').unwrap_or((&kept, READY));
    let whole = Engine::Redis(engine.clone());
    // The records before Redis: unless it went back, it is never behind them.
    let reached = reached(engine, store, name).await?;
    let states = engine.partition_states().await?;
    let is_lost = |state: &PartitionState, reached: &Reached| {
        state.epoch != name || state.seq < reached.position || state.torn || reached.lost
    };
    let lost = states.iter().zip(&reached).filter(|(state, reached)| is_lost(state, reached));
    repaired.partitions = lost.count();
    if repaired.partitions == 0 {
        return Ok(repaired);
    }
    // Buckets of one pool lie in several partitions, and only together they make sense.
    for partition in 0..engine.partitions() {
        engine.suspend(partition).await?;
    }
    // Nothing is decided any more, so that the logs end here. Whoever carries what was read from
    // them before is late from here on; Redis itself is read below.
    let mut ends = Vec::new();
    for (partition, state) in (0_u16..).zip(engine.partition_states().await?) {
        let end = state.seq.max(reached[usize::from(partition)].position) + 1;
        ends.push(move_position(store, &consumer(&whole, partition), end).await?);
    }
    let mut pools = BTreeSet::new();
    for partition in 0..engine.partitions() {
        pools.extend(engine.pools_in(partition).await?);
    }
    let mut after = None;
    loop {
        let sales = store.sales_page(after, PAGE).await?;
        let Some(last) = sales.last().map(|sale| sale.id) else { break };
        pools.extend(sales.iter().map(|sale| sale.id));
        after = Some(last);
    }
    for pool in pools {
        let kept = engine.salvage(pool).await?.unwrap_or_default();
        let known = recorded_pool(store, pool).await?;
        let record = merged(known, kept, &mut repaired.conflicts);
        if record.history.is_empty() {
            continue;
        }
        engine.restore(&record).await?;
        // What Redis had and the records had not yet goes into the records now, because the log
        // it would come from is gone.
        let events: Vec<Event> = record.events().collect();
        for events in events.chunks(PAGE as usize) {
            store.upsert(events).await?;
        }
        repaired.pools += 1;
        repaired.claims += record.claims.len();
    }
    let new = new_name()?;
    for (partition, end) in (0_u16..).zip(ends) {
        engine.resume(partition, &new, end).await?;
    }
    if !store.swap_setting(EPOCH, Some(&kept), &format!("{new} {READY}")).await? {
        return Err(Error::Busy);
    }
    engine.set_epoch(&new);
    Ok(repaired)
}

/// Moves the position of a log in the records to `end`, or one behind where it is found.
async fn move_position(store: &Store, consumer: &str, mut end: u64) -> Result<u64, Error> {
    let mut at = store.position(consumer).await?;
    loop {
        end = end.max(at + 1);
        match store.project(consumer, at, end, &[]).await {
            Ok(()) => return Ok(end),
            Err(qiang_store::Error::PositionMoved { found, .. }) => at = found,
            Err(error) => return Err(error.into()),
        }
    }
}

/// How far a partition has surely come.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    position: u64,
    /// Whether somebody found it to be lost.
    lost: bool,
}

/// How far each partition has come under an epoch, as the records say and whoever found one lost.
async fn reached(
    engine: &redis::Engine,
    store: &Store,
    epoch: &str,
) -> Result<Vec<Reached>, Error> {
    let whole = Engine::Redis(engine.clone());
    let recorded: BTreeMap<String, u64> = store.positions("redis/").await?.into_iter().collect();
    let mut all = Vec::new();
    for partition in 0..engine.partitions() {
        let seen = seen(store.setting(&lost_name(partition)).await?.as_deref(), epoch);
        let recorded = recorded.get(&consumer(&whole, partition)).copied().unwrap_or(0);
        all.push(Reached { position: recorded.max(seen.unwrap_or(0)), lost: seen.is_some() });
    }
    Ok(all)
}

/// Tells everybody which partitions are lost: who knows better than the records that something is
/// missing may be the only one to know.
async fn tell_lost(engine: &redis::Engine, store: &Store, epoch: &str) -> Result<(), Error> {
    for partition in engine.lost().into_keys() {
        let (name, known) = (lost_name(partition), engine.known(partition));
        let told = store.setting(&name).await?;
        if seen(told.as_deref(), epoch).is_none_or(|seen| seen < known) {
            // If somebody else was quicker, it is looked at again in a moment.
            store.swap_setting(&name, told.as_deref(), &format!("{epoch} {known}")).await?;
        }
    }
    Ok(())
}

/// Where it is kept that a partition is lost: `<epoch> <position it was seen to reach>`.
fn lost_name(partition: u16) -> String {
    format!("redis_lost/{partition}")
}

/// What was said of this epoch.
fn seen(told: Option<&str>, epoch: &str) -> Option<u64> {
    let (of, position) = told?.split_once(' ')?;
    if of == epoch { position.parse().ok() } else { None }
}

/// Puts sales of another engine into Redis. What is cut off can be done again.
pub async fn import(
    engine: &redis::Engine,
    store: &Store,
    records: &[PoolRecord],
) -> Result<(), Error> {
    let kept = store.setting(EPOCH).await?.ok_or(Error::Busy)?;
    let whole = Engine::Redis(engine.clone());
    let states = engine.partition_states().await?;
    if states.iter().any(|state| state.torn) {
        return Err(Error::Lost);
    }
    let positions: BTreeMap<String, u64> = store.positions("redis/").await?.into_iter().collect();
    for (partition, state) in (0_u16..).zip(&states) {
        let recorded = positions.get(&consumer(&whole, partition)).copied().unwrap_or(0);
        if !state.epoch.is_empty() && state.seq != recorded {
            return Err(Error::Behind);
        }
    }
    for record in records {
        let (pool, buckets) = (record.history[0].id, record.history[0].terms.buckets);
        let suspended = |partition: &u16| states[usize::from(*partition)].epoch.is_empty();
        let half_done = engine.partitions_of(pool, buckets).iter().any(suspended);
        if !half_done && engine.salvage(pool).await?.is_some() {
            return Err(Error::Exists(pool));
        }
    }
    for partition in 0..engine.partitions() {
        engine.suspend(partition).await?;
    }
    for record in records {
        engine.restore(record).await?;
    }
    // Under a new name, so that whoever met a partition without one goes on by itself.
    let new = new_name()?;
    for (partition, state) in (0_u16..).zip(engine.partition_states().await?) {
        engine.resume(partition, &new, state.seq).await?;
    }
    if !store.swap_setting(EPOCH, Some(&kept), &format!("{new} {READY}")).await? {
        return Err(Error::Busy);
    }
    engine.set_epoch(&new);
    Ok(())
}

/// Everything the records hold of a pool.
async fn recorded_pool(store: &Store, pool: PoolId) -> Result<PoolRecord, Error> {
    let mut record = PoolRecord { history: store.sale_history(pool).await?, ..Default::default() };
    let mut after = 0;
    loop {
        let claims = store.claims_page(pool, after, PAGE).await?;
        let Some(last) = claims.last().map(|claim| claim.id.number) else { break };
        record.claims.extend(claims);
        after = last;
    }
    let mut after = None;
    loop {
        let refunds = store.refunds_page(pool, after.as_ref(), PAGE).await?;
        let Some(last) = refunds.last().map(|refund| refund.refund.payment.clone()) else { break };
        record.refunds.extend(refunds.into_iter().map(|refund| refund.refund));
        after = Some(last);
    }
    record.refunds.sort_by_key(|refund| refund.at);
    Ok(record)
}

/// The newest of both. A cleared pool keeps nothing but its history and its refunds.
fn merged(records: PoolRecord, redis: PoolRecord, conflicts: &mut Vec<String>) -> PoolRecord {
    let mut history: BTreeMap<u32, PoolState> = BTreeMap::new();
    for state in records.history.into_iter().chain(redis.history) {
        history.entry(state.version).or_insert(state);
    }
    let history: Vec<PoolState> = history.into_values().collect();
    let cleared = history.last().is_some_and(|last| last.change == qiang_core::PoolChange::Cleared);
    let mut claims: BTreeMap<u32, Claim> = BTreeMap::new();
    for claim in records.claims {
        claims.insert(claim.id.number, claim);
    }
    for claim in redis.claims {
        match claims.get(&claim.id.number) {
            Some(known) if known.version == claim.version && *known != claim => {
                conflicts.push(format!("claim {}: {}", claim.id, differences(known, &claim)));
            }
            Some(known) if known.version >= claim.version => {}
            Some(known) if known.user != claim.user || known.created_at != claim.created_at => {
                conflicts.push(format!("claim {}: {}", claim.id, differences(known, &claim)));
            }
            _ => {
                claims.insert(claim.id.number, claim);
            }
        }
    }
    let mut refunds: Vec<Refund> = records.refunds;
    for refund in redis.refunds {
        if !refunds.iter().any(|known| known.payment == refund.payment) {
            refunds.push(refund);
        }
    }
    let claims = if cleared { Vec::new() } else { claims.into_values().collect() };
    PoolRecord { history, claims, refunds }
}

fn new_name() -> Result<String, Error> {
    Ok(format!("{:016x}", getrandom::u64().map_err(Error::Random)?))
}
