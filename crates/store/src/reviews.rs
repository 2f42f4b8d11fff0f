//! Payment ids over all sales, and the orders that a person has to look at.
//!
//! An engine knows a payment id within one sale. That the same id paid orders of two sales shows
//! here: the order that was paid first has the id, and every other one is marked. All of them stay
//! paid, and nothing is owed back by itself: nobody knows whether the money came once or twice.
//!
//! Which order was first goes by the time it was paid and then by its key, never by when it was
//! written here, so that events that come late, twice, or all anew give the same marks. That a
//! review was ended is known only here, and nothing in the log takes it back.

use std::collections::HashMap;

use qiang_core::{ClaimId, PaymentId, Timestamp};
use qiang_sql::{Existing, Insert, Listed, MAX_ITEMS, Params, Row, Table, Transaction, Value, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::payments::{PAYMENTS, Payment};
use crate::project::sql_id;
use crate::{Store, page, patiently};

const DOING: &str = "comparing payment ids";

/// An order whose payment has paid an order of another sale before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// The order to look at.
    pub order: ClaimId,
    pub payment: PaymentId,
    /// When it paid this order.
    pub paid_at: Timestamp,
    /// The order that it paid first.
    pub other: ClaimId,
    /// When somebody had looked at it, if so.
    pub ended_at: Option<Timestamp>,
}

impl Review {
    /// Whether somebody still has to look at it.
    #[must_use]
    pub fn status(&self) -> ReviewStatus {
        self.ended_at.map_or(ReviewStatus::Pending, |_| ReviewStatus::Ended)
    }

    /// The place of this review in the listing of its status.
    #[must_use]
    pub fn cursor(&self) -> crate::Cursor {
        crate::Cursor { at: self.paid_at, id: self.order }
    }
}

/// Whether somebody has looked at an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReviewStatus {
    /// Not yet.
    Pending,
    /// It was looked at: final.
    Ended,
}

impl ReviewStatus {
    /// The word for it in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ended => "ended",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Pending, Self::Ended].into_iter().find(|status| status.as_str() == word)
    }
}

/// Which order has a payment id.
static OWNERS: Table = Table {
    name: "payment_ids",
    key: "payment_id",
    fixed: "",
    changing: "sale_id, number, paid_at",
};

static REVIEWS: Table = Table {
    name: "reviews",
    key: "sale_id, number",
    fixed: "payment_id, paid_at",
    changing: "other_sale_id, other_number, status, ended_at",
};

/// The order that is written first takes the id; [`contest`] corrects that if another was paid
/// earlier.
static TAKE: Insert = Insert::new(&OWNERS, Existing::Stays);

static MARK: Insert = Insert::new(&REVIEWS, Existing::IsAnError);

static FIND_OWNERS: Listed =
    Listed::over(&[&OWNERS], "SELECT {payment_ids} FROM payment_ids WHERE payment_id IN ({list})");

macro_rules! select {
    ($which:literal) => {
        sql!([REVIEWS] concat!("SELECT {reviews} FROM reviews WHERE ", $which))
    };
}

/// An order and when it was paid: the lowest of those with one payment id has it.
type Paid = (Timestamp, ClaimId);

/// Notes for each payment id the order it paid, and marks an order whose payment id another order
/// has. Returns the new marks.
pub(crate) async fn write(tx: &mut Transaction, payments: &[Payment]) -> Result<Vec<Review>> {
    if payments.is_empty() {
        return Ok(Vec::new());
    }
    // In the order of the key, so that of two writers one waits for the other.
    let mut sorted: Vec<&Payment> = payments.iter().collect();
    sorted.sort_by_key(|payment| (&payment.payment, payment.paid_at, payment.order));
    TAKE.run(tx, &sorted, bind).await.when(DOING)?;
    let mut marked = Vec::new();
    for payments in sorted.chunks(MAX_ITEMS) {
        let ids: Vec<_> = payments.iter().map(|paid| paid.payment.as_str().into()).collect();
        let owners = FIND_OWNERS.fetch(tx, &[], &ids, &[]).await.when(DOING)?;
        let owners: HashMap<_, _> = owners.iter().map(read_owner).collect::<Result<_>>()?;
        for payment in payments {
            if owners.get(&payment.payment).map(|(_, order)| order) != Some(&payment.order) {
                marked.append(&mut contest(tx, payment).await?);
            }
        }
    }
    Ok(marked)
}

/// Logs what was marked; called after the commit.
pub(crate) fn tell(marked: &[Review]) {
    for Review { order, payment, other, .. } in marked {
        tracing::error!(
            %order, %other, %payment,
            "payment {payment} paid order {order}, and had paid order {other} before: \
             somebody has to look at it, see /api/v1/admin/reviews"
        );
    }
}

fn bind(params: &mut Params, payment: &&Payment) {
    params
        .add(payment.payment.as_str())
        .add(sql_id(payment.order.pool))
        .add(payment.order.number)
        .add(payment.paid_at.millis());
}

fn bind_review(params: &mut Params, review: &Review) {
    params
        .add(sql_id(review.order.pool))
        .add(review.order.number)
        .add(review.payment.as_str())
        .add(review.paid_at.millis())
        .add(sql_id(review.other.pool))
        .add(review.other.number)
        .add(review.status().as_str())
        .add(review.ended_at.map(Timestamp::millis));
}

fn read_owner(row: &Row) -> Result<(PaymentId, Paid)> {
    let mut fields = Fields::new(row, &OWNERS);
    let (payment, order) = (fields.id(PaymentId::new)?, fields.claim_id()?);
    Ok((payment, (fields.time()?, order)))
}

/// Puts all orders that one payment paid in their order: the first has it, the others are marked.
async fn contest(tx: &mut Transaction, payment: &Payment) -> Result<Vec<Review>> {
    let id = Value::Text(payment.payment.as_str());
    // Locked, so that of two who come with the same id the second sees what the first has marked.
    let owner = sql!([OWNERS] "SELECT {payment_ids} FROM payment_ids WHERE payment_id = ? {lock}");
    let owner = tx.fetch_optional(owner, &[id]).await.when(DOING)?;
    let owner = owner.as_ref().map(read_owner).transpose()?.map(|(_, paid)| paid);
    let marked = tx.fetch_all(select!("payment_id = ?"), &[id]).await.when(DOING)?;
    let paid = |row| read(row).map(|review| (review.paid_at, review.order));
    let marked: Vec<Paid> = marked.iter().map(paid).collect::<Result<_>>()?;

    let new = (payment.paid_at, payment.order);
    let known = |order: ClaimId| marked.iter().any(|(_, marked)| *marked == order);
    let mut all = marked.clone();
    all.extend(owner);
    all.extend((!known(new.1)).then_some(new));
    all.sort_unstable();
    all.dedup();
    let Some((first, rest)) = all.split_first() else { return Ok(Vec::new()) };
    if owner != Some(*first) {
        hand_over(tx, id, *first).await?;
    }
    let new = rest.iter().filter(|(_, order)| !known(*order));
    let review = |(paid_at, order): &Paid| Review {
        order: *order,
        payment: payment.payment.clone(),
        paid_at: *paid_at,
        other: first.1,
        ended_at: None,
    };
    let made: Vec<Review> = new.map(review).collect();
    MARK.run(tx, &made, bind_review).await.when(DOING)?;
    Ok(made)
}

/// Gives a payment id to an order that was paid earlier than the order that has it now.
async fn hand_over(tx: &mut Transaction, id: Value<'_>, (paid_at, order): Paid) -> Result<()> {
    let (pool, number) = (sql_id(order.pool).into(), order.number.into());
    let take =
        sql!("UPDATE payment_ids SET sale_id = ?, number = ?, paid_at = ? WHERE payment_id = ?");
    tx.execute(take, &[pool, number, paid_at.millis().into(), id]).await.when(DOING)?;
    let point = sql!("UPDATE reviews SET other_sale_id = ?, other_number = ? WHERE payment_id = ?");
    tx.execute(point, &[pool, number, id]).await.when(DOING)?;
    let free = sql!("DELETE FROM reviews WHERE sale_id = ? AND number = ?");
    tx.execute(free, &[pool, number]).await.when(DOING).map(drop)
}

impl Store {
    /// The review of an order, if there is one.
    pub async fn review(&self, order: ClaimId) -> Result<Option<Review>> {
        let values = [sql_id(order.pool).into(), order.number.into()];
        let select = select!("sale_id = ? AND number = ?");
        let row = self.database.fetch_optional(select, &values).await;
        row.when("reading a review")?.as_ref().map(read).transpose()
    }

    /// All reviews of one status, longest paid first, from behind the cursor on; the next cursor
    /// is the last review's [`Review::cursor`].
    pub async fn reviews(
        &self,
        status: ReviewStatus,
        after: Option<crate::Cursor>,
        max: u32,
    ) -> Result<Vec<Review>> {
        let (status, max) = (Value::Text(status.as_str()), page(max).into());
        let rows = match after {
            None => {
                let select = select!("status = ? ORDER BY paid_at, sale_id, number LIMIT ?");
                self.database.fetch_all(select, &[status, max]).await
            }
            Some(crate::Cursor { at, id }) => {
                // The first bound follows from the second; MySQL needs it to use the index.
                let select = select!(
                    "status = ? AND paid_at >= ? AND (paid_at, sale_id, number) > (?, ?, ?)
                     ORDER BY paid_at, sale_id, number LIMIT ?"
                );
                let at = Value::Int(at.millis());
                let (pool, number) = (sql_id(id.pool).into(), id.number.into());
                self.database.fetch_all(select, &[status, at, at, pool, number, max]).await
            }
        };
        rows.when("reading reviews")?.iter().map(read).collect()
    }

    /// How many orders somebody still has to look at.
    pub async fn pending_reviews(&self) -> Result<u64> {
        let count = sql!("SELECT COUNT(*) FROM reviews WHERE status = 'pending'");
        let row = self.database.fetch_optional(count, &[]).await.when("counting reviews")?;
        row.as_ref().map_or(Ok(0), |row| Fields::new(row, &REVIEWS).number())
    }

    /// Notes that somebody has looked at an order, once; it is on the disk when this returns. Says
    /// the review as it is now, if there is one.
    pub async fn end_review(&self, order: ClaimId, at: Timestamp) -> Result<Option<Review>> {
        let end = sql!(
            "UPDATE reviews SET status = 'ended', ended_at = ?
             WHERE sale_id = ? AND number = ? AND status = 'pending'"
        );
        let values = [at.millis().into(), sql_id(order.pool).into(), order.number.into()];
        let ended = patiently!(self.database.execute(end, &values).await);
        ended.when("ending a review")?;
        self.review(order).await
    }

    /// The orders that these payments have paid, over all sales; those that paid none are left out.
    pub async fn orders_paid_by(
        &self,
        payments: &[&PaymentId],
    ) -> Result<HashMap<PaymentId, ClaimId>> {
        let mut orders = HashMap::with_capacity(payments.len());
        for payments in payments.chunks(MAX_ITEMS) {
            let ids: Vec<_> = payments.iter().map(|payment| payment.as_str().into()).collect();
            let (select, ids) = FIND_OWNERS.sized(&[], &ids, &[]);
            let rows = self.database.fetch_all(select, &ids).await;
            for row in &rows.when("looking for payment ids")? {
                let (payment, (_, order)) = read_owner(row)?;
                orders.insert(payment, order);
            }
        }
        Ok(orders)
    }

    /// Payments of orders whose id no order has, at most `max`: rows that nothing of this version
    /// has written.
    pub async fn payments_without_id(&self, max: u32) -> Result<Vec<ClaimId>> {
        let select = sql!(
            "SELECT p.sale_id, p.number FROM payments AS p
             LEFT JOIN payment_ids AS i ON i.payment_id = p.payment_id
             WHERE i.payment_id IS NULL ORDER BY p.sale_id, p.payment_id LIMIT ?"
        );
        let rows = self.database.fetch_all(select, &[page(max).into()]).await;
        let read = |row| Fields::new(row, &PAYMENTS).claim_id();
        rows.when("looking for payment ids")?.iter().map(read).collect()
    }
}

fn read(row: &Row) -> Result<Review> {
    let mut fields = Fields::new(row, &REVIEWS);
    let (order, payment) = (fields.claim_id()?, fields.id(PaymentId::new)?);
    let (paid_at, other) = (fields.time()?, fields.claim_id()?);
    let ended_at = match fields.word(ReviewStatus::from_word)? {
        ReviewStatus::Pending => None,
        ReviewStatus::Ended => Some(fields.time()?),
    };
    Ok(Review { order, payment, paid_at, other, ended_at })
}
