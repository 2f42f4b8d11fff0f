//! The comparison itself, in pages, so that it needs little memory however large a sale is.

use std::path::Path;

use qiang_core::{Book, Claim, Event, PoolView, Refund, RefundReason};
use qiang_engine::Stopwatch;
use qiang_engine::redis::Spread;
use qiang_store::{Order, Payment, ReviewStatus, SaleState, Store};

use super::{
    Error, MAX_LISTED, Mending, Report, Source, ToReview, Which, millis, replay, set_aside,
};

const POOLS: usize = 100;
const CLAIMS: u32 = 1_000;
const REFUNDS: usize = 1_000;
/// Looks at the units of a sale before it is said that they do not add up.
const LOOKS_AT_UNITS: usize = 5;
const PAYMENTS: u32 = 1_000;
const REVIEWS: u32 = 1_000;
/// Rows mended in one transaction.
const MENDED: usize = 1_000;

/// Compares what `source` says with the records and, given the folder of its journal, with a
/// replay of the log.
pub async fn compare(
    store: &Store,
    source: &Source<'_>,
    log: Option<&Path>,
    mending: Mending,
) -> Result<Report, Error> {
    let watch = Stopwatch::start();
    let replayed = match log {
        Some(folder) => Some(replay(folder).await?.0),
        None => None,
    };
    let mut audit = Audit {
        store,
        source,
        replayed: replayed.as_ref(),
        report: Report::default(),
        newer: Vec::new(),
        mend: Vec::new(),
        mending,
    };
    let mut before = None;
    loop {
        let pools = source.sales(before, POOLS).await?;
        for pool in &pools {
            audit.pool(pool).await?;
        }
        let Some(last) = pools.last() else { break };
        before = Some(last.opened());
    }
    audit.payment_ids().await?;
    audit.money().await?;
    audit.mended().await?;
    audit.reviews().await?;
    set_aside::count(store, &mut audit.report).await?;
    let (mut report, newer) = (audit.report, audit.newer);
    if let (Some(folder), false) = (log, newer.is_empty()) {
        check_newer(&mut report, &replay(folder).await?.0, &newer);
    }
    report.ok = report.difference_count == 0;
    report.took_ms = millis(watch);
    Ok(report)
}

/// Whether a recorded payment is the one that paid the claim. One that was revoked no longer says when
/// it was paid.
fn is_payment_of(row: &Payment, claim: &Claim) -> bool {
    let paid = Payment::of(claim);
    match claim.revoked() {
        Some(revoked) if row.paid_at <= revoked.at => {
            paid.is_some_and(|paid| Payment { paid_at: row.paid_at, ..paid } == *row)
        }
        _ => paid.as_ref() == Some(row),
    }
}

/// Claims that the engine had and the first replay lacked must be in a replay that was made later.
fn check_newer(report: &mut Report, replayed: &Book, newer: &[Claim]) {
    for claim in newer {
        // It was cleared and forgotten since.
        if claim.id.pool.is_made() && replayed.pool(claim.id.pool).is_none() {
            continue;
        }
        if let Some(what) = older(claim, replayed.claim(claim.id).as_ref()) {
            report.differ(claim.id.pool, Some(claim.id), Which::Log, what);
        }
    }
}

pub(super) struct Audit<'a> {
    pub(super) store: &'a Store,
    pub(super) source: &'a Source<'a>,
    replayed: Option<&'a Book>,
    pub(super) report: Report,
    /// Claims the engine had newer than the replay.
    newer: Vec<Claim>,
    /// What the records should hold.
    mend: Vec<Event>,
    mending: Mending,
}

impl Audit<'_> {
    async fn pool(&mut self, pool: &PoolView) -> Result<(), Error> {
        self.report.sales += 1;
        self.sale(pool).await?;
        if pool.cleared {
            return self.refunds(pool).await;
        }
        if self.units(pool).await? == Claims::AreGoing {
            return self.refunds(pool).await;
        }
        let (mut after, mut paid) = (0, 0);
        loop {
            let claims = self.source.claims(pool.id, after, CLAIMS).await?;
            self.replayed_claims(&claims);
            paid += claims.iter().filter(|claim| claim.payment.is_some()).count();
            let Some(last) = claims.last().map(|claim| claim.id.number) else { break };
            self.recorded_claims(pool, after, &claims).await?;
            for refund in claims.iter().filter_map(Claim::revoked) {
                self.refund(pool, &refund).await?;
            }
            after = last;
        }
        self.beyond(pool, after).await?;
        self.payments(pool, paid).await?;
        self.refunds(pool).await
    }

    /// No more may be taken than there is, and the parts of a sale must hold what the sale has. Parts
    /// are read one after the other, so what does not fit is looked at again before it is told.
    async fn units(&mut self, pool: &PoolView) -> Result<Claims, Error> {
        let (mut pool, mut wrong) = (pool.clone(), None);
        for _ in 0..LOOKS_AT_UNITS {
            wrong = units_that_do_not_add_up(&pool, self.source.spread(pool.id).await?);
            match self.source.pool(pool.id).await? {
                Some(now) if wrong.is_some() && !now.cleared => pool = now,
                _ => break,
            }
        }
        let Some((what, claims)) = wrong else { return Ok(Claims::AreThere) };
        self.report.differ(pool.id, None, Which::Engine, what);
        Ok(claims)
    }

    async fn sale(&mut self, pool: &PoolView) -> Result<(), Error> {
        let mut wrong = self.recorded_sale(pool).await?;
        if wrong.is_some() {
            self.source.recorded().await?;
            wrong = self.recorded_sale(pool).await?;
        }
        if let Some(what) = wrong
            && !set_aside::explains_sale(self.store, pool).await?
        {
            self.report.differ(pool.id, None, Which::Records, what);
            if let Some(state) = self.source.pool_state(pool.id).await? {
                self.mend(Event::Pool(state)).await?;
            }
        }
        let replayed =
            self.replayed.and_then(|book| book.pool(pool.id)).map(qiang_core::Pool::view);
        if replayed.is_some_and(|replayed| {
            replayed.version == pool.version && replayed.total != pool.total
        }) {
            self.report.differ(pool.id, None, Which::Log, "the sale differs");
        }
        Ok(())
    }

    /// What is wrong with the record of a sale that was read before.
    async fn recorded_sale(&self, pool: &PoolView) -> Result<Option<&'static str>, Error> {
        let Some(sale) = self.store.sale(pool.id).await? else {
            return Ok(Some("the sale is missing"));
        };
        let fits = if sale.version > pool.version {
            let now = self.source.pool_state(pool.id).await?;
            // What was cleared since may have been forgotten.
            now.map_or(sale.state == SaleState::Cleared, |now| now.version >= sale.version)
        } else {
            sale.version == pool.version
                && sale.terms == *pool.terms
                && sale.total == pool.total
                && sale.closed_at == pool.closed_at
        };
        Ok((!fits).then_some("the sale differs"))
    }

    fn replayed_claims(&mut self, claims: &[Claim]) {
        let Some(book) = self.replayed else { return };
        for claim in claims {
            match book.claim(claim.id) {
                Some(replayed) if replayed.version > claim.version => {
                    let what = "the log is ahead of the engine";
                    self.report.differ(claim.id.pool, Some(claim.id), Which::Log, what);
                }
                Some(replayed) if replayed.version == claim.version => {
                    if replayed != *claim {
                        let what = "the claim differs";
                        self.report.differ(claim.id.pool, Some(claim.id), Which::Log, what);
                    }
                }
                Some(_) | None => self.newer.push(claim.clone()),
            }
        }
    }

    /// One page of claims against the same page of the records, which are given time to catch up
    /// if they seem to be behind.
    async fn recorded_claims(
        &mut self,
        pool: &PoolView,
        after: u32,
        claims: &[Claim],
    ) -> Result<(), Error> {
        let mut found = self.differing(pool, after, claims).await?;
        if !found.is_empty() {
            self.source.recorded().await?;
            found = self.differing(pool, after, claims).await?;
        }
        self.report.claims += claims.len() as u64;
        self.report.orders += claims.iter().filter(|claim| claim.has_order()).count() as u64;
        for (claim, what) in found {
            if set_aside::explains_claim(self.store, claim.id, claim.version).await? {
                continue;
            }
            self.report.differ(pool.id, Some(claim.id), Which::Records, what);
            self.mend(Event::Claim(claim)).await?;
        }
        Ok(())
    }

    async fn differing(
        &self,
        pool: &PoolView,
        after: u32,
        claims: &[Claim],
    ) -> Result<Vec<(Claim, String)>, Error> {
        let rows = self.store.claims_page(pool.id, after, CLAIMS).await?;
        let orders = self.store.orders_page(pool.id, after, CLAIMS).await?;
        let (mut rows, mut orders) = (rows.iter().peekable(), orders.iter().peekable());
        let mut found = Vec::new();
        for claim in claims {
            let number = claim.id.number;
            while rows.next_if(|row| row.id.number < number).is_some() {}
            while orders.next_if(|order| order.id.number < number).is_some() {}
            let row = rows.next_if(|row| row.id.number == number);
            let order = orders.next_if(|order| order.id.number == number);
            let wrong = match row {
                Some(row) if row.version > claim.version => self.too_new(row).await?,
                row => older(claim, row),
            };
            if let Some(what) = wrong {
                found.push((claim.clone(), what));
            } else if row.is_some_and(|row| row.version == claim.version)
                && order.map(without_review) != Order::of(claim, &pool.terms)
            {
                let what =
                    if order.is_some() { "the order differs" } else { "the order is missing" };
                found.push((claim.clone(), what.into()));
            }
        }
        Ok(found)
    }

    /// What is wrong with a row newer than its claim was: nothing, if the engine has come as far.
    async fn too_new(&self, row: &Claim) -> Result<Option<String>, Error> {
        let claim = self.source.claim(row.id).await?;
        let fits = claim.is_none_or(|claim| claim.version > row.version || claim == *row);
        Ok((!fits).then(|| "the claim is newer than the engine's".into()))
    }

    /// Whether the sale was cleared since it was read, so that its claims are gone.
    async fn is_over(&self, pool: &PoolView) -> Result<bool, Error> {
        Ok(self.source.pool(pool.id).await?.is_none_or(|now| now.cleared))
    }

    /// Rows behind the last claim must belong to claims granted since.
    async fn beyond(&mut self, pool: &PoolView, last: u32) -> Result<(), Error> {
        let mut after = last;
        loop {
            let rows = self.store.claims_page(pool.id, after, CLAIMS).await?;
            let Some(end) = rows.last().map(|row| row.id.number) else { return Ok(()) };
            for row in &rows {
                if self.source.claim(row.id).await?.is_none() && !self.is_over(pool).await? {
                    let what = "there is a claim that the engine never granted";
                    self.report.differ(pool.id, Some(row.id), Which::Records, what);
                }
            }
            after = end;
        }
    }

    /// Every recorded payment must belong to a claim it paid, and there must be as many as
    /// claims that were paid.
    async fn payments(&mut self, pool: &PoolView, paid: usize) -> Result<(), Error> {
        let mut after = None;
        let mut count = 0;
        loop {
            let rows = self.store.payments_page(pool.id, after.as_ref(), CLAIMS).await?;
            for row in &rows {
                count += 1;
                let claim = self.source.claim(row.order).await?;
                if !claim.as_ref().is_some_and(|claim| is_payment_of(row, claim))
                    && !self.is_over(pool).await?
                {
                    let what = format!("the payment {} is not the claim's", row.payment);
                    self.report.differ(pool.id, Some(row.order), Which::Records, what);
                    let paid = claim.filter(|claim| claim.payment.as_ref() == Some(&row.payment));
                    if let Some(claim) = paid {
                        self.mend(Event::Claim(claim)).await?;
                    }
                }
            }
            match rows.last() {
                Some(last) => after = Some(last.payment.clone()),
                None => break,
            }
        }
        self.report.payments += count as u64;
        if count < paid { self.missing_payments(pool).await } else { Ok(()) }
    }

    /// Finds the paid claims whose payment is not recorded, one by one.
    async fn missing_payments(&mut self, pool: &PoolView) -> Result<(), Error> {
        let mut after = 0;
        loop {
            let claims = self.source.claims(pool.id, after, CLAIMS).await?;
            let Some(last) = claims.last() else { return Ok(()) };
            after = last.id.number;
            for claim in claims {
                let Some(payment) = &claim.payment else { continue };
                if self.store.payment(pool.id, payment).await?.is_none() {
                    self.source.recorded().await?;
                    if self.store.payment(pool.id, payment).await?.is_none()
                        && !set_aside::explains_claim(self.store, claim.id, claim.version).await?
                    {
                        let what = format!("the payment {payment} is missing");
                        self.report.differ(pool.id, Some(claim.id), Which::Records, what);
                        self.mend(Event::Claim(claim)).await?;
                    }
                }
            }
        }
    }

    async fn refunds(&mut self, pool: &PoolView) -> Result<(), Error> {
        let mut from = 0;
        loop {
            let refunds = self.source.refunds(pool.id, from, REFUNDS).await?;
            let Some((last, _)) = refunds.last() else { return Ok(()) };
            from = last + 1;
            for (_, refund) in &refunds {
                self.refund(pool, refund).await?;
            }
        }
    }

    async fn refund(&mut self, pool: &PoolView, refund: &Refund) -> Result<(), Error> {
        self.report.refunds += 1;
        if self.is_recorded(refund).await? {
            return Ok(());
        }
        self.source.recorded().await?;
        // Of a sale that was cleared meanwhile the records may be the only ones who know.
        let may_be_gone = refund.reason == RefundReason::Revoked;
        let is_gone = may_be_gone && self.is_over(pool).await?;
        if !self.is_recorded(refund).await?
            && !is_gone
            && !set_aside::explains_refund(self.store, refund).await?
        {
            let what = format!("the refund of {} is missing or differs", refund.payment);
            self.report.differ(pool.id, Some(refund.order), Which::Records, what);
            self.mend(Event::Refund(refund.clone())).await?;
        }
        Ok(())
    }

    async fn is_recorded(&self, refund: &Refund) -> Result<bool, Error> {
        let record = self.store.refund(refund.order.pool, &refund.payment).await?;
        Ok(record.is_some_and(|record| record.refund == *refund))
    }

    /// Payments whose ids were not compared with those of other sales.
    async fn payment_ids(&mut self) -> Result<(), Error> {
        for order in self.store.payments_without_id(PAYMENTS).await? {
            let what = "the payment was not compared with those of other sales";
            self.report.differ(order.pool, Some(order), Which::Records, what);
            // Of a sale that was cleared only the records know.
            let claim = match self.source.claim(order).await? {
                None => self.store.claim(order).await?,
                claim => claim,
            };
            if let Some(claim) = claim {
                self.mend(Event::Claim(claim)).await?;
            }
        }
        Ok(())
    }

    /// What a person has to look at, although the books agree.
    async fn reviews(&mut self) -> Result<(), Error> {
        let pending = self.store.reviews(ReviewStatus::Pending, None, REVIEWS).await?;
        self.report.pending_reviews = self.store.pending_reviews().await?;
        let reviews = pending.iter().take(MAX_LISTED).map(|review| ToReview {
            order_id: review.order.to_string(),
            payment_id: review.payment.to_string(),
            first_order_id: review.other.to_string(),
        });
        self.report.reviews = reviews.collect();
        Ok(())
    }

    async fn mend(&mut self, event: Event) -> Result<(), Error> {
        if self.mending == Mending::Records {
            self.mend.push(event);
            if self.mend.len() == MENDED {
                self.mended().await?;
            }
        }
        Ok(())
    }

    /// What was mended, as it is by now: something newer may have been recorded between reading it
    /// and mending, and the mending wrote over that.
    async fn newest_of_mended(&mut self) -> Result<Vec<Event>, Error> {
        let mut newest = Vec::new();
        for event in std::mem::take(&mut self.mend) {
            match event {
                Event::Claim(claim) => {
                    newest.extend(self.source.claim(claim.id).await?.map(Event::Claim));
                }
                Event::Pool(pool) => {
                    newest.extend(self.source.pool_state(pool.id).await?.map(Event::Pool));
                }
                Event::Refund(_) => {}
            }
        }
        Ok(newest)
    }

    async fn mended(&mut self) -> Result<(), Error> {
        if !self.mend.is_empty() {
            self.store.rewrite(&self.mend).await?;
            let newest = self.newest_of_mended().await?;
            self.store.upsert(&newest).await?;
        }
        Ok(())
    }
}

/// Whether the claims of a sale can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claims {
    AreThere,
    /// The sale is being cleared.
    AreGoing,
}

/// What is wrong with the units of a sale.
fn units_that_do_not_add_up(pool: &PoolView, spread: Option<Spread>) -> Option<(String, Claims)> {
    let (taken, total) = (pool.tally.taken(), pool.total);
    if spread.is_some_and(|spread| spread.half_cleared) {
        let what = "clearing this sale was cut off in the middle: clear it again".to_owned();
        return Some((what, Claims::AreGoing));
    }
    let wrong = if taken > total {
        Some(format!("{taken} units are taken of {total}: {} too many", taken - total))
    } else {
        let units = spread.map(|spread| spread.units).filter(|units| *units != u64::from(total));
        units.map(|units| format!("its buckets hold {units} units of {total}"))
    };
    wrong.map(|what| (what, Claims::AreThere))
}

/// The order as an engine knows it.
fn without_review(order: &Order) -> Order {
    Order { pending_review: false, ..order.clone() }
}

/// What is wrong with a copy of a claim that was read after the claim itself.
fn older(claim: &Claim, copy: Option<&Claim>) -> Option<String> {
    match copy {
        None => Some("the claim is missing".into()),
        Some(copy) if copy.version > claim.version || copy == claim => None,
        Some(copy) if copy.version < claim.version => Some(format!(
            "the claim is {} instead of {}",
            copy.state.as_str(),
            claim.state.as_str()
        )),
        Some(_) => Some("the claim differs".into()),
    }
}
