//! Money that is kept for somebody: held first, then posted whole or in part, voided, or out of time.
//! Each hold ends once, whoever is first.
//!
//! Whoever the money is for may post or void it, whoever it is from may post it. So a hold is a promise:
//! the one who gave it cannot take it back before its time.

use axum::extract::State;
use axum::response::IntoResponse;
use qiang_app::extract::{Caller, IdempotencyKey, Json, Nothing, OptionalJson, Path};
use qiang_app::problem::{Code, Problem};
use qiang_app::token::{Principal, Role};
use qiang_app::workers::Turn;
use qiang_app::{json_time, schema, whole};
use qiang_core::Timestamp;
use qiang_store::accounts::{Account, Moved, Movement, Refusal, Transfer, TransferKind, What};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Accounts;
use crate::money::{amount, hash, movement_key, name, refused, unsure, user};
use crate::transfers::{TransferView, made};

/// The longest a hold lasts.
const MAX_HOLD_MS: u64 = 366 * 24 * 3_600_000;
/// Holds that are ended at once.
const EXPIRE_AT_ONCE: u32 = 100;

/// Money to be kept for somebody.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHold {
    /// Whom it is for.
    #[schema(value_type = schema::UserId)]
    to: String,
    /// How much.
    #[serde(deserialize_with = "whole::deserialize")]
    #[schema(minimum = 1, maximum = 1000000000000_i64, example = 500)]
    amount_cents: i64,
    /// When it is free again by itself: within 366 days.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    expires_at: Timestamp,
}

/// How much of a hold is posted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Posting {
    /// Left out, all of it. The rest is free again.
    #[serde(default, deserialize_with = "whole::option")]
    #[schema(minimum = 1, maximum = 1000000000000_i64, example = 500)]
    amount_cents: Option<i64>,
}

/// Money that is kept for somebody.
#[derive(Debug, Serialize, ToSchema)]
pub struct HoldView {
    /// Names the hold.
    #[schema(value_type = schema::HoldId)]
    pub hold_id: String,
    /// Whose money it is.
    #[schema(value_type = schema::AccountName)]
    pub from: String,
    /// Whom it is for.
    #[schema(value_type = schema::AccountName)]
    pub to: String,
    /// How much is held.
    #[schema(minimum = 1, maximum = 1000000000000_i64, example = 500)]
    pub amount_cents: i64,
    /// When it is free again by itself.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub expires_at: Option<Timestamp>,
    /// Since when.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub created_at: Timestamp,
}

/// Keep money for another user
///
/// It stays on your account and cannot be spent until the hold is posted, voided or out of time. Needs
/// an `Idempotency-Key`.
#[utoipa::path(post, path = "/api/v1/holds", operation_id = "hold", tag = "accounts", security(("token" = [])),
    params(("Idempotency-Key" = schema::IdempotencyKey, Header, description = "Money is held once for each key")),
    request_body = NewHold,
    responses((status = 201, description = "It is held", body = HoldView), (status = 200, description = "It was held before", body = HoldView)))]
pub async fn create(
    State(accounts): State<Accounts>,
    Caller(who): Caller,
    key: IdempotencyKey,
    Json(body): Json<NewHold>,
) -> Result<impl IntoResponse, Problem> {
    let amount = amount("amount_cents", body.amount_cents)?;
    let to = Account::User(user("to", &body.to)?);
    let name = name(&who.user, key)?;
    let from = Account::User(who.user);
    let expires_at = body.expires_at;
    let parts = [from.to_string(), to.to_string(), amount.get().to_string()];
    let asked = hash(&["hold", &parts[0], &parts[1], &parts[2], &expires_at.millis().to_string()]);
    let key = movement_key(&name);
    // What was held before stays so, although its time may have come.
    let is_new = accounts.app.store.transfer(&key).await?.is_none();
    let now = accounts.app.now();
    if is_new && (expires_at <= now || expires_at > now.plus_millis(MAX_HOLD_MS)) {
        return Err(Problem::invalid_field("expires_at", "must be within the next 366 days"));
    }
    let what = What::Hold { from, to, amount, expires_at: Some(expires_at) };
    let movement = Movement { key: &key, request_hash: &asked, what };
    let (hold, replayed) = accounts.move_one(&movement).await?;
    let view = HoldView {
        hold_id: name,
        from: hold.debit.to_string(),
        to: hold.credit.to_string(),
        amount_cents: hold.amount.get(),
        expires_at: hold.expires_at,
        created_at: hold.at,
    };
    Ok((made(replayed), axum::Json(view)))
}

/// Post a hold
///
/// Moves what is held, or a part of it. For those it is from or for. Asking again gives the same answer;
/// no key is needed, because a hold ends once.
#[utoipa::path(post, path = "/api/v1/holds/{hold_id}/post", operation_id = "post_hold", tag = "accounts", security(("token" = [])),
    params(("hold_id" = schema::HoldId, Path, description = "The hold")),
    request_body = Option<Posting>,
    responses((status = 200, description = "It moved", body = TransferView)))]
pub async fn post(
    State(accounts): State<Accounts>,
    Caller(who): Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<Posting>,
) -> Result<axum::Json<TransferView>, Problem> {
    let hold = accounts.hold(&id).await?;
    let user = Account::User(who.user.clone());
    if hold.debit != user && hold.credit != user && who.role != Role::Admin {
        return Err(Problem::new(Code::NoSuchHold));
    }
    let amount = body.amount_cents.map(|cents| amount("amount_cents", cents)).transpose()?;
    let whole = amount.unwrap_or(hold.amount);
    let asked = hash(&["post", &hold.key, &whole.get().to_string()]);
    let what = What::Post { hold: &hold.key, amount };
    accounts.end_hold(&hold, "post", &asked, what).await
}

/// Void a hold
///
/// Gives it up; the money is free again. For the user it is for. Asking again gives the same answer.
#[utoipa::path(post, path = "/api/v1/holds/{hold_id}/void", operation_id = "void_hold", tag = "accounts", security(("token" = [])),
    params(("hold_id" = schema::HoldId, Path, description = "The hold")),
    responses((status = 200, description = "It is free again", body = TransferView)))]
pub async fn void(
    State(accounts): State<Accounts>,
    Caller(who): Caller,
    Path(id): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<TransferView>, Problem> {
    let hold = accounts.hold(&id).await?;
    may_void(&hold, &who)?;
    let asked = hash(&["void", &hold.key]);
    accounts.end_hold(&hold, "void", &asked, What::Void { hold: &hold.key }).await
}

fn may_void(hold: &Transfer, who: &Principal) -> Result<(), Problem> {
    let user = Account::User(who.user.clone());
    if hold.credit == user || who.role == Role::Admin {
        return Ok(());
    }
    // Whoever gave it knows that it is there.
    let code = if hold.debit == user { Code::Forbidden } else { Code::NoSuchHold };
    Err(Problem::new(code))
}

impl Accounts {
    /// A hold that somebody asked for, over or not.
    async fn hold(&self, id: &str) -> Result<Transfer, Problem> {
        let found = self.app.store.transfer(&movement_key(id)).await?;
        let hold = found.filter(|found| found.kind == TransferKind::Hold);
        hold.ok_or_else(|| Problem::new(Code::NoSuchHold))
    }

    async fn end_hold(
        &self,
        hold: &Transfer,
        end: &str,
        asked: &str,
        what: What<'_>,
    ) -> Result<axum::Json<TransferView>, Problem> {
        let key = format!("{}:{end}", hold.key);
        let movement = Movement { key: &key, request_hash: asked, what };
        let moved = self.app.store.move_money(&[movement], self.app.now()).await;
        match moved.map_err(|error| unsure(&error))?.pop() {
            Some(Moved::Done(transfer) | Moved::Replayed(transfer)) => {
                Ok(axum::Json(transfer.into()))
            }
            // It was posted with another amount.
            Some(Moved::Refused(Refusal::KeyReused)) => {
                Err(refused(Refusal::HoldOver { by: TransferKind::Post }))
            }
            Some(Moved::Refused(refusal)) => Err(refused(refusal)),
            None => Err(Problem::new(Code::Internal)),
        }
    }

    /// Ends the holds whose time has come. Two may do so at once: a hold ends once.
    pub(crate) async fn expire_holds(self) -> Turn {
        loop {
            let now = self.app.now();
            let due = self.app.store.due_holds(now, EXPIRE_AT_ONCE).await?;
            let keys: Vec<String> = due.iter().map(|hold| format!("{hold}:expire")).collect();
            let asked = hash(&["expire"]);
            let movements: Vec<Movement<'_>> = due
                .iter()
                .zip(&keys)
                .map(|(hold, key)| Movement {
                    key,
                    request_hash: &asked,
                    what: What::Expire { hold },
                })
                .collect();
            self.app.store.move_money(&movements, now).await?;
            if due.len() < EXPIRE_AT_ONCE as usize {
                return Ok(());
            }
        }
    }
}
