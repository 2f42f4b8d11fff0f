//! Events survive being written down, and bytes that are no events are refused, not guessed at.

use std::sync::Arc;

use qiang_core::{
    Cents, Claim, ClaimId, Event, Flow, Identity, Kind, LimitBy, PaymentId, PoolChange, PoolId,
    PoolState, PriceStep, Reclaim, Refund, RefundReason, ReleaseReason, RequestId, State, Supply,
    Terms, Timestamp, UserId,
};
use qiang_engine::{DecodeError, Decoder, Encoder};
use qiang_testkit::contract::sale;
use qiang_testkit::{Random, each_seed};

fn encoded(events: &[Event]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    events.iter().for_each(|event| encoder.push(event));
    assert_eq!(encoder.count(), events.len() as u64);
    encoder.bytes().to_vec()
}

fn decoded(bytes: &[u8]) -> Result<Vec<Event>, DecodeError> {
    Decoder::new(bytes).collect()
}

#[test]
fn what_is_written_is_read() {
    each_seed(2_000, |seed| {
        let mut random = Random::new(seed);
        let events: Vec<_> = (0..random.below(12)).map(|_| event(&mut random)).collect();
        let bytes = encoded(&events);
        assert_eq!(decoded(&bytes).as_ref(), Ok(&events));
    });
}

#[test]
fn bytes_that_end_early_are_noticed() {
    each_seed(300, |seed| {
        let mut random = Random::new(seed);
        let one = event(&mut random);
        let bytes = encoded(std::slice::from_ref(&one));
        for end in 1..bytes.len() {
            assert!(decoded(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
        }
    });
}

#[test]
fn no_bytes_break_the_reader() {
    each_seed(3_000, |seed| {
        let mut random = Random::new(seed);
        let events: Vec<_> = (0..3).map(|_| event(&mut random)).collect();
        let mut bytes = encoded(&events);
        for _ in 0..random.between(1, 4) {
            let place = random.below(u32::try_from(bytes.len()).expect("short")) as usize;
            bytes[place] = u8::try_from(random.below(256)).expect("a byte");
        }
        // Whatever comes of it, it comes to an end, and again the same.
        assert_eq!(decoded(&bytes), decoded(&bytes));
    });
}

/// Bytes of a version that knew nothing of kinds: all its pools are sales, and sales are still written
/// as it wrote them.
#[test]
fn what_was_written_before_there_were_kinds_is_read_as_sales() {
    let bytes = [
        b"\x01\x07\x01\x0a\x03\x00\x00\x05Goods\x05goods\x00\x03\x01\x00\xc8\x01\x00\x00\x00\x01\x64\x01"
            .as_slice(),
        b"\x00\x20\x01\x07\x02\x01\x0c\x00\x01\xc8\x01\x03ann\xc8\x01",
        b"\x02\x07\x01\x02P1\x0e\x02\x10",
    ]
    .concat();
    let events = decoded(&bytes).expect("they can be read");
    assert!(events.iter().all(|event| event.kind() == Kind::Sale), "{events:?}");
    let [Event::Pool(pool), Event::Claim(claim), Event::Refund(refund)] = events.as_slice() else {
        panic!("{events:?}")
    };
    let terms = Terms { reclaim: Reclaim::Never, ..sale(3, Flow::Order { pay_ms: 100 }) };
    assert_eq!((*pool.terms).clone(), terms);
    assert_eq!((claim.user.as_str(), claim.pay_by), ("ann", Some(Timestamp::from_millis(106))));
    assert_eq!((refund.payment.as_str(), refund.reason), ("P1", RefundReason::AmountMismatch));
    assert_eq!(encoded(&events), bytes);
}

#[test]
fn an_event_that_says_two_kinds_is_none() {
    let mut random = Random::new(1);
    let terms = Arc::new(Terms { kind: Kind::Packet, ..sale(3, Flow::Instant) });
    let mut bytes = encoded(&[Event::Pool(PoolState { terms, ..state(&mut random) })]);
    assert!(decoded(&bytes).is_ok());
    // The first byte says sale, the terms say packet.
    bytes[0] &= 0x0f;
    assert_eq!(decoded(&bytes), Err(DecodeError::OutOfRange { what: "kind of a pool" }));
}

#[test]
fn a_used_encoder_begins_afresh() {
    let mut random = Random::new(1);
    let events: Vec<_> = (0..5).map(|_| event(&mut random)).collect();
    let mut encoder = Encoder::default();
    events.iter().for_each(|event| encoder.push(event));
    encoder.clear();
    assert_eq!((encoder.count(), encoder.bytes()), (0, &[][..]));
    events.iter().for_each(|event| encoder.push(event));
    assert_eq!(encoder.bytes(), encoded(&events));
}

fn event(random: &mut Random) -> Event {
    match random.below(4) {
        0 => Event::Pool(state(random)),
        1 => Event::Refund(Refund {
            order: claim_id(random),
            payment: PaymentId::new(&text(random, 128)).expect("a good id"),
            amount: cents(random),
            reason: *random.pick(&[
                RefundReason::Late,
                RefundReason::AlreadyPaid,
                RefundReason::AmountMismatch,
                RefundReason::ClaimLost,
                RefundReason::Revoked,
            ]),
            at: time(random),
        }),
        _ => Event::Claim(claim(random)),
    }
}

fn claim(random: &mut Random) -> Claim {
    Claim {
        kind: *random.pick(&Kind::ALL),
        id: claim_id(random),
        user: UserId::new(&text(random, 64)).expect("a good id"),
        identity: maybe(random, |random| Identity::new(&text(random, 64)).expect("a good id")),
        request: maybe(random, |random| RequestId::new(&text(random, 128)).expect("a good id")),
        quantity: number(random),
        unit_price: cents(random),
        portion: maybe(random, number),
        state: *random.pick(&[State::Held, State::Ordered, State::Paid, State::Released]),
        version: number(random),
        created_at: time(random),
        changed_at: time(random),
        hold_until: maybe(random, time),
        pay_by: maybe(random, time),
        payment: maybe(random, |random| PaymentId::new(&text(random, 128)).expect("a good id")),
        replaces: maybe(random, number),
        reason: *random.pick(&[
            None,
            Some(ReleaseReason::GaveUp),
            Some(ReleaseReason::Cancelled),
            Some(ReleaseReason::HoldExpired),
            Some(ReleaseReason::PayExpired),
            Some(ReleaseReason::Revoked),
        ]),
    }
}

fn state(random: &mut Random) -> PoolState {
    let units = number(random);
    let restocked = PoolChange::Restocked {
        units,
        request: RequestId::new(&text(random, 128)).expect("a good id"),
    };
    PoolState {
        id: claim_id(random).pool,
        version: number(random),
        change: random
            .pick(&[PoolChange::Opened, restocked, PoolChange::Closed, PoolChange::Cleared])
            .clone(),
        terms: Arc::new(terms(random)),
        total: number(random),
        closed_at: maybe(random, time),
        at: time(random),
    }
}

fn terms(random: &mut Random) -> Terms {
    let (hold_ms, pay_ms) = (u64::from(number(random)), u64::from(number(random)) << 20);
    Terms {
        kind: *random.pick(&Kind::ALL),
        title: text(random, 200).into(),
        sku: text(random, 64).into(),
        supply: if random.percent(50) {
            Supply::Units(number(random))
        } else {
            Supply::Portions((0..random.below(5)).map(|_| cents(random)).collect())
        },
        limit_per_user: number(random),
        limit_by: *random.pick(&[LimitBy::User, LimitBy::Identity]),
        price: cents(random),
        price_steps: (0..random.below(4))
            .map(|_| PriceStep { after_sold: number(random), price: cents(random) })
            .collect(),
        opens_at: time(random),
        closes_at: maybe(random, time),
        flow: *random.pick(&[
            Flow::Instant,
            Flow::Order { pay_ms },
            Flow::Hold { hold_ms, pay_ms },
        ]),
        reclaim: *random.pick(&[Reclaim::Allowed, Reclaim::Never]),
        buckets: *random.pick(&[1, 1, 2, 64]),
    }
}

fn maybe<T>(random: &mut Random, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
    random.percent(50).then(|| make(random))
}

fn claim_id(random: &mut Random) -> ClaimId {
    let pool = *random.pick(&[1, 2, 3, u64::from(u32::MAX) + 1, i64::MAX.unsigned_abs()]);
    let number = *random.pick(&[1, 2, 3, 4, 5, 1_000_000, u32::MAX]);
    ClaimId { pool: PoolId::new(pool).expect("a good id"), number }
}

/// Small numbers, and those at the edges.
fn number(random: &mut Random) -> u32 {
    let small = random.below(300);
    *random.pick(&[small, small, 0, 1, 127, 128, 16_383, 16_384, 1 << 31, u32::MAX])
}

fn cents(random: &mut Random) -> Cents {
    let small = i64::from(random.below(100_000));
    Cents::new(*random.pick(&[small, small, 0, -1, 1_000_000_000, i64::MAX, i64::MIN]))
}

fn time(random: &mut Random) -> Timestamp {
    let recent = 1_700_000_000_000 + i64::from(random.below(1_000_000));
    Timestamp::from_millis(*random.pick(&[recent, recent, 0, -1, i64::MAX, i64::MIN]))
}

fn text(random: &mut Random, max: usize) -> String {
    let piece = *random.pick(&["a", "用", "é", "x-1", "\u{1F9E7}"]);
    let most = u32::try_from(max / piece.len()).expect("short");
    let times = *random.pick(&[1, 1, 2, most]);
    piece.repeat(times as usize)
}
