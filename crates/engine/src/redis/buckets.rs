//! Units move to the bucket that needs them.
//!
//! A user's bucket is given by their name, so limits stay exact. When it is empty, units are
//! borrowed from its siblings in three steps that may each be repeated: a sibling lends them under
//! a number, the borrower takes that number once, the sibling settles it. Whoever dies in between
//! leaves a transfer that the next search, or a worker, finishes. "Sold out" is said only after
//! two looks at all buckets, both empty, with nothing arriving in between.
//!
//! A server that has forgotten a lending would sell the lent units again, and nothing else would
//! look wrong. So both sides keep the number of the last transfer, and before a node talks to a bucket
//! over a new connection it compares the bucket with its siblings ([`Shared::compare_buckets`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::try_join_all;
use qiang_core::{
    Claim, ClaimRequest, Identity, Kind, LimitBy, Outcome, PoolId, Refusal, Terms, UserId,
};
use redis::{Pipeline, Value, cmd, from_redis_value};

use super::cell::{Cell, CellId, Found, Keys, PartitionKeys, Search, Turn};
use super::era::Era;
use super::wire::{self, Ask, Said, Sent, Standing};
use super::{Engine, Shared, nonsense};
use crate::{Error, chain};

/// Searches of one claim; each ends with units in its bucket, or with the proof that there are
/// none. Others may be faster so often, but hardly more often.
const MAX_SEARCHES: usize = 16;
/// Looks without a pause between them.
const QUICK_LOOKS: usize = 8;
/// Looks at all buckets until two agree.
const MAX_LOOKS: usize = 64;
/// Pools whose terms are read in one go, to find those that have buckets.
const LOOKED_AT_ONCE: usize = 500;

/// Another node wants the same: whoever waits longer lets the other one have it. Who that is differs
/// from look to look, so that no two nodes wait alike for long.
fn pause(look: usize, node: u64) -> Duration {
    let mixed = node ^ (look as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    Duration::from_millis(look as u64 * (1 + (mixed >> 32) % 4))
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
        let id = CellId { pool: wish.pool, bucket: bucket_of(&wish, terms) };
        let cell = self.bucket(id, terms.buckets);
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

    /// Brings units from other buckets until there are as many as wanted, or none are left. If it fails,
    /// the claim that needs the units is unchanged. As long as the turn is kept, no other bucket borrows
    /// on this node, so what was brought can be asked for.
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
            let received = |from| all[usize::from(own)].received_from(from);
            // From the one that has most, so that few transfers are needed.
            let richest = (0..terms.buckets)
                .filter(|bucket| *bucket != own)
                .max_by_key(|bucket| all[usize::from(*bucket)].available);
            if let Some(from) = richest
                && all[usize::from(from)].available > 0
            {
                self.borrow(cell, from, wanted - here, received(from)).await?;
            }
        }
        Err(Error::Overloaded)
    }

    async fn borrow(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        from: u16,
        units: u32,
        received: u64,
    ) -> Result<(), Error> {
        let (pool, to) = (cell.id.pool, cell.id.bucket);
        let lender = self.cell(CellId { pool, bucket: from });
        let era = self.era(lender.partition);
        match self.ask(&lender, Ask::Lend { to, units, received }).await? {
            Said::Lent(sent) if sent.units > 0 => self.finish_move(pool, from, sent).await,
            Said::GoneBack => {
                era.lose_transfer(pool);
                Err(Error::Unavailable)
            }
            _ => Ok(()),
        }
    }

    async fn standings(
        self: &Arc<Self>,
        pool: PoolId,
        buckets: u16,
    ) -> Result<Vec<Standing>, Error> {
        let found = self.standings_found(pool, buckets).await?;
        Ok(found.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// `None` for a bucket that is not open yet, or cleared.
    async fn standings_found(
        self: &Arc<Self>,
        pool: PoolId,
        buckets: u16,
    ) -> Result<Vec<Option<Standing>>, Error> {
        let stands = async |bucket| {
            let cell = self.bucket(CellId { pool, bucket }, buckets);
            Ok(match self.ask(&cell, Ask::Stand).await? {
                Said::Stands(standing) => Some(standing),
                _ => None,
            })
        };
        try_join_all((0..buckets).map(stands)).await
    }

    /// Finishes every transfer that was begun; says whether there was one.
    pub(super) async fn finish_moves(
        self: &Arc<Self>,
        pool: PoolId,
        all: &[Standing],
    ) -> Result<bool, Error> {
        let mut any = false;
        for (from, standing) in (0_u16..).zip(all) {
            for pending in standing.sent.iter().filter(|sent| sent.units > 0) {
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
        Sent { to, number, units, position }: Sent,
    ) -> Result<(), Error> {
        let borrower = self.cell(CellId { pool, bucket: to });
        let lender = self.cell(CellId { pool, bucket: from });
        let era = self.era(lender.partition);
        match self.ask(&borrower, Ask::Receive { from, number, units, position }).await? {
            Said::GoneBack => {
                era.lose_transfer(pool);
                Err(Error::Unavailable)
            }
            // It was cleared meanwhile: the sale is over.
            Said::Nothing => Ok(()),
            _ => self.ask(&lender, Ask::Settle { to, number }).await.map(drop),
        }
    }

    /// Finishes transfers whose borrower died on the way.
    pub(super) async fn finish_transfers(self: &Arc<Self>, pool: PoolId) -> Result<(), Error> {
        let Some(terms) = self.terms(pool).await? else { return Ok(()) };
        if terms.buckets > 1 {
            let all = self.standings(pool, terms.buckets).await?;
            self.finish_moves(pool, &all).await?;
            self.compare_buckets(pool, terms.buckets).await?;
        }
        Ok(())
    }

    /// A cell of a pool with so many buckets, which knows that it has siblings.
    pub(super) fn bucket(&self, id: CellId, buckets: u16) -> Arc<Cell> {
        let cell = self.cell(id);
        cell.buckets.store(buckets, Ordering::Release);
        cell
    }

    /// Compares a bucket with its siblings, if it never was over the connection there is now. A
    /// server that was restarted or replaced may have gone back, and nobody who knows may be alive.
    pub(super) async fn compare_if_new(&self, cell: &Cell) -> Result<(), Error> {
        let buckets = cell.buckets.load(Ordering::Acquire);
        if buckets < 2 || self.is_compared(cell) {
            return Ok(());
        }
        let head = self.cell(CellId::head(cell.id.pool));
        let _one_for_all = head.comparing.lock().await;
        if self.is_compared(cell) {
            return Ok(());
        }
        self.compare_buckets(cell.id.pool, buckets).await
    }

    fn is_compared(&self, cell: &Cell) -> bool {
        let compared = cell.compared.load(Ordering::Acquire);
        self.link.connection_number(cell.partition).is_some_and(|number| number == compared)
    }

    /// Looks at the transfers of all buckets twice. Whatever one side knew at the first look, the
    /// other side must know at the second: a lender what has arrived, a borrower what was settled. The
    /// partition of one that does not is lost.
    async fn compare_buckets(&self, pool: PoolId, buckets: u16) -> Result<(), Error> {
        let cells: Vec<Arc<Cell>> =
            (0..buckets).map(|bucket| self.bucket(CellId { pool, bucket }, buckets)).collect();
        let eras: Vec<Arc<Era>> = cells.iter().map(|cell| self.era(cell.partition)).collect();
        // Whoever does not answer may know something about every other bucket.
        let first = try_join_all(cells.iter().map(|cell| self.transfers(cell))).await?;
        let connections: Vec<Option<u64>> =
            cells.iter().map(|cell| self.link.connection_number(cell.partition)).collect();
        let second = try_join_all(cells.iter().map(|cell| self.transfers(cell))).await?;
        // What was read under two epochs cannot be compared.
        let is_same = |(cell, era): (&Arc<Cell>, _)| Arc::ptr_eq(&self.era(cell.partition), era);
        if !cells.iter().zip(&eras).all(is_same) {
            return Err(Error::Unavailable);
        }
        let mut whole = true;
        for (one, before) in (0_u16..).zip(&first) {
            for (other, after) in (0_u16..).zip(&second) {
                let sent = before.sent.iter().find(|sent| sent.to == other);
                // One that is under way was lent after the one before was settled.
                let settled = sent.map_or(0, |sent| sent.number - u64::from(sent.units > 0));
                let forgot_sending = after.sent_to(one) < before.received_from(other);
                if forgot_sending || after.received_from(one) < settled {
                    eras[usize::from(other)].lose_transfer(pool);
                    whole = false;
                }
            }
        }
        if !whole {
            return Err(Error::Unavailable);
        }
        for (cell, connection) in cells.iter().zip(connections) {
            if let Some(number) = connection
                && self.link.connection_number(cell.partition) == connection
            {
                cell.compared.store(number, Ordering::Release);
            }
        }
        Ok(())
    }

    /// The transfers a bucket knows of, read without standing in its line: those in the line may wait
    /// for this.
    async fn transfers(&self, cell: &Cell) -> Result<Standing, Error> {
        let key = cell.keys.get(Keys::MOVES);
        let moves = self.read_once(cell.partition, cmd("HGETALL").arg(key)).await?;
        let standing = wire::read_transfers(moves).map_err(nonsense)?;
        for received in &standing.received {
            // The lender's log cannot end before that.
            let lender = self.cell(CellId { bucket: received.from, ..cell.id });
            self.era(lender.partition).raise_position(received.position);
        }
        Ok(standing)
    }
}

/// What the buckets of a pool hold together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spread {
    /// Units that are some bucket's, taken or not, or on their way to one.
    pub units: u64,
    /// Units taken beyond what there was.
    pub short: u64,
    /// Whether clearing the pool was cut off: some of its buckets are cleared, and the first is not.
    pub half_cleared: bool,
}

impl Engine {
    /// Notes that a pool has buckets, before it is opened: what a process leaves half done between them
    /// is looked for among those that were noted.
    pub(super) async fn note_spread(&self, pool: PoolId) -> Result<(), Error> {
        self.change_spread("ZADD", Some(0), pool).await
    }

    /// The pool is over.
    pub(super) async fn drop_spread(&self, pool: PoolId) -> Result<(), Error> {
        self.change_spread("ZREM", None, pool).await
    }

    async fn change_spread(
        &self,
        change: &str,
        score: Option<u8>,
        pool: PoolId,
    ) -> Result<(), Error> {
        let head = self.shared.cell(CellId::head(pool));
        let key = PartitionKeys::spread(&self.place().prefix, head.partition);
        let mut pipe = Pipeline::with_capacity(1);
        pipe.cmd(change).arg(key).arg(score).arg(pool.get());
        let changed = self.shared.ask_patiently(head.partition, &pipe).await;
        changed.map(drop).map_err(|failure| {
            tracing::warn!("a pool with buckets was not noted: {}", chain(&failure));
            Error::Unavailable
        })
    }

    /// Looks through all sales once for those that have buckets: an older version did not note them,
    /// and neither does a repair. A partition that does not answer is looked through next time.
    pub(super) async fn find_spread(&self) -> Result<(), Error> {
        if self.shared.found_spread.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut found = Ok(());
        for partition in 0..self.partitions() {
            found = found.and(self.find_spread_in(partition).await);
        }
        if found.is_ok() {
            self.shared.found_spread.store(true, Ordering::Release);
        }
        found
    }

    async fn find_spread_in(&self, partition: u16) -> Result<(), Error> {
        let (link, prefix) = (&self.shared.link, &self.place().prefix);
        let unread = |failure| {
            tracing::debug!("pools with buckets not looked for: {}", chain(&failure));
            Error::Unavailable
        };
        // Only sales have buckets.
        let key = PartitionKeys::pools(prefix, partition, Kind::Sale);
        let range = cmd("ZRANGE").arg(key).arg(0).arg(-1).to_owned();
        let ids = link.ask(partition, &range).await.map_err(unread)?;
        let ids: Vec<String> = from_redis_value(ids).unwrap_or_default();
        let ids: Vec<PoolId> = ids.iter().filter_map(|id| id.parse().ok()).collect();
        for some in ids.chunks(LOOKED_AT_ONCE) {
            let mut pipe = Pipeline::with_capacity(some.len());
            for pool in some {
                let keys = Keys::new(prefix, partition, CellId::head(*pool));
                pipe.cmd("HGET").arg(keys.get(Keys::POOL)).arg("terms");
            }
            let found = link.ask_many(partition, &pipe).await.map_err(unread)?;
            for (pool, terms) in some.iter().zip(found) {
                let Value::BulkString(terms) = terms else { continue };
                // One that cannot be read is told about whenever transfers are finished.
                if wire::decode_terms(&terms).is_ok_and(|terms| terms.buckets == 1) {
                    continue;
                }
                self.note_spread(*pool).await?;
            }
        }
        Ok(())
    }

    /// What the buckets of a pool hold together; it must be as much as the pool has. `None` if there is
    /// no such pool, or units moved while they were counted.
    pub async fn spread(&self, pool: PoolId) -> Result<Option<Spread>, Error> {
        let Some(terms) = self.shared.terms(pool).await? else { return Ok(None) };
        if terms.buckets > 1 {
            self.shared.compare_buckets(pool, terms.buckets).await?;
        }
        let before = self.shared.standings(pool, terms.buckets).await?;
        let found = self.shared.standings_found(pool, terms.buckets).await?;
        // A bucket is opened before the first one of its pool, and cleared before it.
        let half_cleared = found[0].is_some() && found.iter().any(Option::is_none);
        let after: Vec<Standing> = found.into_iter().map(Option::unwrap_or_default).collect();
        let moves = |all: &[Standing]| -> Vec<u64> {
            all.iter().flat_map(|one| one.sent.iter().map(|sent| sent.number)).collect()
        };
        if moves(&before) != moves(&after) {
            return Ok(None);
        }
        let mut spread = Spread { half_cleared, ..Spread::default() };
        for (from, one) in (0_u16..).zip(&after) {
            spread.units += u64::from(one.share);
            spread.short += u64::from(one.short);
            for sent in one.sent.iter().filter(|sent| sent.units > 0) {
                // What has arrived is counted there.
                if after[usize::from(sent.to)].received_from(from) < sent.number {
                    spread.units += u64::from(sent.units);
                }
            }
        }
        spread.units = spread.units.saturating_sub(spread.short);
        Ok(Some(spread))
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
