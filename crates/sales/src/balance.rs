//! Orders paid from the buyer's own balance, and money that goes back to it.
//!
//! First the money is held. Then the engine is told of a payment whose id is the key of the hold. What the
//! engine answers ends the hold: it is posted if the payment paid, and voided if it did not. Each step happens
//! once by its key, so whoever died in between is finished by a worker, which asks the same again. Such a
//! hold never expires by itself.

use qiang_app::extract::Caller;
use qiang_app::problem::{Code, Problem};
use qiang_app::workers::{Failure, Turn};
use qiang_app::{App, Origin};
use qiang_core::{Cents, Claim, ClaimId, Command, Outcome, PayRequest, PaymentId, Settlement};
use qiang_store::accounts::{Account, Moved, Movement, Refusal, TransferKind, What};
use qiang_store::{RefundRecord, SettleOutcome};

use crate::Sales;
use crate::payments::settle;

/// Of movements that follow from what they are for, and from nothing that was asked.
const DERIVED: &str = "derived";
/// Holds and refunds that are finished in one turn.
const AT_ONCE: u32 = 100;

/// The key of the hold for an order, which is the id of its payment.
fn key(order: ClaimId) -> String {
    format!("order:{order}:pay")
}

/// The order that a key is for.
fn order_of(key: &str) -> Option<ClaimId> {
    key.strip_prefix("order:")?.strip_suffix(":pay")?.parse().ok()
}

/// Pays an order from the account of the one whose order it is.
pub(crate) async fn pay(
    sales: &Sales,
    origin: &Origin,
    caller: &Caller,
    claim: &Claim,
) -> Result<Outcome<Settlement>, Problem> {
    if caller.0.user != claim.user {
        let detail = "only the buyer pays from the buyer's account";
        return Err(Problem::new(Code::Forbidden).detail(detail));
    }
    let key = key(claim.id);
    let payment = PaymentId::new(&key).map_err(|_| Problem::new(Code::Internal))?;
    let is_paid = claim.state == qiang_core::State::Paid;
    if is_paid && claim.payment.as_ref() != Some(&payment) {
        return Err(Problem::new(Code::AlreadyPaid));
    }
    hold(&sales.app, &key, claim).await?;
    let pay = PayRequest { order: claim.id, payment, amount: claim.amount() };
    // From here on the worker pays the order if we do not.
    let outcome = settle(sales, origin, pay).await.map_err(|problem| unsure(&problem))?;
    end(&sales.app, &key, &outcome).await.map_err(|error| {
        tracing::warn!(key, "the payment is finished later: {}", qiang_engine::chain(&*error));
        Problem::new(Code::OutcomeUnknown)
    })?;
    Ok(outcome)
}

fn unsure(problem: &Problem) -> Problem {
    tracing::warn!("a payment is finished later: {}", problem.sentence());
    Problem::new(Code::OutcomeUnknown)
}

/// Holds what the order costs. Before anybody hears that there is not enough, what they grabbed is
/// recorded.
async fn hold(app: &App, key: &str, claim: &Claim) -> Result<(), Problem> {
    let what = What::Hold {
        from: Account::User(claim.user.clone()),
        to: Account::Outside,
        amount: claim.amount(),
        expires_at: None,
    };
    let mut held = one(app, key, what.clone()).await;
    if matches!(held, Ok(Moved::Refused(Refusal::InsufficientFunds { .. }))) {
        app.catch_up().await?;
        held = one(app, key, what).await;
    }
    match held.map_err(|error| {
        tracing::error!("money could not be held: {}", qiang_engine::chain(&error));
        Problem::new(Code::OutcomeUnknown)
    })? {
        Moved::Done(_) | Moved::Replayed(_) => Ok(()),
        Moved::Refused(Refusal::InsufficientFunds { available }) => {
            let available = u64::try_from(available.get()).unwrap_or(0);
            Err(Problem::new(Code::InsufficientFunds).number("available_cents", available))
        }
        Moved::Refused(refusal) => {
            tracing::error!(key, ?refusal, "what an order costs could not be held");
            Err(Problem::new(Code::Internal))
        }
    }
}

/// Ends the hold as the engine decided.
async fn end(app: &App, key: &str, outcome: &Outcome<Settlement>) -> Result<(), Failure> {
    let paid = match outcome {
        Outcome::Done(settlement) | Outcome::Replayed(settlement) => {
            matches!(settlement, Settlement::Paid(_) | Settlement::Regranted(_))
        }
        Outcome::Refused(_) => false,
    };
    let (ending, what) = if paid {
        ("post", What::Post { hold: key, amount: None })
    } else {
        ("void", What::Void { hold: key })
    };
    match one(app, &format!("{key}:{ending}"), what).await? {
        Moved::Done(_) | Moved::Replayed(_) => Ok(()),
        // It was posted, and the order was taken back since: the refund is on its way.
        Moved::Refused(Refusal::HoldOver { .. }) => Ok(()),
        Moved::Refused(refusal) => Err(format!("{key}: {refusal:?}").into()),
    }
}

async fn one(app: &App, key: &str, what: What<'_>) -> Result<Moved, qiang_store::Error> {
    let movement = Movement { key, request_hash: DERIVED, what };
    let moved = app.store.move_money(&[movement], app.now()).await?.pop();
    Ok(moved.expect("one movement has one result"))
}

impl Sales {
    /// One turn: finishes payments that somebody began, and gives back what is due to accounts. Two may do
    /// so at once.
    pub(crate) async fn finish_balance_payments(self) -> Turn {
        for (key, amount) in self.app.store.open_order_holds(AT_ONCE).await? {
            if let Some(order) = order_of(&key) {
                self.finish(&key, order, amount).await?;
            }
        }
        for record in self.app.store.refunds_to_accounts(AT_ONCE).await? {
            self.give_back(&record).await?;
        }
        Ok(())
    }

    async fn finish(&self, key: &str, order: ClaimId, amount: Cents) -> Turn {
        let pay = PayRequest { order, payment: PaymentId::new(key)?, amount };
        let outcome = self.app.engine.ask(Command::Pay(pay)).await?.into_settlement();
        end(&self.app, key, &outcome).await
    }

    /// Money that did not pay the order, or no longer does, is the buyer's again.
    async fn give_back(&self, record: &RefundRecord) -> Turn {
        let (app, refund) = (&self.app, &record.refund);
        let key = refund.payment.as_str();
        let Some(hold) = app.store.transfer(key).await? else { return Ok(()) };
        if hold.kind != TransferKind::Hold {
            return Ok(());
        }
        let voided = one(app, &format!("{key}:void"), What::Void { hold: key }).await?;
        if let Moved::Refused(Refusal::HoldOver { by: TransferKind::Post }) = voided {
            let (from, to) = (Account::Outside, hold.debit);
            let what = What::Transfer { from, to, amount: hold.amount };
            if let Moved::Refused(refusal) = one(app, &format!("{key}:refund"), what).await? {
                return Err(format!("{key} does not go back yet: {refusal:?}").into());
            }
        }
        match app.store.settle_refund(refund.order.pool, &refund.payment, app.now()).await? {
            SettleOutcome::Settled
            | SettleOutcome::AlreadySettled { .. }
            | SettleOutcome::NoSuchRefund => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_order() {
        let order: ClaimId = "12-7".parse().expect("an id");
        assert_eq!(order_of(&key(order)), Some(order));
        for other in ["order:12-7", "order:12:pay", "12-7:pay", "order:12-7:pay:void", ""] {
            assert_eq!(order_of(other), None, "{other}");
        }
        // The longest order's key is a payment id.
        let longest: ClaimId = format!("{}-{}", i64::MAX, u32::MAX).parse().expect("an id");
        assert!(PaymentId::new(&key(longest)).is_ok());
    }
}
