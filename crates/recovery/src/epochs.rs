//! Which state in Redis is the right one, and how it is put back when it was lost.
//!
//! The name of the right state of a partition (its epoch) is kept in the database and in the
//! partition, and every call names it together with a position that was seen before. So a Redis that
//! was flushed, went back to an old dump, or failed over to a replica that lacks something is noticed
//! by the first call; nothing is decided in the partitions concerned until they were repaired: made
//! anew from the newest of what the records and Redis still hold, under a new epoch, so that nothing
//! that was on its way to the lost state has an effect on the new one.

mod differences;
mod merge;
mod repair;

use std::collections::BTreeMap;
use std::time::Duration;

use qiang_core::PoolId;
use qiang_engine::Engine;
use qiang_engine::redis::{self, RestoreError};
use qiang_store::Store;

use qiang_app::workers::Turn;

pub use self::repair::{Repaired, import, repair};
use qiang_app::consumer::log_name;

/// Where the epochs are kept.
const EPOCHS: &str = "redis_epoch";
const READY: &str = "ready";
const SETTING_UP: &str = "setting-up";
/// How often it is looked whether what was lost was repaired.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often deadlines are looked at, and how often all partitions and the transfers between buckets are.
pub const TEND_EVERY: Duration = Duration::from_millis(200);
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
         the engine's URL another ?prefix=. If that database was lost, `qiang migrate --adopt-redis` \
         makes these sales this one's"
    )]
    Foreign,
    /// The database knows which state is the right one.
    #[error(
        "this database knows already which state of Redis is the right one; nothing was changed"
    )]
    Known,
    /// A partition has no epoch that could be adopted.
    #[error(
        "partition {0} in Redis has no epoch, because it was never set up, was lost, or is being \
         repaired: nothing was changed"
    )]
    NoEpoch(u16),
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
    #[error("somebody else sets up this Redis at this moment; try again")]
    Busy,
    /// Somebody else repairs.
    #[error("{holder} repairs or imports at this moment; wait until that has ended, and try again")]
    Held {
        /// Who, and on which machine.
        holder: String,
    },
    /// The lease ran out while it was needed.
    #[error(
        "the database was away for so long that somebody else may repair by now; this repair has \
         stopped. Run it again"
    )]
    LeaseLost,
}

/// The epoch of each partition, as the database says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Names {
    first: String,
    /// Whether Redis was never set up to the end.
    setting_up: bool,
    /// Of partitions that have had another one since.
    own: BTreeMap<u16, String>,
}

impl Names {
    async fn read(store: &Store) -> Result<Option<Self>, Error> {
        Ok(store.setting(EPOCHS).await?.map(|kept| Self::parse(&kept)))
    }

    fn parse(kept: &str) -> Self {
        let mut words = kept.split(' ');
        let first = words.next().unwrap_or_default().to_owned();
        let setting_up = words.next() == Some(SETTING_UP);
        let own = words.filter_map(|word| {
            let (partition, epoch) = word.split_once('=')?;
            Some((partition.parse().ok()?, epoch.to_owned()))
        });
        Self { first, setting_up, own: own.collect() }
    }

    fn of(&self, partition: u16) -> &str {
        self.own.get(&partition).unwrap_or(&self.first)
    }

    /// Writes these in place of those that were read; says whether they still stood.
    async fn swap(&self, store: &Store, before: Option<&Self>) -> Result<bool, Error> {
        let before = before.map(ToString::to_string);
        Ok(store.swap_setting(EPOCHS, before.as_deref(), &self.to_string()).await?)
    }
}

/// `<first> <setting-up | ready> <partition>=<own> …`
impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = if self.setting_up { SETTING_UP } else { READY };
        write!(f, "{} {state}", self.first)?;
        self.own.iter().try_for_each(|(partition, epoch)| write!(f, " {partition}={epoch}"))
    }
}

/// Tells a fresh engine which state is the right one; sets Redis up if it never was.
pub async fn attach(engine: &redis::Engine, store: &Store) -> Result<(), Error> {
    if Names::read(store).await?.is_none() {
        let states = engine.partition_states().await?;
        if states.iter().any(|state| !state.epoch.is_empty()) {
            return Err(Error::Foreign);
        }
        let new = Names { first: new_name()?, setting_up: true, own: BTreeMap::new() };
        new.swap(store, None).await?;
    }
    let names = Names::read(store).await?.ok_or(Error::Busy)?;
    if names.setting_up {
        // Whoever began did not finish; nothing was ever decided, so that doing it again is safe.
        engine.set_up(&names.first).await?;
        Names { setting_up: false, ..names.clone() }.swap(store, Some(&names)).await?;
    }
    let reached = reached(engine, store, &names).await?;
    for (partition, reached) in (0_u16..).zip(&reached) {
        engine.raise_known(partition, reached.position);
        engine.set_epoch(partition, names.of(partition));
        if reached.lost {
            engine.lose(partition);
        }
    }
    Ok(())
}

/// Tells a database that knows nothing of a Redis that the state in there is the right one: the old
/// database was lost.
pub async fn adopt(engine: &redis::Engine, store: &Store) -> Result<(), Error> {
    let states = engine.partition_states().await?;
    let mut names = Names { first: String::new(), setting_up: false, own: BTreeMap::new() };
    for (partition, state) in (0_u16..).zip(states) {
        if state.epoch.is_empty() {
            return Err(Error::NoEpoch(partition));
        } else if names.first.is_empty() {
            names.first = state.epoch;
        } else if state.epoch != names.first {
            names.own.insert(partition, state.epoch);
        }
    }
    if names.swap(store, None).await? { Ok(()) } else { Err(Error::Known) }
}

/// Takes over what was repaired since the engine was told, which may be more than was asked for here;
/// says which partitions that were.
fn take_over(engine: &redis::Engine, names: &Names) -> Vec<u16> {
    let is_new = |partition: &u16| *names.of(*partition) != *engine.epoch(*partition);
    let new: Vec<u16> = (0..engine.partitions()).filter(is_new).collect();
    new.iter().for_each(|partition| engine.set_epoch(*partition, names.of(*partition)));
    new
}

/// Waits until something is lost, and takes over new epochs when it was repaired.
pub async fn watch(engine: redis::Engine, store: Store) -> Turn {
    engine.loses().await;
    Ok(look(&engine, &store).await?)
}

async fn look(engine: &redis::Engine, store: &Store) -> Result<(), Error> {
    let Some(names) = Names::read(store).await?.filter(|names| !names.setting_up) else {
        return Ok(());
    };
    let repaired = take_over(engine, &names);
    if !repaired.is_empty() {
        tracing::info!(partitions = ?repaired, "Redis was repaired; going on");
    }
    for partition in engine.lost().into_keys() {
        tell_lost(engine, store, partition, names.of(partition)).await?;
    }
    Ok(())
}

/// Does what has to be done in Redis while nobody asks: releases what is overdue, notices what was
/// lost, finishes transfers between buckets whose borrower died. `round` counts its calls. Whatever
/// fails is tried again in a moment, and was told where it failed.
pub async fn tend(engine: redis::Engine, round: u32) -> Turn {
    let _later = engine.expire_due().await;
    if round.is_multiple_of(TRANSFERS_EVERY) {
        let _later = engine.check_partitions().await;
        let _later = engine.finish_transfers().await;
    }
    Ok(())
}

/// How far a partition has surely come.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    position: u64,
    /// Whether somebody found it to be lost.
    lost: bool,
}

/// How far each partition has come under its epoch, as its consumers say and whoever found one lost.
async fn reached(
    engine: &redis::Engine,
    store: &Store,
    names: &Names,
) -> Result<Vec<Reached>, Error> {
    let whole = Engine::Redis(engine.clone());
    let consumed: BTreeMap<String, u64> = store.furthest().await?.into_iter().collect();
    let told: BTreeMap<String, String> =
        store.settings(&lost_name("")).await?.into_iter().collect();
    let of = |partition| {
        let told = told.get(&lost_name(partition)).map(String::as_str);
        let seen = seen(told, names.of(partition));
        let consumed = consumed.get(&log_name(&whole, partition)).copied().unwrap_or(0);
        Reached { position: consumed.max(seen.unwrap_or(0)), lost: seen.is_some() }
    };
    Ok((0..engine.partitions()).map(of).collect())
}

/// Tells everybody that a partition is lost: who knows better than the records that something is
/// missing may be the only one to know.
async fn tell_lost(
    engine: &redis::Engine,
    store: &Store,
    partition: u16,
    epoch: &str,
) -> Result<(), Error> {
    let (name, known) = (lost_name(partition), engine.known(partition));
    let told = store.setting(&name).await?;
    if seen(told.as_deref(), epoch).is_none_or(|seen| seen < known) {
        // If somebody else was quicker, it is looked at again in a moment.
        store.swap_setting(&name, told.as_deref(), &format!("{epoch} {known}")).await?;
    }
    Ok(())
}

/// Where it is kept that a partition is lost: `<epoch> <position it was seen to reach>`.
fn lost_name(partition: impl std::fmt::Display) -> String {
    format!("redis_lost/{partition}")
}

/// What was said of this epoch.
fn seen(told: Option<&str>, epoch: &str) -> Option<u64> {
    let (of, position) = told?.split_once(' ')?;
    if of == epoch { position.parse().ok() } else { None }
}

fn new_name() -> Result<String, Error> {
    Ok(format!("{:016x}", getrandom::u64().map_err(Error::Random)?))
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn names_are_read_as_they_are_written() {
        for kept in ["a setting-up", "a ready", "a ready 0=b 17=c"] {
            assert_eq!(Names::parse(kept).to_string(), kept);
        }
        let names = Names::parse("a ready 17=c");
        assert_eq!((names.of(0), names.of(17), names.setting_up), ("a", "c", false));
        // As it was written before partitions had names of their own.
        assert_eq!(Names::parse("a").to_string(), "a ready");
    }
}
