//! What the rules ask, answered from a pool in memory.

use super::decide::{Buyer, Facts, Seen};
use super::records::Record;
use super::{Pool, Tally, buyer_name};
use crate::{
    Cents, Claim, PaymentId, PoolChange, PoolState, PoolView, RequestId, Terms, Timestamp, UserId,
};

impl Facts for Pool {
    fn state(&self) -> &PoolState {
        Pool::state(self)
    }

    fn view(&self) -> PoolView {
        Pool::view(self)
    }

    fn available(&self) -> u32 {
        self.available
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn claims(&self) -> u32 {
        Pool::claims(self)
    }

    fn claim(&self, number: u32) -> Option<Claim> {
        Pool::claim(self, number)
    }

    fn due(&self, number: u32) -> Option<Timestamp> {
        Pool::due(self, number)
    }

    fn replaced_by(&self, number: u32) -> Option<u32> {
        self.records.get(number).and_then(Record::replaced_by)
    }

    fn request(&self, user: &UserId, request: &RequestId) -> Option<u32> {
        let (user, request) = (user.as_str(), request.as_str());
        let found = self.requests.find(self.request_tag(user, request), |number| {
            let record = self.records.get(*number).expect("an indexed claim is stored");
            self.records.user(record) == user && self.records.request(record) == request
        });
        found.copied()
    }

    fn buyer(&self, name: &str) -> Option<Buyer> {
        let found = self.buyers.find(self.tag(name), |buyer| {
            let latest = self.records.get(buyer.latest).expect("a buyer's claim is stored");
            buyer_name(&self.records, &self.terms, latest) == name
        });
        found.copied()
    }

    fn payment(&self, payment: &PaymentId) -> Option<Seen> {
        let found = self.payments.find(self.tag(payment.as_str()), payment)?;
        Some(Seen { order: found.order, fate: found.fate })
    }

    fn next_portion(&self) -> Option<(u32, Cents)> {
        self.portions.next(&self.terms)
    }

    fn restock(&self, request: &RequestId) -> Option<u32> {
        self.history().iter().find_map(|state| match &state.change {
            PoolChange::Restocked { units, request: seen } if seen == request => Some(*units),
            _ => None,
        })
    }

    fn terms(&self) -> &Terms {
        &self.terms
    }
}
