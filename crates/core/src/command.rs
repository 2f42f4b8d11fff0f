//! What can be asked of the rules, and what they can answer.
//!
//! A refusal is an answer, not an error: it is decided, final for that moment, and changed
//! nothing.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::{
    Cents, Claim, ClaimId, Identity, Kind, PaymentId, PoolId, PoolView, Refund, ReleaseReason,
    RequestId, Terms, Timestamp, UserId,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Open a pool. Asking again with the same terms gives the pool as it is.
    Open {
        /// The new pool's id.
        pool: PoolId,
        /// Its rules; checked by [`Terms::check`].
        terms: Arc<Terms>,
    },
    /// Take units.
    Claim(ClaimRequest),
    /// Place the order for a held claim.
    Order {
        claim: ClaimId,
        /// Who asks: `None` is the shop itself, a user may only touch their own.
        by: Option<UserId>,
    },
    /// Money arrived for an order.
    Pay(PayRequest),
    /// Give units and quota back.
    Release {
        claim: ClaimId,
        /// Who asks, as in `Order`.
        by: Option<UserId>,
        reason: ReleaseReason,
    },
    /// Take a paid order back: its units and quota are given back, and its payment is owed back.
    Revoke { claim: ClaimId },
    /// Add units to an open pool.
    Restock {
        pool: PoolId,
        /// How many more.
        units: NonZeroU32,
        /// Names the restock, so that a retry adds nothing.
        request: RequestId,
    },
    /// No more claims from now on; what was granted goes on.
    Close { pool: PoolId },
    /// Drop a closed pool whose claims are all settled.
    Clear { pool: PoolId },
    /// Owe back a payment that arrived for a cleared pool.
    Refund(PayRequest),
}

impl Command {
    /// The pool it is about.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        match self {
            Self::Open { pool, .. }
            | Self::Restock { pool, .. }
            | Self::Close { pool }
            | Self::Clear { pool } => *pool,
            Self::Claim(wish) => wish.pool,
            Self::Order { claim, .. } | Self::Release { claim, .. } | Self::Revoke { claim } => {
                claim.pool
            }
            Self::Pay(pay) | Self::Refund(pay) => pay.order.pool,
        }
    }

    /// Whether it is about the pool as a whole and answered with a [`PoolView`].
    #[must_use]
    pub fn is_of_pool(&self) -> bool {
        match self {
            Self::Open { .. } | Self::Restock { .. } | Self::Close { .. } | Self::Clear { .. } => {
                true
            }
            Self::Claim(_)
            | Self::Order { .. }
            | Self::Pay(_)
            | Self::Release { .. }
            | Self::Revoke { .. }
            | Self::Refund(_) => false,
        }
    }
}

/// A user's wish for units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// What the user takes the pool for. A pool of another kind is answered as if it did not
    /// exist.
    pub kind: Kind,
    /// From which pool.
    pub pool: PoolId,
    pub user: UserId,
    /// The real person behind the user, if known.
    pub identity: Option<Identity>,
    /// Names the request, so that a retry gets the first answer again.
    pub request: Option<RequestId>,
    pub quantity: NonZeroU32,
}

/// Money that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayRequest {
    /// For which order; an order has its claim's id.
    pub order: ClaimId,
    /// The provider's id of the payment.
    pub payment: PaymentId,
    pub amount: Cents,
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It happened now.
    Done(T),
    /// It had happened before; this is how it stands.
    Replayed(T),
    /// It did not happen, and nothing changed.
    Refused(Refusal),
}

impl<T> Outcome<T> {
    /// Applies `f` to the value; a refusal stays as it is.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(value) => Outcome::Done(f(value)),
            Self::Replayed(value) => Outcome::Replayed(f(value)),
            Self::Refused(refusal) => Outcome::Refused(refusal),
        }
    }
}

/// What a command answers with, by what it was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To `Open`, `Restock`, `Close`, `Clear`.
    Pool(Outcome<PoolView>),
    /// To `Claim`, `Order`, `Release`, `Revoke`.
    Claim(Outcome<Claim>),
    /// To `Pay`, `Refund`.
    Settlement(Outcome<Settlement>),
}

impl Reply {
    /// The answer to a command about a pool as a whole.
    ///
    /// # Panics
    ///
    /// When another kind of command was answered.
    #[must_use]
    pub fn into_pool(self) -> Outcome<PoolView> {
        match self {
            Self::Pool(outcome) => outcome,
            other => unreachable!("asked about a pool, answered {other:?}"),
        }
    }

    /// The answer to a command about a claim.
    ///
    /// # Panics
    ///
    /// When another kind of command was answered.
    #[must_use]
    pub fn into_claim(self) -> Outcome<Claim> {
        match self {
            Self::Claim(outcome) => outcome,
            other => unreachable!("asked about a claim, answered {other:?}"),
        }
    }

    /// The answer to a command about money.
    ///
    /// # Panics
    ///
    /// When another kind of command was answered.
    #[must_use]
    pub fn into_settlement(self) -> Outcome<Settlement> {
        match self {
            Self::Settlement(outcome) => outcome,
            other => unreachable!("asked about money, answered {other:?}"),
        }
    }
}

/// What became of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It paid the order.
    Paid(Claim),
    /// It came after the release; a new claim was granted and paid in its place.
    Regranted(Claim),
    /// It bought nothing and goes back.
    RefundDue(Refund),
}

/// Why a command is refused. [`decide::claim`](crate::decide::claim) says in which order a claim
/// is checked. Codes are part of the wire contract and never reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    NoSuchPool,
    NotOpenYet {
        opens_at: Timestamp,
    },
    /// It is over, by time or by hand.
    Closed,
    /// The pool counts real persons, and nobody knows who this user is.
    NotEligible,
    /// One for each buyer, and this one has it.
    AlreadyClaimed {
        /// The claim they have.
        claim: ClaimId,
    },
    /// More than one buyer may have.
    OverLimit {
        /// Units they have.
        had: u32,
        /// Units they may have.
        limit: u32,
    },
    /// Not enough left.
    SoldOut,
    /// There is no such claim, or it is somebody else's.
    NoSuchClaim,
    /// The claim was released; nothing can be done with it any more. As the answer to a claim: the
    /// buyer had one, it was released, and this pool gives nobody a second.
    Released,
    /// The claim is paid; it cannot be given back here.
    AlreadyPaid,
    /// No order was placed for the claim.
    NotOrdered,
    /// No payment has paid the claim, so there is none to give back.
    NotPaid,
    /// The payment id has been used for another order.
    PaymentConflict,
    /// The request id has been used for something else.
    RequestConflict,
    /// The pool exists with other terms, or existed once.
    PoolExists,
    /// More units than a pool can hold, or a pool of portions.
    CannotRestock,
    /// It is not closed, or claims are still open.
    PoolInUse,
    /// The pool was cleared; its records are in the store.
    Cleared,
}

impl Refusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchPool => "no_such_pool",
            Self::NotOpenYet { .. } => "not_open_yet",
            Self::Closed => "closed",
            Self::NotEligible => "not_eligible",
            Self::AlreadyClaimed { .. } => "already_claimed",
            Self::OverLimit { .. } => "over_limit",
            Self::SoldOut => "sold_out",
            Self::NoSuchClaim => "no_such_claim",
            Self::Released => "released",
            Self::AlreadyPaid => "already_paid",
            Self::NotOrdered => "not_ordered",
            Self::NotPaid => "not_paid",
            Self::PaymentConflict => "payment_conflict",
            Self::RequestConflict => "request_conflict",
            Self::PoolExists => "pool_exists",
            Self::CannotRestock => "cannot_restock",
            Self::PoolInUse => "pool_in_use",
            Self::Cleared => "cleared",
        }
    }
}
