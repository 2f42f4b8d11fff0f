//! A claim and what can come of it.

use crate::{Cents, ClaimId, Identity, Kind, PaymentId, RequestId, Timestamp, UserId};

/// One user's take from a pool, with its full present state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What its pool is for.
    pub kind: Kind,
    /// `<pool>-<number>`
    pub id: ClaimId,
    /// Whose it is.
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
    /// Where it stands.
    pub state: State,
    /// 1 at the grant, one more with every change.
    pub version: u32,
    /// When it was granted.
    pub created_at: Timestamp,
    /// When it last changed.
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
            State::Released => self.pay_by.is_some(),
        }
    }
}

/// `held → ordered → paid`, or `released`, once and for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// The unit is the user's to order (购买名额).
    Held,
    /// Ordered, not paid.
    Ordered,
    /// Paid: final.
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
}

/// Money that arrived for an order and could not buy anything, and so is owed back. Only sales have
/// orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refund {
    /// The order the money was meant for.
    pub order: ClaimId,
    /// The payment to give back.
    pub payment: PaymentId,
    /// How much of it: always all.
    pub amount: Cents,
    /// Why.
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
    PayExpired = "pay_expired",
);
spelled!(RefundReason:
    Late = "late", AlreadyPaid = "already_paid", AmountMismatch = "amount_mismatch",
    ClaimLost = "claim_lost",
);
