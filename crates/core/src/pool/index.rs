//! Hash tables that find a stored thing without storing it twice.
//!
//! An entry is a 32-bit tag of the key's hash and a small value, mostly a claim's number; the
//! key itself is read from where the claim is. The tag makes growing cheap (no key is read
//! again), and shards keep any single growth step short however large the pool is.

use hashbrown::HashTable;

/// Entries a shard is expected to hold; growing one takes well under a millisecond.
const SHARD_ENTRIES: u32 = 8_192;
const MAX_SHARDS: u32 = 1_024;

#[derive(Debug)]
pub(super) struct Index<T> {
    shards: Box<[HashTable<(u32, T)>]>,
}

impl<T> Index<T> {
    /// An empty index that grows smoothly up to about `expected` entries and beyond.
    pub(super) fn for_expected(expected: u32) -> Self {
        let shards = (expected / SHARD_ENTRIES).clamp(1, MAX_SHARDS).next_power_of_two();
        Self { shards: (0..shards).map(|_| HashTable::new()).collect() }
    }

    pub(super) fn find(&self, tag: u32, same: impl Fn(&T) -> bool) -> Option<&T> {
        let found = self.shards[self.shard(tag)].find(spread(tag), |(t, v)| *t == tag && same(v));
        found.map(|(_, value)| value)
    }

    /// Whether there may be an entry under this tag, without a look at its key.
    pub(super) fn may_have(&self, tag: u32) -> bool {
        self.shards[self.shard(tag)].find(spread(tag), |(t, _)| *t == tag).is_some()
    }

    pub(super) fn find_mut(&mut self, tag: u32, same: impl Fn(&T) -> bool) -> Option<&mut T> {
        let shard = self.shard(tag);
        let found = self.shards[shard].find_mut(spread(tag), |(t, v)| *t == tag && same(v));
        found.map(|(_, value)| value)
    }

    /// Adds an entry; the caller knows that it is not there yet.
    pub(super) fn insert(&mut self, tag: u32, value: T) {
        let shard = self.shard(tag);
        self.shards[shard].insert_unique(spread(tag), (tag, value), |(tag, _)| spread(*tag));
    }

    fn shard(&self, tag: u32) -> usize {
        tag as usize & (self.shards.len() - 1)
    }
}

/// A tag as a full hash. Tags in one shard share their low bits, so the high half is folded in.
fn spread(tag: u32) -> u64 {
    let mixed = u64::from(tag).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 32)
}
