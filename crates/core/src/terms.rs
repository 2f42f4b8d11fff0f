//! What a pool promises: how much there is, who may take how much, when, and at what price.
//!
//! Terms are checked once, when the pool is opened, and never change after that.

use smol_str::SmolStr;

use crate::claim::spelled;
use crate::{Cents, Timestamp};

/// The most units a pool can ever hold, restocks included.
pub const MAX_UNITS: u32 = 1 << 31;
/// The most pre-cut portions of one pool.
const MAX_PORTIONS: usize = 1 << 20;
const MAX_TITLE_CHARS: usize = 200;
const MAX_SKU_CHARS: usize = 64;
const MAX_PRICE_STEPS: usize = 100;
/// The most buckets a pool can be spread over.
pub const MAX_BUCKETS: u16 = 64;
/// A year: the longest time a unit may be kept from others.
const MAX_DEADLINE_MS: u64 = 366 * 24 * 3_600_000;

/// The rules of one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// What it is for.
    pub kind: Kind,
    /// What buyers read.
    pub title: SmolStr,
    /// The shop's own name for the goods.
    pub sku: SmolStr,
    /// What there is to take.
    pub supply: Supply,
    /// How many units one buyer may have, for as long as the pool exists.
    pub limit_per_user: u32,
    /// Who counts as one buyer.
    pub limit_by: LimitBy,
    /// The price of a unit until the first step.
    pub price: Cents,
    /// How the price rises, by rising `after_sold`.
    pub price_steps: Vec<PriceStep>,
    /// Before this nobody gets anything.
    pub opens_at: Timestamp,
    /// From this on nobody gets anything; `None` is "until it is closed".
    pub closes_at: Option<Timestamp>,
    /// What a granted claim still has to go through.
    pub flow: Flow,
    /// Whether a release gives the user's quota back.
    pub reclaim: Reclaim,
    /// How many buckets a very hot pool is split into on a shared engine; 1 means not at all. The
    /// embedded engine does nothing with it.
    pub buckets: u16,
}

/// What a pool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Something is sold: a claim becomes an order.
    Sale,
    /// Money is given away in portions. A claim takes one, and nobody orders or pays.
    Packet,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Self; 2] = [Self::Sale, Self::Packet];
}

spelled!(Kind: Sale = "sale", Packet = "packet");

/// What a pool consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Supply {
    /// So many equal units.
    Units(u32),
    /// Portions cut beforehand; a claim takes the next one whole, and its value is the price.
    Portions(Box<[Cents]>),
}

/// Who counts as one buyer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitBy {
    /// Every account for itself.
    User,
    /// All accounts of one real person together; an account without an identity is not eligible.
    Identity,
}

/// From `after_sold` units on, a unit costs `price`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriceStep {
    /// How many units are taken before this price applies.
    pub after_sold: u32,
    /// The price from there on.
    pub price: Cents,
}

/// What a claim goes through after it was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Paid at once.
    Instant,
    /// Ordered at once, to be paid in time.
    Order {
        /// How long until an unpaid order is released.
        pay_ms: u64,
    },
    /// Held first; the user places the order, then pays.
    Hold {
        /// How long until a hold without an order is released.
        hold_ms: u64,
        /// How long until an unpaid order is released.
        pay_ms: u64,
    },
}

/// Whether a user whose claim was released may claim again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaim {
    /// The quota comes back together with the units.
    Allowed,
    /// The units come back, the quota stays used.
    Never,
}

/// What is wrong with terms: the field, and what it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub struct Fault {
    /// The field, as the API spells it.
    pub field: &'static str,
    /// What must be true of it.
    pub rule: &'static str,
}

impl Terms {
    /// Units there are at the beginning; a portion is one unit.
    #[must_use]
    pub fn units(&self) -> u32 {
        match &self.supply {
            Supply::Units(units) => *units,
            Supply::Portions(portions) => {
                u32::try_from(portions.len()).expect("checked against MAX_PORTIONS")
            }
        }
    }

    /// The price of a unit when `sold` units are taken.
    #[must_use]
    pub fn price_after(&self, sold: u32) -> Cents {
        let reached = self.price_steps.iter().rev().find(|step| step.after_sold <= sold);
        reached.map_or(self.price, |step| step.price)
    }

    /// Whether a second claim is answered by what became of the buyer's first: it may be of
    /// another account, or released. Otherwise it is their own, and they have it.
    #[must_use]
    pub fn looks_at_latest(&self) -> bool {
        self.limit_per_user == 1
            && (self.limit_by == LimitBy::Identity || self.reclaim == Reclaim::Never)
    }

    /// Finds the first fault, in the order of the fields.
    pub fn check(&self) -> Result<(), Fault> {
        let fault = |field, rule| Err(Fault { field, rule });
        if self.title.trim().is_empty() || self.title.chars().count() > MAX_TITLE_CHARS {
            return fault("title", "must have 1 to 200 characters");
        }
        if self.sku.trim().is_empty() || self.sku.chars().count() > MAX_SKU_CHARS {
            return fault("sku", "must have 1 to 64 characters");
        }
        for (field, text) in [("title", &self.title), ("sku", &self.sku)] {
            if text.chars().any(char::is_control) {
                return fault(field, "must not contain control characters");
            }
        }
        match &self.supply {
            Supply::Units(units) if !(1..=MAX_UNITS).contains(units) => {
                return fault("stock", "must be from 1 to 2147483648");
            }
            Supply::Portions(cut) if !(1..=MAX_PORTIONS).contains(&cut.len()) => {
                return fault("portions", "must be 1 to 1048576 in number");
            }
            Supply::Portions(cut) if cut.iter().any(|c| !price_ok(*c) || *c == Cents::ZERO) => {
                return fault("portions", "must each be from 1 to 1000000000 cents");
            }
            Supply::Units(_) | Supply::Portions(_) => {}
        }
        if !(1..=MAX_UNITS).contains(&self.limit_per_user) {
            return fault("limit_per_user", "must be from 1 to 2147483648");
        }
        if !price_ok(self.price) || self.price_steps.iter().any(|step| !price_ok(step.price)) {
            return fault("price_cents", "must be from 0 to 1000000000");
        }
        self.check_steps()?;
        if self.closes_at.is_some_and(|closes_at| closes_at <= self.opens_at) {
            return fault("closes_at", "must be after opens_at");
        }
        let (hold_ms, pay_ms) = match self.flow {
            Flow::Instant => (1, 1),
            Flow::Order { pay_ms } => (1, pay_ms),
            Flow::Hold { hold_ms, pay_ms } => (hold_ms, pay_ms),
        };
        if !(1..=MAX_DEADLINE_MS).contains(&hold_ms) {
            return fault("hold_secs", "must be from 1 to 31622400");
        }
        if !(1..=MAX_DEADLINE_MS).contains(&pay_ms) {
            return fault("pay_secs", "must be from 1 to 31622400");
        }
        if self.kind == Kind::Packet {
            self.check_packet()?;
        }
        self.check_buckets()
    }

    fn check_packet(&self) -> Result<(), Fault> {
        if !matches!(self.supply, Supply::Portions(_)) {
            return Err(Fault { field: "portions", rule: "are what a packet consists of" });
        }
        if self.flow != Flow::Instant {
            return Err(Fault { field: "flow", rule: "of a packet must be instant" });
        }
        Ok(())
    }

    /// The value of the portions nobody has: those from `fresh` on, which were never taken, and
    /// those that came back. `None` in a pool of units.
    #[must_use]
    pub fn cents_left(&self, fresh: u32, returned: impl IntoIterator<Item = u32>) -> Option<Cents> {
        let Supply::Portions(cut) = &self.supply else { return None };
        let returned = returned.into_iter().filter_map(|place| cut.get(place as usize));
        let free = cut.iter().skip(fresh as usize).chain(returned);
        Some(free.fold(Cents::ZERO, |sum, value| sum.plus(*value)))
    }

    /// Price steps depend on what all buckets have sold, and portions are taken in order. For
    /// both, buckets would have to wait for each other.
    fn check_buckets(&self) -> Result<(), Fault> {
        let fault = |rule| Err(Fault { field: "buckets", rule });
        if !(1..=MAX_BUCKETS).contains(&self.buckets) {
            return fault("must be from 1 to 64");
        }
        if self.buckets > 1 && !self.price_steps.is_empty() {
            return fault("do not go with price_steps");
        }
        match self.supply {
            Supply::Portions(_) if self.buckets > 1 => fault("do not go with portions"),
            Supply::Units(units) if u32::from(self.buckets) > units => {
                fault("must not be more than there are units")
            }
            Supply::Units(_) | Supply::Portions(_) => Ok(()),
        }
    }

    fn check_steps(&self) -> Result<(), Fault> {
        let fault = |rule| Err(Fault { field: "price_steps", rule });
        if self.price_steps.len() > MAX_PRICE_STEPS {
            return fault("must be at most 100 in number");
        }
        if matches!(self.supply, Supply::Portions(_)) && !self.price_steps.is_empty() {
            return fault("do not go with portions");
        }
        let mut before = PriceStep { after_sold: 0, price: self.price };
        for step in &self.price_steps {
            if step.after_sold <= before.after_sold || step.price <= before.price {
                return fault("must rise, both in after_sold and in price_cents");
            }
            before = *step;
        }
        Ok(())
    }
}

fn price_ok(price: Cents) -> bool {
    (Cents::ZERO..=Cents::MAX_PRICE).contains(&price)
}
