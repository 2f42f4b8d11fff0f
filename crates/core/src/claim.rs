//! A claim and what can come of it.

use crate::{Cents, ClaimId, Identity, Kind, PaymentId, RequestId, Timestamp, UserId};

/// One user's take from a pool, with its full present state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What its pool is for.
    pub kind: Kind,
    /// `<pool>-<number>`
    pub id: ClaimId,
    pub user: UserId,
    /// The real person behind the user, where the pool asks for one.
    pub identity: Option<Identity>,
    /// The request that made it, if it had an id.
    pub request: Option<RequestId>,
    /// Units taken; 1 for a portion.
    pub quantity: u32,
    /// Price of a unit, or the value of the portion, fixed at the grant.
    pub unit_price: Cents,
    /// Which portion it took, from 0.
    pub portion: Option<u32>,
    pub state: State,
    /// 1 at the grant, one more with every change.
    pub version: u32,
    /// When it was granted.
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    /// A hold without an order is released at this time.
    pub hold_until: Option<Timestamp>,
    /// An unpaid order is released at this time.
    pub pay_by: Option<Timestamp>,
    /// The payment that paid it.
    pub payment: Option<PaymentId>,
    /// The released claim in whose place a late payment put this one.
    pub replaces: Option<u32>,
    /// Why it was released.
    pub reason: Option<ReleaseReason>,
}

impl Claim {
    /// What the claim costs.
    #[must_use]
    pub fn amount(&self) -> Cents {
        self.unit_price.times(self.quantity)
    }

    /// Whether an order was ever placed for it. An order has the claim's own id.
    #[must_use]
    pub fn has_order(&self) -> bool {
        match self.state {
            State::Held => false,
            State::Ordered | State::Paid => true,
            State::Released => self.pay_by.is_some() || self.payment.is_some(),
        }
    }

    /// What is owed back because the claim was revoked: all of the payment that had paid it. No
    /// event says so beside the claim's own.
    #[must_use]
    pub fn revoked(&self) -> Option<Refund> {
        if self.state != State::Released {
            return None;
        }
        let payment = self.payment.clone()?;
        let order = ClaimId { number: self.replaces.unwrap_or(self.id.number), ..self.id };
        let (amount, reason) = (self.amount(), RefundReason::Revoked);
        Some(Refund { order, payment, amount, reason, at: self.changed_at })
    }
}

/// `held → ordered → paid`, or `released`, once and for ever. Only the shop releases what is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// The unit is the user's to order (购买名额).
    Held,
    /// Ordered, not paid.
    Ordered,
    /// Paid: final, unless the shop revokes it.
    Paid,
    /// Given back: final.
    Released,
}

/// Why a claim was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseReason {
    /// The user gave the claim up.
    GaveUp,
    /// The order was cancelled.
    Cancelled,
    /// No order came in time.
    HoldExpired,
    /// No payment came in time.
    PayExpired,
    /// The shop took a paid order back; its money is owed back.
    Revoked,
}

/// Money that arrived for an order and is owed back, because it could not buy anything or because
/// what it bought was revoked. Only sales have orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refund {
    /// The order the money was meant for.
    pub order: ClaimId,
    /// The payment to give back.
    pub payment: PaymentId,
    /// How much of it: always all.
    pub amount: Cents,
    pub reason: RefundReason,
    /// When that was decided.
    pub at: Timestamp,
}

/// Why a payment goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefundReason {
    /// The claim was released, and could not be granted anew.
    Late,
    /// The order was paid already, by another payment.
    AlreadyPaid,
    /// Not the amount the order asks for.
    AmountMismatch,
    /// It came for a claim that was granted and then lost with the engine's memory.
    ClaimLost,
    /// It paid the order, and the shop took that back.
    Revoked,
}

/// Words for the values of an enum.
macro_rules! spelled {
    ($name:ident: $($variant:ident = $text:literal),+ $(,)?) => {
        impl $name {
            /// The word for it in JSON and SQL; never changed, never reused.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The value a word stands for.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

pub(crate) use spelled;

spelled!(State: Held = "held", Ordered = "ordered", Paid = "paid", Released = "released");
spelled!(ReleaseReason:
    GaveUp = "gave_up", Cancelled = "cancelled", HoldExpired = "hold_expired",
    PayExpired = "pay_expired", Revoked = "revoked",
);
spelled!(RefundReason:
    Late = "late", AlreadyPaid = "already_paid", AmountMismatch = "amount_mismatch",
    ClaimLost = "claim_lost", Revoked = "revoked",
);
