//! Events as bytes: the format of the journal.
//!
//! Within a batch an event is written relative to the one before it (same pool, next number,
//! same millisecond), so that a typical grant takes some twenty bytes beside the user's id. The
//! format is part of the file's version; reading never trusts a length it has not checked.

use std::num::NonZeroU32;
use std::sync::Arc;

use qiang_core::{
    BadId, Cents, Claim, ClaimId, Event, Flow, Identity, Kind, LimitBy, PaymentId, PoolChange,
    PoolId, PoolState, PriceStep, Reclaim, Refund, RefundReason, ReleaseReason, RequestId, State,
    Supply, Terms, Timestamp, UserId,
};

const CLAIM: u8 = 0;
const POOL: u8 = 1;
const REFUND: u8 = 2;
/// Beside the first byte of an event: its pool is a packet. Without it the pool is a sale, as all
/// pools were before there were packets.
const OF_PACKET: u8 = 1 << 4;

const SAME_POOL: u8 = 1;
const HAS_IDENTITY: u8 = 1 << 1;
const HAS_REQUEST: u8 = 1 << 2;
const HAS_PORTION: u8 = 1 << 3;
const HAS_HOLD_UNTIL: u8 = 1 << 4;
const HAS_PAY_BY: u8 = 1 << 5;
const HAS_PAYMENT: u8 = 1 << 6;
const HAS_REPLACES: u8 = 1 << 7;

/// Beside the last word of the terms.
const HAS_BUCKETS: u8 = 1 << 1;
const IS_PACKET: u8 = 1 << 2;

/// Bytes that are not events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end in the middle of an event.
    #[error("the bytes end in the middle of an event")]
    Truncated,
    /// A value no event has.
    #[error("a {what} is out of range")]
    OutOfRange {
        /// Which value.
        what: &'static str,
    },
    /// An id no qiang would have stored.
    #[error("a stored id is not valid")]
    BadId(#[from] BadId),
}

/// What both sides remember of the event before.
#[derive(Debug, Clone, Copy, Default)]
struct Context {
    pool: u64,
    number: u32,
    at: i64,
}

/// Writes events one behind the other.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    context: Context,
    count: u64,
}

impl Encoder {
    /// The bytes so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many events they hold.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Forgets everything but the memory it has.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.context = Context::default();
        self.count = 0;
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        self.count += 1;
        match event {
            Event::Claim(claim) => self.claim(claim),
            Event::Pool(state) => self.pool(state),
            Event::Refund(refund) => self.refund(refund),
        }
    }

    fn claim(&mut self, claim: &Claim) {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let same_pool = claim.id.pool.get() == self.context.pool;
        let flags = flag(same_pool, SAME_POOL)
            | flag(claim.identity.is_some(), HAS_IDENTITY)
            | flag(claim.request.is_some(), HAS_REQUEST)
            | flag(claim.portion.is_some(), HAS_PORTION)
            | flag(claim.hold_until.is_some(), HAS_HOLD_UNTIL)
            | flag(claim.pay_by.is_some(), HAS_PAY_BY)
            | flag(claim.payment.is_some(), HAS_PAYMENT)
            | flag(claim.replaces.is_some(), HAS_REPLACES);
        let state = state_number(claim.state) | reason_number(claim.reason) << 2;
        self.bytes.extend_from_slice(&[tag(CLAIM, claim.kind), flags, state]);
        if !same_pool {
            self.unsigned(claim.id.pool.get());
            self.context.number = 0;
        }
        self.signed(i64::from(claim.id.number) - i64::from(self.context.number));
        self.unsigned(claim.version.into());
        let (at, created_at) = (claim.changed_at.millis(), claim.created_at.millis());
        self.signed(at.wrapping_sub(self.context.at));
        self.signed(created_at.wrapping_sub(at));
        self.unsigned(claim.quantity.into());
        self.signed(claim.unit_price.get());
        self.text(claim.user.as_str());
        if let Some(identity) = &claim.identity {
            self.text(identity.as_str());
        }
        if let Some(request) = &claim.request {
            self.text(request.as_str());
        }
        if let Some(portion) = claim.portion {
            self.unsigned(portion.into());
        }
        for time in [claim.hold_until, claim.pay_by].into_iter().flatten() {
            self.signed(time.millis().wrapping_sub(at));
        }
        if let Some(payment) = &claim.payment {
            self.text(payment.as_str());
        }
        if let Some(replaces) = claim.replaces {
            self.unsigned(replaces.into());
        }
        self.context = Context { pool: claim.id.pool.get(), number: claim.id.number, at };
    }

    fn pool(&mut self, state: &PoolState) {
        self.bytes.push(tag(POOL, state.terms.kind));
        self.unsigned(state.id.get());
        self.unsigned(state.version.into());
        self.signed(state.at.millis());
        self.unsigned(state.total.into());
        self.time(state.closed_at);
        match &state.change {
            PoolChange::Opened => self.bytes.push(0),
            PoolChange::Restocked { units, request } => {
                self.bytes.push(1);
                self.unsigned((*units).into());
                self.text(request.as_str());
            }
            PoolChange::Closed => self.bytes.push(2),
            PoolChange::Cleared => self.bytes.push(3),
        }
        self.terms(&state.terms);
    }

    /// Adds terms that belong to no event.
    pub(crate) fn bare_terms(&mut self, terms: &Terms) {
        self.terms(terms);
    }

    fn terms(&mut self, terms: &Terms) {
        self.text(&terms.title);
        self.text(&terms.sku);
        match &terms.supply {
            Supply::Units(units) => {
                self.bytes.push(0);
                self.unsigned((*units).into());
            }
            Supply::Portions(portions) => {
                self.bytes.push(1);
                self.unsigned(portions.len() as u64);
                portions.iter().for_each(|value| self.signed(value.get()));
            }
        }
        self.unsigned(terms.limit_per_user.into());
        self.bytes.push(u8::from(terms.limit_by == LimitBy::Identity));
        self.signed(terms.price.get());
        self.unsigned(terms.price_steps.len() as u64);
        for step in &terms.price_steps {
            self.unsigned(step.after_sold.into());
            self.signed(step.price.get());
        }
        self.signed(terms.opens_at.millis());
        self.time(terms.closes_at);
        match terms.flow {
            Flow::Instant => self.bytes.push(0),
            Flow::Order { pay_ms } => {
                self.bytes.push(1);
                self.unsigned(pay_ms);
            }
            Flow::Hold { hold_ms, pay_ms } => {
                self.bytes.push(2);
                self.unsigned(hold_ms);
                self.unsigned(pay_ms);
            }
        }
        let buckets = if terms.buckets > 1 { HAS_BUCKETS } else { 0 };
        let packet = if terms.kind == Kind::Packet { IS_PACKET } else { 0 };
        self.bytes.push(u8::from(terms.reclaim == Reclaim::Never) | buckets | packet);
        if buckets != 0 {
            self.unsigned(terms.buckets.into());
        }
    }

    fn refund(&mut self, refund: &Refund) {
        self.bytes.push(REFUND);
        self.unsigned(refund.order.pool.get());
        self.unsigned(refund.order.number.into());
        self.text(refund.payment.as_str());
        self.signed(refund.amount.get());
        self.bytes.push(match refund.reason {
            RefundReason::Late => 0,
            RefundReason::AlreadyPaid => 1,
            RefundReason::AmountMismatch => 2,
            RefundReason::ClaimLost => 3,
            RefundReason::Revoked => 4,
        });
        self.signed(refund.at.millis());
    }

    fn time(&mut self, time: Option<Timestamp>) {
        self.bytes.push(time.is_some().into());
        if let Some(time) = time {
            self.signed(time.millis());
        }
    }

    fn text(&mut self, text: &str) {
        self.unsigned(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn signed(&mut self, value: i64) {
        self.unsigned(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7F) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push((value & 0x7F) as u8);
    }
}

/// The first byte of an event.
fn tag(event: u8, kind: Kind) -> u8 {
    match kind {
        Kind::Sale => event,
        Kind::Packet => event | OF_PACKET,
    }
}

/// Reads what an [`Encoder`] wrote.
#[derive(Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    context: Context,
}

impl<'a> Decoder<'a> {
    /// Reads from the first event of a batch.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, context: Context::default() }
    }

    /// Reads terms that belong to no event.
    pub(crate) fn bare_terms(mut self) -> Result<Terms, DecodeError> {
        self.terms()
    }

    fn event(&mut self) -> Result<Event, DecodeError> {
        let first = self.byte()?;
        let kind = if first & OF_PACKET == 0 { Kind::Sale } else { Kind::Packet };
        let event = match first & !OF_PACKET {
            CLAIM => Event::Claim(self.claim(kind)?),
            POOL => Event::Pool(self.pool()?),
            REFUND => Event::Refund(self.refund()?),
            _ => return Err(DecodeError::OutOfRange { what: "kind of event" }),
        };
        if event.kind() == kind {
            Ok(event)
        } else {
            Err(DecodeError::OutOfRange { what: "kind of a pool" })
        }
    }

    fn claim(&mut self, kind: Kind) -> Result<Claim, DecodeError> {
        let (flags, state) = (self.byte()?, self.byte()?);
        let has = |bit: u8| flags & bit != 0;
        if !has(SAME_POOL) {
            self.context.pool = self.unsigned()?;
            self.context.number = 0;
        }
        let number = i64::from(self.context.number).wrapping_add(self.signed()?);
        let number = u32::try_from(number).ok().and_then(NonZeroU32::new);
        let number = number.ok_or(DecodeError::OutOfRange { what: "claim number" })?.get();
        let version = self.short("version")?;
        let at = self.context.at.wrapping_add(self.signed()?);
        let created_at = at.wrapping_add(self.signed()?);
        let claim = Claim {
            kind,
            id: ClaimId { pool: pool_id(self.context.pool)?, number },
            version,
            created_at: Timestamp::from_millis(created_at),
            changed_at: Timestamp::from_millis(at),
            quantity: self.short("quantity")?,
            unit_price: Cents::new(self.signed()?),
            user: UserId::new(self.text()?)?,
            identity: has(HAS_IDENTITY).then(|| self.id(Identity::new)).transpose()?,
            request: has(HAS_REQUEST).then(|| self.id(RequestId::new)).transpose()?,
            portion: has(HAS_PORTION).then(|| self.short("portion")).transpose()?,
            hold_until: has(HAS_HOLD_UNTIL).then(|| self.time_from(at)).transpose()?,
            pay_by: has(HAS_PAY_BY).then(|| self.time_from(at)).transpose()?,
            payment: has(HAS_PAYMENT).then(|| self.id(PaymentId::new)).transpose()?,
            replaces: has(HAS_REPLACES).then(|| self.short("claim number")).transpose()?,
            state: state_from(state & 3),
            reason: reason_from(state >> 2)?,
        };
        self.context = Context { pool: self.context.pool, number, at };
        Ok(claim)
    }

    fn pool(&mut self) -> Result<PoolState, DecodeError> {
        Ok(PoolState {
            id: pool_id(self.unsigned()?)?,
            version: self.short("version")?,
            at: Timestamp::from_millis(self.signed()?),
            total: self.short("total")?,
            closed_at: self.time()?,
            change: match self.byte()? {
                0 => PoolChange::Opened,
                1 => {
                    let units = self.short("restock")?;
                    PoolChange::Restocked { units, request: self.id(RequestId::new)? }
                }
                2 => PoolChange::Closed,
                3 => PoolChange::Cleared,
                _ => return Err(DecodeError::OutOfRange { what: "change of a pool" }),
            },
            terms: Arc::new(self.terms()?),
        })
    }

    fn terms(&mut self) -> Result<Terms, DecodeError> {
        let mut terms = Terms {
            kind: Kind::Sale,
            title: self.text()?.into(),
            sku: self.text()?.into(),
            supply: match self.byte()? {
                0 => Supply::Units(self.short("stock")?),
                _ => Supply::Portions(self.list(|this| Ok(Cents::new(this.signed()?)))?.into()),
            },
            limit_per_user: self.short("limit")?,
            limit_by: if self.byte()? == 0 { LimitBy::User } else { LimitBy::Identity },
            price: Cents::new(self.signed()?),
            price_steps: self.list(|this| {
                let after_sold = this.short("price step")?;
                Ok(PriceStep { after_sold, price: Cents::new(this.signed()?) })
            })?,
            opens_at: Timestamp::from_millis(self.signed()?),
            closes_at: self.time()?,
            flow: match self.byte()? {
                0 => Flow::Instant,
                1 => Flow::Order { pay_ms: self.unsigned()? },
                _ => Flow::Hold { hold_ms: self.unsigned()?, pay_ms: self.unsigned()? },
            },
            reclaim: Reclaim::Allowed,
            buckets: 1,
        };
        let last = self.byte()?;
        if last & !(HAS_BUCKETS | IS_PACKET) != 0 {
            terms.reclaim = Reclaim::Never;
        }
        if last & IS_PACKET != 0 {
            terms.kind = Kind::Packet;
        }
        if last & HAS_BUCKETS != 0 {
            let buckets = u16::try_from(self.unsigned()?);
            terms.buckets = buckets.map_err(|_| DecodeError::OutOfRange { what: "bucket" })?;
        }
        Ok(terms)
    }

    fn refund(&mut self) -> Result<Refund, DecodeError> {
        Ok(Refund {
            order: ClaimId {
                pool: pool_id(self.unsigned()?)?,
                number: self.short("claim number")?,
            },
            payment: self.id(PaymentId::new)?,
            amount: Cents::new(self.signed()?),
            reason: match self.byte()? {
                0 => RefundReason::Late,
                1 => RefundReason::AlreadyPaid,
                2 => RefundReason::AmountMismatch,
                3 => RefundReason::ClaimLost,
                4 => RefundReason::Revoked,
                _ => return Err(DecodeError::OutOfRange { what: "refund reason" }),
            },
            at: Timestamp::from_millis(self.signed()?),
        })
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = usize::try_from(self.unsigned()?).unwrap_or(usize::MAX);
        if count > self.bytes.len() {
            return Err(DecodeError::Truncated);
        }
        (0..count).map(|_| item(self)).collect()
    }

    fn id<T>(&mut self, make: fn(&str) -> Result<T, BadId>) -> Result<T, DecodeError> {
        Ok(make(self.text()?)?)
    }

    fn time(&mut self) -> Result<Option<Timestamp>, DecodeError> {
        Ok(if self.byte()? == 0 { None } else { Some(self.time_from(0)?) })
    }

    fn time_from(&mut self, base: i64) -> Result<Timestamp, DecodeError> {
        Ok(Timestamp::from_millis(base.wrapping_add(self.signed()?)))
    }

    fn text(&mut self) -> Result<&'a str, DecodeError> {
        let len = usize::try_from(self.unsigned()?).unwrap_or(usize::MAX);
        let (text, rest) = self.bytes.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
        std::str::from_utf8(text).map_err(|_| DecodeError::OutOfRange { what: "text" })
    }

    fn short(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        u32::try_from(self.unsigned()?).map_err(|_| DecodeError::OutOfRange { what })
    }

    fn signed(&mut self) -> Result<i64, DecodeError> {
        let value = self.unsigned()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    fn unsigned(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::OutOfRange { what: "number" })
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.bytes.split_first().ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
        Ok(*first)
    }
}

impl Iterator for Decoder<'_> {
    type Item = Result<Event, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let event = self.event();
        if event.is_err() {
            self.bytes = &[];
        }
        Some(event)
    }
}

fn pool_id(id: u64) -> Result<PoolId, DecodeError> {
    PoolId::new(id).ok_or(DecodeError::OutOfRange { what: "pool id" })
}

fn state_number(state: State) -> u8 {
    match state {
        State::Held => 0,
        State::Ordered => 1,
        State::Paid => 2,
        State::Released => 3,
    }
}

fn state_from(number: u8) -> State {
    match number {
        0 => State::Held,
        1 => State::Ordered,
        2 => State::Paid,
        _ => State::Released,
    }
}

fn reason_number(reason: Option<ReleaseReason>) -> u8 {
    match reason {
        None => 0,
        Some(ReleaseReason::GaveUp) => 1,
        Some(ReleaseReason::Cancelled) => 2,
        Some(ReleaseReason::HoldExpired) => 3,
        Some(ReleaseReason::PayExpired) => 4,
        Some(ReleaseReason::Revoked) => 5,
    }
}

fn reason_from(number: u8) -> Result<Option<ReleaseReason>, DecodeError> {
    Ok(match number {
        0 => None,
        1 => Some(ReleaseReason::GaveUp),
        2 => Some(ReleaseReason::Cancelled),
        3 => Some(ReleaseReason::HoldExpired),
        4 => Some(ReleaseReason::PayExpired),
        5 => Some(ReleaseReason::Revoked),
        _ => return Err(DecodeError::OutOfRange { what: "release reason" }),
    })
}
