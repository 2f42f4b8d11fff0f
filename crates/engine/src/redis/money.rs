//! A payment counts once, in whichever pool, and bucket of it, it was seen first, although these
//! cells lie in different partitions and no script reaches two of them.
//!
//! A payment is reserved for a cell before it is told there, under a number that rises with every
//! new reservation (the fence). A cell that never took the payment can be made to leave it to
//! another: it notes the fence, and turns away whoever comes with an older one. Every step can be
//! repeated, and whoever dies in between leaves nothing that stands in the way of the next. Whoever
//! reserved it is given time to tell it first: otherwise tellers of several cells could take it from
//! one another for ever.

use std::sync::Arc;

use qiang_core::{ClaimId, Outcome, PayRequest, PaymentId, Refusal, Settlement};
use redis::{Pipeline, Value};

use super::cell::{CellId, Found, PartitionKeys};
use super::lanes::Patience;
use super::wire::{Ask, Paid, Said};
use super::{REGISTRY, Shared};
use crate::{Error, chain};

/// Changes of hands before somebody is told to ask again.
const MAX_ROUNDS: usize = 16;

/// Who has a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    text: String,
    cell: CellId,
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
        let Some(terms) = self.terms(pool).await? else {
            return Ok(Outcome::Refused(Refusal::NoSuchClaim));
        };
        let id = CellId::of_claim(pool, number, terms.buckets);
        let cell = self.cell(id);
        let mut borrow = terms.buckets > 1;
        let (mut turn, mut patience) = (None, Patience::start());
        for round in 1..=MAX_ROUNDS {
            let Some(fence) = self.reserve(&pay.payment, id, &mut patience).await? else {
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

    /// Reserves a payment for a cell and gives the fence; `None` when another one has it.
    async fn reserve(
        self: &Arc<Self>,
        payment: &PaymentId,
        cell: CellId,
        patience: &mut Patience,
    ) -> Result<Option<u32>, Error> {
        let mut expected = String::new();
        for _ in 0..MAX_ROUNDS {
            let owner = self.register(payment, cell, &expected).await?;
            if owner.cell == cell {
                return Ok(Some(owner.fence));
            }
            if !patience.pause().await {
                break;
            }
            if self.keeps(&owner, payment).await? {
                return Ok(None);
            }
            expected = owner.text;
        }
        Err(Error::Unavailable)
    }

    /// Whether the owner has taken the payment; if not, it never will under this fence.
    async fn keeps(self: &Arc<Self>, owner: &Owner, payment: &PaymentId) -> Result<bool, Error> {
        let ask = Ask::Disown { payment: payment.clone(), fence: owner.fence };
        let said = self.ask(&self.cell(owner.cell), ask).await?;
        Ok(matches!(said, Said::Owned))
    }

    async fn register(
        &self,
        payment: &PaymentId,
        cell: CellId,
        expected: &str,
    ) -> Result<Owner, Error> {
        let partition = self.partition_of_payment(payment);
        let era = self.era();
        if era.is_lost(partition) {
            return Err(Error::Unavailable);
        }
        let keys = PartitionKeys::new(&self.link.place().prefix, partition);
        let mut call = REGISTRY.call([&*keys.meta, &*keys.payers]);
        call.arg(payment.as_str()).arg(cell.to_string()).arg(expected);
        call.arg(era.name()).arg(era.reserved(partition));
        let mut pipe = Pipeline::with_capacity(2);
        pipe.add_command(call);
        self.add_wait(&mut pipe);
        // Reserving changes nothing anybody was told.
        let answers = self.ask_patiently(partition, &pipe).await.map_err(|failure| {
            tracing::warn!("a payment could not be reserved: {}", chain(&failure));
            Error::Unavailable
        })?;
        let is_replicated = self.is_replicated(&answers);
        let answer = answers.into_iter().next().unwrap_or(Value::Nil);
        let (what, text, count): (String, String, u64) =
            redis::from_redis_value(answer).unwrap_or_default();
        match (&*what, Owner::read(&text)) {
            ("ok", Some(owner)) => {
                era.raise_reserved(partition, count);
                if is_replicated { Ok(owner) } else { Err(Error::Unavailable) }
            }
            ("lost", _) => {
                era.lose_payments(partition, &text);
                Err(Error::Unavailable)
            }
            _ => {
                tracing::error!("the registry of payments answered nonsense");
                Err(Error::Unavailable)
            }
        }
    }
}

impl Owner {
    fn read(text: &str) -> Option<Self> {
        let (cell, fence) = text.split_once(':')?;
        let (cell, fence) = (CellId::parse(cell)?, fence.parse().ok()?);
        Some(Self { text: text.to_owned(), cell, fence })
    }
}
