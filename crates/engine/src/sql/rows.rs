//! Rows as values of the rules, without trusting them.

use std::sync::Arc;

use qiang_core::decide::{Buyer, Fate, Seen};
use qiang_core::{
    BadId, Cents, Claim, ClaimId, Event, Identity, Kind, PaymentId, PoolChange, PoolId, PoolState,
    Refund, RefundReason, ReleaseReason, RequestId, State, Tally, Terms, Timestamp, UserId,
};
use qiang_sql::Row;

use super::excerpt::{self, Counts, Excerpt};
use super::fault::Fault;
use crate::Decoder;

/// The columns of one row, in the order of its table, from the first on.
pub(super) struct Fields<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> Fields<'r> {
    pub(super) fn of(row: &'r Row) -> Self {
        Self { row, next: 0 }
    }

    fn column(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn int(&mut self) -> Result<i64, Fault> {
        let column = self.column();
        Ok(self.row.int(column)?)
    }

    pub(super) fn int_or_null(&mut self) -> Result<Option<i64>, Fault> {
        let column = self.column();
        Ok(self.row.int_or_null(column)?)
    }

    pub(super) fn text(&mut self) -> Result<&'r str, Fault> {
        let column = self.column();
        Ok(self.row.text(column)?)
    }

    fn text_or_null(&mut self) -> Result<Option<&'r str>, Fault> {
        let column = self.column();
        Ok(self.row.text_or_null(column)?)
    }

    pub(super) fn bytes(&mut self) -> Result<&'r [u8], Fault> {
        let column = self.column();
        Ok(self.row.bytes(column)?)
    }

    pub(super) fn short(&mut self) -> Result<u32, Fault> {
        u32::try_from(self.int()?).map_err(|_| Fault::OutOfRange { what: "a number" })
    }

    pub(super) fn short_or_null(&mut self) -> Result<Option<u32>, Fault> {
        let number = self.int_or_null()?.map(u32::try_from).transpose();
        number.map_err(|_| Fault::OutOfRange { what: "a number" })
    }

    pub(super) fn position(&mut self) -> Result<u64, Fault> {
        u64::try_from(self.int()?).map_err(|_| Fault::OutOfRange { what: "a position" })
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, Fault> {
        self.int().map(Timestamp::from_millis)
    }

    fn time_or_null(&mut self) -> Result<Option<Timestamp>, Fault> {
        Ok(self.int_or_null()?.map(Timestamp::from_millis))
    }

    fn id_or_null<T>(&mut self, make: fn(&str) -> Result<T, BadId>) -> Result<Option<T>, Fault> {
        Ok(self.text_or_null()?.map(make).transpose()?)
    }

    pub(super) fn pool_id(&mut self) -> Result<PoolId, Fault> {
        let id = u64::try_from(self.int()?).ok().and_then(PoolId::new);
        id.ok_or(Fault::OutOfRange { what: "a pool id" })
    }
}

/// The pool in the first column.
pub(super) fn pool_id(row: &Row) -> Result<PoolId, Fault> {
    Fields::of(row).pool_id()
}

/// A pool, whose rules are kept elsewhere.
pub(super) fn pool(row: &Row, terms: Arc<Terms>) -> Result<Excerpt, Fault> {
    pool_of(&mut Fields::of(row), terms)
}

/// The same, with more columns behind those of the pool.
pub(super) fn pool_of(fields: &mut Fields<'_>, terms: Arc<Terms>) -> Result<Excerpt, Fault> {
    let (id, opened_at) = (fields.pool_id()?, fields.time()?);
    // Pools are listed by it; the rules say it, too.
    let _kind = fields.text()?;
    let version = fields.short()?;
    let (change, units) = (fields.text()?, fields.short_or_null()?);
    let change = match (change, units, fields.id_or_null(RequestId::new)?) {
        ("opened", ..) => PoolChange::Opened,
        ("restocked", Some(units), Some(request)) => PoolChange::Restocked { units, request },
        ("closed", ..) => PoolChange::Closed,
        ("cleared", ..) => PoolChange::Cleared,
        _ => return Err(Fault::OutOfRange { what: "the change of a pool" }),
    };
    let (total, closed_at, at) = (fields.short()?, fields.time_or_null()?, fields.time()?);
    let state = PoolState { id, version, change, terms, total, closed_at, at };
    let counts = Counts {
        version,
        available: fields.short()?,
        tally: Tally { held: fields.short()?, ordered: fields.short()?, paid: fields.short()? },
        claims: fields.short()?,
        payments: fields.short()?,
        refunds: fields.short()?,
        next_place: fields.short()?,
        fresh: fields.short()?,
    };
    let _to_sweep = fields.int()?;
    Ok(Excerpt::new(state, opened_at, counts))
}

/// The word for a change of a pool.
pub(super) fn change_word(change: &PoolChange) -> &'static str {
    match change {
        PoolChange::Opened => "opened",
        PoolChange::Restocked { .. } => "restocked",
        PoolChange::Closed => "closed",
        PoolChange::Cleared => "cleared",
    }
}

/// Between a user and their request; no id has it in it.
const BETWEEN: char = '\u{1F}';

/// What a request is found by: one text, so that many can be looked for in one list.
pub(super) fn request_key(user: &UserId, request: &RequestId) -> String {
    format!("{user}{BETWEEN}{request}")
}

/// A claim, and when it is due. What its pool is for stands in the pool's rules.
pub(super) fn claim(row: &Row, kind: Kind) -> Result<(excerpt::Row, Option<Timestamp>), Fault> {
    let mut fields = Fields::of(row);
    let claim = Claim {
        kind,
        id: ClaimId { pool: fields.pool_id()?, number: fields.short()? },
        user: UserId::new(fields.text()?)?,
        identity: fields.id_or_null(Identity::new)?,
        request: match fields.text_or_null()? {
            None => None,
            Some(key) => {
                let (_, request) = key
                    .split_once(BETWEEN)
                    .ok_or(Fault::OutOfRange { what: "the request of a claim" })?;
                Some(RequestId::new(request)?)
            }
        },
        quantity: fields.short()?,
        unit_price: Cents::new(fields.int()?),
        portion: fields.short_or_null()?,
        created_at: fields.time()?,
        hold_until: fields.time_or_null()?,
        replaces: fields.short_or_null()?,
        state: State::from_word(fields.text()?)
            .ok_or(Fault::OutOfRange { what: "the state of a claim" })?,
        version: fields.short()?,
        changed_at: fields.time()?,
        pay_by: fields.time_or_null()?,
        payment: fields.id_or_null(PaymentId::new)?,
        reason: match fields.text_or_null()? {
            None => None,
            Some(word) => Some(
                ReleaseReason::from_word(word)
                    .ok_or(Fault::OutOfRange { what: "the reason of a release" })?,
            ),
        },
    };
    let replaced_by = fields.short_or_null()?;
    Ok((excerpt::Row { claim, replaced_by }, fields.time_or_null()?))
}

/// A payment, its place, and what became of it.
pub(super) fn payment(row: &Row) -> Result<(PaymentId, u32, Seen), Fault> {
    let mut fields = Fields::of(row);
    let _pool = fields.pool_id()?;
    let (payment, place, order) =
        (PaymentId::new(fields.text()?)?, fields.short()?, fields.short()?);
    let fate = match fields.short_or_null()? {
        Some(claim) => Fate::Paid { claim },
        None => Fate::Refund {
            amount: Cents::new(fields.int()?),
            reason: RefundReason::from_word(fields.text()?)
                .ok_or(Fault::OutOfRange { what: "the reason of a refund" })?,
            at: fields.time()?,
        },
    };
    Ok((payment, place, Seen { order, fate }))
}

/// A refund and its place.
pub(super) fn refund(row: &Row, pool: PoolId) -> Result<(usize, Refund), Fault> {
    let (payment, place, Seen { order, fate }) = payment(row)?;
    let place = usize::try_from(place);
    let place = place.map_err(|_| Fault::OutOfRange { what: "the place of a payment" })?;
    let Fate::Refund { amount, reason, at } = fate else {
        return Err(Fault::OutOfRange { what: "the fate of a payment" });
    };
    let order = ClaimId { pool, number: order };
    Ok((place, Refund { order, payment, amount, reason, at }))
}

/// What a buyer has.
pub(super) fn buyer(row: &Row) -> Result<(&str, Buyer), Fault> {
    let mut fields = Fields::of(row);
    let (_pool, name) = (fields.pool_id()?, fields.text()?);
    Ok((name, Buyer { latest: fields.short()?, used: fields.short()? }))
}

/// A pool and its rules, from its first event.
pub(super) fn terms(row: &Row) -> Result<(PoolId, Arc<Terms>), Fault> {
    const WHAT: &str = "the first event of a pool";
    let mut fields = Fields::of(row);
    let pool = fields.pool_id()?;
    match event(fields.bytes()?, WHAT)? {
        Event::Pool(opened) => Ok((pool, opened.terms)),
        Event::Claim(_) | Event::Refund(_) => Err(Fault::OutOfRange { what: WHAT }),
    }
}

/// One event.
pub(super) fn event(bytes: &[u8], what: &'static str) -> Result<Event, Fault> {
    let mut events = Decoder::new(bytes);
    let event = events.next().ok_or(Fault::OutOfRange { what })?;
    event.map_err(|source| Fault::Undecodable { what, source })
}
