//! Which pre-cut portions are still to be had.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{Cents, Supply, Terms};

/// The portions of a pool. The next one is always the lowest that is free, so which one a
/// claim gets depends only on which are taken, never on how they came to be free.
#[derive(Debug, Default)]
pub(super) struct Portions {
    /// Everything from here on was never taken.
    fresh: u32,
    /// Below `fresh`, and given back.
    returned: BinaryHeap<Reverse<u32>>,
    taken: Cents,
}

impl Portions {
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
        self.taken = self.taken.plus(value);
    }

    pub(super) fn give_back(&mut self, place: u32, value: Cents) {
        assert!(place < self.fresh, "only a taken portion comes back");
        self.returned.push(Reverse(place));
        self.taken = self.taken.plus(Cents::new(-value.get()));
    }

    /// Makes exactly these portions the taken ones.
    pub(super) fn restore(mut taken: Vec<(u32, Cents)>) -> Self {
        taken.sort_unstable_by_key(|(place, _)| *place);
        let mut portions = Self::default();
        for (place, value) in taken {
            assert!(place >= portions.fresh, "a portion has one owner");
            portions.returned.extend((portions.fresh..place).map(Reverse));
            portions.fresh = place + 1;
            portions.taken = portions.taken.plus(value);
        }
        portions
    }

    /// Value of all portions taken.
    pub(super) fn taken(&self) -> Cents {
        self.taken
    }

    /// Value of all portions left, added up one by one.
    pub(super) fn left(&self, terms: &Terms) -> Cents {
        let Supply::Portions(cut) = &terms.supply else { return Cents::ZERO };
        let fresh = cut.iter().skip(self.fresh as usize);
        let returned = self.returned.iter().map(|Reverse(place)| &cut[*place as usize]);
        fresh.chain(returned).fold(Cents::ZERO, |sum, value| sum.plus(*value))
    }
}
