//! One pool: what is left, who has what. [`decide`] looks and never changes anything; `apply`
//! changes and never refuses.
//!
//! Invariants, asserted in release builds too: `available + held + ordered + paid = total`;
//! nobody has more than the limit; a claim leaves a state at most once; for portions
//! the values taken and left add up to what was funded.

pub mod decide;
mod facts;
mod index;
mod payments;
mod portions;
mod records;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

use self::decide::{Buyer, Fate};
use self::index::Index;
use self::payments::Payments;
use self::portions::Portions;
use self::records::{Record, Records};
use crate::{
    Cents, Claim, ClaimRequest, Event, Identity, LimitBy, PaymentId, PoolChange, PoolId, PoolState,
    Reclaim, Refund, State, Terms, Timestamp,
};

/// A finite amount of something scarce, and everything taken from it.
#[derive(Debug)]
pub struct Pool {
    id: PoolId,
    terms: Arc<Terms>,
    /// Every change of the pool as a whole, oldest first. The last one is its present state.
    history: Vec<PoolState>,
    records: Records,
    tally: Tally,
    available: u32,
    portions: Portions,
    /// A buyer's name is read from their latest claim.
    buyers: Index<Buyer>,
    requests: Index<u32>,
    payments: Payments,
    /// May hold deadlines that no longer stand; the claim itself knows.
    dues: BinaryHeap<Reverse<(Timestamp, u32)>>,
    hash: FixedState,
}

/// Units by the state of their claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Held, not ordered.
    pub held: u32,
    /// Ordered, not paid.
    pub ordered: u32,
    /// Paid.
    pub paid: u32,
}

impl Tally {
    fn of_mut(&mut self, state: State) -> Option<&mut u32> {
        match state {
            State::Held => Some(&mut self.held),
            State::Ordered => Some(&mut self.ordered),
            State::Paid => Some(&mut self.paid),
            State::Released => None,
        }
    }

    /// Units somebody has.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.held + self.ordered + self.paid
    }
}

/// Where a pool stands among those of its kind, which are listed in the order they were opened, and
/// by id where that was at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Opened {
    /// When it was opened.
    pub at: Timestamp,
    /// Which pool.
    pub id: PoolId,
}

/// A pool as the outside sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    /// Which pool.
    pub id: PoolId,
    /// Its rules.
    pub terms: Arc<Terms>,
    /// Counts the changes of the pool as a whole.
    pub version: u32,
    /// All units it ever had.
    pub total: u32,
    /// Units left.
    pub available: u32,
    /// What is left in a pool of portions, and 0 once it is cleared.
    pub cents_left: Option<Cents>,
    /// Units taken, by state.
    pub tally: Tally,
    /// Claims ever granted.
    pub claims: u32,
    /// Payments ever seen, refunds included.
    pub payments: u32,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it was closed by hand.
    pub closed_at: Option<Timestamp>,
    /// Whether it was cleared.
    pub cleared: bool,
}

impl PoolView {
    /// Where it stands among those of its kind.
    #[must_use]
    pub fn opened(&self) -> Opened {
        Opened { at: self.opened_at, id: self.id }
    }
}

impl Pool {
    /// An empty pool, from the event that opened it. `seed` spreads its hash tables.
    pub(crate) fn open(opened: &PoolState, seed: u64) -> Self {
        assert_eq!(opened.version, 1, "a pool begins with its first version");
        let expected = opened.terms.units();
        Self {
            id: opened.id,
            terms: Arc::clone(&opened.terms),
            history: vec![opened.clone()],
            records: Records::default(),
            tally: Tally::default(),
            available: opened.total,
            portions: Portions::of(&opened.terms),
            buyers: Index::for_expected(expected),
            requests: Index::for_expected(expected),
            payments: Payments::new(expected),
            dues: BinaryHeap::new(),
            hash: FixedState::with_seed(seed),
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// The pool as it is.
    #[must_use]
    pub fn view(&self) -> PoolView {
        let state = self.state();
        PoolView {
            id: self.id,
            terms: Arc::clone(&self.terms),
            version: state.version,
            total: state.total,
            available: self.available,
            cents_left: self.portions.left(),
            tally: self.tally,
            claims: self.records.len(),
            payments: u32::try_from(self.payments.len()).expect("fewer payments than numbers"),
            opened_at: self.history[0].at,
            closed_at: state.closed_at,
            cleared: self.is_cleared(),
        }
    }

    /// A claim as it is.
    #[must_use]
    pub fn claim(&self, number: u32) -> Option<Claim> {
        let mut claim = self.records.claim(self.id, number, &self.terms)?;
        let record = self.records.get(number)?;
        claim.payment = self.payments.id_at(record.payment);
        Some(claim)
    }

    /// Every change of the pool as a whole, oldest first.
    pub(crate) fn history(&self) -> &[PoolState] {
        &self.history
    }

    /// The refunds among its payments from the `from`th on, each with its place.
    pub fn refunds_from(&self, from: usize) -> impl Iterator<Item = (usize, Refund)> + '_ {
        self.payments.refunds_from(self.id, from)
    }

    /// When the claim runs out, if it still can.
    pub(crate) fn due(&self, number: u32) -> Option<Timestamp> {
        self.records.get(number)?.due(&self.terms)
    }

    /// Its earliest deadline, which may turn out not to stand any more, and whose it is.
    pub(crate) fn next_due(&self) -> Option<(Timestamp, u32)> {
        self.dues.peek().map(|Reverse(next)| *next)
    }

    /// Takes the earliest deadline off the list.
    pub(crate) fn drop_next_due(&mut self) {
        self.dues.pop();
    }

    /// When it was opened.
    pub(crate) fn opened_at(&self) -> Timestamp {
        self.history[0].at
    }

    pub(crate) fn claims(&self) -> u32 {
        self.records.len()
    }

    pub(crate) fn is_cleared(&self) -> bool {
        self.state().change == PoolChange::Cleared
    }

    /// Applies a change to a pool whose counts are right, and keeps them right.
    pub(crate) fn apply(&mut self, event: &Event) {
        if !self.store(event) {
            return;
        }
        match event {
            Event::Pool(state) => match state.change {
                PoolChange::Restocked { units, .. } => self.available += units,
                PoolChange::Opened | PoolChange::Closed | PoolChange::Cleared => {}
            },
            Event::Claim(claim) if claim.version == 1 => self.count_granted(claim.id.number),
            Event::Claim(claim) => self.count_changed(claim),
            Event::Refund(_) => {}
        }
        if let Event::Claim(claim) = event
            && let Some(due) = self.due(claim.id.number)
        {
            self.dues.push(Reverse((due, claim.id.number)));
        }
        self.assert_adds_up();
    }

    /// Takes over an event if it is newer than what is stored, without counting. Between the
    /// first `store` and [`Pool::settle`] a pool answers nothing.
    pub(crate) fn store(&mut self, event: &Event) -> bool {
        match event {
            Event::Pool(state) => {
                let newer = state.version > self.state().version;
                if newer {
                    assert_eq!(state.version, self.state().version + 1, "no change is missing");
                    self.history.push(state.clone());
                }
                // At once, not in `settle`: a refund owed after the clearing may name a payment
                // that paid before it.
                if newer && self.is_cleared() {
                    self.clear();
                }
                newer
            }
            Event::Claim(_) if self.is_cleared() => false,
            Event::Claim(claim) => self.store_claim(claim),
            Event::Refund(refund) => {
                let tag = self.tag(refund.payment.as_str());
                let new = self.payments.find(tag, &refund.payment).is_none();
                if new {
                    let Refund { amount, reason, at, .. } = *refund;
                    let fate = Fate::Refund { amount, reason, at };
                    self.payments.insert(tag, &refund.payment, refund.order.number, fate);
                }
                new
            }
        }
    }

    /// Whether claims are missing before the one that this event is about.
    pub(crate) fn lacks(&self, event: &Event) -> bool {
        let Event::Claim(claim) = event else { return false };
        !self.is_cleared() && claim.id.number > self.records.len() + 1
    }

    fn store_claim(&mut self, claim: &Claim) -> bool {
        let number = claim.id.number;
        if number == self.records.len() + 1 {
            self.records.push(claim);
        } else {
            let stored = self.records.get(number).expect("no claim is missing");
            if u32::from(stored.version) >= claim.version {
                return false;
            }
            self.records.update(claim);
        }
        if let Some(payment) = &claim.payment {
            self.store_payment(claim, payment);
        }
        true
    }

    fn store_payment(&mut self, claim: &Claim, payment: &PaymentId) {
        let tag = self.tag(payment.as_str());
        let number = claim.id.number;
        // What is revoked keeps the payment that had paid it.
        if claim.revoked().is_some() && self.records.get(number).is_some_and(|it| it.payment > 0) {
            return;
        }
        assert!(self.payments.find(tag, payment).is_none(), "a payment pays once");
        let order = claim.replaces.unwrap_or(number);
        let place = self.payments.insert(tag, payment, order, Fate::Paid { claim: number });
        self.records.get_mut(number).expect("it was just stored").payment = place;
    }

    /// Counts everything anew from what is stored.
    pub(crate) fn settle(&mut self) {
        if self.is_cleared() {
            return;
        }
        let expected = self.records.len().max(self.terms.units());
        self.buyers = Index::for_expected(expected);
        self.requests = Index::for_expected(expected);
        self.tally = Tally::default();
        self.available = self.state().total;
        let mut taken_portions = Vec::new();
        for number in 1..=self.records.len() {
            let record = *self.records.get(number).expect("numbers are dense");
            if let Some(units) = self.tally.of_mut(record.state) {
                *units += record.quantity;
                self.available =
                    self.available.checked_sub(record.quantity).expect("never oversold");
                let value = Cents::new(record.unit_price);
                taken_portions.extend(record.portion().map(|place| (place, value)));
            }
            self.count_quota(number, &record);
            self.count_request(number, &record);
            if let Some(replaced) = record.replaces() {
                self.records.replace(replaced, number);
            }
        }
        self.portions = Portions::of(&self.terms).restored(taken_portions);
        let open = (1..=self.records.len())
            .filter_map(|number| self.due(number).map(|due| Reverse((due, number))));
        self.dues = open.collect::<Vec<_>>().into();
        self.assert_adds_up();
        self.portions.assert_adds_up(&self.terms);
    }

    fn count_granted(&mut self, number: u32) {
        let record = *self.records.get(number).expect("it was just stored");
        let units = self.tally.of_mut(record.state).expect("a grant is never released at once");
        *units += record.quantity;
        self.available = self.available.checked_sub(record.quantity).expect("never oversold");
        if let Some(place) = record.portion() {
            self.portions.take(place, Cents::new(record.unit_price));
        }
        self.count_quota(number, &record);
        self.count_request(number, &record);
        if let Some(replaced) = record.replaces() {
            self.records.replace(replaced, number);
        }
    }

    fn count_changed(&mut self, claim: &Claim) {
        let quantity = claim.quantity;
        let was = match claim.state {
            State::Ordered => State::Held,
            // Without a deadline it cost nothing, and was paid as it was ordered.
            State::Paid if claim.pay_by.is_none() => State::Held,
            State::Paid => State::Ordered,
            State::Released if claim.payment.is_some() => State::Paid,
            State::Released if claim.has_order() => State::Ordered,
            State::Released => State::Held,
            State::Held => unreachable!("no claim becomes held after its grant"),
        };
        let left = self.tally.of_mut(was).expect("an open state");
        *left = left.checked_sub(quantity).expect("a claim leaves a state once");
        if let Some(units) = self.tally.of_mut(claim.state) {
            *units += quantity;
            return;
        }
        self.available += quantity;
        if let Some(place) = claim.portion {
            self.portions.give_back(place, claim.unit_price);
        }
        if self.terms.reclaim == Reclaim::Allowed {
            let record = *self.records.get(claim.id.number).expect("it was just stored");
            let tag = self.tag(self.buyer_name(&record));
            let same = same_buyer(&self.records, &self.terms, &record);
            let buyer = self.buyers.find_mut(tag, same).expect("everybody with a claim is known");
            buyer.used = buyer.used.checked_sub(quantity).expect("quota comes back once");
        }
    }

    /// Whether whoever asks may have bought here before.
    pub(crate) fn may_know(&self, wish: &ClaimRequest) -> bool {
        let name = match self.terms.limit_by {
            LimitBy::User => Some(wish.user.as_str()),
            LimitBy::Identity => wish.identity.as_ref().map(Identity::as_str),
        };
        name.is_some_and(|name| self.buyers.may_have(self.tag(name)))
    }

    /// Adds a claim to what its buyer has used.
    fn count_quota(&mut self, number: u32, record: &Record) {
        let uses = match (record.state, self.terms.reclaim) {
            (State::Released, Reclaim::Allowed) => 0,
            // A claim that a late payment put in the place of a released one uses its quota.
            (_, Reclaim::Never) if record.replaces().is_some() => 0,
            _ => record.quantity,
        };
        let tag = self.tag(self.buyer_name(record));
        let same = same_buyer(&self.records, &self.terms, record);
        let used = if let Some(buyer) = self.buyers.find_mut(tag, same) {
            buyer.used += uses;
            buyer.latest = number;
            buyer.used
        } else {
            self.buyers.insert(tag, Buyer { latest: number, used: uses });
            uses
        };
        assert!(used <= self.terms.limit_per_user, "nobody has more than the limit");
    }

    fn count_request(&mut self, number: u32, record: &Record) {
        let request = self.records.request(record);
        if !request.is_empty() {
            let tag = self.request_tag(self.records.user(record), request);
            self.requests.insert(tag, number);
        }
    }

    /// Drops everything a settled pool no longer needs; refunds stay, so that none is owed twice.
    fn clear(&mut self) {
        let refunds: Vec<Refund> = self.refunds_from(0).map(|(_, refund)| refund).collect();
        self.records = Records::default();
        self.buyers = Index::for_expected(0);
        self.requests = Index::for_expected(0);
        self.payments = Payments::new(0);
        self.dues = BinaryHeap::new();
        self.tally = Tally::default();
        self.portions.clear();
        self.available = 0;
        for refund in refunds {
            self.store(&Event::Refund(refund));
        }
    }

    fn assert_adds_up(&self) {
        assert!(
            self.is_cleared() || self.available + self.tally.taken() == self.state().total,
            "pool {}: {} available and {:?} are not {} in total",
            self.id,
            self.available,
            self.tally,
            self.state().total,
        );
    }

    /// The pool as its last change left it.
    #[must_use]
    pub fn state(&self) -> &PoolState {
        self.history.last().expect("a pool begins with being opened")
    }

    /// The name quota is counted under.
    fn buyer_name(&self, record: &Record) -> &str {
        buyer_name(&self.records, &self.terms, record)
    }

    fn tag(&self, text: &str) -> u32 {
        fold(self.hash.hash_one(text.as_bytes()))
    }

    fn request_tag(&self, user: &str, request: &str) -> u32 {
        fold(self.hash.hash_one((user.as_bytes(), request.as_bytes())))
    }
}

fn buyer_name<'a>(records: &'a Records, terms: &Terms, record: &Record) -> &'a str {
    match terms.limit_by {
        LimitBy::User => records.user(record),
        LimitBy::Identity => records.identity(record),
    }
}

/// Whether a buyer is the one who has the record's claim.
fn same_buyer<'a>(
    records: &'a Records,
    terms: &'a Terms,
    record: &Record,
) -> impl Fn(&Buyer) -> bool + use<'a> {
    let name = buyer_name(records, terms, record);
    move |buyer| {
        let latest = records.get(buyer.latest).expect("a buyer's claim is stored");
        buyer_name(records, terms, latest) == name
    }
}

fn fold(hash: u64) -> u32 {
    u32::try_from(hash >> 32).expect("32 bits are left")
}
