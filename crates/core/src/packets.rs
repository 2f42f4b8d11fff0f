//! Red packets: how money is cut into portions, and how anybody can check that afterwards.
//!
//! A [`Recipe`] is everything a cut follows from. The same recipe gives the same portions on every
//! machine, in every version: `docs/PACKETS.md` describes the steps for those who write a verifier
//! of their own, so nothing here changes what a recipe gives. A change would need a new domain word.
//!
//! The commitment is published with the packet, the seed when the packet is over.

mod cut;
mod numbers;

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::claim::spelled;
use crate::{Cents, Fault};

/// The most shares of one packet.
pub const MAX_SHARES: u32 = 500;
/// The most cents of one share.
pub const MAX_SHARE: Cents = Cents::MAX_PRICE;
/// The most bytes of a nonce.
pub const MAX_NONCE: usize = 64;

/// What a commitment is about, so that its hash is no other hash.
const COMMITMENT: &[u8] = b"qiang packet v1";
/// The same for the hash of a seed alone.
const SEED: &[u8] = b"qiang packet seed v1";

/// How the money is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// By chance (拼手气).
    Lucky,
    /// In equal shares (固定金额).
    Fixed,
}

spelled!(Kind: Lucky = "lucky", Fixed = "fixed");

/// What the chance of a cut comes from. Whoever knows it knows every portion, so `Debug` hides it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

impl Seed {
    /// Names the seed without giving it away.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        digest(&[SEED, &self.0])
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}

/// Everything a cut follows from.
#[derive(Debug, Clone, Copy)]
pub struct Recipe<'a> {
    /// The packet's public id. It is part of the commitment, not of the cut.
    pub packet: &'a str,
    pub kind: Kind,
    pub total: Cents,
    pub shares: u32,
    /// What the sender added to the seed; empty if nothing.
    pub nonce: &'a [u8],
    pub seed: &'a Seed,
}

/// A packet is not what its commitment promised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("no packet can have these numbers")]
    Impossible(#[source] Fault),
    #[error(
        "the commitment is that of another packet, total, number of shares, kind, nonce or seed"
    )]
    Commitment,
    #[error("portion {portion} has {found} cents, and the cut says {expected}", found = found.get(), expected = expected.get())]
    Portion { portion: u32, found: Cents, expected: Cents },
    #[error("the cut has no portion {portion}")]
    NoSuchPortion { portion: u32 },
}

/// Whether money can be divided like this: finds the first fault.
pub fn check(kind: Kind, total: Cents, shares: u32, nonce: &[u8]) -> Result<(), Fault> {
    let fault = |field, rule| Err(Fault { field, rule });
    if !(1..=MAX_SHARES).contains(&shares) {
        return fault("shares", "must be from 1 to 500");
    }
    if total.get() < i64::from(shares) {
        return fault("total_cents", "must be at least a cent for each share");
    }
    // A lucky share can be nearly all there is.
    let most = match kind {
        Kind::Lucky => MAX_SHARE,
        Kind::Fixed => MAX_SHARE.times(shares),
    };
    if total > most {
        return fault("total_cents", "must not make a share above 1000000000 possible");
    }
    if nonce.len() > MAX_NONCE {
        return fault("nonce", "must have at most 64 bytes");
    }
    Ok(())
}

impl Recipe<'_> {
    /// The portions, in the order in which they are taken. They add up to the total, and none is
    /// below a cent.
    pub fn cut(&self) -> Result<Box<[Cents]>, Fault> {
        check(self.kind, self.total, self.shares, self.nonce)?;
        let portions = match self.kind {
            Kind::Lucky => cut::lucky(self.total.get(), self.shares, self.seed, self.nonce),
            Kind::Fixed => cut::fixed(self.total.get(), self.shares),
        };
        let sum = portions.iter().fold(Cents::ZERO, |sum, portion| sum.plus(*portion));
        assert_eq!(sum, self.total, "a cut adds up to what was cut");
        assert!(portions.iter().all(|portion| portion.get() >= 1), "no portion is empty");
        Ok(portions)
    }

    /// What is published before anybody takes a portion.
    #[must_use]
    pub fn commitment(&self) -> [u8; 32] {
        let (total, shares) = (self.total.get().to_string(), self.shares.to_string());
        digest(&[
            COMMITMENT,
            self.packet.as_bytes(),
            total.as_bytes(),
            shares.as_bytes(),
            self.kind.as_str().as_bytes(),
            self.nonce,
            &self.seed.0,
        ])
    }

    /// Checks that the packet is the one of this commitment, and that these portions, by their
    /// place from 0, are those of its cut.
    pub fn verify(
        &self,
        commitment: &[u8; 32],
        taken: impl IntoIterator<Item = (u32, Cents)>,
    ) -> Result<(), Mismatch> {
        if self.commitment() != *commitment {
            return Err(Mismatch::Commitment);
        }
        let cut = self.cut().map_err(Mismatch::Impossible)?;
        for (portion, found) in taken {
            match cut.get(portion as usize) {
                None => return Err(Mismatch::NoSuchPortion { portion }),
                Some(&expected) if expected != found => {
                    return Err(Mismatch::Portion { portion, found, expected });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// SHA-256 over all parts, each behind its length, so that no two lists of parts look the same.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(length(part));
        hash.update(part);
    }
    hash.finalize().into()
}

/// The length of a part, as it stands in front of it.
fn length(part: &[u8]) -> [u8; 4] {
    u32::try_from(part.len()).expect("parts are short").to_be_bytes()
}
