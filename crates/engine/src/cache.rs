//! What is worth remembering, up to a bound. When it is full, one goes for each that comes: one that
//! nobody has looked at for the longest time, roughly. Finding, keeping and forgetting cost the same
//! however much is kept.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};

/// Values by their keys, the oldest of which make room for new ones.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    max: usize,
    places: HashMap<K, usize>,
    entries: Vec<Entry<K, V>>,
    /// The next entry that is looked at when one has to go.
    hand: usize,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    /// Whether somebody has found it since the hand came by.
    found: AtomicBool,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// Keeps `max`, or more only while none of them may go.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, places: HashMap::new(), entries: Vec::new(), hand: 0 }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let entry = &self.entries[*self.places.get(key)?];
        // Written once and read by many: a line of memory that nobody writes to is shared.
        if !entry.found.load(Ordering::Relaxed) {
            entry.found.store(true, Ordering::Relaxed);
        }
        Some(&entry.value)
    }

    /// Keeps a value, in the place of another one if it is full. `may_go` says which may.
    pub(crate) fn insert(&mut self, key: K, value: V, may_go: impl Fn(&V) -> bool) {
        if let Some(place) = self.places.get(&key) {
            self.entries[*place].value = value;
            return;
        }
        let entry = Entry { key, value, found: AtomicBool::new(false) };
        let place = match self.make_room(may_go) {
            Some(place) => {
                self.places.remove(&self.entries[place].key);
                self.entries[place] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.places.insert(key, place);
    }

    pub(crate) fn remove(&mut self, key: &K) {
        let Some(place) = self.places.remove(key) else { return };
        self.entries.swap_remove(place);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.key, place);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.entries.clear();
        self.hand = 0;
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|entry| &entry.value)
    }

    /// The place of one that goes, if one has to.
    fn make_room(&mut self, may_go: impl Fn(&V) -> bool) -> Option<usize> {
        let count = self.entries.len();
        if count < self.max {
            return None;
        }
        // In the second round none counts as found any more.
        for _ in 0..2 * count {
            let place = self.hand % count;
            self.hand = place + 1;
            let entry = &mut self.entries[place];
            let found = std::mem::take(entry.found.get_mut());
            if !found && may_go(&entry.value) {
                return Some(place);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    fn kept(cache: &Cache<u32, u32>) -> Vec<u32> {
        let mut kept: Vec<u32> = cache.values().copied().collect();
        kept.sort_unstable();
        kept
    }

    #[test]
    fn one_goes_for_each_that_comes_and_those_in_demand_stay() {
        let mut cache = Cache::new(4);
        for key in 1..=4 {
            cache.insert(key, key, |_| true);
        }
        for key in 5..=20 {
            assert_eq!(cache.get(&2), Some(&2));
            cache.insert(key, key, |_| true);
            assert_eq!(cache.values().count(), 4);
            assert_eq!(cache.get(&key), Some(&key));
        }
        assert_eq!(cache.get(&1), None);
        cache.insert(2, 22, |_| true);
        assert_eq!((cache.get(&2), cache.values().count()), (Some(&22), 4));
    }

    #[test]
    fn what_may_not_go_stays_and_the_cache_grows() {
        let mut cache = Cache::new(2);
        for key in 1..=5 {
            cache.insert(key, key, |value| *value > 3);
        }
        assert_eq!(kept(&cache), [1, 2, 3, 5]);
        cache.remove(&1);
        cache.remove(&1);
        assert_eq!((kept(&cache), cache.get(&5)), (vec![2, 3, 5], Some(&5)));
        cache.clear();
        assert_eq!((kept(&cache), cache.get(&5)), (vec![], None));
        cache.insert(9, 9, |_| true);
        assert_eq!(cache.get(&9), Some(&9));
    }
}
