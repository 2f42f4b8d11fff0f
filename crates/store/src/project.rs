//! Writes events to the tables.
//!
//! A batch is one transaction: the position of the records moves in the same commit as the rows, so
//! a batch takes effect exactly once, and a writer that is not where it thinks it is changes
//! nothing. Within a batch only the newest version of each sale and claim is written, in the order
//! of the keys, and only over an older one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use qiang_core::{Claim, Event, Kind, PaymentId, PoolId, PoolState, Refund, Timestamp};
use qiang_sql::Transaction;

use crate::claims;
use crate::consumers::RECORDS;
use crate::error::{Error, Result, While};
use crate::history;
use crate::orders::{self, Dates};
use crate::packets;
use crate::payments::{self, Payment};
use crate::refunds;
use crate::retries::{self, Parked};
use crate::reviews::{self, Review};
use crate::sales::{self, Sale, SaleFacts};
use crate::{Store, patiently};

const DOING: &str = "writing events";

impl Store {
    /// Writes the events of a log after `after` up to and including `through`, and moves the
    /// records from `after` to `through`, or does nothing at all: see [`Store::advance`].
    ///
    /// Events of a sale that is neither among them nor on record are refused with
    /// [`Error::UnknownSale`]. Events of packets move money besides: see [`crate::packets`].
    pub async fn project(
        &self,
        log: &str,
        after: u64,
        through: u64,
        events: &[Event],
    ) -> Result<()> {
        self.project_and_park(log, after, through, events, &[], 0).await
    }

    /// The same, and sets those events aside that cannot be applied, in the same transaction. Each has
    /// failed once, and has so many retries.
    pub async fn project_and_park(
        &self,
        log: &str,
        after: u64,
        through: u64,
        events: &[Event],
        parked: &[Parked<'_>],
        retries: u32,
    ) -> Result<()> {
        let written = |mut tx: Transaction| async move {
            let marked = write(&mut tx, events).await?;
            retries::park(&mut tx, RECORDS, parked, retries).await?;
            Ok((tx, marked))
        };
        let marked = self.advance(RECORDS, log, after, through, written).await?;
        reviews::tell(&marked);
        Ok(())
    }

    /// Writes the events and leaves all positions where they are: for repairs. What is on record
    /// in the same or a newer version stays as it is.
    pub async fn upsert(&self, events: &[Event]) -> Result<()> {
        patiently!(self.try_to_upsert(events).await)
    }

    async fn try_to_upsert(&self, events: &[Event]) -> Result<()> {
        let mut tx = self.begin().await?;
        let marked = write(&mut tx, events).await?;
        tx.commit().await.when(DOING)?;
        reviews::tell(&marked);
        Ok(())
    }
}

/// A pool's id as the database has it.
pub(crate) fn sql_id(pool: PoolId) -> i64 {
    i64::try_from(pool.get()).expect("PoolId::new checks that it fits")
}

/// Writes the events, and says which orders were marked for a person to look at.
pub(crate) async fn write(tx: &mut Transaction, events: &[Event]) -> Result<Vec<Review>> {
    let batch = Batch::of(events);
    let sales: Vec<Sale> = batch.pools.iter().map(|pool| Sale::of(pool)).collect();
    sales::UPSERT.run(tx, &sales, sales::bind).await.when(DOING)?;
    history::INSERT.run(tx, &batch.changes, history::bind).await.when(DOING)?;
    let facts = facts(tx, &batch).await?;

    let rows = |claim| claims::Row { claim, user: claim.user.as_str().into() };
    let claims: Vec<claims::Row<'_>> = batch.claims.iter().copied().map(rows).collect();
    claims::UPSERT.run(tx, &claims, claims::bind).await.when(DOING)?;

    let orders: Vec<orders::Row<'_>> =
        claims.iter().filter_map(|row| order(row, facts.get(&row.claim.id.pool)?)).collect();
    orders::UPSERT.run(tx, &orders, orders::bind).await.when(DOING)?;
    orders::INSERT_ITEM.run(tx, &orders, orders::bind_item).await.when(DOING)?;

    let mut payments: Vec<Payment> =
        batch.paid.iter().filter_map(|claim| Payment::of(claim)).collect();
    // No statement may touch a row twice.
    payments.sort_by(|a, b| by_key(a).cmp(&by_key(b)));
    payments.dedup_by(|later, first| by_key(later).0 == by_key(first).0);
    payments::INSERT.run(tx, &payments, payments::bind).await.when(DOING)?;
    refunds::INSERT
        .run(tx, &batch.refunds, |params, refund| refunds::bind(params, refund))
        .await
        .when(DOING)?;
    packets::write(tx, events).await?;
    reviews::write(tx, &payments).await
}

/// The key of a payment, and when it paid.
fn by_key(payment: &Payment) -> ((PoolId, &PaymentId), Timestamp) {
    ((payment.order.pool, &payment.payment), payment.paid_at)
}

fn order<'a>(row: &claims::Row<'a>, sale: &SaleFacts) -> Option<orders::Row<'a>> {
    Some(orders::Row {
        claim: row.claim,
        user: Arc::clone(&row.user),
        dates: Dates::of(row.claim, sale.pay_ms)?,
        sku: Arc::clone(&sale.sku),
        title: Arc::clone(&sale.title),
    })
}

/// What orders need to know of every sale the batch speaks of.
async fn facts(tx: &mut Transaction, batch: &Batch<'_>) -> Result<HashMap<PoolId, SaleFacts>> {
    let mut pools: Vec<PoolId> = batch.claims.iter().map(|claim| claim.id.pool).collect();
    pools.dedup();
    pools.extend(batch.refunds.iter().map(|refund| refund.order.pool));
    pools.sort_unstable();
    pools.dedup();
    let facts = sales::facts(tx, &pools).await?;
    match pools.into_iter().find(|pool| !facts.contains_key(pool)) {
        Some(sale) => Err(Error::UnknownSale { sale }),
        None => Ok(facts),
    }
}

/// Events of sales, with all but the newest version of everything left out. What happens to pools of
/// another kind is not here: each kind has tables of its own.
pub(crate) struct Batch<'a> {
    pub(crate) pools: Vec<&'a PoolState>,
    /// All of them, not only the newest.
    changes: Vec<&'a PoolState>,
    claims: Vec<&'a Claim>,
    /// Claims with a payment, each as it was when it was paid if that is among the events.
    paid: Vec<&'a Claim>,
    /// With those that follow from a claim that was revoked.
    refunds: Vec<Cow<'a, Refund>>,
}

impl<'a> Batch<'a> {
    pub(crate) fn of(events: &'a [Event]) -> Self {
        let mut batch = Self {
            pools: Vec::new(),
            changes: Vec::new(),
            claims: Vec::with_capacity(events.len()),
            paid: Vec::new(),
            refunds: Vec::new(),
        };
        for event in events.iter().filter(|event| event.kind() == Kind::Sale) {
            match event {
                Event::Pool(pool) => batch.pools.push(pool),
                Event::Claim(claim) => batch.claims.push(claim),
                Event::Refund(refund) => batch.refunds.push(Cow::Borrowed(refund)),
            }
        }
        batch.paid.extend(batch.claims.iter().filter(|claim| claim.payment.is_some()));
        batch.paid.sort_by_key(|claim| (claim.id, claim.version));
        batch.paid.dedup_by_key(|claim| claim.id);
        batch.changes.clone_from(&batch.pools);
        keep_newest(&mut batch.pools, |pool| (pool.id, pool.version));
        keep_newest(&mut batch.claims, |claim| (claim.id, claim.version));
        let revoked = batch.claims.iter().filter_map(|claim| claim.revoked());
        batch.refunds.extend(revoked.map(Cow::Owned));
        batch
    }
}

/// Sorts by key and keeps the highest version of each.
fn keep_newest<T, K: Ord>(rows: &mut Vec<&T>, key: impl Fn(&T) -> (K, u32)) {
    rows.sort_by_key(|row| {
        let (key, version) = key(row);
        (key, std::cmp::Reverse(version))
    });
    rows.dedup_by(|later, first| key(later).0 == key(first).0);
}
