//! The part of a pool that a batch of commands needs, read from the tables.
//!
//! It answers what the rules ask ([`Facts`]), takes over what they decide, and remembers beside
//! everything how it lies in the table, so that exactly the difference is written. Asking for
//! something that was not read is a bug, and a panic: "not there" would be a wrong answer.
//!
//! The invariants of a pool are asserted after every change: nothing that breaks one is written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use qiang_core::decide::{Buyer, Facts, Fate, Seen};
use qiang_core::{
    Cents, Claim, Event, LimitBy, PaymentId, PoolChange, PoolState, PoolView, Reclaim, Refund,
    RequestId, State, Supply, Tally, Terms, Timestamp, UserId,
};

/// A pool as a row says, with what was read of the rows that belong to it.
#[derive(Debug)]
pub(super) struct Excerpt {
    pub(super) state: PoolState,
    pub(super) opened_at: Timestamp,
    pub(super) counts: Counts,
    /// How the row lies in the table; `None` when the pool was opened just now.
    pub(super) stored: Option<Counts>,
    pub(super) claims: BTreeMap<u32, Entry<Row>>,
    pub(super) buyers: BTreeMap<String, Quota>,
    /// Who has a portion; 0 is nobody.
    pub(super) portions: BTreeMap<u32, Entry<u32>>,
    /// The lowest portions that came back: as many as the batch can take, or all of them.
    free: BTreeSet<u32>,
    requests: HashMap<(UserId, RequestId), Option<u32>>,
    payments: HashMap<PaymentId, Seen>,
    restocks: HashMap<RequestId, Option<u32>>,
    pub(super) new_payments: Vec<NewPayment>,
    /// Payments of the batch whose rows are left over from before the pool was cleared.
    pub(super) stale: Vec<PaymentId>,
    pub(super) new_restock: Option<(RequestId, u32)>,
}

/// What a pool counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) version: u32,
    pub(super) available: u32,
    pub(super) tally: Tally,
    pub(super) claims: u32,
    pub(super) payments: u32,
    /// Those among the payments that go back.
    pub(super) refunds: u32,
    /// The place of the next payment; never used again, also not when payments are forgotten.
    pub(super) next_place: u32,
    /// Portions from here on were never taken.
    pub(super) fresh: u32,
}

/// Something that lies in a table, and what it is now.
#[derive(Debug, Clone)]
pub(super) struct Entry<T> {
    pub(super) stored: Option<T>,
    pub(super) now: T,
}

impl<T: PartialEq> Entry<T> {
    pub(super) fn changed(&self) -> bool {
        self.stored.as_ref() != Some(&self.now)
    }
}

/// What a buyer has in the table, and what now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quota {
    pub(super) stored: Option<Buyer>,
    pub(super) now: Option<Buyer>,
}

/// A row of the claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) claim: Claim,
    pub(super) replaced_by: Option<u32>,
}

/// A payment that was not seen before.
#[derive(Debug)]
pub(super) struct NewPayment {
    pub(super) payment: PaymentId,
    pub(super) place: u32,
    pub(super) seen: Seen,
}

impl Excerpt {
    /// A pool that is being opened.
    pub(super) fn opened(state: PoolState) -> Self {
        let counts = Counts { version: 0, available: state.total, ..Counts::default() };
        let opened_at = state.at;
        Self { stored: None, ..Self::new(state, opened_at, counts) }
    }

    /// A pool as its row says.
    pub(super) fn new(state: PoolState, opened_at: Timestamp, counts: Counts) -> Self {
        Self {
            state,
            opened_at,
            counts,
            stored: Some(counts),
            claims: BTreeMap::new(),
            buyers: BTreeMap::new(),
            portions: BTreeMap::new(),
            free: BTreeSet::new(),
            requests: HashMap::new(),
            payments: HashMap::new(),
            restocks: HashMap::new(),
            new_payments: Vec::new(),
            stale: Vec::new(),
            new_restock: None,
        }
    }

    pub(super) fn is_cleared(&self) -> bool {
        self.state.change == PoolChange::Cleared
    }

    /// Whether something in it can still run out.
    pub(super) fn has_open_claims(&self) -> bool {
        self.counts.tally.held + self.counts.tally.ordered > 0
    }

    /// Takes in a claim that was read, unless it was read before.
    pub(super) fn add_claim(&mut self, row: Row) {
        let claim = &row.claim;
        if let Some(request) = &claim.request {
            self.requests.insert((claim.user.clone(), request.clone()), Some(claim.id.number));
        }
        let entry = Entry { stored: Some(row.clone()), now: row };
        self.claims.entry(entry.now.claim.id.number).or_insert(entry);
    }

    /// Notes that a request was looked for; [`Excerpt::add_claim`] says that it was found.
    pub(super) fn looked_for_request(&mut self, user: &UserId, request: &RequestId) {
        self.requests.entry((user.clone(), request.clone())).or_insert(None);
    }

    /// Takes in what a buyer has, or that they have nothing.
    pub(super) fn add_buyer(&mut self, name: &str, stored: Option<Buyer>) {
        self.buyers.entry(name.to_owned()).or_insert(Quota { stored, now: stored });
    }

    /// Takes in a portion that came back.
    pub(super) fn add_free(&mut self, place: u32) {
        self.portions.entry(place).or_insert(Entry { stored: Some(0), now: 0 });
        self.free.insert(place);
    }

    pub(super) fn add_payment(&mut self, payment: PaymentId, seen: Seen) {
        self.payments.insert(payment, seen);
    }

    pub(super) fn add_restock(&mut self, request: RequestId, units: Option<u32>) {
        self.restocks.insert(request, units);
    }

    /// Takes over what was decided on this very excerpt.
    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::Pool(state) => self.apply_pool(state),
            Event::Claim(claim) if claim.version == 1 => self.apply_grant(claim),
            Event::Claim(claim) => self.apply_change(claim),
            Event::Refund(refund) => {
                let Refund { order, amount, reason, at, .. } = *refund;
                let fate = Fate::Refund { amount, reason, at };
                self.counts.refunds += 1;
                self.new_payment(&refund.payment, Seen { order: order.number, fate });
            }
        }
        let Counts { available, tally, .. } = self.counts;
        assert!(
            self.is_cleared() || available + tally.taken() == self.state.total,
            "pool {}: {available} available and {tally:?} are not {} in total",
            self.state.id,
            self.state.total,
        );
    }

    fn apply_pool(&mut self, state: &PoolState) {
        assert_eq!(state.version, self.counts.version + 1, "no change is missing");
        self.counts.version = state.version;
        match &state.change {
            PoolChange::Opened | PoolChange::Closed => {}
            PoolChange::Restocked { units, request } => {
                self.counts.available += units;
                self.restocks.insert(request.clone(), Some(*units));
                self.new_restock = Some((request.clone(), *units));
            }
            PoolChange::Cleared => {
                let Counts { version, refunds, next_place, .. } = self.counts;
                self.counts =
                    Counts { version, payments: refunds, refunds, next_place, ..Counts::default() };
            }
        }
        self.state = state.clone();
    }

    fn apply_grant(&mut self, claim: &Claim) {
        let number = claim.id.number;
        assert_eq!(number, self.counts.claims + 1, "no claim is missing");
        self.counts.claims = number;
        let units = units_in(&mut self.counts.tally, claim.state);
        *units.expect("a grant is never released at once") += claim.quantity;
        let left = self.counts.available.checked_sub(claim.quantity);
        self.counts.available = left.expect("never oversold");
        if let Some(place) = claim.portion {
            self.take_portion(place, number);
        }
        let uses = match self.state.terms.reclaim {
            // A claim that a late payment put in the place of a released one uses its quota.
            Reclaim::Never if claim.replaces.is_some() => 0,
            Reclaim::Never | Reclaim::Allowed => claim.quantity,
        };
        let buyer = self.buyers.get_mut(buyer_name(&self.state.terms, claim));
        let buyer = &mut buyer.expect("everybody in the batch was looked up").now;
        let used = buyer.map_or(0, |buyer| buyer.used) + uses;
        assert!(used <= self.state.terms.limit_per_user, "nobody has more than the limit");
        *buyer = Some(Buyer { latest: number, used });
        if let Some(request) = &claim.request {
            self.requests.insert((claim.user.clone(), request.clone()), Some(number));
        }
        if let Some(replaced) = claim.replaces {
            let row = &mut self.entry(replaced).now;
            assert_eq!(row.claim.state, State::Released, "only released claims are replaced");
            row.replaced_by = Some(number);
        }
        let row = Row { claim: claim.clone(), replaced_by: None };
        self.claims.insert(number, Entry { stored: None, now: row });
        self.note_payment(claim);
    }

    fn apply_change(&mut self, claim: &Claim) {
        let row = &mut self.entry(claim.id.number).now;
        assert_eq!(claim.version, row.claim.version + 1, "no change is missing");
        let was = row.claim.state;
        let paid_before = row.claim.payment.is_some();
        row.claim = claim.clone();
        let left = units_in(&mut self.counts.tally, was).expect("only open claims change");
        *left = left.checked_sub(claim.quantity).expect("a claim leaves a state once");
        match units_in(&mut self.counts.tally, claim.state) {
            Some(units) => *units += claim.quantity,
            None => self.give_back(claim),
        }
        if !paid_before {
            self.note_payment(claim);
        }
    }

    fn give_back(&mut self, claim: &Claim) {
        self.counts.available += claim.quantity;
        if let Some(place) = claim.portion {
            let number = claim.id.number;
            let taken = Entry { stored: Some(number), now: number };
            let portion = self.portions.entry(place).or_insert(taken);
            assert_eq!(portion.now, number, "only a taken portion comes back");
            portion.now = 0;
            self.free.insert(place);
        }
        if self.state.terms.reclaim == Reclaim::Allowed {
            let buyer = self.buyers.get_mut(buyer_name(&self.state.terms, claim));
            let buyer = buyer.expect("everybody in the batch was looked up").now.as_mut();
            let buyer = buyer.expect("everybody with a claim is known");
            buyer.used = buyer.used.checked_sub(claim.quantity).expect("quota comes back once");
        }
    }

    fn take_portion(&mut self, place: u32, by: u32) {
        if self.free.first() == Some(&place) {
            self.free.pop_first();
            self.portions.get_mut(&place).expect("a free portion is known").now = by;
        } else {
            assert_eq!(place, self.counts.fresh, "portions are taken from the lowest on");
            self.counts.fresh += 1;
            self.portions.insert(place, Entry { stored: None, now: by });
        }
    }

    fn note_payment(&mut self, claim: &Claim) {
        if let Some(payment) = &claim.payment {
            let number = claim.id.number;
            let order = claim.replaces.unwrap_or(number);
            self.new_payment(payment, Seen { order, fate: Fate::Paid { claim: number } });
        }
    }

    fn new_payment(&mut self, payment: &PaymentId, seen: Seen) {
        assert!(self.payments.insert(payment.clone(), seen).is_none(), "a payment counts once");
        let place = self.counts.next_place;
        self.counts.next_place += 1;
        self.counts.payments += 1;
        self.new_payments.push(NewPayment { payment: payment.clone(), place, seen });
    }

    /// What a pool of portions has left. Whoever wants a view has read all portions that came back.
    fn cents_left(&self) -> Option<Cents> {
        let returned = self.free.iter().copied().filter(|_| !self.is_cleared());
        let fresh = if self.is_cleared() { self.state.total } else { self.counts.fresh };
        self.state.terms.cents_left(fresh, returned)
    }

    fn entry(&mut self, number: u32) -> &mut Entry<Row> {
        self.claims.get_mut(&number).expect("every claim of the batch was read")
    }
}

impl Facts for Excerpt {
    fn state(&self) -> &PoolState {
        &self.state
    }

    fn view(&self) -> PoolView {
        let Counts { available, tally, claims, payments, .. } = self.counts;
        PoolView {
            id: self.state.id,
            terms: Arc::clone(&self.state.terms),
            version: self.state.version,
            total: self.state.total,
            available,
            cents_left: self.cents_left(),
            tally,
            claims,
            payments,
            opened_at: self.opened_at,
            closed_at: self.state.closed_at,
            cleared: self.is_cleared(),
        }
    }

    fn available(&self) -> u32 {
        self.counts.available
    }

    fn tally(&self) -> Tally {
        self.counts.tally
    }

    fn claims(&self) -> u32 {
        self.counts.claims
    }

    fn claim(&self, number: u32) -> Option<Claim> {
        if !(1..=self.counts.claims).contains(&number) {
            return None;
        }
        let entry = self.claims.get(&number).expect("every claim of the batch was read");
        Some(entry.now.claim.clone())
    }

    fn due(&self, number: u32) -> Option<Timestamp> {
        due(&self.claims.get(&number).expect("every claim of the batch was read").now.claim)
    }

    fn replaced_by(&self, number: u32) -> Option<u32> {
        self.claims.get(&number).expect("every claim of the batch was read").now.replaced_by
    }

    fn request(&self, user: &UserId, request: &RequestId) -> Option<u32> {
        let found = self.requests.get(&(user.clone(), request.clone()));
        *found.expect("every request of the batch was looked for")
    }

    fn buyer(&self, name: &str) -> Option<Buyer> {
        self.buyers.get(name).expect("everybody in the batch was looked up").now
    }

    fn payment(&self, payment: &PaymentId) -> Option<Seen> {
        self.payments.get(payment).copied()
    }

    fn next_portion(&self) -> Option<(u32, Cents)> {
        let Supply::Portions(cut) = &self.state.terms.supply else { return None };
        let place = self.free.first().copied().unwrap_or(self.counts.fresh);
        cut.get(place as usize).map(|value| (place, *value))
    }

    fn restock(&self, request: &RequestId) -> Option<u32> {
        *self.restocks.get(request).expect("every restock of the batch was looked for")
    }
}

/// When a claim runs out, if it still can.
pub(super) fn due(claim: &Claim) -> Option<Timestamp> {
    match claim.state {
        State::Held => claim.hold_until,
        State::Ordered => claim.pay_by,
        State::Paid | State::Released => None,
    }
}

/// The name that the quota of a claim is counted under.
pub(super) fn buyer_name<'a>(terms: &Terms, claim: &'a Claim) -> &'a str {
    match (terms.limit_by, &claim.identity) {
        (LimitBy::Identity, Some(identity)) => identity.as_str(),
        (LimitBy::User, _) => claim.user.as_str(),
        (LimitBy::Identity, None) => unreachable!("a claim on persons has its person"),
    }
}

fn units_in(tally: &mut Tally, state: State) -> Option<&mut u32> {
    match state {
        State::Held => Some(&mut tally.held),
        State::Ordered => Some(&mut tally.ordered),
        State::Paid => Some(&mut tally.paid),
        State::Released => None,
    }
}
