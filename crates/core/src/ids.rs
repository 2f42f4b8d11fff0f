//! The names of things: pools, claims, users, requests, payments.
//!
//! Ids that come from outside are checked once, when they are made; everything behind that
//! door may trust them. No id is ever reused.

use std::fmt;
use std::str::FromStr;

use smol_str::SmolStr;

use crate::Timestamp;

/// Why a text cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    /// Nothing in it.
    #[error("it is empty")]
    Empty,
    /// More bytes than allowed.
    #[error("it is {len} bytes long; at most {max} are allowed")]
    TooLong {
        /// How many it has.
        len: usize,
        /// How many it may have.
        max: usize,
    },
    /// A control character, which would break logs and files.
    #[error("it contains a control character")]
    ControlCharacter,
    /// Not `<pool>-<number>`, or a number out of range.
    #[error("it does not have the form of such an id")]
    Malformed,
}

/// One finite amount of something scarce. A sale's id is its pool's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(u64);

impl PoolId {
    /// From here on ids are made by qiang ([`Snowflake`]), and nobody gives one by hand.
    pub const FIRST_MADE: u64 = 1 << 62;

    /// Ids are positive and fit a signed 64-bit column; anything else is `None`.
    #[must_use]
    pub fn new(id: u64) -> Option<Self> {
        (id > 0 && i64::try_from(id).is_ok()).then_some(Self(id))
    }

    /// The number behind the id.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether qiang made it. Such an id is never made again, so nothing has to be remembered to
    /// keep it from being used twice.
    #[must_use]
    pub const fn is_made(self) -> bool {
        self.0 >= Self::FIRST_MADE
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PoolId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        decimal(text).and_then(Self::new).ok_or(BadId::Malformed)
    }
}

/// One user's take from one pool, written `<pool>-<number>`. Numbers start at 1, rise by one in
/// each pool, and are never reused. An order has the id of the claim it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    /// The pool it takes from.
    pub pool: PoolId,
    /// Its place among all claims of the pool, from 1.
    pub number: u32,
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pool, self.number)
    }
}

impl FromStr for ClaimId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let (pool, number) = text.split_once('-').ok_or(BadId::Malformed)?;
        let number = decimal(number).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        Ok(Self { pool: pool.parse()?, number: number.ok_or(BadId::Malformed)? })
    }
}

/// Plain decimal digits without sign or leading zero, so that one id has one spelling.
fn decimal(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    plain.then(|| text.parse().ok()).flatten()
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(SmolStr);

        impl $name {
            /// The longest such id, in bytes.
            pub const MAX_LEN: usize = $max;

            /// Checks a text that came from outside.
            pub fn new(text: &str) -> Result<Self, BadId> {
                if text.is_empty() {
                    return Err(BadId::Empty);
                }
                if text.len() > Self::MAX_LEN {
                    return Err(BadId::TooLong { len: text.len(), max: Self::MAX_LEN });
                }
                // Nearly all are ASCII, which is looked through faster.
                let has_control = if text.is_ascii() {
                    text.bytes().any(|byte| byte.is_ascii_control())
                } else {
                    text.chars().any(char::is_control)
                };
                if has_control {
                    return Err(BadId::ControlCharacter);
                }
                Ok(Self(SmolStr::new(text)))
            }

            /// A text that was checked before it was stored.
            pub(crate) fn stored(text: &str) -> Self {
                debug_assert!(Self::new(text).is_ok());
                Self(SmolStr::new(text))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

text_id! {
    /// A shop's own user id: opaque, 1 to 64 bytes.
    UserId, 64
}
text_id! {
    /// One real person, however many accounts they have; opaque, 1 to 64 bytes.
    Identity, 64
}
text_id! {
    /// Names one request of one user, so that asking again is not asking twice.
    RequestId, 128
}
text_id! {
    /// A payment provider's id for one movement of money.
    PaymentId, 128
}

/// Makes ids that rise with time: the bit that says so ([`PoolId::FIRST_MADE`]), 40 bits of
/// milliseconds since 2024, which last until 2058, 10 bits of node, 12 bits of sequence. It never
/// goes back, even when the clock does.
#[derive(Debug)]
pub struct Snowflake {
    node: u64,
    last: u64,
}

impl Snowflake {
    /// 2024-01-01T00:00:00Z
    const EPOCH_MS: i64 = 1_704_067_200_000;
    const NODE_BITS: u32 = 10;
    const SEQUENCE_BITS: u32 = 12;
    const MAX_MS: u64 = (1 << 40) - 1;

    /// A maker of ids for one node; two makers never share a node number at one time.
    #[must_use]
    pub fn new(node: u16) -> Self {
        assert!(u32::from(node) < 1 << Self::NODE_BITS, "a node number has 10 bits");
        Self { node: u64::from(node), last: 0 }
    }

    /// The next id. When more than 4,096 are asked for in one millisecond it runs ahead of time.
    pub fn next(&mut self, now: Timestamp) -> u64 {
        let ms = u64::try_from(now.millis().saturating_sub(Self::EPOCH_MS)).unwrap_or(0);
        let ms = ms.min(Self::MAX_MS);
        self.last = (self.last + 1).max(ms << Self::SEQUENCE_BITS);
        let (ms, sequence) =
            (self.last >> Self::SEQUENCE_BITS, self.last & ((1 << Self::SEQUENCE_BITS) - 1));
        assert!(ms <= Self::MAX_MS, "the last id was made");
        PoolId::FIRST_MADE
            | (ms << (Self::NODE_BITS + Self::SEQUENCE_BITS))
            | (self.node << Self::SEQUENCE_BITS)
            | sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_id_has_one_spelling() {
        let id: ClaimId = "42-7".parse().expect("well formed");
        assert_eq!((id.pool.get(), id.number), (42, 7));
        assert_eq!(id.to_string(), "42-7");
        for bad in [
            "",
            "42",
            "42-",
            "-7",
            "042-7",
            "42-07",
            "42-0",
            "0-1",
            "+42-7",
            "42-7-1",
            "42-4294967296",
            "9223372036854775808-1",
            "a-1",
            "42- 7",
        ] {
            assert!(bad.parse::<ClaimId>().is_err(), "{bad:?} was taken for a claim id");
        }
    }

    #[test]
    fn user_ids_are_bounded_and_printable() {
        assert_eq!(UserId::new(""), Err(BadId::Empty));
        assert!(UserId::new(&"x".repeat(64)).is_ok());
        assert_eq!(UserId::new(&"x".repeat(65)), Err(BadId::TooLong { len: 65, max: 64 }));
        assert_eq!(UserId::new("a\nb"), Err(BadId::ControlCharacter));
        assert!(UserId::new("用户-7").is_ok());
    }

    #[test]
    fn snowflakes_rise_even_when_the_clock_goes_back() {
        let mut ids = Snowflake::new(3);
        let now = Timestamp::from_millis(1_800_000_000_000);
        let mut last = 0;
        for step in 0..10_000 {
            let at = if step % 3 == 0 { Timestamp::from_millis(1_700_000_000_000) } else { now };
            let id = ids.next(at);
            assert!(id > last);
            assert_eq!((id >> 12) & 1023, 3);
            assert!(PoolId::new(id).is_some_and(PoolId::is_made));
            last = id;
        }
    }

    #[test]
    fn what_people_count_is_told_from_what_was_made() {
        // Numbers from 1, milliseconds, ids of other makers that began in 2010, the first ones here.
        for given in [1, 1_800_000_000_000, 2_100_000_000_000_000_000, 380_000_000_000_000_000] {
            assert!(!PoolId::new(given).expect("an id").is_made());
        }
        let mut ids = Snowflake::new(1023);
        for at in [i64::MIN, 0, 1_800_000_000_000, i64::MAX] {
            let id = PoolId::new(ids.next(Timestamp::from_millis(at))).expect("it fits a column");
            assert!(id.is_made());
        }
    }
}
