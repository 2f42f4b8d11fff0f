//! Partitions set up, read out as they are, and put back: for the first start, for a repair, and
//! for moving sales from another engine.
//!
//! While a partition is put back it has no epoch, so that nobody decides on half of it. Whoever puts
//! it back has a number, and has no say any more once somebody with a higher one has begun.

mod part;
mod put;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use qiang_core::{
    Claim, Event, Kind, MAX_BUCKETS, PaymentId, PoolId, PoolState, Refund, Terms, Timestamp,
};
use redis::{Cmd, Value, cmd, from_redis_value};

pub use self::put::{Goes, Restore};
use super::cell::{CellId, Keys, PartitionKeys};
use super::link::Failure;
use super::wire::{Change, Kept};
use super::{Engine, wire};

/// Fields read or written in one command, and commands sent in one go.
const FIELDS: usize = 500;

/// Everything about one pool.
#[derive(Debug, Clone, Default)]
pub struct PoolRecord {
    /// Every change of the pool as a whole, oldest first.
    pub history: Vec<PoolState>,
    /// Its claims, by rising number; empty for a cleared pool.
    pub claims: Vec<Claim>,
    /// Its refunds, oldest first.
    pub refunds: Vec<Refund>,
    /// Numbers up to this one may have been given to claims that nobody remembers; none of them is
    /// given again. 0 is none.
    pub lost_through: u32,
}

impl PoolRecord {
    /// The highest number of a claim that anybody may have been given.
    #[must_use]
    pub fn last_number(&self) -> u32 {
        self.claims.iter().map(|claim| claim.id.number).max().unwrap_or(0).max(self.lost_through)
    }

    /// The same as events.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let history = self.history.iter().cloned().map(Event::Pool);
        let claims = self.claims.iter().cloned().map(Event::Claim);
        history.chain(claims).chain(self.refunds.iter().cloned().map(Event::Refund))
    }

    /// Adds what became of claims since they were granted.
    fn apply(&mut self, changes: Vec<(Option<u32>, Change)>) {
        let granted: HashMap<u32, usize> =
            self.claims.iter().enumerate().map(|(place, claim)| (claim.id.number, place)).collect();
        for (number, change) in changes {
            if let Some(place) = number.and_then(|number| granted.get(&number)) {
                self.claims.push(change.of(&self.claims[*place]));
            }
        }
    }

    /// Of what is there twice, what was decided last. A claim may lie in its block and, newer, in a
    /// field of its own, and a scan may give it twice; a call that was carried out in part may have
    /// left what was decided otherwise since, always at an earlier time.
    fn keep_newest(&mut self) {
        self.history.reverse();
        self.history.sort_by_key(|state| state.version);
        self.history.dedup_by_key(|state| state.version);
        let newest = |claim: &Claim| Reverse((claim.created_at, claim.version));
        self.claims.sort_by_key(|claim| (claim.id.number, newest(claim)));
        self.claims.dedup_by_key(|claim| claim.id.number);
        let mut owed: HashSet<PaymentId> = HashSet::new();
        self.refunds.reverse();
        self.refunds.retain(|refund| owed.insert(refund.payment.clone()));
        self.refunds.reverse();
    }

    /// When the last of it happened.
    fn latest(&self) -> Timestamp {
        let states = self.history.iter().map(|state| state.at);
        let claims = self.claims.iter().map(|claim| claim.changed_at);
        let refunds = self.refunds.iter().map(|refund| refund.at);
        let latest = states.chain(claims).chain(refunds).max();
        latest.unwrap_or(Timestamp::from_millis(0))
    }
}

/// What is wrong with a partition that cannot be read or put back.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Redis does not answer.
    #[error("Redis could not be read or written")]
    Link(#[source] Failure),
    /// Somebody else has begun to put partitions back, later than this one.
    #[error("another repair has begun since, or Redis was emptied again; this one has stopped")]
    Fenced,
    /// What was put back may still be lost by a failover.
    #[error("too few replicas have what was put back")]
    TooFewReplicas,
    /// What lies there was not written by us.
    #[error("pool {pool} in Redis cannot be understood")]
    Nonsense {
        /// Which pool.
        pool: PoolId,
        /// What was met.
        source: super::Unpackable,
    },
    /// What is known of a pool makes no sense.
    #[error("pool {pool} cannot be put back: {what}")]
    Broken {
        /// Which pool.
        pool: PoolId,
        /// What does not add up.
        what: &'static str,
    },
}

impl From<Failure> for RestoreError {
    fn from(failure: Failure) -> Self {
        if failure.code() == Some("FENCED") { Self::Fenced } else { Self::Link(failure) }
    }
}

/// Where a partition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    /// The epoch it bears; empty is none.
    pub epoch: String,
    /// The position of its last event.
    pub seq: u64,
    /// Whether a call was carried out in part.
    pub torn: bool,
}

impl PartitionState {
    /// What to ask for it.
    pub(super) fn ask(meta: &str) -> Cmd {
        cmd("HMGET").arg(meta).arg("epoch").arg("seq").arg("begun").arg("ended").to_owned()
    }

    pub(super) fn read(answer: Value) -> Self {
        type Fields = (Option<String>, Option<u64>, Option<u64>, Option<u64>);
        let (epoch, seq, begun, ended): Fields = from_redis_value(answer).unwrap_or_default();
        Self { epoch: epoch.unwrap_or_default(), seq: seq.unwrap_or(0), torn: begun != ended }
    }
}

impl Engine {
    /// Every partition as it is, whatever its epoch.
    pub async fn partition_states(&self) -> Result<Vec<PartitionState>, RestoreError> {
        let prefix = &self.place().prefix;
        let answers = self
            .shared
            .link
            .ask_each(|partition| PartitionState::ask(&PartitionKeys::new(prefix, partition).meta));
        let state = |answer: Result<Value, Failure>| Ok(PartitionState::read(answer?));
        answers.await.into_iter().map(state).collect()
    }

    /// Gives every partition that has none this epoch: the first start.
    pub async fn set_up(&self, epoch: &str) -> Result<(), RestoreError> {
        let prefix = &self.place().prefix;
        let all = self.shared.link.ask_each(|partition| {
            let meta = PartitionKeys::new(prefix, partition).meta;
            cmd("HSETNX").arg(meta).arg("epoch").arg(epoch).to_owned()
        });
        all.await.into_iter().try_for_each(|answer| answer.map(drop))?;
        Ok(())
    }

    /// The partitions a pool lies in, the first of which speaks for it.
    #[must_use]
    pub fn partitions_of(&self, pool: PoolId, buckets: u16) -> Vec<u16> {
        let partition = |bucket| CellId { pool, bucket }.partition(self.place().partitions);
        (0..buckets).map(partition).collect()
    }

    /// The pools whose first bucket lies in a partition, whatever its epoch.
    pub async fn pools_in(&self, partition: u16) -> Result<Vec<PoolId>, RestoreError> {
        let mut all = Vec::new();
        for kind in Kind::ALL {
            let key = PartitionKeys::pools(&self.place().prefix, partition, kind);
            let range = cmd("ZRANGE").arg(key).arg(0).arg(-1).to_owned();
            let answer = self.shared.link.ask(partition, &range).await?;
            let ids: Vec<String> = from_redis_value(answer).unwrap_or_default();
            all.extend(ids.iter().filter_map(|id| id.parse::<PoolId>().ok()));
        }
        Ok(all)
    }

    /// Everything Redis holds of a pool, whatever the epoch of its partitions; `None` when there
    /// is nothing. The history is empty when the partition of its first bucket has lost it. Of a
    /// call that was carried out in part, only what was not decided otherwise is left.
    pub async fn salvage(&self, pool: PoolId) -> Result<Option<PoolRecord>, RestoreError> {
        match self.salvage_terms(pool).await? {
            Some(terms) => self.salvage_with(pool, &terms).await.map(Some),
            None => Ok(None),
        }
    }

    /// The same, of a pool whose terms are known.
    pub async fn salvage_with(
        &self,
        pool: PoolId,
        terms: &Arc<Terms>,
    ) -> Result<PoolRecord, RestoreError> {
        let nonsense = |source| RestoreError::Nonsense { pool, source };
        let head = self.shared.cell(CellId::head(pool));
        let mut range = cmd("LRANGE");
        range.arg(head.keys.get(Keys::HISTORY)).arg(0).arg(-1);
        let answer = self.shared.link.ask(head.partition, &range).await?;
        let changes: Vec<Vec<u8>> = from_redis_value(answer).unwrap_or_default();
        let mut record = PoolRecord::default();
        for change in &changes {
            record.history.push(wire::read_change(pool, terms, change).map_err(nonsense)?);
        }
        for bucket in 0..terms.buckets {
            let cell = self.shared.cell(CellId { pool, bucket });
            self.salvage_bucket(&cell, terms, &mut record).await?;
        }
        record.keep_newest();
        Ok(record)
    }

    async fn salvage_bucket(
        &self,
        cell: &super::Cell,
        terms: &Terms,
        record: &mut PoolRecord,
    ) -> Result<(), RestoreError> {
        let CellId { pool, bucket } = cell.id;
        let (buckets, of) = (terms.buckets, wire::Of { pool, kind: terms.kind });
        let nonsense = |source| RestoreError::Nonsense { pool, source };
        let mut get = cmd("HGET");
        get.arg(cell.keys.get(Keys::POOL)).arg("state");
        let counted = match self.shared.link.ask(cell.partition, &get).await? {
            Value::BulkString(state) => Some(wire::read_counts(&state).map_err(nonsense)?),
            _ => None,
        };
        if let (0, Some(counted)) = (bucket, &counted) {
            record.history.retain(|state| state.version <= counted.version);
        }
        let numbers = counted.map_or(u32::MAX, |counted| counted.numbers);
        let is_counted = |claim: &Claim| (claim.id.number - 1) / u32::from(buckets) < numbers;
        let (mut cursor, mut highest) = (0_u64, 0);
        let mut changes = Vec::new();
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(cell.keys.get(Keys::CLAIMS)).arg(cursor).arg("COUNT").arg(FIELDS);
            let answer = self.shared.link.ask(cell.partition, &scan).await?;
            let (next, fields): (u64, Vec<Vec<u8>>) = from_redis_value(answer).unwrap_or_default();
            for field in fields.chunks_exact(2) {
                match wire::read_kept(of, &field[1]).map_err(nonsense)? {
                    Kept::Claims(claims) => {
                        for claim in claims.into_iter().filter(is_counted) {
                            highest = claim.id.number.max(highest);
                            record.claims.push(claim);
                        }
                    }
                    Kept::Change(change) => changes.push((wire::number_of(&field[0]), change)),
                }
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        record.apply(changes);
        // Numbers that were used, but not by a claim that is there.
        if numbers > 0 && numbers < u32::MAX {
            let last = (numbers - 1) * u32::from(buckets) + u32::from(bucket) + 1;
            if last > highest {
                record.lost_through = record.lost_through.max(last);
            }
        }
        self.salvage_refunds(cell, record).await
    }

    async fn salvage_refunds(
        &self,
        cell: &super::Cell,
        record: &mut PoolRecord,
    ) -> Result<(), RestoreError> {
        let pool = cell.id.pool;
        let nonsense = |source| RestoreError::Nonsense { pool, source };
        for from in (0_usize..).step_by(FIELDS) {
            let mut range = cmd("LRANGE");
            range.arg(cell.keys.get(Keys::REFUNDS)).arg(from).arg(from + FIELDS - 1);
            let answer = self.shared.link.ask(cell.partition, &range).await?;
            let packed: Vec<Vec<u8>> = from_redis_value(answer).unwrap_or_default();
            if packed.is_empty() {
                break;
            }
            let read = |packed: &Vec<u8>| wire::read_refund(pool, packed).map_err(nonsense);
            let some: Vec<Refund> = packed.iter().map(read).collect::<Result<_, _>>()?;
            let fates = async |key| {
                let mut get = cmd("HMGET");
                let payments = some.iter().map(|refund| refund.payment.as_str());
                get.arg(cell.keys.get(key)).arg(payments.collect::<Vec<_>>());
                let answer = self.shared.link.ask(cell.partition, &get).await?;
                let fates: Vec<Option<Vec<u8>>> = from_redis_value(answer).unwrap_or_default();
                Ok::<_, RestoreError>(fates)
            };
            let (owed, paid) = (fates(Keys::REFUNDED).await?, fates(Keys::PAYMENTS).await?);
            // It may have been decided otherwise since.
            for (refund, (owed, paid)) in some.into_iter().zip(owed.into_iter().zip(paid)) {
                record.refunds.extend((owed.is_some() && paid.is_none()).then_some(refund));
            }
        }
        Ok(())
    }

    /// The terms of a pool as any of its buckets has them: the partition of the first one may be
    /// lost, and the others still hold what was claimed from them.
    async fn salvage_terms(&self, pool: PoolId) -> Result<Option<Arc<Terms>>, RestoreError> {
        for bucket in 0..MAX_BUCKETS {
            let cell = self.shared.cell(CellId { pool, bucket });
            let mut get = cmd("HGET");
            get.arg(cell.keys.get(Keys::POOL)).arg("terms");
            if let Value::BulkString(terms) = self.shared.link.ask(cell.partition, &get).await? {
                let terms = wire::decode_terms(&terms);
                let terms = terms.map_err(|source| RestoreError::Nonsense { pool, source })?;
                return Ok(Some(terms));
            }
        }
        Ok(None)
    }
}
