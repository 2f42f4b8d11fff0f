//! Sales on their way from one engine to another: a file of JSON lines that people can read, and
//! that ends with how much must be in it.
//!
//! A sale is carried whole, with its history, its claims and its refunds, so that it goes on in the
//! new engine exactly where it stopped in the old one.

mod line;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use qiang_core::{Event, PoolChange, PoolId};
use qiang_engine::redis::PoolRecord;

use self::line::Line;

/// The format this version writes; it reads no other.
const FORMAT: u32 = 1;

/// Why a file of sales cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file itself.
    #[error("the file of sales could not be read or written")]
    Io(#[from] std::io::Error),
    /// A line that is not what an export writes.
    #[error("line {line} of the file is not what an export writes")]
    Line {
        /// Which line, from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// A line whose values cannot be.
    #[error("line {line} of the file: {what}")]
    Value {
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Another format.
    #[error(
        "the file has format {found}, this version reads {FORMAT}: use the version it was made with"
    )]
    Format {
        /// What the file says.
        found: u32,
    },
    /// The last line is missing or does not fit.
    #[error("the file is not whole: it should end with {wanted}, but holds {found}. Export again")]
    Cut {
        /// What it says it holds.
        wanted: String,
        /// What it holds.
        found: String,
    },
}

/// How much a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Sales.
    pub sales: u64,
    /// Claims.
    pub claims: u64,
    /// Refunds.
    pub refunds: u64,
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sales, claims, refunds } = self;
        write!(f, "{sales} sales, {claims} claims, {refunds} refunds")
    }
}

/// Writes sales one behind the other.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    count: Count,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    pub fn new(mut to: W) -> Result<Self, Error> {
        put(&mut to, &Line::Head { qiang_export: FORMAT })?;
        Ok(Self { to, count: Count::default() })
    }

    /// Adds a sale.
    pub fn add(&mut self, record: &PoolRecord) -> Result<(), Error> {
        self.count.sales += 1;
        for event in record.events() {
            match &event {
                Event::Claim(_) => self.count.claims += 1,
                Event::Refund(_) => self.count.refunds += 1,
                Event::Pool(_) => {}
            }
            put(&mut self.to, &Line::of(&event))?;
        }
        if let (Some(state), 1..) = (record.history.last(), record.lost_through) {
            let (sale_id, lost_through) = (state.id.to_string(), record.lost_through);
            put(&mut self.to, &Line::Lost { sale_id, lost_through })?;
        }
        Ok(())
    }

    /// Ends the file.
    pub fn finish(mut self) -> Result<Count, Error> {
        let Count { sales, claims, refunds } = self.count;
        put(&mut self.to, &Line::End { sales, claims, refunds })?;
        self.to.flush()?;
        Ok(self.count)
    }
}

fn put(to: &mut impl Write, line: &Line) -> Result<(), Error> {
    serde_json::to_writer(&mut *to, line).map_err(std::io::Error::from)?;
    to.write_all(b"\n")?;
    Ok(())
}

/// Reads a whole file; nothing is believed before its last line was seen.
pub fn read(from: impl BufRead) -> Result<Vec<PoolRecord>, Error> {
    let mut sales = BTreeMap::<PoolId, PoolRecord>::new();
    let (mut count, mut end) = (Count::default(), None);
    for (place, text) in from.lines().enumerate() {
        let (text, line) = (text?, place + 1);
        let read: Line =
            serde_json::from_str(&text).map_err(|source| Error::Line { line, source })?;
        let event = match read {
            Line::Head { qiang_export: FORMAT } if line == 1 => continue,
            Line::Head { qiang_export: found } => return Err(Error::Format { found }),
            Line::End { sales, claims, refunds } => {
                end = Some(Count { sales, claims, refunds });
                continue;
            }
            Line::Lost { sale_id, lost_through } => {
                let bad = || Error::Value { line, what: format!("{sale_id:?} is no sale") };
                let sale: PoolId = sale_id.parse().map_err(|_| bad())?;
                sales.entry(sale).or_default().lost_through = lost_through;
                continue;
            }
            read => read.event().map_err(|what| Error::Value { line, what })?,
        };
        let record = sales.entry(event.pool()).or_default();
        match event {
            Event::Pool(state) => record.history.push(state),
            Event::Claim(claim) => {
                count.claims += 1;
                record.claims.push(claim);
            }
            Event::Refund(refund) => {
                count.refunds += 1;
                record.refunds.push(refund);
            }
        }
    }
    count.sales = sales.len() as u64;
    if end != Some(count) {
        let wanted = end.map_or("a count".to_owned(), |end| end.to_string());
        return Err(Error::Cut { wanted, found: count.to_string() });
    }
    for (id, record) in &sales {
        if record.history.is_empty() {
            let what = format!("sale {id} has claims, but was never opened");
            return Err(Error::Value { line: 1, what });
        }
    }
    Ok(sales.into_values().collect())
}

/// Gathers what an engine holds, event by event, into sales. Those that were cleared keep their
/// history, so that their ids are not used again.
#[must_use]
pub fn gathered(events: impl IntoIterator<Item = Event>) -> Vec<PoolRecord> {
    let mut sales = BTreeMap::<PoolId, PoolRecord>::new();
    for event in events {
        let record = sales.entry(event.pool()).or_default();
        match event {
            Event::Pool(state) => {
                if state.change == PoolChange::Cleared {
                    record.claims.clear();
                }
                if record.history.last().is_none_or(|last| last.version < state.version) {
                    record.history.push(state);
                }
            }
            Event::Claim(claim) => record.claims.push(claim),
            Event::Refund(refund) => record.refunds.push(refund),
        }
    }
    sales.into_values().collect()
}
