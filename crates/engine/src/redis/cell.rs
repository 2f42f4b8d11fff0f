//! One pool in one partition, or one bucket of it: its keys, who waits for it, and what is
//! remembered about it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qiang_core::{Kind, PoolId};
use tokio::sync::oneshot;

use super::sold_out::Memory;
use super::tags::hash_tag;
use super::wire::{Ask, Said};
use crate::Error;

/// Calls of one cell that may be on their way at once. Two keep the server busy while the next
/// batch gathers.
pub(super) const LANES: usize = 2;

/// Which cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CellId {
    pub(super) pool: PoolId,
    pub(super) bucket: u16,
}

impl CellId {
    pub(super) fn head(pool: PoolId) -> Self {
        Self { pool, bucket: 0 }
    }

    /// The bucket that granted a claim of this number.
    pub(super) fn of_claim(pool: PoolId, number: u32, buckets: u16) -> Self {
        let bucket = number.saturating_sub(1) % u32::from(buckets);
        Self { pool, bucket: u16::try_from(bucket).expect("less than the buckets") }
    }

    /// Buckets of a pool lie side by side, so that they never share a partition until all are
    /// taken; pools are scattered.
    pub(super) fn partition(self, partitions: u16) -> u16 {
        let mut hash = self.pool.get();
        hash = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let place = (hash >> 32).wrapping_add(u64::from(self.bucket)) % u64::from(partitions);
        u16::try_from(place).expect("less than the partitions")
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.bucket)
    }
}

impl CellId {
    /// Reads what it is written as.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (pool, bucket) = text.split_once('/')?;
        Some(Self { pool: pool.parse().ok()?, bucket: bucket.parse().ok()? })
    }
}

/// Whoever asked, and for what.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) ask: Ask,
    pub(super) to: oneshot::Sender<Result<Said, Error>>,
}

/// A cell this process talks about.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) id: CellId,
    pub(super) partition: u16,
    pub(super) keys: Keys,
    line: Mutex<VecDeque<Waiting>>,
    /// Which lanes are on their way.
    pub(super) busy: [AtomicBool; LANES],
    pub(super) memory: Mutex<Memory>,
    /// How many searches in other buckets were begun, and what the last one found.
    pub(super) searches: AtomicU64,
    pub(super) search: tokio::sync::Mutex<Search>,
    /// Of the first bucket: which bucket of the pool borrows on this node.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    /// How many buckets its pool has, once somebody has claimed from it.
    pub(super) buckets: AtomicU16,
    /// The connection over which it was compared with its siblings.
    pub(super) compared: AtomicU64,
    /// Of the first bucket: of many who want the buckets to be compared one does it.
    pub(super) comparing: tokio::sync::Mutex<()>,
}

/// Kept as long as no other bucket of the pool may borrow.
pub(super) type Turn = tokio::sync::OwnedMutexGuard<()>;

/// The last search in other buckets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Search {
    pub(super) found: Found,
    /// How many units it was for: too few for those are not too few for less.
    pub(super) wanted: u32,
}

/// What a search in other buckets found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Found {
    /// Units were brought, or nobody has searched.
    #[default]
    Some,
    /// No bucket had any.
    None,
}

impl Cell {
    pub(super) fn new(id: CellId, partition: u16, prefix: &str) -> Self {
        Self {
            id,
            partition,
            keys: Keys::new(prefix, partition, id),
            line: Mutex::default(),
            busy: Default::default(),
            memory: Mutex::default(),
            searches: AtomicU64::new(0),
            search: tokio::sync::Mutex::default(),
            turn: Arc::default(),
            buckets: AtomicU16::new(1),
            compared: AtomicU64::new(u64::MAX),
            comparing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn line(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys of a cell, as the script counts them.
#[derive(Debug)]
pub(super) struct Keys(pub(super) [String; Self::COUNT]);

impl Keys {
    pub(super) const COUNT: usize = 18;
    pub(super) const POOLS: usize = 2;
    pub(super) const POOL: usize = 4;
    pub(super) const CLAIMS: usize = 5;
    pub(super) const BUYERS: usize = 6;
    pub(super) const REQUESTS: usize = 7;
    pub(super) const PAYMENTS: usize = 8;
    pub(super) const DUE: usize = 9;
    pub(super) const REFUNDS: usize = 10;
    pub(super) const HISTORY: usize = 11;
    pub(super) const RESTOCKS: usize = 12;
    pub(super) const PORTIONS: usize = 13;
    pub(super) const RETURNED: usize = 14;
    pub(super) const MOVES: usize = 15;
    pub(super) const REFUNDED: usize = 16;
    pub(super) const PAYERS: usize = 17;

    pub(super) fn new(prefix: &str, partition: u16, id: CellId) -> Self {
        let shared = PartitionKeys::new(prefix, partition);
        let own = |what: &str| {
            format!("{prefix}:{{{}}}:{what}:{}/{}", hash_tag(partition), id.pool, id.bucket)
        };
        Self([
            shared.meta,
            shared.log,
            PartitionKeys::pools(prefix, partition, Kind::Sale),
            shared.dues,
            own("pool"),
            own("claims"),
            own("buyers"),
            own("requests"),
            own("payments"),
            own("due"),
            own("refunds"),
            own("history"),
            own("restocks"),
            own("portions"),
            own("returned"),
            own("moves"),
            own("refunded"),
            own("payers"),
        ])
    }

    /// All that belongs to this cell alone.
    pub(super) fn own(&self) -> &[String] {
        &self.0[Self::POOL..]
    }

    pub(super) fn get(&self, place: usize) -> &str {
        &self.0[place]
    }
}

/// The keys all pools of a partition share.
#[derive(Debug)]
pub(super) struct PartitionKeys {
    pub(super) meta: String,
    pub(super) log: String,
    pub(super) dues: String,
}

impl PartitionKeys {
    /// Which call of a node was the last to change something in a partition.
    pub(super) fn node(prefix: &str, partition: u16, node: u64) -> String {
        format!("{prefix}:{{{}}}:node:{node:x}", hash_tag(partition))
    }

    pub(super) fn new(prefix: &str, partition: u16) -> Self {
        let key = |what: &str| format!("{prefix}:{{{}}}:{what}", hash_tag(partition));
        Self { meta: key("meta"), log: key("log"), dues: key("dues") }
    }

    /// The pools with buckets whose first bucket lies in a partition, and some that are none any more.
    pub(super) fn spread(prefix: &str, partition: u16) -> String {
        format!("{prefix}:{{{}}}:spread", hash_tag(partition))
    }

    /// What was answered last on a lane of a node.
    pub(super) fn lane(prefix: &str, partition: u16, node: u64, lane: u32) -> String {
        format!("{prefix}:{{{}}}:lane:{node:x}:{lane}", hash_tag(partition))
    }

    /// The pools of a kind whose first bucket lies in a partition.
    pub(super) fn pools(prefix: &str, partition: u16, kind: Kind) -> String {
        let what = match kind {
            Kind::Sale => "pools",
            Kind::Packet => "packets",
        };
        format!("{prefix}:{{{}}}:{what}", hash_tag(partition))
    }
}
