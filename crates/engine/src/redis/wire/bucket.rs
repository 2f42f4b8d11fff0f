//! What a bucket says of itself: its units, what went to other buckets and came from them, and the
//! numbers it left out.

use super::super::pack::{Packer, Result, Unpackable, Unpacker};

/// What a bucket has, and the last transfers between it and the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::redis) struct Standing {
    pub(in crate::redis) available: u32,
    /// How often units came.
    pub(in crate::redis) arrived: u64,
    /// Units that are this bucket's, taken or not.
    pub(in crate::redis) share: u32,
    /// Units of these that were never there.
    pub(in crate::redis) short: u32,
    pub(in crate::redis) sent: Vec<Sent>,
    pub(in crate::redis) received: Vec<Received>,
}

/// The last units that went to another bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) struct Sent {
    pub(in crate::redis) to: u16,
    pub(in crate::redis) number: u64,
    /// Those of which nobody knows that they have arrived.
    pub(in crate::redis) units: u32,
    /// Where the log of the lender says so.
    pub(in crate::redis) position: u64,
}

/// The last units that came from another bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) struct Received {
    pub(in crate::redis) from: u16,
    pub(in crate::redis) number: u64,
    /// Where the log of the lender says so.
    pub(in crate::redis) position: u64,
}

impl Standing {
    /// The number of the last transfer to a bucket.
    pub(in crate::redis) fn sent_to(&self, to: u16) -> u64 {
        self.sent.iter().find(|sent| sent.to == to).map_or(0, |sent| sent.number)
    }

    /// The number of the last transfer that came from a bucket.
    pub(in crate::redis) fn received_from(&self, from: u16) -> u64 {
        self.received.iter().find(|received| received.from == from).map_or(0, |last| last.number)
    }
}

/// The transfers of a bucket as they lie in Redis: names and packed values by turns.
pub(in crate::redis) fn read_transfers(moves: redis::Value) -> Result<Standing> {
    let moves: Vec<(String, Vec<u8>)> =
        redis::from_redis_value(moves).map_err(|_| Unpackable::new("transfers"))?;
    let mut standing = Standing::default();
    for (name, packed) in moves {
        let mut from = Unpacker::new(&packed);
        from.list()?;
        let bucket = |bucket: &str| bucket.parse().map_err(|_| Unpackable::new("a bucket"));
        match name.split_once(':') {
            Some(("to", to)) => standing.sent.push(read_sent(bucket(to)?, &mut from)?),
            Some(("from", lender)) => standing.received.push(Received {
                from: bucket(lender)?,
                number: from.number()?,
                position: from.number()?,
            }),
            _ => return Err(Unpackable::new("a transfer")),
        }
    }
    Ok(standing)
}

pub(super) fn read_sent(to: u16, from: &mut Unpacker<'_>) -> Result<Sent> {
    Ok(Sent { to, number: from.number()?, units: from.number()?, position: from.number()? })
}

pub(super) fn read_standing(from: &mut Unpacker<'_>) -> Result<Standing> {
    let mut standing = Standing {
        available: from.number()?,
        arrived: from.number()?,
        share: from.number()?,
        short: from.number()?,
        ..Standing::default()
    };
    for _ in 0..from.list()? {
        from.list()?;
        let to = from.number()?;
        standing.sent.push(read_sent(to, from)?);
    }
    for _ in 0..from.list()? {
        from.list()?;
        let (from_bucket, number, position) = (from.number()?, from.number()?, from.number()?);
        standing.received.push(Received { from: from_bucket, number, position });
    }
    Ok(standing)
}

/// Numbers that a bucket left out: places among its claims, from the first up to, not with, the second.
pub(in crate::redis) type Gap = (u32, u32);

pub(in crate::redis) fn pack_gaps(gaps: &[Gap]) -> Vec<u8> {
    let mut packer = Packer::default();
    packer.list(gaps.len());
    for (first, next) in gaps {
        packer.list(2).int((*first).into()).int((*next).into());
    }
    packer.finish()
}

pub(in crate::redis) fn read_gaps(packed: &[u8]) -> Result<Vec<Gap>> {
    let mut from = Unpacker::new(packed);
    let count = from.list()?;
    let gap = |_| {
        from.list()?;
        Ok((from.number()?, from.number()?))
    };
    (0..count).map(gap).collect()
}
