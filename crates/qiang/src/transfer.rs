//! Sales on their way from one engine to another: a file of JSON lines that people can read, and
//! that ends with how much must be in it.
//!
//! A sale is carried whole, with its history, its claims and its refunds, so that it goes on in the
//! new engine exactly where it stopped in the old one. What only the records know goes along: which
//! refunds were sent, and which sale is the current one.

mod check;
mod line;

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, Write};
use std::ops::RangeInclusive;

use qiang_core::{Event, PaymentId, PoolChange, PoolId, Refund, Timestamp, decide};
use qiang_engine::redis::PoolRecord;

pub use self::check::Sale;
use self::line::Line;
use qiang_app::cli::output::many;

/// The format this version writes. The first one did not say what was sent back, nor which sale is
/// the current one.
const FORMAT: u32 = 2;
/// The formats this version reads.
const READ: RangeInclusive<u32> = 1..=FORMAT;

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
    /// A sale that no engine could have.
    #[error("line {line} of the file, sale {sale}: {what}")]
    Rule {
        /// Which line, from 1.
        line: usize,
        /// Which sale.
        sale: PoolId,
        /// What is against the rules.
        what: String,
    },
    /// Another format.
    #[error(
        "the file has format {found}, this version reads up to {FORMAT}: use the version it was made with"
    )]
    Format {
        /// What the file says.
        found: u32,
    },
    /// The current sale is none of those in the file.
    #[error("the current sale of the file is {sale}, and it is not in the file")]
    NoCurrent {
        /// Which sale.
        sale: PoolId,
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

/// The clock of the machine that wrote a file may be ahead of ours, by less than a day.
const CLOCKS_DIFFER_MS: u64 = 86_400_000;

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
        let [sales, claims, refunds] = [
            many(*sales, "sale", "sales"),
            many(*claims, "claim", "claims"),
            many(*refunds, "refund", "refunds"),
        ];
        write!(f, "{sales}, {claims}, {refunds}")
    }
}

/// What only the records know of the sales of a file.
#[derive(Debug, Default)]
pub struct Known {
    /// When refunds were sent.
    pub settled: HashMap<(PoolId, PaymentId), Timestamp>,
    /// The current sale.
    pub current: Option<PoolId>,
}

impl Known {
    fn settled_at(&self, refund: &Refund) -> Option<Timestamp> {
        self.settled.get(&(refund.order.pool, refund.payment.clone())).copied()
    }

    fn settle(&mut self, refund: &Refund, at: Timestamp) -> Result<(), String> {
        if at < refund.at {
            return Err("the refund was settled before it was due".into());
        }
        self.settled.insert((refund.order.pool, refund.payment.clone()), at);
        Ok(())
    }
}

/// All that a file holds, checked.
#[derive(Debug)]
pub struct Contents {
    /// The sales, by rising id.
    pub sales: Vec<Sale>,
    /// What only records know of them.
    pub known: Known,
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
    pub fn add(&mut self, record: &PoolRecord, known: &Known) -> Result<(), Error> {
        self.count.sales += 1;
        for event in record.events() {
            match &event {
                Event::Claim(_) => self.count.claims += 1,
                Event::Refund(_) => self.count.refunds += 1,
                Event::Pool(_) => {}
            }
            let settled_at = match &event {
                Event::Refund(refund) => known.settled_at(refund),
                Event::Claim(claim) => claim.revoked().and_then(|refund| known.settled_at(&refund)),
                Event::Pool(_) => None,
            };
            put(&mut self.to, &Line::of(&event, settled_at))?;
        }
        if let (Some(state), 1..) = (record.history.last(), record.lost_through) {
            let (sale_id, lost_through) = (state.id.to_string(), record.lost_through);
            put(&mut self.to, &Line::Lost { sale_id, lost_through })?;
        }
        Ok(())
    }

    /// Ends the file.
    pub fn finish(mut self, known: &Known) -> Result<Count, Error> {
        if let Some(current) = known.current {
            put(&mut self.to, &Line::Current { current_sale: current.to_string() })?;
        }
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

/// Reads a whole file at the time `now`. Nothing is believed before its last line was seen and every
/// sale was held against the rules.
pub fn read(from: impl BufRead, now: Timestamp) -> Result<Contents, Error> {
    let mut sales = BTreeMap::<PoolId, Sale>::new();
    let (mut count, mut end, mut known) = (Count::default(), None, Known::default());
    for (place, text) in from.lines().enumerate() {
        let (text, line) = (text?, place + 1);
        let read = Line::parse(&text).map_err(|source| Error::Line { line, source })?;
        let wrong = |what| Error::Value { line, what };
        if end.is_some() {
            return Err(wrong("it stands behind the line that ends the file".into()));
        }
        let settled_at = read.settled_at();
        let event = match read {
            Line::Head { qiang_export } if line == 1 && READ.contains(&qiang_export) => continue,
            Line::Head { qiang_export: found } => return Err(Error::Format { found }),
            Line::End { sales, claims, refunds } => {
                end = Some(Count { sales, claims, refunds });
                continue;
            }
            Line::Lost { sale_id, lost_through } => {
                let sale = sale(&sale_id).map_err(wrong)?;
                sales.entry(sale).or_default().record.lost_through = lost_through;
                continue;
            }
            Line::Current { current_sale } => {
                known.current = Some(sale(&current_sale).map_err(wrong)?);
                continue;
            }
            read => read.event().map_err(wrong)?,
        };
        let Sale { record, lines } = sales.entry(event.pool()).or_default();
        match event {
            Event::Pool(state) => {
                record.history.push(state);
                lines.history.push(line);
            }
            Event::Claim(claim) => {
                count.claims += 1;
                if let Some(at) = settled_at {
                    let Some(refund) = claim.revoked() else {
                        return Err(wrong("nothing is owed back of this claim".into()));
                    };
                    known.settle(&refund, at).map_err(wrong)?;
                }
                record.claims.push(claim);
                lines.claims.push(line);
            }
            Event::Refund(refund) => {
                count.refunds += 1;
                if let Some(at) = settled_at {
                    known.settle(&refund, at).map_err(wrong)?;
                }
                record.refunds.push(refund);
                lines.refunds.push(line);
            }
        }
    }
    count.sales = sales.len() as u64;
    if end != Some(count) {
        let wanted = end.map_or("a count".to_owned(), |end| end.to_string());
        return Err(Error::Cut { wanted, found: count.to_string() });
    }
    // Clocks of two machines differ.
    let latest = now.plus_millis(CLOCKS_DIFFER_MS);
    sales.iter().try_for_each(|(id, sale)| sale.check(*id, latest))?;
    if let Some(current) = known.current.filter(|current| !sales.contains_key(current)) {
        return Err(Error::NoCurrent { sale: current });
    }
    Ok(Contents { sales: sales.into_values().collect(), known })
}

fn sale(id: &str) -> Result<PoolId, String> {
    id.parse().map_err(|_| format!("{id:?} is no sale"))
}

/// Gathers what an engine holds, event by event, into sales. Those that were cleared keep their
/// history, so that their ids are not used again; of those with made ids nothing is left.
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
    let is_gone = |record: &PoolRecord| {
        record.history.last().is_some_and(|last| {
            last.change == PoolChange::Cleared && decide::leaves_nothing(last.id, &last.terms)
        })
    };
    sales.into_values().filter(|record| !is_gone(record)).collect()
}
