//! A report as JSON has it.

use qiang_app::{json_time, schema};
use qiang_core::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// What a sale came to.
#[derive(Debug, Serialize, ToSchema)]
pub struct SaleReport {
    /// Which sale.
    pub sale: ReportedSale,
    /// When this was added up.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub as_of: Timestamp,
    /// Whether everything decided until then is in it.
    pub up_to_date: bool,
    /// What became of its units.
    pub units: Units,
    /// What became of its money.
    pub money: Money,
    /// How fast it went.
    pub speed: Speed,
    /// What those who claimed were answered.
    pub answers: Answers,
    /// Why claims were refused, the most frequent reason first.
    #[schema(max_items = 16)]
    pub refusals: Vec<RefusalCount>,
    /// The same over time.
    pub timeline: Timeline,
}

/// A sale, as far as a report names it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReportedSale {
    /// Its id.
    #[schema(value_type = schema::SaleId)]
    pub id: String,
    /// What buyers read.
    #[schema(value_type = schema::Title)]
    pub title: String,
    /// The shop's own name for the goods.
    #[schema(value_type = schema::Sku)]
    pub sku: String,
    /// Whether it was closed or cleared by hand: `open`, `closed` or `cleared`.
    #[schema(value_type = schema::SaleState)]
    pub state: &'static str,
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
}

/// Units. `stock` = `sold` + `left`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Units {
    /// All it ever had, with restocks.
    #[schema(minimum = 0)]
    pub stock: u64,
    /// In claims that were not given back: held, ordered or paid.
    #[schema(minimum = 0)]
    pub sold: u64,
    /// Of these, held and not ordered.
    #[schema(minimum = 0)]
    pub held: u64,
    /// Of these, ordered and not paid.
    #[schema(minimum = 0)]
    pub ordered: u64,
    /// Of these, paid.
    #[schema(minimum = 0)]
    pub paid: u64,
    /// Given back before they were paid: given up, cancelled, or too late.
    #[schema(minimum = 0)]
    pub released: u64,
    /// Paid, and taken back by the shop.
    #[schema(minimum = 0)]
    pub returned: u64,
    /// In no claim.
    #[schema(minimum = 0)]
    pub left: u64,
}

/// Money, in cents.
#[derive(Debug, Serialize, ToSchema)]
pub struct Money {
    /// What the units that are paid cost.
    #[schema(minimum = 0)]
    pub earned_cents: i64,
    /// All payments that paid an order, also one that was refunded later.
    #[schema(minimum = 0)]
    pub paid_cents: i64,
    /// How many.
    #[schema(minimum = 0)]
    pub payments: u64,
    /// Refunds that were sent.
    #[schema(minimum = 0)]
    pub refunded_cents: i64,
    /// How many.
    #[schema(minimum = 0)]
    pub refunds: u64,
    /// Refunds that are still to be sent.
    #[schema(minimum = 0)]
    pub due_cents: i64,
    /// How many.
    #[schema(minimum = 0)]
    pub refunds_due: u64,
}

/// How fast it went.
#[derive(Debug, Serialize, ToSchema)]
pub struct Speed {
    /// When the first claim was granted.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub first_claim_at: Option<Timestamp>,
    /// When the last one was.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub last_claim_at: Option<Timestamp>,
    /// When nothing was left for the first time.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub sold_out_at: Option<Timestamp>,
    /// Milliseconds from the opening until then.
    #[schema(minimum = 0)]
    pub sold_out_after_ms: Option<i64>,
    /// The most claims granted in one second.
    #[schema(minimum = 0)]
    pub peak_granted_per_sec: u64,
    /// The most claims answered in one second, whatever the answer.
    #[schema(minimum = 0)]
    pub peak_claims_per_sec: u64,
    /// How long buyers took to pay; null if nobody has.
    pub paid_within: Option<PaidWithin>,
}

/// Milliseconds from a claim to its payment.
#[derive(Debug, Serialize, ToSchema)]
pub struct PaidWithin {
    /// Half of them took no longer.
    pub half_ms: i64,
    /// Nine of ten took no longer.
    pub most_ms: i64,
    /// None took longer.
    pub all_ms: i64,
}

/// What those who claimed were answered.
#[derive(Debug, Serialize, ToSchema)]
pub struct Answers {
    /// Claims asked for: the sum of the next four.
    #[schema(minimum = 0)]
    pub asked: u64,
    /// Granted, by the records.
    #[schema(minimum = 0)]
    pub granted: u64,
    /// Granted before, and asked for again.
    #[schema(minimum = 0)]
    pub replayed: u64,
    /// Refused.
    #[schema(minimum = 0)]
    pub refused: u64,
    /// Not decided: the server was overloaded, or something was away.
    #[schema(minimum = 0)]
    pub failed: u64,
    /// Of 100 who asked, so many were granted.
    #[schema(minimum = 0, maximum = 100)]
    pub granted_percent: f64,
    /// Users with a claim.
    #[schema(minimum = 0)]
    pub buyers: u64,
    /// Claims that a late payment bought in place of released ones; nobody asked for them.
    #[schema(minimum = 0)]
    pub regranted: u64,
}

/// How often claims were refused for one reason.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefusalCount {
    /// The code that was the answer.
    #[schema(example = "sold_out")]
    pub code: String,
    /// How often.
    #[schema(minimum = 0)]
    pub count: u64,
    /// Of 100 who asked, so many.
    #[schema(minimum = 0, maximum = 100)]
    pub percent: f64,
}

/// A sale over time, from the first claim that was answered to the last.
#[derive(Debug, Serialize, ToSchema)]
pub struct Timeline {
    /// Seconds that a point stands for.
    #[schema(minimum = 1)]
    pub part_secs: u32,
    /// In order, without gaps.
    #[schema(max_items = 242)]
    pub points: Vec<Point>,
}

/// What happened in one part of the time.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Point {
    /// When it began.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// Claims granted.
    #[schema(minimum = 0)]
    pub granted: u64,
    /// Claims refused.
    #[schema(minimum = 0)]
    pub refused: u64,
    /// Claims not decided.
    #[schema(minimum = 0)]
    pub failed: u64,
    /// Payments that paid an order.
    #[schema(minimum = 0)]
    pub paid: u64,
    /// Units given back.
    #[schema(minimum = 0)]
    pub released: u64,
    /// Units left at its end.
    #[schema(minimum = 0)]
    pub left: u64,
}
