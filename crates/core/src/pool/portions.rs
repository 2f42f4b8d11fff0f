//! Which pre-cut portions are still free.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{Cents, Supply, Terms};

/// The portions of a pool. The next one is always the lowest that is free, so which one a
/// claim gets depends only on which are taken, never on how they came to be free.
#[derive(Debug)]
pub(super) struct Portions {
    /// Everything from here on was never taken.
    fresh: u32,
    /// Below `fresh`, and given back.
    returned: BinaryHeap<Reverse<u32>>,
    /// The value of those that nobody has; `None` in a pool of units.
    left: Option<Cents>,
}

impl Portions {
    /// The portions of a pool that was just opened: all are free.
    pub(super) fn of(terms: &Terms) -> Self {
        Self { fresh: 0, returned: BinaryHeap::new(), left: terms.cents_left(0, []) }
    }

    /// Nothing is left of a cleared pool.
    pub(super) fn clear(&mut self) {
        *self =
            Self { fresh: 0, returned: BinaryHeap::new(), left: self.left.map(|_| Cents::ZERO) };
    }

    /// The next portion and its value; `None` when the pool has units, or none is left.
    pub(super) fn next(&self, terms: &Terms) -> Option<(u32, Cents)> {
        let Supply::Portions(cut) = &terms.supply else { return None };
        let place = self.returned.peek().map_or(self.fresh, |Reverse(place)| *place);
        cut.get(place as usize).map(|value| (place, *value))
    }

    pub(super) fn take(&mut self, place: u32, value: Cents) {
        if self.returned.peek() == Some(&Reverse(place)) {
            self.returned.pop();
        } else {
            assert_eq!(place, self.fresh, "portions are taken from the lowest on");
            self.fresh += 1;
        }
        self.left = self.left.map(|left| left.plus(Cents::new(-value.get())));
    }

    pub(super) fn give_back(&mut self, place: u32, value: Cents) {
        assert!(place < self.fresh, "only a taken portion comes back");
        self.returned.push(Reverse(place));
        self.left = self.left.map(|left| left.plus(value));
    }

    /// Makes exactly these portions the taken ones.
    pub(super) fn restored(mut self, mut taken: Vec<(u32, Cents)>) -> Self {
        taken.sort_unstable_by_key(|(place, _)| *place);
        for (place, value) in taken {
            assert!(place >= self.fresh, "a portion has one owner");
            self.returned.extend((self.fresh..place).map(Reverse));
            self.fresh = place + 1;
            self.left = self.left.map(|left| left.plus(Cents::new(-value.get())));
        }
        self
    }

    /// The value of all portions left.
    pub(super) fn left(&self) -> Option<Cents> {
        self.left
    }

    /// Asserts that the value left is the sum of all free portions.
    pub(super) fn assert_adds_up(&self, terms: &Terms) {
        let returned = self.returned.iter().map(|Reverse(place)| *place);
        assert_eq!(self.left, terms.cents_left(self.fresh, returned), "portions add up");
    }
}
