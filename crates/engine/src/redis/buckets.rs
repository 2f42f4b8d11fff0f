//! Units move to the bucket that needs them.
//!
//! A user's bucket is given by their name, so limits stay exact. When it is empty, units are
//! borrowed from its siblings in three steps that may each be repeated: a sibling lends them under
//! a number, the borrower takes that number once, the sibling settles it. Whoever dies in between
//! leaves a transfer that the next search, or a worker, finishes. "Sold out" is said only after
//! two looks at all buckets, both empty, with nothing arriving in between.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use qiang_core::{Claim, ClaimRequest, Identity, LimitBy, Outcome, PoolId, Refusal, Terms, UserId};

use super::Shared;
use super::cell::{Cell, CellId, Found, Search, Turn};
use super::wire::{Ask, Move, Said, Standing};
use crate::Error;

/// Searches of one claim; each ends with units in its bucket, or with the proof that there are
/// none. Others may be faster so often, but hardly more often.
const MAX_SEARCHES: usize = 16;
/// Looks without a pause between them.
const QUICK_LOOKS: usize = 8;
/// Looks at all buckets until two agree.
const MAX_LOOKS: usize = 64;

/// Another node wants the same: whoever waits longer lets the other one have it. Who that is differs
/// from look to look, so that no two nodes wait alike for long.
fn pause(look: usize, node: u64) -> Duration {
    let mixed = node.wrapping_add(look as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    Duration::from_millis(look as u64 * (1 + mixed % 4))
}

/// Whether a claim has a number of the bucket in which its buyer's quota is counted, as every claim
/// has that was granted here.
#[must_use]
pub fn is_in_its_bucket(claim: &Claim, terms: &Terms) -> bool {
    let bucket = CellId::of_claim(claim.id.pool, claim.id.number, terms.buckets).bucket;
    bucket == bucket_named(&claim.user, claim.identity.as_ref(), terms)
}

/// The bucket of a buyer.
pub(super) fn bucket_of(wish: &ClaimRequest, terms: &Terms) -> u16 {
    bucket_named(&wish.user, wish.identity.as_ref(), terms)
}

fn bucket_named(user: &UserId, identity: Option<&Identity>, terms: &Terms) -> u16 {
    let name = match (terms.limit_by, identity) {
        (LimitBy::Identity, Some(identity)) => identity.as_str(),
        (LimitBy::Identity | LimitBy::User, _) => user.as_str(),
    };
    // FNV-1a: the same on every node and in every version, because it decides where a quota is.
    let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let bucket = (hash ^ (hash >> 32)) % u64::from(terms.buckets);
    u16::try_from(bucket).expect("less than the buckets")
}

impl Shared {
    /// Claims from the user's own bucket, with units of its siblings if it has none.
    pub(super) async fn claim_from_bucket(
        self: &Arc<Self>,
        wish: ClaimRequest,
        terms: &Terms,
    ) -> Result<Said, Error> {
        let cell = self.cell(CellId { pool: wish.pool, bucket: bucket_of(&wish, terms) });
        let wanted = wish.quantity.get();
        for _ in 0..MAX_SEARCHES {
            if cell.memory().answers(&wish, self.memory_time()) {
                return Ok(Said::Claim(Outcome::Refused(Refusal::SoldOut)));
            }
            let seen = cell.searches.load(Ordering::Acquire);
            let said =
                self.ask(&cell, Ask::Claim { wish: wish.clone(), by: terms.limit_by }).await?;
            if !said.is_sold_out() {
                return Ok(said);
            }
            let (found, turn) = self.search_together(&cell, terms, wanted, seen).await?;
            if found == Found::None {
                // Too few for several may still be enough for one.
                if wanted == 1 {
                    cell.memory().prove();
                }
                return Ok(said);
            }
            if turn.is_some() {
                let said =
                    self.ask(&cell, Ask::Claim { wish: wish.clone(), by: terms.limit_by }).await?;
                if !said.is_sold_out() {
                    return Ok(said);
                }
            }
        }
        Err(Error::Overloaded)
    }

    /// Searches, or takes the result of a search that began after the `seen`th: then it began after
    /// the one who asks did, and what it found is true for both. An earlier one may have looked at
    /// a bucket before units came back to it. Whoever searched gets the turn.
    async fn search_together(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        terms: &Terms,
        wanted: u32,
        seen: u64,
    ) -> Result<(Found, Option<Turn>), Error> {
        let mut last = cell.search.lock().await;
        if cell.searches.load(Ordering::Acquire) != seen && last.wanted <= wanted {
            return Ok((last.found, None));
        }
        cell.searches.fetch_add(1, Ordering::AcqRel);
        *last = Search { found: Found::Some, wanted };
        let (found, turn) = self.search(cell, terms, wanted).await?;
        last.found = found;
        Ok((found, Some(turn)))
    }

    /// Brings units from other buckets until there are as many as wanted, or none are left. Nothing
    /// has happened to whoever needs them when it fails. As long as the turn is kept, no other
    /// bucket borrows on this node, so what was brought can be asked for.
    pub(super) async fn search(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        terms: &Terms,
        wanted: u32,
    ) -> Result<(Found, Turn), Error> {
        let turn = Arc::clone(&self.cell(CellId::head(cell.id.pool)).turn).lock_owned().await;
        match self.look_around(cell, terms, wanted).await {
            Ok(found) => Ok((found, turn)),
            Err(Error::OutcomeUnknown) => Err(Error::Unavailable),
            Err(error) => Err(error),
        }
    }

    async fn look_around(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        terms: &Terms,
        wanted: u32,
    ) -> Result<Found, Error> {
        let (pool, own) = (cell.id.pool, cell.id.bucket);
        let mut before: Option<Vec<Standing>> = None;
        for look in 0..MAX_LOOKS {
            if look >= QUICK_LOOKS {
                tokio::time::sleep(pause(look, self.node)).await;
            }
            let all = self.standings(pool, terms.buckets).await?;
            let here = all[usize::from(own)].available;
            if here >= wanted {
                return Ok(Found::Some);
            }
            let moving = self.finish_moves(pool, &all).await?;
            let left: u64 = all.iter().map(|standing| u64::from(standing.available)).sum();
            if left < u64::from(wanted) && !moving {
                let arrived = |all: &[Standing]| all.iter().map(|s| s.arrived).sum::<u64>();
                if before.as_ref().is_some_and(|before| arrived(before) == arrived(&all)) {
                    return Ok(Found::None);
                }
                before = Some(all);
                continue;
            }
            before = None;
            // From the one that has most, so that few transfers are needed.
            let richest = (0..terms.buckets)
                .filter(|bucket| *bucket != own)
                .max_by_key(|bucket| all[usize::from(*bucket)].available);
            if let Some(from) = richest
                && all[usize::from(from)].available > 0
            {
                self.borrow(cell, from, wanted - here).await?;
            }
        }
        Err(Error::Overloaded)
    }

    async fn borrow(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        from: u16,
        units: u32,
    ) -> Result<(), Error> {
        let (pool, to) = (cell.id.pool, cell.id.bucket);
        let lender = self.cell(CellId { pool, bucket: from });
        match self.ask(&lender, Ask::Lend { to, units }).await? {
            Said::Lent { number, units } if units > 0 => {
                self.finish_move(pool, from, Move { to, number, units }).await
            }
            _ => Ok(()),
        }
    }

    async fn standings(
        self: &Arc<Self>,
        pool: PoolId,
        buckets: u16,
    ) -> Result<Vec<Standing>, Error> {
        let mut all = Vec::with_capacity(buckets.into());
        for bucket in 0..buckets {
            let cell = self.cell(CellId { pool, bucket });
            all.push(match self.ask(&cell, Ask::Stand).await? {
                Said::Stands(standing) => standing,
                // Not open yet, or never.
                _ => Standing { available: 0, arrived: 0, pending: Vec::new() },
            });
        }
        Ok(all)
    }

    /// Finishes every transfer that was begun; says whether there was one.
    pub(super) async fn finish_moves(
        self: &Arc<Self>,
        pool: PoolId,
        all: &[Standing],
    ) -> Result<bool, Error> {
        let mut any = false;
        for (from, standing) in (0_u16..).zip(all) {
            for pending in &standing.pending {
                self.finish_move(pool, from, *pending).await?;
                any = true;
            }
        }
        Ok(any)
    }

    async fn finish_move(
        self: &Arc<Self>,
        pool: PoolId,
        from: u16,
        Move { to, number, units }: Move,
    ) -> Result<(), Error> {
        let borrower = self.cell(CellId { pool, bucket: to });
        // A borrower that was cleared meanwhile takes nothing: the sale is over.
        self.ask(&borrower, Ask::Receive { from, number, units }).await?;
        let lender = self.cell(CellId { pool, bucket: from });
        self.ask(&lender, Ask::Settle { to, number }).await?;
        Ok(())
    }

    /// Finishes transfers whose borrower died on the way.
    pub(super) async fn finish_transfers(self: &Arc<Self>, pool: PoolId) -> Result<(), Error> {
        let Some(terms) = self.terms(pool).await? else { return Ok(()) };
        if terms.buckets > 1 {
            let all = self.standings(pool, terms.buckets).await?;
            self.finish_moves(pool, &all).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LOOKS, QUICK_LOOKS, pause};

    #[test]
    fn no_two_nodes_always_wait_alike() {
        for (one, other) in [(1, 2), (1, 5), (8, 16), (3, u64::MAX - 4)] {
            let alike = |look: &usize| pause(*look, one) == pause(*look, other);
            let together = (QUICK_LOOKS..MAX_LOOKS).filter(alike).count();
            assert!(together < MAX_LOOKS / 2, "{one} and {other}: {together}");
        }
    }
}
