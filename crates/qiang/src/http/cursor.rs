//! Where the next page of a list begins, as text that a client hands back.

use qiang_core::{PaymentId, PoolId, Timestamp};
use qiang_store::{Cursor, RefundCursor};

use super::problem::Problem;

/// What a list goes on behind.
pub trait Page: Sized {
    fn write(&self) -> String;

    fn parse(text: &str) -> Option<Self>;

    /// Reads what stood in `field`; the answer before had it in `next_<field>`.
    fn read(field: &'static str, text: &str) -> Result<Self, Problem> {
        let read = Self::parse(text);
        let rule = format_args!("must be a `next_{field}` of this list");
        read.ok_or_else(|| Problem::invalid_field(field, rule))
    }
}

impl Page for Cursor {
    fn write(&self) -> String {
        format!("{}_{}", self.at.millis(), self.id)
    }

    fn parse(text: &str) -> Option<Self> {
        let (at, id) = text.split_once('_')?;
        Some(Self { at: time(at)?, id: id.parse().ok()? })
    }
}

impl Page for RefundCursor {
    fn write(&self) -> String {
        format!("{}_{}_{}", self.due_at.millis(), self.pool, self.payment)
    }

    fn parse(text: &str) -> Option<Self> {
        let (at, rest) = text.split_once('_')?;
        let (pool, payment) = rest.split_once('_')?;
        let pool = pool.parse::<PoolId>().ok()?;
        Some(Self { due_at: time(at)?, pool, payment: PaymentId::new(payment).ok()? })
    }
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok().map(Timestamp::from_millis)
}
