//! Reads what a batch of commands needs, with the partition's row locked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use qiang_core::decide::Fate;
use qiang_core::{ClaimId, Command, LimitBy, PoolId, RequestId, Supply, Terms, Timestamp, UserId};
use qiang_sql::{Listed, Transaction, Value, sql};

use super::excerpt::{Excerpt, buyer_name};
use super::fault::Fault;
use super::rows::{self, Fields};
use super::tables::{BUYERS, CLAIMS, PAYMENTS, POOLS, TERMS};
use crate::cache::Cache;

/// Pools whose rules are kept in memory; they never change. The one least asked about goes first.
const MAX_TERMS: usize = 16_384;

/// The rules of pools, seldom read twice.
#[derive(Debug)]
pub(super) struct TermsCache(RwLock<Cache<PoolId, Arc<Terms>>>);

impl Default for TermsCache {
    fn default() -> Self {
        Self(RwLock::new(Cache::new(MAX_TERMS)))
    }
}

impl TermsCache {
    pub(super) fn get(&self, pool: PoolId) -> Option<Arc<Terms>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&pool).cloned()
    }

    pub(super) fn keep(&self, pool: PoolId, terms: &Arc<Terms>) {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        kept.insert(pool, Arc::clone(terms), |_| true);
    }

    pub(super) fn forget(&self, pool: PoolId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&pool);
    }
}

/// Everything a batch may look at.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// The pools that the batch names; `None` is not there.
    pub(super) pools: BTreeMap<PoolId, Option<Excerpt>>,
    /// Those that the batch cleared and forgot: they are not there any more, and still to be written.
    pub(super) forgotten: Vec<Excerpt>,
}

/// What the commands of a batch want to know of one pool.
#[derive(Debug, Default)]
struct Wanted<'a> {
    numbers: BTreeSet<u32>,
    requests: BTreeSet<(&'a UserId, &'a RequestId)>,
    buyers: BTreeSet<&'a str>,
    payments: BTreeSet<&'a str>,
    restock: Option<&'a RequestId>,
    takes: u32,
    /// Whether somebody is told how the pool stands.
    view: bool,
}

static FIND_POOLS: Listed = Listed::over(
    &[&POOLS],
    "SELECT {engine_pools} FROM engine_pools WHERE id IN ({list}) AND to_sweep < 2",
);

/// In the order of the index, so that it ends with the last row that is wanted.
static FIND_OVERDUE: Listed = Listed::over(
    &[&CLAIMS],
    "SELECT {engine_claims} FROM engine_claims WHERE pool_id IN ({list}) AND due <= ?
     ORDER BY pool_id, due, number LIMIT ?",
);

static FIND_TERMS: Listed =
    Listed::over(&[&TERMS], "SELECT {engine_terms} FROM engine_terms WHERE pool_id IN ({list})");

static FIND_CLAIMS: Listed = Listed::over(
    &[&CLAIMS],
    "SELECT {engine_claims} FROM engine_claims WHERE pool_id = ? AND number IN ({list})",
);

static FIND_REQUESTS: Listed = Listed::over(
    &[&CLAIMS],
    "SELECT {engine_claims} FROM engine_claims WHERE pool_id = ? AND request_key IN ({list})",
);

static FIND_BUYERS: Listed = Listed::over(
    &[&BUYERS],
    "SELECT {engine_buyers} FROM engine_buyers WHERE pool_id = ? AND name IN ({list})",
);

static FIND_PAYMENTS: Listed = Listed::over(
    &[&PAYMENTS],
    "SELECT {engine_payments} FROM engine_payments WHERE pool_id = ? AND payment_id IN ({list})",
);

impl Loaded {
    /// Reads pools.
    pub(super) async fn pools(
        transaction: &mut Transaction,
        cache: &TermsCache,
        pools: &BTreeSet<PoolId>,
    ) -> Result<Self, Fault> {
        let mut loaded = Self::default();
        let ids: Vec<_> = pools.iter().map(|pool| id(*pool)).collect();
        let found = FIND_POOLS.fetch(transaction, &[], &ids, &[]).await?;
        let mut unknown = Vec::new();
        for row in &found {
            let pool = rows::pool_id(row)?;
            if cache.get(pool).is_none() {
                unknown.push(id(pool));
            }
        }
        let mut read = HashMap::new();
        for row in FIND_TERMS.fetch(transaction, &[], &unknown, &[]).await? {
            let (pool, terms) = rows::terms(&row)?;
            cache.keep(pool, &terms);
            read.insert(pool, terms);
        }
        for row in &found {
            let pool = rows::pool_id(row)?;
            let terms = read.get(&pool).cloned().or_else(|| cache.get(pool));
            let terms = terms.ok_or(Fault::Missing { what: "the rules of a pool" })?;
            loaded.pools.insert(pool, Some(rows::pool(row, terms)?));
        }
        for pool in pools {
            loaded.pools.entry(*pool).or_insert(None);
        }
        Ok(loaded)
    }

    /// Reads claims that are overdue, at most `max`, with those who have them. The claims of a
    /// pool come by their deadlines.
    pub(super) async fn overdue(
        &mut self,
        transaction: &mut Transaction,
        now: Timestamp,
        max: usize,
    ) -> Result<Vec<(ClaimId, Timestamp)>, Fault> {
        let open = self.pools.values().flatten().filter(|pool| pool.has_open_claims());
        let ids: Vec<_> = open.map(|pool| id(pool.state.id)).collect();
        let limit = i64::try_from(max).unwrap_or(i64::MAX);
        let after = [now.millis().into(), limit.into()];
        let mut overdue = Vec::new();
        for row in FIND_OVERDUE.fetch(transaction, &[], &ids, &after).await? {
            if let Some(Some(excerpt)) = self.pools.get_mut(&rows::pool_id(&row)?) {
                let (claim, due) = rows::claim(&row, excerpt.state.terms.kind)?;
                let id = claim.claim.id;
                overdue.extend(due.map(|due| (id, due)));
                excerpt.add_claim(claim);
            }
        }
        for excerpt in self.pools.values_mut().flatten() {
            read_buyers(transaction, excerpt, BTreeSet::new()).await?;
        }
        Ok(overdue)
    }

    /// Reads what the commands need beside their pools.
    pub(super) async fn details(
        &mut self,
        transaction: &mut Transaction,
        commands: &[&Command],
    ) -> Result<(), Fault> {
        let mut wanted = BTreeMap::<PoolId, Wanted<'_>>::new();
        for command in commands {
            let pool = command.pool();
            let Some(Some(excerpt)) = self.pools.get(&pool) else { continue };
            wanted.entry(pool).or_default().add(command, &excerpt.state.terms);
        }
        for (pool, wanted) in wanted {
            let Some(Some(excerpt)) = self.pools.get_mut(&pool) else { continue };
            wanted.read(transaction, excerpt).await?;
        }
        Ok(())
    }
}

impl<'a> Wanted<'a> {
    fn add(&mut self, command: &'a Command, terms: &Terms) {
        self.view |= command.is_of_pool();
        match command {
            Command::Claim(wish) => {
                self.takes += 1;
                if let Some(request) = &wish.request {
                    self.requests.insert((&wish.user, request));
                }
                match (terms.limit_by, &wish.identity) {
                    (LimitBy::User, _) => drop(self.buyers.insert(wish.user.as_str())),
                    (LimitBy::Identity, Some(identity)) => {
                        self.buyers.insert(identity.as_str());
                    }
                    // Refused before anybody asks what they have.
                    (LimitBy::Identity, None) => {}
                }
            }
            Command::Order { claim, .. }
            | Command::Release { claim, .. }
            | Command::Revoke { claim } => {
                self.numbers.insert(claim.number);
            }
            Command::Pay(pay) => {
                self.takes += 1;
                self.numbers.insert(pay.order.number);
                self.payments.insert(pay.payment.as_str());
            }
            Command::Refund(pay) => drop(self.payments.insert(pay.payment.as_str())),
            Command::Restock { request, .. } => self.restock = Some(request),
            Command::Open { .. } | Command::Close { .. } | Command::Clear { .. } => {}
        }
    }

    async fn read(
        mut self,
        transaction: &mut Transaction,
        excerpt: &mut Excerpt,
    ) -> Result<(), Fault> {
        let (pool, kind) = (excerpt.state.id, excerpt.state.terms.kind);
        if let Some(request) = self.restock {
            let row = transaction
                .fetch_optional(
                    sql!("SELECT units FROM engine_restocks WHERE pool_id = ? AND request_id = ?"),
                    &[id(pool), request.as_str().into()],
                )
                .await?;
            let units = row.map(|row| Fields::of(&row).short()).transpose()?;
            excerpt.add_restock(request.clone(), units);
        }
        self.read_payments(transaction, excerpt).await?;
        // Of a cleared pool there is nothing but refunds, whatever rows are still there.
        if excerpt.is_cleared() {
            return Ok(());
        }
        let known = 1..=excerpt.counts.claims;
        let numbers = || self.numbers.iter().filter(|number| known.contains(number));
        let items: Vec<_> = numbers().map(|number| (*number).into()).collect();
        for row in FIND_CLAIMS.fetch(transaction, &[id(pool)], &items, &[]).await? {
            excerpt.add_claim(rows::claim(&row, kind)?.0);
        }
        if numbers().any(|number| !excerpt.claims.contains_key(number)) {
            return Err(Fault::Missing { what: "a claim" });
        }
        let keys = self.requests.iter().map(|(user, id)| rows::request_key(user, id));
        let keys: Vec<_> = keys.collect();
        let requests: Vec<_> = keys.iter().map(|key| key.into()).collect();
        for row in FIND_REQUESTS.fetch(transaction, &[id(pool)], &requests, &[]).await? {
            excerpt.add_claim(rows::claim(&row, kind)?.0);
        }
        for (user, request) in self.requests {
            excerpt.looked_for_request(user, request);
        }
        read_buyers(transaction, excerpt, self.buyers).await?;
        if self.takes > 0 {
            read_latest(transaction, excerpt).await?;
        }
        // A view says what all of them are worth.
        let portions = if self.view { u32::MAX } else { self.takes };
        if portions > 0 && matches!(excerpt.state.terms.supply, Supply::Portions(_)) {
            let free = transaction
                .fetch_all(
                    sql!(
                        "SELECT place FROM engine_portions WHERE pool_id = ? AND claim = 0
                         ORDER BY place LIMIT ?"
                    ),
                    &[id(pool), portions.into()],
                )
                .await?;
            for row in free {
                excerpt.add_free(Fields::of(&row).short()?);
            }
        }
        Ok(())
    }

    /// Reads what became of the payments, and wants the claims they paid.
    async fn read_payments(
        &mut self,
        transaction: &mut Transaction,
        excerpt: &mut Excerpt,
    ) -> Result<(), Fault> {
        let items: Vec<_> = self.payments.iter().map(|payment| (*payment).into()).collect();
        let pool = id(excerpt.state.id);
        for row in FIND_PAYMENTS.fetch(transaction, &[pool], &items, &[]).await? {
            let (payment, _, seen) = rows::payment(&row)?;
            match seen.fate {
                Fate::Paid { .. } if excerpt.is_cleared() => excerpt.stale.push(payment),
                Fate::Paid { claim } => {
                    self.numbers.insert(claim);
                    excerpt.add_payment(payment, seen);
                }
                Fate::Refund { .. } => excerpt.add_payment(payment, seen),
            }
        }
        Ok(())
    }
}

/// Reads what these buyers have, and those whose claims were read.
async fn read_buyers(
    transaction: &mut Transaction,
    excerpt: &mut Excerpt,
    wanted: BTreeSet<&str>,
) -> Result<(), Fault> {
    let claims = excerpt.claims.values().map(|entry| &entry.now.claim);
    let owners: BTreeSet<_> =
        claims.map(|claim| buyer_name(&excerpt.state.terms, claim).to_owned()).collect();
    let mut names = wanted;
    names.extend(owners.iter().map(String::as_str));
    names.retain(|name| !excerpt.buyers.contains_key(*name));
    let items: Vec<_> = names.iter().map(|name| (*name).into()).collect();
    let pool = id(excerpt.state.id);
    for row in FIND_BUYERS.fetch(transaction, &[pool], &items, &[]).await? {
        let (name, buyer) = rows::buyer(&row)?;
        excerpt.add_buyer(name, Some(buyer));
    }
    for name in names {
        excerpt.add_buyer(name, None);
    }
    if owners.iter().any(|name| excerpt.buyers[name].now.is_none()) {
        return Err(Fault::Missing { what: "what a buyer has" });
    }
    Ok(())
}

/// Reads the latest claim of every buyer, where the answer to the next one depends on it.
async fn read_latest(transaction: &mut Transaction, excerpt: &mut Excerpt) -> Result<(), Fault> {
    if !excerpt.state.terms.looks_at_latest() {
        return Ok(());
    }
    let buyers = excerpt.buyers.values().filter_map(|quota| quota.now);
    let unread = |number: &u32| !excerpt.claims.contains_key(number);
    let latest: BTreeSet<u32> = buyers.map(|buyer| buyer.latest).filter(unread).collect();
    let (pool, kind) = (excerpt.state.id, excerpt.state.terms.kind);
    let items: Vec<_> = latest.iter().map(|number| (*number).into()).collect();
    for row in FIND_CLAIMS.fetch(transaction, &[id(pool)], &items, &[]).await? {
        excerpt.add_claim(rows::claim(&row, kind)?.0);
    }
    if latest.iter().any(|number| !excerpt.claims.contains_key(number)) {
        return Err(Fault::Missing { what: "the claim of a buyer" });
    }
    Ok(())
}

/// A pool's id as a parameter.
pub(super) fn id(pool: PoolId) -> Value<'static> {
    Value::Int(i64::try_from(pool.get()).expect("ids fit a signed column"))
}
