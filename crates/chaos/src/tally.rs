//! What buyers were told, and nothing else: the book that all others are held against.
//!
//! It knows answers, never the inside of a node. What contradicts an earlier answer is noted the
//! moment it is heard.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::http::text;
use crate::sales::{Deadlines, Sale};

/// More contradictions than these are only counted.
const MOST_NOTED: usize = 200;

/// Where a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Held,
    Ordered,
    Paid,
    Released,
}

impl State {
    pub(crate) fn read(word: &str) -> Option<Self> {
        match word {
            "held" => Some(Self::Held),
            "ordered" => Some(Self::Ordered),
            "paid" => Some(Self::Paid),
            "released" => Some(Self::Released),
            _ => None,
        }
    }
}

/// What its buyer has asked for, whether or not there was an answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Asked {
    pub(crate) order: bool,
    pub(crate) release: bool,
    pub(crate) payment: bool,
}

/// A claim that somebody was told is theirs.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) sale: String,
    pub(crate) user: String,
    /// What it was asked for with; empty if a late payment bought it.
    key: String,
    pub(crate) quantity: u32,
    pub(crate) told: State,
    /// When that was told, in milliseconds of the round.
    pub(crate) told_at: u64,
    pub(crate) asked: Asked,
    /// Whether it can run out of time.
    pub(crate) deadlines: Deadlines,
}

impl Claim {
    /// Whether it may stand there now, for all that its buyer knows.
    pub(crate) fn may_be(&self, now: State) -> bool {
        let ends = self.deadlines == Deadlines::Short || self.asked.release;
        match (self.told, now) {
            (told, now) if told == now => true,
            (State::Held, State::Ordered) => self.asked.order,
            (State::Held | State::Ordered, State::Paid) => self.asked.payment,
            (State::Held | State::Ordered, State::Released) => ends,
            _ => false,
        }
    }

    /// Whether its units are surely taken, by what was told.
    pub(crate) fn is_surely_taken(&self) -> bool {
        self.told == State::Paid
            || (self.told != State::Released
                && !self.asked.release
                && self.deadlines == Deadlines::Long)
    }
}

/// What became of a payment, as the provider was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It pays this order.
    Order(String),
    /// It is owed back.
    Refund(String),
    /// It was turned down, with this code.
    Refused(String),
}

/// Money that was sent.
#[derive(Debug, Clone)]
pub(crate) struct Payment {
    pub(crate) user: String,
    pub(crate) order: String,
    pub(crate) amount_cents: u64,
    /// `None` until there is an answer.
    pub(crate) settled: Option<Settled>,
    pub(crate) told_at: u64,
}

/// An answer that should not have been given.
#[derive(Debug, Clone)]
pub(crate) struct Wrong {
    pub(crate) what: String,
    /// When the answer was given that it contradicts. `None`: no loss could excuse it.
    pub(crate) against: Option<u64>,
}

/// The book.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sales: BTreeMap<String, Sale>,
    pub(crate) claims: BTreeMap<String, Claim>,
    pub(crate) payments: BTreeMap<String, Payment>,
    /// Requests without an answer to rely on, each time it was so.
    pub(crate) unknown: u64,
    /// The longest time between two grants, in milliseconds, and when the last one was.
    pub(crate) silence_ms: u64,
    last_grant: u64,
    /// Requests that never got one.
    pub(crate) unanswered: Vec<String>,
    pub(crate) wrong: Vec<Wrong>,
}

impl Tally {
    /// Notes what nothing excuses.
    pub(crate) fn complain(&mut self, what: String) {
        self.note(Wrong { what, against: None });
    }

    /// Notes what contradicts an answer that was given at a time.
    pub(crate) fn contradicts(&mut self, at: u64, what: String) {
        self.note(Wrong { what, against: Some(at) });
    }

    fn note(&mut self, wrong: Wrong) {
        if self.wrong.len() < MOST_NOTED {
            self.wrong.push(wrong);
        }
    }

    /// A claim was granted, or shown to have been granted before, under this key.
    pub(crate) fn granted(
        &mut self,
        user: &str,
        key: &str,
        view: &Value,
        at: u64,
    ) -> Option<State> {
        let (id, sale) = (text(view, "claim_id"), text(view, "sale_id"));
        let told = State::read(text(view, "state"));
        let quantity = view["quantity"].as_u64().and_then(|units| u32::try_from(units).ok());
        let known = self.sales.get(sale).map(|sale| sale.deadlines);
        let (Some(told), Some(quantity), Some(deadlines)) = (told, quantity, known) else {
            self.complain(format!("{user} was granted what makes no sense: {view}"));
            return None;
        };
        if text(view, "user_id") != user {
            self.complain(format!("{user} was told of somebody else's claim: {view}"));
            return None;
        }
        if let Some(other) = self.claims.get(id) {
            let (theirs, since) = (&other.user, other.told_at);
            if other.user == user && other.key == key {
                return Some(told);
            }
            self.complain(format!(
                "claim {id} was given to {theirs} (told at {since} ms) and to {user} (at {at} ms)"
            ));
            return None;
        }
        self.silence_ms = self.silence_ms.max(at.saturating_sub(self.last_grant));
        self.last_grant = at;
        let asked = Asked::default();
        let (sale, user, key) = (sale.to_owned(), user.to_owned(), key.to_owned());
        let claim = Claim { sale, user, key, quantity, told, told_at: at, asked, deadlines };
        self.claims.insert(id.to_owned(), claim);
        Some(told)
    }

    /// Somebody is about to ask for more.
    pub(crate) fn asks(&mut self, id: &str, ask: impl FnOnce(&mut Asked)) {
        if let Some(claim) = self.claims.get_mut(id) {
            ask(&mut claim.asked);
        }
    }

    /// A buyer was told where their claim stands.
    pub(crate) fn told(&mut self, id: &str, now: State, at: u64) {
        let Some(claim) = self.claims.get_mut(id) else { return };
        if claim.may_be(now) {
            (claim.told, claim.told_at) = (now, at);
        } else {
            let what = format!("claim {id} is told to be {now:?} at {at} ms: {claim:?}");
            let before = claim.told_at;
            self.contradicts(before, what);
        }
    }

    /// A buyer was told that there is no such claim.
    pub(crate) fn is_missing(&mut self, id: &str, what: &str) {
        let Some(claim) = self.claims.get(id) else { return };
        let (before, what) = (claim.told_at, format!("{what}: it is not there: {claim:?}"));
        self.contradicts(before, what);
    }

    /// Money is about to be sent.
    pub(crate) fn sends(&mut self, payment: &str, order: &str, user: &str, amount_cents: u64) {
        self.asks(order, |asked| asked.payment = true);
        let (order, user) = (order.to_owned(), user.to_owned());
        let sent = Payment { user, order, amount_cents, settled: None, told_at: 0 };
        self.payments.insert(payment.to_owned(), sent);
    }

    /// The provider was told what became of a payment.
    pub(crate) fn settled(&mut self, id: &str, now: Settled, at: u64) {
        let Some(payment) = self.payments.get_mut(id) else { return };
        match &payment.settled {
            Some(before) if *before != now => {
                let what = format!("payment {id} was {before:?} and is {now:?}: {payment:?}");
                let before = payment.told_at;
                self.contradicts(before, what);
            }
            Some(_) => {}
            None => (payment.settled, payment.told_at) = (Some(now), at),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Settled, State, Tally};
    use crate::sales;

    fn tally() -> Tally {
        let mut tally = Tally::default();
        for sale in sales::generation(0) {
            tally.sales.insert(sale.id.clone(), sale);
        }
        tally
    }

    fn grant(tally: &mut Tally, user: &str, key: &str, id: &str, state: &str) {
        let sale = id.split('-').next().unwrap();
        let view = json!({ "claim_id": id, "sale_id": sale, "state": state, "user_id": user,
            "quantity": 1 });
        tally.granted(user, key, &view, 5);
    }

    #[test]
    fn one_number_for_two_buyers_is_wrong_and_a_repetition_is_not() {
        let mut tally = tally();
        grant(&mut tally, "a", "k", "10-1", "ordered");
        grant(&mut tally, "a", "k", "10-1", "ordered");
        assert!(tally.wrong.is_empty(), "{:?}", tally.wrong);
        grant(&mut tally, "b", "l", "10-1", "ordered");
        grant(&mut tally, "a", "m", "10-1", "ordered");
        assert_eq!(tally.wrong.len(), 2, "{:?}", tally.wrong);
    }

    #[test]
    fn a_claim_goes_only_where_its_buyer_or_its_deadline_sent_it() {
        let mut tally = tally();
        grant(&mut tally, "a", "k", "10-1", "ordered");
        tally.told("10-1", State::Released, 6);
        assert_eq!(tally.wrong.len(), 1, "nobody gave it up");
        tally.asks("10-1", |asked| asked.release = true);
        tally.told("10-1", State::Released, 7);
        tally.told("10-1", State::Ordered, 8);
        assert_eq!(tally.wrong.len(), 2, "released is final");
        grant(&mut tally, "b", "l", "11-1", "held");
        tally.told("11-1", State::Released, 9);
        assert_eq!(tally.wrong.len(), 2, "its time may be over");
    }

    #[test]
    fn a_payment_has_one_outcome() {
        let mut tally = tally();
        grant(&mut tally, "a", "k", "10-1", "ordered");
        tally.sends("p", "10-1", "a", 100);
        for _ in 0..2 {
            tally.settled("p", Settled::Order("10-1".into()), 9);
        }
        assert!(tally.wrong.is_empty(), "{:?}", tally.wrong);
        tally.settled("p", Settled::Refund("late".into()), 10);
        assert_eq!(tally.wrong.len(), 1);
    }
}
