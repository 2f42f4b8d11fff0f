//! A payment counts once in a pool, in the bucket in which it was seen first, although buckets lie in
//! different partitions and no script reaches two of them.
//!
//! In a pool with buckets a payment is reserved for a bucket before it is told there. One of the
//! pool's own buckets, given by the payment's id, keeps the reservation, so that no other sale's
//! server has a say. A reservation has a number that rises whenever it changes hands (the fence). A
//! bucket that never took the payment can be made to leave it to another: it notes the fence, and
//! turns away whoever comes with an older one. Every step can be repeated, and whoever dies in between
//! leaves nothing that stands in the way of the next. Whoever reserved it is given time to tell it
//! first: otherwise tellers of several buckets could take it from one another for ever.

use std::sync::Arc;

use qiang_core::{ClaimId, Kind, Outcome, PayRequest, PaymentId, Refusal, Settlement};

use super::Shared;
use super::cell::{CellId, Found};
use super::lanes::Patience;
use super::wire::{Ask, Paid, Said};
use crate::Error;

/// Changes of hands before somebody is told to ask again.
const MAX_ROUNDS: usize = 16;
/// The fence in a pool without buckets, where nobody else can have a payment.
const NO_FENCE: u32 = 1;

/// Who has a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    text: String,
    bucket: u16,
    fence: u32,
}

/// What to do with the money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Pay,
    Refund,
}

impl Shared {
    pub(super) async fn money(
        self: &Arc<Self>,
        pay: PayRequest,
        doing: Doing,
    ) -> Result<Outcome<Settlement>, Error> {
        let ClaimId { pool, number } = pay.order;
        let terms = self.terms(pool).await?;
        let Some(terms) = terms.filter(|terms| terms.kind == Kind::Sale) else {
            return Ok(Outcome::Refused(Refusal::NoSuchClaim));
        };
        let id = CellId::of_claim(pool, number, terms.buckets);
        let cell = self.bucket(id, terms.buckets);
        let spread = terms.buckets > 1;
        let mut borrow = spread;
        let (mut turn, mut patience) = (None, Patience::start());
        for round in 1..=MAX_ROUNDS {
            let fence = match spread {
                true => self.reserve(&pay.payment, id, terms.buckets, &mut patience).await?,
                false => Some(NO_FENCE),
            };
            let Some(fence) = fence else {
                return Ok(Outcome::Refused(Refusal::PaymentConflict));
            };
            let ask = match doing {
                Doing::Pay => Ask::Pay { pay: pay.clone(), fence, borrow },
                Doing::Refund => Ask::Refund { pay: pay.clone(), fence },
            };
            match self.ask(&cell, ask).await? {
                Said::Money(Paid::Settled(outcome)) => return Ok(outcome),
                Said::Money(Paid::Elsewhere) => {}
                Said::Money(Paid::NeedsStock) => {
                    let Said::Found(Some(claim)) = self.ask(&cell, Ask::Find { number }).await?
                    else {
                        continue;
                    };
                    // What was brought may be sold before the money is back; it is not owed back
                    // for that as long as there is more.
                    drop(turn.take());
                    let (found, own) = self.search(&cell, &terms, claim.quantity).await?;
                    turn = Some(own);
                    borrow = found == Found::Some && round + 1 < MAX_ROUNDS;
                }
                other => unreachable!("asked about money, answered {other:?}"),
            }
        }
        Err(Error::Unavailable)
    }

    /// Reserves a payment for a bucket and gives the fence; `None` when another one has it.
    async fn reserve(
        self: &Arc<Self>,
        payment: &PaymentId,
        cell: CellId,
        buckets: u16,
        patience: &mut Patience,
    ) -> Result<Option<u32>, Error> {
        let keeper = CellId { pool: cell.pool, bucket: keeper_of(payment, buckets) };
        let keeper = self.cell(keeper);
        let mut expected = String::new();
        for _ in 0..MAX_ROUNDS {
            let (payment, bucket) = (payment.clone(), cell.bucket);
            let ask = Ask::Reserve { payment: payment.clone(), bucket, expected };
            // Reserving changes nothing anybody was told.
            let owner = match self.ask(&keeper, ask).await {
                Ok(Said::Owner(text)) => Owner::read(&text).ok_or(Error::Unavailable)?,
                Ok(_) | Err(Error::OutcomeUnknown) => return Err(Error::Unavailable),
                Err(error) => return Err(error),
            };
            if owner.bucket == cell.bucket {
                return Ok(Some(owner.fence));
            }
            if !patience.pause().await {
                break;
            }
            let other = self.cell(CellId { pool: cell.pool, bucket: owner.bucket });
            // If it has not taken the payment by now, it never will under this fence.
            if let Said::Owned =
                self.ask(&other, Ask::Leave { payment, fence: owner.fence }).await?
            {
                return Ok(None);
            }
            expected = owner.text;
        }
        Err(Error::Unavailable)
    }
}

/// The bucket that keeps which bucket of its pool a payment counts in.
pub(super) fn keeper_of(payment: &PaymentId, buckets: u16) -> u16 {
    let place = crc32fast::hash(payment.as_str().as_bytes()) % u32::from(buckets);
    u16::try_from(place).expect("less than the buckets")
}

impl Owner {
    fn read(text: &str) -> Option<Self> {
        let (bucket, fence) = text.split_once(':')?;
        let (bucket, fence) = (bucket.parse().ok()?, fence.parse().ok()?);
        Some(Self { text: text.to_owned(), bucket, fence })
    }
}
