//! The rules of qiang: who gets what, in which order, at which price.
//!
//! Everything a user can take is a *claim* on a *pool*. A command is decided against the
//! present state ([`decide`]) and gives either a refusal or one [`Event`]; the event is
//! then applied ([`Book::apply`]), which cannot fail. Recovery is `apply` alone.
//!
//! Nothing in this crate reads a clock, draws a random number, waits, or touches a disk: time
//! and ids are arguments. The same inputs give the same outputs, on every machine.

mod book;
mod claim;
mod command;
mod event;
mod handle;
mod ids;
mod money;
pub mod packets;
mod pool;
mod terms;
mod time;

pub use book::{Book, SnapshotCursor};
pub use claim::{Claim, Refund, RefundReason, ReleaseReason, State};
pub use command::{ClaimRequest, Command, Outcome, PayRequest, Refusal, Reply, Settlement};
pub use event::{Event, PoolChange, PoolState};
pub use handle::{Pools, handle};
pub use ids::{BadId, ClaimId, Identity, PaymentId, PoolId, RequestId, Snowflake, UserId};
pub use money::Cents;
pub use pool::decide::{self, Decision};
pub use pool::{Opened, Pool, PoolView, Tally};
pub use terms::{
    Fault, Flow, Kind, LimitBy, MAX_BUCKETS, MAX_UNITS, PriceStep, Reclaim, Supply, Terms,
};
pub use time::Timestamp;
