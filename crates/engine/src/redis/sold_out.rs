//! What a node remembers of a cell that has nothing left, so that a crowd that comes too late does
//! not reach Redis at all.
//!
//! It answers only what Redis would: `sold_out` to somebody who never got anything from the cell.
//! Whoever may be a buyer already is asked about there. It forgets after [`GOOD_FOR`], when a
//! deadline of a claim is near, and when this node changes anything in the cell; so units that come
//! back are sold again everywhere within a second.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use qiang_core::{Claim, ClaimRequest, Identity, Timestamp};

use super::wire::Decided;
use crate::Stopwatch;

/// How long "nothing left" is believed.
pub(super) const GOOD_FOR: Duration = Duration::from_millis(200);
/// Refusals after which it is worth while to learn who the buyers are.
const WORTH_IT: u64 = 64;
/// Buyers known at most: 8 bytes each. A larger cell is always asked about.
const MAX_BUYERS: u32 = 4_000_000;

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Memory {
    refused: u64,
    /// Hashes of the buyers of all claims up to `known`.
    buyers: HashSet<u64>,
    hash: RandomState,
    known: u32,
    /// Somebody reads the buyers that are not known.
    pub(super) learning: bool,
    empty: Option<Empty>,
    /// True of this bucket; other buckets have not been looked at.
    unproven: Option<Empty>,
}

/// That nothing is left, and until when to believe it.
#[derive(Debug)]
struct Empty {
    claims: u32,
    by_identity: bool,
    at: Timestamp,
    since: Stopwatch,
    good_for: Duration,
}

/// How the time is told.
#[derive(Debug, Clone, Copy)]
pub(super) enum Now {
    /// By a clock of this process, which a test may move.
    Given(Timestamp),
    /// By Redis; here it only passes.
    Passing,
}

impl Memory {
    /// Whether Redis would answer `sold_out`.
    pub(super) fn answers(&self, wish: &ClaimRequest, now: Now) -> bool {
        let Some(empty) = &self.empty else { return false };
        let age = match now {
            Now::Given(now) => {
                let ms = now.millis().saturating_sub(empty.at.millis());
                u64::try_from(ms).map_or(Duration::MAX, Duration::from_millis)
            }
            Now::Passing => empty.since.elapsed(),
        };
        let knows = |name: &str| self.buyers.contains(&self.hash.hash_one(name));
        // Redis is asked if more than one unit is wanted, or if the sale counts by identity and the buyer
        // has none: it may refuse for another reason.
        let plain = wish.quantity.get() == 1 && !(empty.by_identity && wish.identity.is_none());
        plain
            && age < empty.good_for
            && self.known >= empty.claims
            && !knows(wish.user.as_str())
            && !wish.identity.as_ref().map(Identity::as_str).is_some_and(knows)
    }

    /// Takes note of what Redis said; `refused` claims found nothing left. Gives the claims whose
    /// buyers have to be learned, if it is worth while: behind the first number up to the second.
    pub(super) fn note(&mut self, decided: &Decided, refused: u64) -> Option<(u32, u32)> {
        if decided.available > 0 {
            self.empty = None;
        }
        if decided.available > 0 || refused == 0 {
            return None;
        }
        self.refused += refused;
        let ends = [decided.next_due, decided.closes];
        let until = |end: Option<Timestamp>| {
            let ms = end.map(|end| end.millis().saturating_sub(decided.now.millis()));
            ms.map_or(GOOD_FOR, |ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
        };
        let good_for = ends.map(until).into_iter().fold(GOOD_FOR, Duration::min);
        let empty = Some(Empty {
            claims: decided.numbers,
            by_identity: decided.by_identity,
            at: decided.now,
            since: decided.asked,
            good_for,
        });
        if decided.buckets == 1 {
            self.empty = empty;
        } else {
            self.unproven = empty;
        }
        let learn = self.refused >= WORTH_IT
            && !self.learning
            && self.known < decided.numbers
            && decided.numbers - decided.skipped <= MAX_BUYERS;
        self.learning |= learn;
        learn.then_some((self.known, decided.numbers))
    }

    /// Learns the buyers of the claims behind the `after`th up to the `through`th.
    pub(super) fn learn(&mut self, claims: &[Claim], after: u32, through: u32) {
        if self.known != after {
            return;
        }
        for claim in claims {
            self.buyers.insert(self.hash.hash_one(claim.user.as_str()));
            let identity = claim.identity.as_ref().map(Identity::as_str);
            self.buyers.extend(identity.map(|name| self.hash.hash_one(name)));
        }
        self.known = through;
    }

    /// No other bucket had anything either.
    pub(super) fn prove(&mut self) {
        if let Some(empty) = self.unproven.take() {
            self.empty = Some(empty);
        }
    }

    /// Something else than a claim was done: nothing is believed any more.
    pub(super) fn forget(&mut self) {
        self.empty = None;
        self.unproven = None;
    }
}
