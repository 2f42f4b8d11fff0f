//! The payments a pool has seen, each once: what it was for, and what became of it.

use super::decide::Fate;
use super::index::Index;
use super::records::Text;
use crate::{ClaimId, PaymentId, PoolId, Refund};

#[derive(Debug)]
pub(super) struct Payments {
    all: Vec<Payment>,
    text: Text,
    by_id: Index<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Payment {
    text: u64,
    len: u8,
    /// The order it was meant for.
    pub(super) order: u32,
    pub(super) fate: Fate,
}

impl Payments {
    pub(super) fn new(expected: u32) -> Self {
        Self { all: Vec::new(), text: Text::default(), by_id: Index::for_expected(expected) }
    }

    pub(super) fn find(&self, tag: u32, id: &PaymentId) -> Option<&Payment> {
        let same = |place: &u32| self.id(&self.all[*place as usize]) == id.as_str();
        self.by_id.find(tag, same).map(|place| &self.all[*place as usize])
    }

    /// Adds a payment not seen before and says its place, from 1.
    pub(super) fn insert(&mut self, tag: u32, id: &PaymentId, order: u32, fate: Fate) -> u32 {
        let place = u32::try_from(self.all.len()).expect("fewer payments than numbers");
        let len = u8::try_from(id.as_str().len()).expect("ids have at most 128 bytes");
        self.all.push(Payment { text: self.text.push([id.as_str()]), len, order, fate });
        self.by_id.insert(tag, place);
        place + 1
    }

    /// The id of the payment at a place given by [`Payments::insert`].
    pub(super) fn id_at(&self, place: u32) -> Option<PaymentId> {
        let payment = self.all.get(place.checked_sub(1)? as usize)?;
        Some(PaymentId::stored(self.id(payment)))
    }

    /// The refunds among the payments from the `from`th on, each with its place.
    pub(super) fn refunds_from(
        &self,
        pool: PoolId,
        from: usize,
    ) -> impl Iterator<Item = (usize, Refund)> + '_ {
        let rest = self.all.iter().enumerate().skip(from);
        rest.filter_map(move |(place, payment)| Some((place, self.refund(pool, payment)?)))
    }

    /// The refund a payment ended in, if it did.
    fn refund(&self, pool: PoolId, payment: &Payment) -> Option<Refund> {
        let Fate::Refund { amount, reason, at } = payment.fate else { return None };
        let order = ClaimId { pool, number: payment.order };
        Some(Refund { order, payment: PaymentId::stored(self.id(payment)), amount, reason, at })
    }

    /// How many were seen.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    fn id(&self, payment: &Payment) -> &str {
        self.text.get(payment.text, 0, payment.len)
    }
}
