//! A sale as the world sees it.

use qiang_core::{Flow, LimitBy, PoolView, Reclaim, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::terms::{FlowWord, LimitByWord, PriceStepBody, ReclaimWord};
use qiang_app::{json_time, schema};

/// A sale and where it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct SaleView {
    /// Its id.
    #[schema(value_type = schema::SaleId)]
    pub id: String,
    /// What buyers read.
    #[schema(value_type = schema::Title)]
    pub title: String,
    /// The shop's own name for the goods.
    #[schema(value_type = schema::Sku)]
    pub sku: String,
    /// Where it stands at `server_time`.
    pub status: SaleStatus,
    /// All units it ever had.
    pub stock: u32,
    /// Units left.
    pub available: u32,
    /// Units held, not ordered.
    pub held: u32,
    /// Units ordered, not paid.
    pub ordered: u32,
    /// Units paid.
    pub paid: u32,
    /// Units one buyer may have.
    pub limit_per_user: u32,
    /// Who counts as one buyer.
    pub limit_by: LimitByWord,
    /// Price of the next unit in cents.
    #[schema(minimum = 0, maximum = 1000000000, example = 9900)]
    pub price_cents: i64,
    /// How the price rises.
    pub price_steps: Vec<PriceStepBody>,
    /// When it opens.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub opens_at: Timestamp,
    /// When it closes by itself.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub closes_at: Option<Timestamp>,
    /// When it was closed by hand.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub closed_at: Option<Timestamp>,
    /// What a granted claim goes through.
    pub flow: FlowWord,
    /// Seconds a hold lasts.
    pub hold_secs: Option<u64>,
    /// Seconds an order may stay unpaid.
    pub pay_secs: Option<u64>,
    /// Whether a released user may claim again.
    pub reclaim: ReclaimWord,
    /// Over how many partitions of a shared engine it is spread.
    pub buckets: u16,
    /// Counts the changes of the sale as a whole.
    pub version: u32,
    /// When it was made.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub created_at: Timestamp,
    /// The server's clock, for countdowns.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub server_time: Timestamp,
}

/// Where a sale stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SaleStatus {
    /// It opens later.
    Scheduled,
    /// Units can be claimed.
    Open,
    /// Nothing left at the moment; a release brings units back.
    SoldOut,
    /// Over.
    Closed,
    /// Over, and out of the engine.
    Cleared,
}

impl SaleView {
    /// The view of a pool at a time.
    #[must_use]
    pub fn of(pool: &PoolView, now: Timestamp) -> Self {
        let terms = &pool.terms;
        let (flow, hold_ms, pay_ms) = match terms.flow {
            Flow::Instant => (FlowWord::Instant, None, None),
            Flow::Order { pay_ms } => (FlowWord::Order, None, Some(pay_ms)),
            Flow::Hold { hold_ms, pay_ms } => (FlowWord::Hold, Some(hold_ms), Some(pay_ms)),
        };
        Self {
            id: pool.id.to_string(),
            title: terms.title.to_string(),
            sku: terms.sku.to_string(),
            status: status(pool, now),
            stock: pool.total,
            available: pool.available,
            held: pool.tally.held,
            ordered: pool.tally.ordered,
            paid: pool.tally.paid,
            limit_per_user: terms.limit_per_user,
            limit_by: match terms.limit_by {
                LimitBy::User => LimitByWord::User,
                LimitBy::Identity => LimitByWord::Identity,
            },
            price_cents: terms.price_after(pool.tally.taken()).get(),
            price_steps: terms
                .price_steps
                .iter()
                .map(|step| PriceStepBody {
                    after_sold: step.after_sold.into(),
                    price_cents: step.price.get(),
                })
                .collect(),
            opens_at: terms.opens_at,
            closes_at: terms.closes_at,
            closed_at: pool.closed_at,
            flow,
            hold_secs: hold_ms.map(|ms| ms / 1000),
            pay_secs: pay_ms.map(|ms| ms / 1000),
            reclaim: match terms.reclaim {
                Reclaim::Allowed => ReclaimWord::Allowed,
                Reclaim::Never => ReclaimWord::Never,
            },
            buckets: terms.buckets,
            version: pool.version,
            created_at: pool.opened_at,
            server_time: now,
        }
    }
}

fn status(pool: &PoolView, now: Timestamp) -> SaleStatus {
    let over = pool.closed_at.is_some() || pool.terms.closes_at.is_some_and(|at| now >= at);
    match () {
        () if pool.cleared => SaleStatus::Cleared,
        () if over => SaleStatus::Closed,
        () if now < pool.terms.opens_at => SaleStatus::Scheduled,
        () if pool.available == 0 => SaleStatus::SoldOut,
        () => SaleStatus::Open,
    }
}
