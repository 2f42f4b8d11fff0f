//! Where claims live in memory: fixed-size records and the text that belongs to them, both
//! append-only and in chunks, so that a pool of millions grows without ever moving what it has.

use crate::{
    Cents, Claim, ClaimId, Flow, Identity, PoolId, ReleaseReason, RequestId, State, Terms,
    Timestamp, UserId,
};

const RECORDS_IN_CHUNK: usize = 4_096;
const TEXT_CHUNK_BYTES: usize = 1 << 20;
const NONE: u32 = u32::MAX;
const NO_TIME: i64 = i64::MIN;

/// All claims of one pool; the claim numbered `n` is at place `n - 1`.
#[derive(Debug, Default)]
pub(super) struct Records {
    chunks: Vec<Vec<Record>>,
    text: Text,
}

/// One claim, without its text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    text: u64,
    pub(super) created_at: i64,
    pub(super) changed_at: i64,
    pay_by: i64,
    pub(super) unit_price: i64,
    pub(super) quantity: u32,
    portion: u32,
    /// Of a paid or revoked claim: the claim it replaces. Of any other released one: the claim that
    /// replaced it. 0 is none.
    link: u32,
    /// Place of the payment among the pool's payments, from 1; 0 is none.
    pub(super) payment: u32,
    user_len: u8,
    identity_len: u8,
    request_len: u8,
    pub(super) version: u8,
    pub(super) state: State,
    pub(super) reason: Option<ReleaseReason>,
}

impl Record {
    pub(super) fn portion(&self) -> Option<u32> {
        (self.portion != NONE).then_some(self.portion)
    }

    pub(super) fn replaces(&self) -> Option<u32> {
        (self.was_paid() && self.link != 0).then_some(self.link)
    }

    pub(super) fn replaced_by(&self) -> Option<u32> {
        (!self.was_paid() && self.link != 0).then_some(self.link)
    }

    fn was_paid(&self) -> bool {
        self.state == State::Paid || self.reason == Some(ReleaseReason::Revoked)
    }

    pub(super) fn pay_by(&self) -> Option<Timestamp> {
        (self.pay_by != NO_TIME).then(|| Timestamp::from_millis(self.pay_by))
    }

    /// When the claim runs out, if it still can.
    pub(super) fn due(&self, terms: &Terms) -> Option<Timestamp> {
        match self.state {
            State::Held => self.hold_until(terms),
            State::Ordered => self.pay_by(),
            State::Paid | State::Released => None,
        }
    }

    fn hold_until(&self, terms: &Terms) -> Option<Timestamp> {
        match terms.flow {
            Flow::Hold { hold_ms, .. } if self.replaces().is_none() => {
                Some(Timestamp::from_millis(self.created_at).plus_millis(hold_ms))
            }
            Flow::Hold { .. } | Flow::Instant | Flow::Order { .. } => None,
        }
    }
}

impl Records {
    pub(super) fn len(&self) -> u32 {
        let full = self.chunks.len().saturating_sub(1) * RECORDS_IN_CHUNK;
        let count = full + self.chunks.last().map_or(0, Vec::len);
        u32::try_from(count).expect("claim numbers are asserted to fit")
    }

    pub(super) fn get(&self, number: u32) -> Option<&Record> {
        let place = number.checked_sub(1)? as usize;
        self.chunks.get(place / RECORDS_IN_CHUNK)?.get(place % RECORDS_IN_CHUNK)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Record> {
        let place = number.checked_sub(1)? as usize;
        self.chunks.get_mut(place / RECORDS_IN_CHUNK)?.get_mut(place % RECORDS_IN_CHUNK)
    }

    /// Adds the next claim.
    pub(super) fn push(&mut self, claim: &Claim) {
        assert!(claim.id.number < u32::MAX, "a pool has at most 2^32 - 2 claims");
        let identity = claim.identity.as_ref().map_or("", Identity::as_str);
        let request = claim.request.as_ref().map_or("", RequestId::as_str);
        let text = self.text.push([claim.user.as_str(), identity, request]);
        let len = |text: &str| u8::try_from(text.len()).expect("ids have at most 128 bytes");
        let record = Record {
            text,
            created_at: claim.created_at.millis(),
            changed_at: claim.changed_at.millis(),
            pay_by: claim.pay_by.map_or(NO_TIME, Timestamp::millis),
            unit_price: claim.unit_price.get(),
            quantity: claim.quantity,
            portion: claim.portion.unwrap_or(NONE),
            link: claim.replaces.unwrap_or(0),
            payment: 0,
            user_len: len(claim.user.as_str()),
            identity_len: len(identity),
            request_len: len(request),
            version: version(claim),
            state: claim.state,
            reason: claim.reason,
        };
        if self.chunks.last().is_none_or(|chunk| chunk.len() == RECORDS_IN_CHUNK) {
            let first = self.chunks.is_empty();
            self.chunks.push(Vec::with_capacity(if first { 0 } else { RECORDS_IN_CHUNK }));
        }
        self.chunks.last_mut().expect("a chunk was just made").push(record);
    }

    /// Takes over what can change of a claim.
    pub(super) fn update(&mut self, claim: &Claim) {
        let record = self.get_mut(claim.id.number).expect("only stored claims are updated");
        record.changed_at = claim.changed_at.millis();
        record.pay_by = claim.pay_by.map_or(NO_TIME, Timestamp::millis);
        record.version = version(claim);
        record.state = claim.state;
        record.reason = claim.reason;
    }

    /// Remembers that `by` stands in the place of the released claim `number`.
    pub(super) fn replace(&mut self, number: u32, by: u32) {
        let record = self.get_mut(number).expect("only stored claims are replaced");
        assert_eq!(record.state, State::Released, "only released claims are replaced");
        record.link = by;
    }

    pub(super) fn user(&self, record: &Record) -> &str {
        self.text.get(record.text, 0, record.user_len)
    }

    pub(super) fn identity(&self, record: &Record) -> &str {
        self.text.get(record.text, record.user_len.into(), record.identity_len)
    }

    pub(super) fn request(&self, record: &Record) -> &str {
        let start = usize::from(record.user_len) + usize::from(record.identity_len);
        self.text.get(record.text, start, record.request_len)
    }

    /// The claim as the outside sees it; its payment is the caller's to add.
    pub(super) fn claim(&self, pool: PoolId, number: u32, terms: &Terms) -> Option<Claim> {
        let record = self.get(number)?;
        let (identity, request) = (self.identity(record), self.request(record));
        Some(Claim {
            kind: terms.kind,
            id: ClaimId { pool, number },
            user: UserId::stored(self.user(record)),
            identity: (!identity.is_empty()).then(|| Identity::stored(identity)),
            request: (!request.is_empty()).then(|| RequestId::stored(request)),
            quantity: record.quantity,
            unit_price: Cents::new(record.unit_price),
            portion: record.portion(),
            state: record.state,
            version: record.version.into(),
            created_at: Timestamp::from_millis(record.created_at),
            changed_at: Timestamp::from_millis(record.changed_at),
            hold_until: record.hold_until(terms),
            pay_by: record.pay_by(),
            payment: None,
            replaces: record.replaces(),
            reason: record.reason,
        })
    }
}

fn version(claim: &Claim) -> u8 {
    u8::try_from(claim.version).expect("a claim changes at most three times")
}

/// Append-only text.
#[derive(Debug, Default)]
pub(super) struct Text {
    chunks: Vec<Vec<u8>>,
}

impl Text {
    /// Stores the parts one behind the other and says where.
    pub(super) fn push<const N: usize>(&mut self, parts: [&str; N]) -> u64 {
        let needed: usize = parts.iter().map(|part| part.len()).sum();
        if self.chunks.last().is_none_or(|chunk| chunk.len() + needed > TEXT_CHUNK_BYTES) {
            let first = self.chunks.is_empty();
            self.chunks.push(Vec::with_capacity(if first { 0 } else { TEXT_CHUNK_BYTES }));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let place = number * TEXT_CHUNK_BYTES + chunk.len();
        for part in parts {
            chunk.extend_from_slice(part.as_bytes());
        }
        place as u64
    }

    pub(super) fn get(&self, place: u64, skip: usize, len: u8) -> &str {
        let place = usize::try_from(place).expect("a place in memory");
        let start = place % TEXT_CHUNK_BYTES + skip;
        let bytes = &self.chunks[place / TEXT_CHUNK_BYTES][start..start + usize::from(len)];
        std::str::from_utf8(bytes).expect("only whole texts are stored")
    }
}
