//! Money that moves at once: between users, and from and to the outside.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use qiang_app::extract::{Admin, Caller, IdempotencyKey, Json, Path};
use qiang_app::problem::Problem;
use qiang_app::{json_time, schema, whole};
use qiang_core::Timestamp;
use qiang_store::accounts::{Account, Movement, Transfer, What};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Accounts;
use crate::money::{amount, hash, movement_key, name, user};

/// Money for somebody.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTransfer {
    /// Who gets it.
    #[schema(value_type = schema::UserId)]
    to: String,
    /// How much.
    #[serde(deserialize_with = "whole::deserialize")]
    #[schema(minimum = 1, maximum = 1000000000000_i64, example = 500)]
    amount_cents: i64,
}

/// Money that comes in or goes out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    /// How much.
    #[serde(deserialize_with = "whole::deserialize")]
    #[schema(minimum = 1, maximum = 1000000000000_i64, example = 10000)]
    amount_cents: i64,
}

/// Money that moved.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TransferView {
    /// Names the movement; it stands in both statements.
    #[schema(value_type = schema::TransferId)]
    pub transfer_id: String,
    /// Where it came from.
    #[schema(value_type = schema::AccountName)]
    pub from: String,
    /// Where it went.
    #[schema(value_type = schema::AccountName)]
    pub to: String,
    /// How much.
    #[schema(minimum = 1, maximum = 1000000000000_i64, example = 500)]
    pub amount_cents: i64,
    /// When.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
}

impl From<Transfer> for TransferView {
    fn from(transfer: Transfer) -> Self {
        Self {
            transfer_id: transfer.key,
            from: transfer.debit.to_string(),
            to: transfer.credit.to_string(),
            amount_cents: transfer.amount.get(),
            at: transfer.at,
        }
    }
}

/// Give money to another user
///
/// Needs an `Idempotency-Key`: asking again with the same key gives the same answer and moves nothing.
#[utoipa::path(post, path = "/api/v1/transfers", operation_id = "transfer", tag = "accounts", security(("token" = [])),
    params(("Idempotency-Key" = schema::IdempotencyKey, Header, description = "Money moves once for each key")),
    request_body = NewTransfer,
    responses((status = 201, description = "It moved", body = TransferView), (status = 200, description = "It moved before", body = TransferView)))]
pub async fn create(
    State(accounts): State<Accounts>,
    Caller(who): Caller,
    key: IdempotencyKey,
    Json(body): Json<NewTransfer>,
) -> Result<impl IntoResponse, Problem> {
    let amount = amount("amount_cents", body.amount_cents)?;
    let to = Account::User(user("to", &body.to)?);
    let name = name(&who.user, key)?;
    let what = What::Transfer { from: Account::User(who.user), to, amount };
    accounts.transfer(&name, "transfer", what).await
}

/// Put money on an account
///
/// For money that arrived outside. Needs an `Idempotency-Key`.
#[utoipa::path(post, path = "/api/v1/accounts/{owner}/topups", operation_id = "top_up", tag = "accounts", security(("token" = ["admin"])),
    params(("owner" = schema::UserId, Path, description = "The user"), ("Idempotency-Key" = schema::IdempotencyKey, Header, description = "Money moves once for each key")),
    request_body = Amount,
    responses((status = 201, description = "It moved", body = TransferView), (status = 200, description = "It moved before", body = TransferView)))]
pub async fn top_up(
    State(accounts): State<Accounts>,
    Admin(who): Admin,
    Path(owner): Path<String>,
    key: IdempotencyKey,
    Json(body): Json<Amount>,
) -> Result<impl IntoResponse, Problem> {
    let amount = amount("amount_cents", body.amount_cents)?;
    let to = Account::User(user("owner", &owner)?);
    let name = name(&who.user, key)?;
    accounts.transfer(&name, "topup", What::Transfer { from: Account::Outside, to, amount }).await
}

/// Take money from an account
///
/// For money that is paid out. Needs an `Idempotency-Key`.
#[utoipa::path(post, path = "/api/v1/accounts/{owner}/withdrawals", operation_id = "withdraw", tag = "accounts", security(("token" = ["admin"])),
    params(("owner" = schema::UserId, Path, description = "The user"), ("Idempotency-Key" = schema::IdempotencyKey, Header, description = "Money moves once for each key")),
    request_body = Amount,
    responses((status = 201, description = "It moved", body = TransferView), (status = 200, description = "It moved before", body = TransferView)))]
pub async fn withdraw(
    State(accounts): State<Accounts>,
    Admin(who): Admin,
    Path(owner): Path<String>,
    key: IdempotencyKey,
    Json(body): Json<Amount>,
) -> Result<impl IntoResponse, Problem> {
    let amount = amount("amount_cents", body.amount_cents)?;
    let from = Account::User(user("owner", &owner)?);
    let name = name(&who.user, key)?;
    let what = What::Transfer { from, to: Account::Outside, amount };
    accounts.transfer(&name, "withdrawal", what).await
}

impl Accounts {
    async fn transfer(
        &self,
        name: &str,
        call: &str,
        what: What<'_>,
    ) -> Result<(StatusCode, axum::Json<TransferView>), Problem> {
        let What::Transfer { from, to, amount } = &what else { unreachable!("it is a transfer") };
        let (from, to, amount) = (from.to_string(), to.to_string(), amount.get().to_string());
        let (key, asked) = (movement_key(name), hash(&[call, &from, &to, &amount]));
        let movement = Movement { key: &key, request_hash: &asked, what };
        let (transfer, replayed) = self.move_one(&movement).await?;
        Ok((made(replayed), axum::Json(transfer.into())))
    }
}

/// The status of something that was made now, or before.
pub(crate) fn made(replayed: bool) -> StatusCode {
    if replayed { StatusCode::OK } else { StatusCode::CREATED }
}
