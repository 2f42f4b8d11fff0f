//! Many refunds settled with one call. Each is settled once, by itself, and has its own answer.

use axum::extract::State;
use qiang_app::extract::{Admin, Json, Shared};
use qiang_app::problem::Problem;
use qiang_app::schema;
use qiang_core::{PaymentId, PoolId};
use qiang_store::SettleOutcome;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::payments::RefundView;

/// The most refunds in one call.
const MAX_REFUNDS: usize = 100;

/// Refunds whose money was sent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Settling {
    /// Which, 1 to 100.
    #[schema(min_items = 1, max_items = 100)]
    refunds: Vec<RefundName>,
}

/// Names a refund.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RefundName {
    /// The sale.
    #[schema(value_type = schema::SaleId)]
    sale_id: String,
    /// The payment.
    #[schema(value_type = schema::PaymentId)]
    payment_id: String,
}

/// What became of each refund.
#[derive(Debug, Serialize, ToSchema)]
pub struct Settled {
    /// In the order they were named.
    #[schema(max_items = 100)]
    pub results: Vec<SettledRefund>,
}

/// What became of one refund.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettledRefund {
    /// The sale.
    #[schema(value_type = schema::SaleId)]
    pub sale_id: String,
    /// The payment.
    #[schema(value_type = schema::PaymentId)]
    pub payment_id: String,
    /// What became of it.
    #[schema(value_type = schema::SettleOutcome)]
    pub outcome: &'static str,
    /// The refund, unless there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refund: Option<RefundView>,
}

/// Settle many refunds
///
/// Notes of up to 100 refunds that the money was sent. Each has its own answer; noting one again changes
/// nothing, so the whole call may be repeated.
#[utoipa::path(post, path = "/api/v1/admin/refunds/settle", operation_id = "settle_refunds", tag = "payments", security(("token" = ["admin"])),
    request_body = Settling,
    responses((status = 200, description = "What became of each", body = Settled)))]
pub async fn settle(
    State(app): Shared,
    _: Admin,
    Json(Settling { refunds }): Json<Settling>,
) -> Result<axum::Json<Settled>, Problem> {
    if !(1..=MAX_REFUNDS).contains(&refunds.len()) {
        let rule = format_args!("must have 1 to {MAX_REFUNDS} items");
        return Err(Problem::invalid_field("refunds", rule));
    }
    // All are read before the first is settled, so that a mistake in one settles none.
    let read = |(place, name): (usize, &RefundName)| {
        let wrong = |field: &str, rule: &str| {
            Problem::invalid_field(format!("refunds[{place}].{field}"), rule)
        };
        let sale = name.sale_id.parse::<PoolId>();
        let sale = sale.map_err(|_| wrong("sale_id", "must be an id of a sale, like 12"))?;
        let payment = PaymentId::new(&name.payment_id);
        let payment = payment
            .map_err(|_| wrong("payment_id", "must be an id of a payment: 1 to 128 bytes"))?;
        Ok((sale, payment))
    };
    let named: Vec<_> = refunds.iter().enumerate().map(read).collect::<Result<_, Problem>>()?;
    app.catch_up().await?;
    let mut results = Vec::with_capacity(named.len());
    for (sale, payment) in named {
        let outcome = app.store.settle_refund(sale, &payment, app.now()).await?;
        let outcome = match outcome {
            SettleOutcome::Settled => "settled",
            SettleOutcome::AlreadySettled { .. } => "already_settled",
            SettleOutcome::NoSuchRefund => "no_such_refund",
        };
        let record = app.store.refund(sale, &payment).await?;
        let refund = RefundView::of_records(&app, record.as_slice()).await?.pop();
        let (sale_id, payment_id) = (sale.to_string(), payment.to_string());
        results.push(SettledRefund { sale_id, payment_id, outcome, refund });
    }
    Ok(axum::Json(Settled { results }))
}
