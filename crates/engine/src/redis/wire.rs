//! What the engine and its script say to each other: commands, replies, claims and events.
//!
//! Both sides are written by us; what cannot be read is a bug or a damaged server, and is told as
//! [`Unpackable`], never guessed at.

mod bucket;
mod stored;

use std::num::NonZeroU32;
use std::sync::Arc;

use qiang_core::{
    Cents, Claim, ClaimId, ClaimRequest, Flow, Identity, Kind, LimitBy, Outcome, PayRequest,
    PaymentId, PoolId, PoolView, Reclaim, Refusal, ReleaseReason, RequestId, Settlement, State,
    Supply, Tally, Terms, Timestamp, UserId,
};

use super::PartitionState;
use super::pack::{Packer, Result, Unpackable, Unpacker};

pub(super) use self::bucket::{Gap, Sent, Standing, pack_gaps, read_gaps, read_transfers};
use self::bucket::{read_sent, read_standing};
pub(super) use self::stored::{
    Change, Kept, Of, pack_change, pack_changed, pack_claim, pack_refund, pack_run, read_change,
    read_claim, read_events, read_kept, read_refund,
};
use self::stored::{number_or_none, reason_number, split, state, time, time_or_none};
use crate::{Decoder, Encoder, Stopwatch};

/// One command for one cell (a pool, or one of its buckets).
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Open {
        terms: Arc<Terms>,
        bucket: u16,
    },
    /// `by` says whose quota it uses.
    Claim {
        wish: ClaimRequest,
        by: LimitBy,
    },
    Order {
        number: u32,
        by: Option<UserId>,
    },
    Release {
        number: u32,
        by: Option<UserId>,
        reason: ReleaseReason,
    },
    Revoke {
        number: u32,
    },
    /// `fence` is the number of the payment's reservation, in a pool with buckets; `borrow` asks to
    /// be told instead of refunding when only stock is missing.
    Pay {
        pay: PayRequest,
        fence: u32,
        borrow: bool,
    },
    Refund {
        pay: PayRequest,
        fence: u32,
    },
    /// Which bucket a payment counts in: `bucket`, if that is the expected one's to give.
    Reserve {
        payment: PaymentId,
        bucket: u16,
        expected: String,
    },
    /// Leaves a payment to another bucket, if it was never taken.
    Leave {
        payment: PaymentId,
        fence: u32,
    },
    Restock {
        units: NonZeroU32,
        request: RequestId,
    },
    Close,
    /// Whether this part of the pool is over.
    MayClear,
    Clear {
        /// The list it is taken from, if nothing of it stays.
        forget: Option<Kind>,
    },
    Look,
    Find {
        number: u32,
    },
    Tick,
    /// `received` is the number of the last transfer that arrived there.
    Lend {
        to: u16,
        units: u32,
        received: u64,
    },
    Receive {
        from: u16,
        number: u64,
        units: u32,
        position: u64,
    },
    Settle {
        to: u16,
        number: u64,
    },
    Stand,
}

/// The answer to an [`Ask`].
#[derive(Debug, Clone)]
pub(super) enum Said {
    Claim(Outcome<Claim>),
    /// One bucket's part of the pool.
    Pool(Outcome<PoolView>),
    Money(Paid),
    /// To `Find`.
    Found(Option<Claim>),
    /// To `Lend`: the transfer; with 0 units it is none.
    Lent(Sent),
    /// To `Stand`.
    Stands(Standing),
    /// Nothing to tell.
    Done,
    /// There is no such cell.
    Nothing,
    /// To `Reserve`: which bucket has the payment, and its fence.
    Owner(String),
    /// To `Leave`: the bucket has taken the payment.
    Owned,
    /// To `Lend` and `Receive`: the lender has forgotten a transfer.
    GoneBack,
}

/// What became of money, or why nothing was done with it yet.
#[derive(Debug, Clone)]
pub(super) enum Paid {
    Settled(Outcome<Settlement>),
    /// The payment was left to another bucket; reserve it again.
    Elsewhere,
    /// Stock is missing here; other buckets may have some.
    NeedsStock,
}

/// The answer to a whole call.
#[derive(Debug)]
pub(super) enum Answer {
    /// The state is not the one the caller knows.
    Lost(PartitionState),
    /// A later call of the lane was here already.
    Stale,
    /// More was overdue than one call releases.
    Again(Counted),
    Decided(Decided),
}

/// What a call wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) events: u64,
    /// Claims released because their time was up.
    pub(super) expired: u64,
}

/// What was decided, and how the cell stands after it.
#[derive(Debug)]
pub(super) struct Decided {
    /// When the question was sent; what it says may be as old.
    pub(super) asked: Stopwatch,
    pub(super) seq: u64,
    pub(super) now: Timestamp,
    pub(super) next_due: Option<Timestamp>,
    pub(super) closes: Option<Timestamp>,
    pub(super) available: u32,
    /// Numbers of claims the cell has used, and how many of these belong to no claim.
    pub(super) numbers: u32,
    pub(super) skipped: u32,
    pub(super) by_identity: bool,
    pub(super) buckets: u16,
    pub(super) said: Vec<Said>,
    /// The number of the last call of this node that changed something in the partition.
    pub(super) last_change: u64,
    pub(super) counted: Counted,
}

pub(super) fn encode_terms(terms: &Arc<Terms>) -> Vec<u8> {
    let mut encoder = Encoder::default();
    encoder.bare_terms(terms);
    encoder.bytes().to_vec()
}

pub(super) fn decode_terms(bytes: &[u8]) -> Result<Arc<Terms>> {
    let terms = Decoder::new(bytes).bare_terms();
    terms.map(Arc::new).map_err(|_| Unpackable::new("terms"))
}

/// What of the terms the script needs.
pub(super) fn pack_rules(terms: &Terms, bucket: u16) -> Vec<u8> {
    let (flow, hold_ms, pay_ms) = match terms.flow {
        Flow::Instant => (0, 0, 0),
        Flow::Order { pay_ms } => (1, 0, pay_ms),
        Flow::Hold { hold_ms, pay_ms } => (2, hold_ms, pay_ms),
    };
    let ms = |ms: u64| i64::try_from(ms).expect("Terms::check allows no deadline over a year");
    let mut packer = Packer::default();
    packer
        .list(14)
        .int(terms.limit_per_user.into())
        .int((terms.limit_by == LimitBy::Identity).into())
        .int(terms.price.get())
        .list(terms.price_steps.len());
    for step in &terms.price_steps {
        packer.list(2).int(step.after_sold.into()).int(step.price.get());
    }
    packer
        .int(terms.opens_at.millis())
        .int(terms.closes_at.map_or(-1, Timestamp::millis))
        .int(flow)
        .int(ms(hold_ms))
        .int(ms(pay_ms))
        .int((terms.reclaim == Reclaim::Never).into())
        .int(match &terms.supply {
            Supply::Units(_) => 0,
            Supply::Portions(cut) => i64::try_from(cut.len()).expect("portions are bounded"),
        })
        .int(bucket.into())
        .int(terms.buckets.into())
        .int((terms.kind == Kind::Packet).into())
        .finish()
}

/// The values of all portions, four bytes each.
pub(super) fn portion_bytes(terms: &Terms) -> Vec<u8> {
    let Supply::Portions(cut) = &terms.supply else { return Vec::new() };
    let value = |cents: &Cents| u32::try_from(cents.get()).expect("Terms::check bounds prices");
    cut.iter().flat_map(|cents| value(cents).to_be_bytes()).collect()
}

/// The units a bucket begins with.
pub(super) fn first_share(terms: &Terms, bucket: u16) -> u32 {
    let (units, buckets) = (terms.units(), u32::from(terms.buckets));
    units / buckets + u32::from(u32::from(bucket) < units % buckets)
}

impl Ask {
    fn pack(&self, to: &mut Packer) {
        let by = |by: &Option<UserId>| by.as_ref().map_or("", UserId::as_str).to_owned();
        match self {
            Self::Open { terms, bucket } => {
                let total = if *bucket == 0 { terms.units() } else { 0 };
                to.list(6)
                    .text("open")
                    .bytes(&encode_terms(terms))
                    .bytes(&pack_rules(terms, *bucket))
                    .bytes(&portion_bytes(terms))
                    .int(total.into())
                    .int(first_share(terms, *bucket).into())
            }
            Self::Claim { .. } => unreachable!("claims are packed in groups"),
            Self::Order { number, by: who } => {
                to.list(3).text("order").int((*number).into()).text(&by(who))
            }
            Self::Release { number, by: who, reason } => to
                .list(4)
                .text("release")
                .int((*number).into())
                .text(&by(who))
                .int(reason_number(Some(*reason))),
            Self::Revoke { number } => to.list(2).text("revoke").int((*number).into()),
            Self::Pay { pay, fence, borrow } => {
                let (high, low) = split(pay.amount);
                to.list(7)
                    .text("pay")
                    .int(pay.order.number.into())
                    .text(pay.payment.as_str())
                    .int(high)
                    .int(low)
                    .int((*fence).into())
                    .int((*borrow).into())
            }
            Self::Refund { pay, fence } => {
                let (high, low) = split(pay.amount);
                to.list(6)
                    .text("refund")
                    .int(pay.order.number.into())
                    .text(pay.payment.as_str())
                    .int(high)
                    .int(low)
                    .int((*fence).into())
            }
            Self::Reserve { payment, bucket, expected } => to
                .list(4)
                .text("reserve")
                .text(payment.as_str())
                .int((*bucket).into())
                .text(expected),
            Self::Leave { payment, fence } => {
                to.list(3).text("leave").text(payment.as_str()).int((*fence).into())
            }
            Self::Restock { units, request } => {
                to.list(3).text("restock").int(units.get().into()).text(request.as_str())
            }
            Self::Close => to.list(1).text("close"),
            Self::MayClear => to.list(1).text("may_clear"),
            Self::Clear { forget } => to.list(2).text("clear").int(forget.is_some().into()),
            Self::Look => to.list(1).text("look"),
            Self::Find { number } => to.list(2).text("find").int((*number).into()),
            Self::Tick => to.list(1).text("tick"),
            Self::Lend { to: other, units, received } => to
                .list(4)
                .text("lend")
                .int((*other).into())
                .int((*units).into())
                .int(long(*received)),
            Self::Receive { from, number, units, position } => to
                .list(5)
                .text("receive")
                .int((*from).into())
                .int(long(*number))
                .int((*units).into())
                .int(long(*position)),
            Self::Settle { to: other, number } => {
                to.list(3).text("settle").int((*other).into()).int(long(*number))
            }
            Self::Stand => to.list(1).text("stand"),
        };
    }
}

/// Commands as the script takes them: claims in a row are one command for it.
fn groups(asks: &[Ask]) -> impl Iterator<Item = &[Ask]> {
    asks.chunk_by(|one, next| matches!((one, next), (Ask::Claim { .. }, Ask::Claim { .. })))
}

/// Packs all commands of a call, and for each list of claims what a run keeps of them.
pub(super) fn pack_asks(asks: &[Ask], to: &mut Packer) -> Vec<Vec<u8>> {
    let mut own = Vec::new();
    to.list(groups(asks).count());
    for group in groups(asks) {
        match group {
            [Ask::Claim { .. }, ..] => own.push(pack_claims(group, to)),
            _ => group.iter().for_each(|ask| ask.pack(to)),
        }
    }
    own
}

fn pack_claims(asks: &[Ask], to: &mut Packer) -> Vec<u8> {
    let wishes = || {
        asks.iter().filter_map(|ask| match ask {
            Ask::Claim { wish, by } => Some((wish, *by)),
            _ => None,
        })
    };
    let count = |wanted: bool| if wanted { asks.len() } else { 0 };
    let with_requests = wishes().any(|(wish, _)| wish.request.is_some());
    let several = wishes().any(|(wish, _)| wish.quantity.get() > 1);
    to.list(5).text("claims").list(asks.len());
    for (wish, by) in wishes() {
        to.text(match by {
            LimitBy::User => wish.user.as_str(),
            LimitBy::Identity => wish.identity.as_ref().map_or("", Identity::as_str),
        });
    }
    to.list(count(with_requests));
    for (wish, _) in wishes().take(count(with_requests)) {
        match &wish.request {
            Some(request) => to.bytes(&request_field(&wish.user, request)),
            None => to.text(""),
        };
    }
    to.list(count(several));
    for (wish, _) in wishes().take(count(several)) {
        to.int(wish.quantity.get().into());
    }
    let (mut own, mut ends) = (Packer::default(), Vec::with_capacity(4 * asks.len()));
    for (wish, by) in wishes() {
        let identity = wish.identity.as_ref().filter(|_| by == LimitBy::Identity);
        own.text(wish.user.as_str())
            .text(wish.request.as_ref().map_or("", RequestId::as_str))
            .text(identity.map_or("", Identity::as_str))
            .int(wish.quantity.get().into());
        let end = u32::try_from(own.len()).expect("calls are bounded");
        ends.extend(end.to_be_bytes());
    }
    to.bytes(&ends);
    own.finish()
}

/// Claims in a block.
pub(super) const BLOCK: u32 = 16;

/// A claim's number where the script keeps something by it.
pub(super) fn field_of(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// The number in a field.
pub(super) fn number_of(field: &[u8]) -> Option<u32> {
    field.try_into().ok().map(u32::from_be_bytes)
}

/// Claims that are due together, from one number to another.
pub(super) fn due_of(first: u32, last: u32) -> Vec<u8> {
    [first.to_be_bytes(), last.to_be_bytes()].concat()
}

/// A buyer as the script keeps them: their latest claim and, unless that is one, the units used.
pub(super) fn buyer(latest: u32, used: u32) -> Vec<u8> {
    if used == 1 { field_of(latest) } else { due_of(latest, used) }
}

/// The block that a claim lies in, unless it lies in a field of its own; `place` is its place among
/// the claims of its cell.
pub(super) fn block_of(place: u32) -> Vec<u8> {
    let mut field = b"b".to_vec();
    field.extend((place / BLOCK).to_be_bytes());
    field
}

/// A request id where the script keeps something by it: they are a user's own.
pub(super) fn request_field(user: &UserId, request: &RequestId) -> Vec<u8> {
    Packer::default().text(user.as_str()).text(request.as_str()).finish()
}

impl Ask {
    /// The kind whose list of pools it changes.
    pub(super) fn lists(&self) -> Option<Kind> {
        match self {
            Self::Open { terms, .. } => Some(terms.kind),
            Self::Clear { forget } => *forget,
            _ => None,
        }
    }

    /// Whether it may bring units back, or end the sale.
    pub(super) fn changes_stock(&self) -> bool {
        match self {
            Self::Claim { .. }
            | Self::Look
            | Self::Find { .. }
            | Self::Stand
            | Self::MayClear
            | Self::Reserve { .. }
            | Self::Leave { .. } => false,
            Self::Open { .. }
            | Self::Order { .. }
            | Self::Release { .. }
            | Self::Revoke { .. }
            | Self::Pay { .. }
            | Self::Refund { .. }
            | Self::Restock { .. }
            | Self::Close
            | Self::Clear { .. }
            | Self::Tick
            | Self::Lend { .. }
            | Self::Receive { .. }
            | Self::Settle { .. } => true,
        }
    }
}

impl Said {
    /// Whether a claim found nothing left.
    pub(super) fn is_sold_out(&self) -> bool {
        matches!(self, Self::Claim(Outcome::Refused(Refusal::SoldOut)))
    }
}

/// What a bucket counts, out of its state.
pub(super) struct Counts {
    /// Changes of the pool as a whole.
    pub(super) version: u32,
    /// Numbers of claims that were used.
    pub(super) numbers: u32,
}

/// Reads the counts out of a state as the rules write it.
pub(super) fn read_counts(state: &[u8]) -> Result<Counts> {
    const BETWEEN: usize = 6;
    let mut from = Unpacker::new(state);
    from.list()?;
    let version = from.number()?;
    for _ in 0..BETWEEN {
        from.int()?;
    }
    Ok(Counts { version, numbers: from.number()? })
}

/// Reads the answer to a call.
pub(super) fn read_answer(
    bytes: &[u8],
    pool: PoolId,
    asks: &[Ask],
    asked: Stopwatch,
) -> Result<Answer> {
    let mut from = Unpacker::new(bytes);
    from.list()?;
    match from.text()? {
        "lost" => {
            let (epoch, seq, torn) = (from.text()?.into(), from.number()?, from.int()? == 1);
            Ok(Answer::Lost(PartitionState { epoch, seq, torn }))
        }
        "stale" => Ok(Answer::Stale),
        "again" => Ok(Answer::Again(read_counted(&mut from)?)),
        "ok" => {
            let (seq, now) = (from.number()?, time(&mut from)?);
            let (next_due, available) = (time_or_none(&mut from)?, from.number()?);
            let grants = Grants::read(&mut from, now)?;
            let kind = grants.as_ref().map_or(Kind::Sale, |grants| grants.kind);
            let of = Of { pool, kind };
            if from.list()? != groups(asks).count() {
                return Err(Unpackable::new("one reply for each command"));
            }
            let mut said = Vec::with_capacity(asks.len());
            for group in groups(asks) {
                match group {
                    [Ask::Claim { .. }, ..] => {
                        read_claims(&mut from, of, group, grants.as_ref(), &mut said)?;
                    }
                    _ => {
                        for ask in group {
                            said.push(read_said(&mut from, of, ask)?);
                        }
                    }
                }
            }
            Ok(Answer::Decided(Decided {
                asked,
                seq,
                now,
                next_due,
                closes: grants.as_ref().and_then(|grants| grants.closes),
                available,
                numbers: grants.as_ref().map_or(0, |grants| grants.numbers),
                skipped: grants.as_ref().map_or(0, |grants| grants.skipped),
                by_identity: grants.as_ref().is_some_and(|grants| grants.by_identity),
                buckets: grants.as_ref().map_or(1, |grants| grants.buckets),
                said,
                last_change: from.number()?,
                counted: read_counted(&mut from)?,
            }))
        }
        _ => Err(Unpackable::new("an answer")),
    }
}

fn read_counted(from: &mut Unpacker<'_>) -> Result<Counted> {
    Ok(Counted { events: from.number()?, expired: from.number()? })
}

/// What all claims granted in one call have in common.
struct Grants {
    now: Timestamp,
    state: State,
    hold_until: Option<Timestamp>,
    pay_by: Option<Timestamp>,
    by_identity: bool,
    closes: Option<Timestamp>,
    numbers: u32,
    buckets: u16,
    skipped: u32,
    kind: Kind,
}

impl Grants {
    fn read(from: &mut Unpacker<'_>, now: Timestamp) -> Result<Option<Self>> {
        if from.list()? == 0 {
            return Ok(None);
        }
        Ok(Some(Self {
            now,
            state: state(from)?,
            hold_until: time_or_none(from)?,
            pay_by: time_or_none(from)?,
            by_identity: from.int()? == 1,
            closes: time_or_none(from)?,
            numbers: from.number()?,
            buckets: from.number()?,
            skipped: from.number()?,
            kind: if from.int()? == 1 { Kind::Packet } else { Kind::Sale },
        }))
    }

    fn claim(&self, wish: &ClaimRequest, number: u32, price: Cents, portion: Option<u32>) -> Claim {
        let ClaimRequest { kind, pool, user, identity, request, quantity } = wish.clone();
        // An order that costs nothing is paid as it is placed.
        let (state, pay_by) = match self.state {
            State::Ordered if price == Cents::ZERO => (State::Paid, None),
            state => (state, self.pay_by),
        };
        Claim {
            kind,
            id: ClaimId { pool, number },
            user,
            identity: identity.filter(|_| self.by_identity),
            request,
            quantity: quantity.get(),
            unit_price: price,
            portion,
            state,
            version: 1,
            created_at: self.now,
            changed_at: self.now,
            hold_until: self.hold_until,
            pay_by,
            payment: None,
            replaces: None,
            reason: None,
        }
    }
}

const DONE: i64 = 0;
const REPLAYED: i64 = 1;

/// The answers to claims in a row; most are granted for the same price, and only counted.
fn read_claims(
    from: &mut Unpacker<'_>,
    of: Of,
    asks: &[Ask],
    grants: Option<&Grants>,
    to: &mut Vec<Said>,
) -> Result<()> {
    from.list()?;
    let (usual, mut next) = (Cents::new(from.int()?), from.number::<u32>()?);
    let step = grants.map_or(1, |grants| u32::from(grants.buckets));
    let granted = |wish, number, price, portion| {
        let grants = grants.ok_or(Unpackable::new("a pool behind a grant"))?;
        Ok(Said::Claim(Outcome::Done(grants.claim(wish, number, price, portion))))
    };
    let (mut left, mut in_a_row) = (from.list()?, 0_usize);
    for ask in asks {
        let Ask::Claim { wish, .. } = ask else { return Err(Unpackable::new("only claims")) };
        if in_a_row == 0 {
            left = left.checked_sub(1).ok_or(Unpackable::new("one reply for each claim"))?;
            if !from.is_list() {
                in_a_row = from.number()?;
            }
        }
        if let Some(rest) = in_a_row.checked_sub(1) {
            to.push(granted(wish, next, usual, None)?);
            (in_a_row, next) = (rest, next.saturating_add(step));
            continue;
        }
        from.list()?;
        to.push(match from.int()? {
            DONE => {
                let (number, price) = (from.number()?, Cents::new(from.int()?));
                next = step.saturating_add(number);
                granted(wish, number, price, number_or_none(from)?)?
            }
            REPLAYED => Said::Claim(Outcome::Replayed(read_claim(of, from.bytes()?)?)),
            _ => read_refusal(from, of.pool, ask)?,
        });
    }
    if left + in_a_row > 0 {
        return Err(Unpackable::new("one reply for each claim"));
    }
    Ok(())
}

fn read_said(from: &mut Unpacker<'_>, of: Of, ask: &Ask) -> Result<Said> {
    let pool = of.pool;
    from.list()?;
    let kind = from.int()?;
    if kind != DONE && kind != REPLAYED {
        return read_refusal(from, pool, ask);
    }
    let again = kind == REPLAYED;
    Ok(match ask {
        Ask::Claim { .. } | Ask::Order { .. } | Ask::Release { .. } | Ask::Revoke { .. } => {
            let claim = read_claim(of, from.bytes()?)?;
            Said::Claim(if again { Outcome::Replayed(claim) } else { Outcome::Done(claim) })
        }
        Ask::Pay { .. } | Ask::Refund { .. } => {
            let settlement = match from.text()? {
                "p" => Settlement::Paid(read_claim(of, from.bytes()?)?),
                "g" => Settlement::Regranted(read_claim(of, from.bytes()?)?),
                _ => Settlement::RefundDue(read_refund(pool, from.bytes()?)?),
            };
            let outcome =
                if again { Outcome::Replayed(settlement) } else { Outcome::Done(settlement) };
            Said::Money(Paid::Settled(outcome))
        }
        Ask::Open { .. } | Ask::Restock { .. } | Ask::Close | Ask::Clear { .. } | Ask::Look => {
            let view = read_view(pool, from)?;
            Said::Pool(if again { Outcome::Replayed(view) } else { Outcome::Done(view) })
        }
        Ask::Find { .. } => Said::Found(Some(read_claim(of, from.bytes()?)?)),
        Ask::Lend { to, .. } => Said::Lent(read_sent(*to, from)?),
        Ask::Stand => Said::Stands(read_standing(from)?),
        Ask::Reserve { .. } => Said::Owner(from.text()?.to_owned()),
        Ask::MayClear
        | Ask::Tick
        | Ask::Leave { .. }
        | Ask::Receive { .. }
        | Ask::Settle { .. } => Said::Done,
    })
}

fn read_refusal(from: &mut Unpacker<'_>, pool: PoolId, ask: &Ask) -> Result<Said> {
    let refusal = match from.text()? {
        "no_such_pool" => Refusal::NoSuchPool,
        "not_open_yet" => Refusal::NotOpenYet { opens_at: time(from)? },
        "closed" => Refusal::Closed,
        "not_eligible" => Refusal::NotEligible,
        "already_claimed" => {
            Refusal::AlreadyClaimed { claim: ClaimId { pool, number: from.number()? } }
        }
        "over_limit" => Refusal::OverLimit { had: from.number()?, limit: from.number()? },
        "sold_out" => Refusal::SoldOut,
        "no_such_claim" => Refusal::NoSuchClaim,
        "released" => Refusal::Released,
        "already_paid" => Refusal::AlreadyPaid,
        "not_ordered" => Refusal::NotOrdered,
        "not_paid" => Refusal::NotPaid,
        "payment_conflict" => Refusal::PaymentConflict,
        "request_conflict" => Refusal::RequestConflict,
        "pool_exists" => Refusal::PoolExists,
        "cannot_restock" => Refusal::CannotRestock,
        "pool_in_use" => Refusal::PoolInUse,
        "cleared" => Refusal::Cleared,
        "elsewhere" => return Ok(Said::Money(Paid::Elsewhere)),
        "gone_back" => return Ok(Said::GoneBack),
        _ => return Err(Unpackable::new("a code of a refusal")),
    };
    Ok(match ask {
        Ask::Claim { .. } | Ask::Order { .. } | Ask::Release { .. } | Ask::Revoke { .. } => {
            Said::Claim(Outcome::Refused(refusal))
        }
        Ask::Pay { .. } if refusal == Refusal::SoldOut => Said::Money(Paid::NeedsStock),
        Ask::Pay { .. } | Ask::Refund { .. } => {
            Said::Money(Paid::Settled(Outcome::Refused(refusal)))
        }
        Ask::Open { .. }
        | Ask::Restock { .. }
        | Ask::Close
        | Ask::MayClear
        | Ask::Clear { .. }
        | Ask::Look => Said::Pool(Outcome::Refused(refusal)),
        Ask::Find { .. } => Said::Found(None),
        Ask::Leave { .. } => Said::Owned,
        Ask::Tick
        | Ask::Reserve { .. }
        | Ask::Lend { .. }
        | Ask::Receive { .. }
        | Ask::Settle { .. }
        | Ask::Stand => Said::Nothing,
    })
}

fn read_view(pool: PoolId, from: &mut Unpacker<'_>) -> Result<PoolView> {
    let (version, total, available) = (from.number()?, from.number()?, from.number()?);
    let tally = Tally { held: from.number()?, ordered: from.number()?, paid: from.number()? };
    let (claims, payments) = (from.number()?, from.number()?);
    let (opened_at, closed_at) = (time(from)?, time_or_none(from)?);
    let cleared = from.int()? == 1;
    let terms = decode_terms(from.bytes()?)?;
    let fresh = from.number()?;
    let returned = (0..from.list()?).map(|_| from.number()).collect::<Result<Vec<u32>>>()?;
    let cents_left = terms.cents_left(fresh, returned);
    Ok(PoolView {
        id: pool,
        terms,
        version,
        total,
        available,
        cents_left: cents_left.map(|left| if cleared { Cents::ZERO } else { left }),
        tally,
        claims,
        payments,
        opened_at,
        closed_at,
        cleared,
    })
}

fn long(number: u64) -> i64 {
    i64::try_from(number).expect("transfers and positions are counted from 1")
}
