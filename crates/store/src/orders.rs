//! Orders, as buyers and shops see them. An order has its claim's id, and exists from the moment
//! an order was placed for the claim.
//!
//! An order is a function of the newest version of its claim and of the sale's terms, never of the
//! events in between: so it does not matter which of them were seen.

use std::sync::Arc;

use qiang_core::{Cents, Claim, ClaimId, Flow, PoolId, State, Terms, Timestamp, UserId};
use qiang_sql::{Existing, Insert, Params, Row as Found, Statement, Table, Value, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Cursor, Store, page};

/// An order with what was ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The id of the order and of its claim.
    pub id: ClaimId,
    pub user: UserId,
    pub status: OrderStatus,
    /// What it costs.
    pub amount: Cents,
    /// When it was placed.
    pub created_at: Timestamp,
    /// Unpaid, it is cancelled at this time.
    pub pay_by: Option<Timestamp>,
    pub paid_at: Option<Timestamp>,
    /// When it was cancelled, or refunded.
    pub cancelled_at: Option<Timestamp>,
    /// The version of the claim it follows from.
    pub version: u32,
    /// Whether somebody has to look at it: see [`crate::Review`]. Only the records know.
    pub pending_review: bool,
    pub items: Vec<OrderItem>,
}

/// One line of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderItem {
    /// The shop's own name for the goods.
    pub sku: String,
    /// What the buyer read.
    pub title: String,
    pub quantity: u32,
    /// The price of one, or the value of the portion.
    pub unit_price: Cents,
}

/// Where an order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OrderStatus {
    /// Placed, not paid.
    Pending,
    /// Paid: final, unless the shop refunds it.
    Paid,
    /// Cancelled, by hand or by time: final.
    Cancelled,
    /// It was paid, and the shop took that back: final. Its payment says when it was paid.
    Refunded,
}

impl OrderStatus {
    /// The word for it in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Paid => "PAID",
            Self::Cancelled => "CANCELLED",
            Self::Refunded => "REFUNDED",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Pending, Self::Paid, Self::Cancelled, Self::Refunded];
        all.into_iter().find(|status| status.as_str() == word)
    }
}

impl Order {
    /// The order a claim must have, under the terms of its sale.
    #[must_use]
    pub fn of(claim: &Claim, terms: &Terms) -> Option<Self> {
        let dates = Dates::of(claim, pay_ms(terms.flow))?;
        Some(Self {
            id: claim.id,
            user: claim.user.clone(),
            status: dates.status,
            amount: claim.amount(),
            created_at: dates.created_at,
            pay_by: claim.pay_by,
            paid_at: dates.paid_at,
            cancelled_at: dates.cancelled_at,
            version: claim.version,
            pending_review: false,
            items: vec![OrderItem {
                sku: terms.sku.to_string(),
                title: terms.title.to_string(),
                quantity: claim.quantity,
                unit_price: claim.unit_price,
            }],
        })
    }

    /// The place of this order in its user's listing.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor { at: self.created_at, id: self.id }
    }
}

/// How long an order of this flow may stay unpaid.
pub(crate) fn pay_ms(flow: Flow) -> Option<u64> {
    match flow {
        Flow::Instant => None,
        Flow::Order { pay_ms } | Flow::Hold { pay_ms, .. } => Some(pay_ms),
    }
}

/// What a claim's newest version says about the life of its order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dates {
    status: OrderStatus,
    created_at: Timestamp,
    paid_at: Option<Timestamp>,
    cancelled_at: Option<Timestamp>,
}

impl Dates {
    pub(crate) fn of(claim: &Claim, pay_ms: Option<u64>) -> Option<Self> {
        if !claim.has_order() {
            return None;
        }
        // A paid claim no longer says when it was ordered, but its deadline counts from there. A
        // claim without a deadline was ordered and paid in one step.
        let created_at = match (claim.pay_by, pay_ms) {
            (Some(pay_by), Some(ms)) => {
                Timestamp::from_millis(pay_by.millis().saturating_sub_unsigned(ms))
            }
            _ if claim.replaces.is_some() => claim.created_at,
            _ => claim.changed_at,
        };
        let (status, paid_at, cancelled_at) = match claim.state {
            State::Paid => (OrderStatus::Paid, Some(claim.changed_at), None),
            State::Released if claim.payment.is_some() => {
                (OrderStatus::Refunded, None, Some(claim.changed_at))
            }
            State::Released => (OrderStatus::Cancelled, None, Some(claim.changed_at)),
            State::Held | State::Ordered => (OrderStatus::Pending, None, None),
        };
        Some(Self { status, created_at, paid_at, cancelled_at })
    }
}

/// An order on its way to the database.
pub(crate) struct Row<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) user: Arc<str>,
    pub(crate) dates: Dates,
    pub(crate) sku: Arc<str>,
    pub(crate) title: Arc<str>,
}

static ORDERS: Table = Table {
    name: "orders",
    key: "sale_id, number",
    fixed: "user_id, amount_cents, created_at, pay_by",
    changing: "status, paid_at, cancelled_at, version",
};

/// A claim is of one sale, so its order has one line, and that never changes.
static ITEMS: Table = Table {
    name: "order_items",
    key: "sale_id, number, line",
    fixed: "sku, title, quantity, unit_price_cents",
    changing: "",
};

pub(crate) static UPSERT: Insert = Insert::new(&ORDERS, Existing::YieldsToNewer);
pub(crate) static INSERT_ITEM: Insert = Insert::new(&ITEMS, Existing::Stays);

pub(crate) fn bind(params: &mut Params, row: &Row<'_>) {
    params
        .add(sql_id(row.claim.id.pool))
        .add(row.claim.id.number)
        .add(&row.user)
        .add(row.claim.amount().get())
        .add(row.dates.created_at.millis())
        .add(row.claim.pay_by.map(|at| at.millis()))
        .add(row.dates.status.as_str())
        .add(row.dates.paid_at.map(|at| at.millis()))
        .add(row.dates.cancelled_at.map(|at| at.millis()))
        .add(row.claim.version);
}

pub(crate) fn bind_item(params: &mut Params, row: &Row<'_>) {
    params
        .add(sql_id(row.claim.id.pool))
        .add(row.claim.id.number)
        .add(1_u32)
        .add(&row.sku)
        .add(&row.title)
        .add(row.claim.quantity)
        .add(row.claim.unit_price.get());
}

/// Orders with their lines: one row for each line, the orders picked by `$which`.
macro_rules! with_items {
    ($which:literal, $order:literal) => {
        concat!(
            "SELECT {orders}, r.number, {order_items}
             FROM (SELECT * FROM orders WHERE ",
            $which,
            ") AS orders
             LEFT JOIN order_items
                ON order_items.sale_id = orders.sale_id AND order_items.number = orders.number
             LEFT JOIN reviews AS r ON r.sale_id = orders.sale_id AND r.number = orders.number
                AND r.status = 'pending'
             ORDER BY ",
            $order,
            ", order_items.line"
        )
    };
}

/// Orders picked by what stands in place of [`PICKED`], newest first.
const NEWEST_FIRST: &str =
    with_items!("{picked}", "orders.created_at DESC, orders.sale_id DESC, orders.number DESC");
const PICKED: &str = "{picked}";

/// Orders that a condition picks, which may end in an order and a limit, newest first.
pub(crate) fn picked(condition: &str) -> Statement {
    Statement::built_over(&[&ORDERS, &ITEMS], &NEWEST_FIRST.replace(PICKED, condition))
}

impl Store {
    pub async fn order(&self, id: ClaimId) -> Result<Option<Order>> {
        let select =
            sql!([ORDERS, ITEMS] with_items!("sale_id = ? AND number = ?", "orders.number"));
        Ok(self.orders(select, &[sql_id(id.pool).into(), id.number.into()]).await?.pop())
    }

    /// A user's orders, newest first, from behind the cursor on; the next cursor is the last
    /// order's [`Order::cursor`].
    pub async fn orders_of(
        &self,
        user: &UserId,
        before: Option<Cursor>,
        max: u32,
    ) -> Result<Vec<Order>> {
        let Some(Cursor { at, id }) = before else {
            let select = sql!([ORDERS, ITEMS] with_items!(
                "user_id = ? ORDER BY created_at DESC, sale_id DESC, number DESC LIMIT ?",
                "orders.created_at DESC, orders.sale_id DESC, orders.number DESC"
            ));
            return self.orders(select, &[user.as_str().into(), page(max).into()]).await;
        };
        // The first bound follows from the second; MySQL needs it to use the index.
        let select = sql!([ORDERS, ITEMS] with_items!(
            "user_id = ? AND created_at <= ? AND (created_at, sale_id, number) < (?, ?, ?)
                ORDER BY created_at DESC, sale_id DESC, number DESC LIMIT ?",
            "orders.created_at DESC, orders.sale_id DESC, orders.number DESC"
        ));
        let at = Value::Int(at.millis());
        let (pool, number) = (sql_id(id.pool).into(), id.number.into());
        self.orders(select, &[user.as_str().into(), at, at, pool, number, page(max).into()]).await
    }

    /// The orders of a pool with numbers above `after`, by rising number.
    pub async fn orders_page(&self, pool: PoolId, after: u32, max: u32) -> Result<Vec<Order>> {
        let select = sql!([ORDERS, ITEMS] with_items!("sale_id = ? AND number > ? ORDER BY number LIMIT ?", "orders.number"));
        self.orders(select, &[sql_id(pool).into(), after.into(), page(max).into()]).await
    }

    pub(crate) async fn orders(
        &self,
        select: &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Order>> {
        let rows = self.database.fetch_all(select, values).await.when("reading orders")?;
        let mut orders: Vec<Order> = Vec::with_capacity(rows.len());
        for row in &rows {
            let (order, item) = read(row)?;
            if orders.last().is_none_or(|last| last.id != order.id) {
                orders.push(order);
            }
            if let Some(last) = orders.last_mut() {
                last.items.extend(item);
            }
        }
        Ok(orders)
    }
}

fn read(row: &Found) -> Result<(Order, Option<OrderItem>)> {
    let mut fields = Fields::new(row, &ORDERS);
    let order = Order {
        id: fields.claim_id()?,
        user: fields.id(UserId::new)?,
        amount: fields.cents()?,
        created_at: fields.time()?,
        pay_by: fields.time_or_none()?,
        status: fields.word(OrderStatus::from_word)?,
        paid_at: fields.time_or_none()?,
        cancelled_at: fields.time_or_none()?,
        version: fields.number()?,
        pending_review: fields.int_or_none()?.is_some(),
        items: Vec::new(),
    };
    // The key of the line, which is NULL where there is none.
    let (_, _, line) = (fields.int_or_none()?, fields.int_or_none()?, fields.int_or_none()?);
    if line.is_none() {
        return Ok((order, None));
    }
    let item = OrderItem {
        sku: fields.text()?.to_owned(),
        title: fields.text()?.to_owned(),
        quantity: fields.number()?,
        unit_price: fields.cents()?,
    };
    Ok((order, Some(item)))
}
