//! Releasing what is overdue, in each partition by itself.
//!
//! A partition that cannot be asked, or in which nothing can be changed at present, keeps no other
//! from being looked after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use qiang_core::Timestamp;
use redis::{cmd, from_redis_value};

use super::cell::{CellId, PartitionKeys};
use super::log::answered;
use super::wire::Ask;
use super::{Engine, Shared};
use crate::Error;

/// Cells with something overdue that are looked at together in one partition.
const AT_ONCE: usize = 64;
/// How long a partition is waited for in which it failed last time; it goes on meanwhile.
const PATIENCE_WITH_FAILED: Duration = Duration::from_millis(100);

/// How releasing what is overdue in a partition goes.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    is_under_way: AtomicBool,
    /// The last one failed: the next one is not waited for.
    failed: AtomicBool,
}

impl Engine {
    /// Releases everything overdue, in all pools that can be asked. Fails when there was one that
    /// could not, after all others were.
    pub async fn expire_due(&self) -> Result<(), Error> {
        while self.shared.expire_some().await? {}
        Ok(())
    }
}

impl Shared {
    /// Releases what is overdue in some pools of each partition; says whether there may be more.
    async fn expire_some(self: &Arc<Self>) -> Result<bool, Error> {
        let mut sweeps = Vec::new();
        for (partition, cells) in self.due_cells().await? {
            let sweep = &self.sweeps[usize::from(partition)];
            if sweep.is_under_way.swap(true, Ordering::AcqRel) {
                continue;
            }
            let shared = Arc::clone(self);
            let task = tokio::spawn(async move {
                let under_way = UnderWay(&shared.sweeps[usize::from(partition)]);
                let released = shared.release(&cells).await;
                under_way.0.failed.store(released.is_err(), Ordering::Release);
                released.map(|()| cells.len() == AT_ONCE)
            });
            let failed = sweep.failed.load(Ordering::Acquire);
            sweeps.push(async move {
                if !failed {
                    return task.await;
                }
                let waited = tokio::time::timeout(PATIENCE_WITH_FAILED, task).await;
                waited.unwrap_or(Ok(Ok(false)))
            });
        }
        let (mut more, mut failed) = (false, None);
        for released in join_all(sweeps).await {
            match released {
                Ok(Ok(full)) => more |= full,
                Ok(Err(error)) => failed = Some(error),
                // Cut off with the runtime.
                Err(_) => failed = Some(Error::Unavailable),
            }
        }
        failed.map_or(Ok(more), Err)
    }

    async fn release(self: &Arc<Self>, cells: &[CellId]) -> Result<(), Error> {
        for id in cells {
            self.ask(&self.cell(*id), Ask::Tick).await?;
        }
        Ok(())
    }

    /// For each partition that answers the cells in which something is overdue.
    async fn due_cells(&self) -> Result<BTreeMap<u16, Vec<CellId>>, Error> {
        let (prefix, times) = (&self.link.place().prefix, self.times().await?);
        let read = self.link.ask_some(|partition| {
            let now = times[usize::from(partition)]?;
            let key = PartitionKeys::new(prefix, partition).dues;
            let mut cmd = cmd("ZRANGEBYSCORE");
            cmd.arg(key).arg("-inf").arg(now.millis());
            Some(cmd.arg("LIMIT").arg(0).arg(AT_ONCE).to_owned())
        });
        let (partitions, answers): (Vec<u16>, Vec<_>) =
            (0..).zip(read.await).filter_map(|(p, answer)| Some((p, answer?))).unzip();
        let mut due = BTreeMap::new();
        for (partition, answer) in partitions.into_iter().zip(answered("what is due", answers)?) {
            let Some(answer) = answer.filter(|_| !self.era(partition).is_lost()) else { continue };
            let cells: Vec<String> = from_redis_value(answer).unwrap_or_default();
            let cells: Vec<CellId> = cells.iter().filter_map(|cell| CellId::parse(cell)).collect();
            if !cells.is_empty() {
                due.insert(partition, cells);
            }
        }
        Ok(due)
    }

    /// For each partition the time its deadlines are measured by, which is that of its server.
    async fn times(&self) -> Result<Vec<Option<Timestamp>>, Error> {
        if let Some(now) = self.given_time() {
            return Ok(vec![Some(now); self.link.place().partitions.into()]);
        }
        let answers = answered("the time", self.link.ask_servers(&cmd("TIME")).await)?;
        let time = |answer| {
            let (seconds, micros): (i64, i64) = from_redis_value(answer).ok()?;
            Some(Timestamp::from_millis(seconds * 1_000 + micros / 1_000))
        };
        Ok(answers.into_iter().map(|answer| answer.and_then(time)).collect())
    }
}

/// A sweep that is over however it ends.
struct UnderWay<'a>(&'a Sweep);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.is_under_way.store(false, Ordering::Release);
    }
}
