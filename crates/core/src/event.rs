//! What leaves the rules: the record of one change, with the full new state and a version.
//!
//! An event carries everything and names its version. So whoever applies it takes it if it is
//! newer, and an event that comes twice or late does no harm. A snapshot is a shorter list of
//! events.

use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::{Claim, ClaimId, Kind, PoolId, Refund, RequestId, State, Terms, Timestamp};

/// Bytes of a payment's hash in the id of a refund: enough that no two meet.
const HASH_BYTES: usize = 16;

/// One change of one pool or one claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A pool was opened, restocked, closed or cleared.
    Pool(PoolState),
    /// A claim was granted, ordered, paid or released.
    Claim(Claim),
    /// Money has to go back.
    Refund(Refund),
}

impl Event {
    /// The pool it happened in.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        match self {
            Self::Pool(pool) => pool.id,
            Self::Claim(claim) => claim.id.pool,
            Self::Refund(refund) => refund.order.pool,
        }
    }

    /// When it happened.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Pool(pool) => pool.at,
            Self::Claim(claim) => claim.changed_at,
            Self::Refund(refund) => refund.at,
        }
    }

    /// What its pool is for.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Pool(pool) => pool.terms.kind,
            Self::Claim(claim) => claim.kind,
            Self::Refund(_) => Kind::Sale,
        }
    }

    /// Names it for ever, in at most 128 characters of `0-9`, `a-z`, `-` and `_`: what it is about,
    /// and the version it has since. A refund is named by the order and a hash of the payment.
    #[must_use]
    pub fn id(&self) -> String {
        match self {
            Self::Pool(pool) => format!("{}_{}", pool.id, pool.version),
            Self::Claim(claim) => format!("{}_{}", claim.id, claim.version),
            Self::Refund(refund) => {
                let mut id = format!("{}_refund_", refund.order);
                for byte in &Sha256::digest(refund.payment.as_str())[..HASH_BYTES] {
                    write!(id, "{byte:02x}").expect("a String takes everything");
                }
                id
            }
        }
    }

    /// The claim it is about, if it is about one.
    #[must_use]
    pub fn claim(&self) -> Option<ClaimId> {
        match self {
            Self::Pool(_) => None,
            Self::Claim(claim) => Some(claim.id),
            Self::Refund(refund) => Some(refund.order),
        }
    }

    /// The version of what it is about; a refund never changes.
    #[must_use]
    pub fn version(&self) -> u32 {
        match self {
            Self::Pool(pool) => pool.version,
            Self::Claim(claim) => claim.version,
            Self::Refund(_) => 1,
        }
    }

    /// Its name on the wire.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pool(pool) => match pool.change {
                PoolChange::Opened => "pool_opened",
                PoolChange::Restocked { .. } => "pool_restocked",
                PoolChange::Closed => "pool_closed",
                PoolChange::Cleared => "pool_cleared",
            },
            Self::Claim(claim) if claim.version == 1 => "claim_granted",
            Self::Claim(claim) => match claim.state {
                State::Held => "claim_granted",
                State::Ordered => "claim_ordered",
                State::Paid => "claim_paid",
                State::Released => "claim_released",
            },
            Self::Refund(_) => "refund_due",
        }
    }
}

/// A pool as one change left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolState {
    pub id: PoolId,
    /// 1 when opened, one more with every change.
    pub version: u32,
    pub change: PoolChange,
    pub terms: Arc<Terms>,
    /// All units it ever had.
    pub total: u32,
    /// When it was closed by hand.
    pub closed_at: Option<Timestamp>,
    /// When it changed.
    pub at: Timestamp,
}

/// What can happen to a pool as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolChange {
    /// It exists from now on.
    Opened,
    /// Units were added.
    Restocked {
        units: u32,
        /// By which request.
        request: RequestId,
    },
    /// No more claims.
    Closed,
    /// Out of the engine; the records stay.
    Cleared,
}
