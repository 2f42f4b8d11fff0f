//! What is sold: a few kinds of sales, opened anew again and again, so that there is always one
//! that has just begun and one that is nearly sold out.

use serde_json::{Value, json};

use crate::http::Question;

/// Price of a unit.
pub(crate) const PRICE_CENTS: u64 = 100;
/// Deadlines that nobody lives to see.
const LONG_SECS: u32 = 3_600;
/// A hold that is not ordered in this time is released, where deadlines are short.
const SHORT_HOLD_SECS: u32 = 2;
/// An order that is not paid in this time is released, where deadlines are short.
pub(crate) const SHORT_PAY_SECS: u32 = 3;

/// What a granted claim goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Ordered at once.
    Order,
    /// Held first.
    Hold,
}

/// How much time a buyer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deadlines {
    /// So little that many run out.
    Short,
    /// So much that none does.
    Long,
}

/// One sale.
#[derive(Debug, Clone)]
pub(crate) struct Sale {
    pub(crate) id: String,
    pub(crate) stock: u32,
    pub(crate) limit: u32,
    pub(crate) flow: Flow,
    pub(crate) deadlines: Deadlines,
    buckets: u32,
    /// When its opening was acknowledged, in milliseconds of the round.
    pub(crate) opened_at: u64,
}

/// Sales of one generation.
pub(crate) const KINDS: usize = 4;

/// The sales that are opened together, for the `generation`th time.
pub(crate) fn generation(generation: u32) -> [Sale; KINDS] {
    let sale = |kind: u32, stock, limit, flow, deadlines, buckets| {
        let id = ((generation + 1) * 10 + kind).to_string();
        Sale { id, stock, limit, flow, deadlines, buckets, opened_at: 0 }
    };
    [
        sale(0, 120, 1, Flow::Order, Deadlines::Long, 1),
        sale(1, 60, 3, Flow::Hold, Deadlines::Short, 1),
        sale(2, 150, 3, Flow::Order, Deadlines::Long, 4),
        sale(3, 100, 3, Flow::Hold, Deadlines::Long, 1),
    ]
}

impl Sale {
    /// How it is opened. The id is ours, so that asking again opens no second one.
    pub(crate) fn opening(&self) -> Question {
        let (hold, pay) = match self.deadlines {
            Deadlines::Short => (SHORT_HOLD_SECS, SHORT_PAY_SECS),
            Deadlines::Long => (LONG_SECS, LONG_SECS),
        };
        let mut body: Value = json!({
            "id": self.id, "title": "Phone", "sku": "phone", "price_cents": PRICE_CENTS,
            "stock": self.stock, "limit_per_user": self.limit, "buckets": self.buckets,
            "flow": "order", "pay_secs": pay,
        });
        if self.flow == Flow::Hold {
            body["flow"] = "hold".into();
            body["hold_secs"] = hold.into();
        }
        Question::post("/api/v1/sales").by_admin().json(&body)
    }
}
