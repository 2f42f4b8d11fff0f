//! What an account has, and its statement.
//!
//! A balance shows what was grabbed at once: reading it waits until everything decided so far is recorded.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use qiang_app::extract::{Caller, Path, Viewer, page_limit};
use qiang_app::problem::Problem;
use qiang_app::{cursor, json_time, schema};
use qiang_core::{Cents, Timestamp, UserId};
use qiang_store::accounts::{Account, Balance, Entry};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::Accounts;
use crate::money::user;

/// Entries on one page, unless asked for fewer.
const PAGE: u32 = 100;
/// The place of no entry is beyond this: the database counts in 64 bits with a sign.
const MAX_SEQ: u64 = i64::MAX.unsigned_abs();

/// An account and what it has.
#[derive(Debug, Serialize, ToSchema)]
pub struct AccountView {
    /// Whose it is.
    #[schema(value_type = schema::UserId)]
    pub user_id: String,
    /// What its entries add up to.
    #[schema(minimum = 0, maximum = 1000000000000_i64, example = 10000)]
    pub balance_cents: i64,
    /// Of this, what open holds keep.
    #[schema(minimum = 0, maximum = 1000000000000_i64, example = 0)]
    pub held_cents: i64,
    /// What can be sent or held.
    #[schema(minimum = 0, maximum = 1000000000000_i64, example = 10000)]
    pub available_cents: i64,
    /// How many entries its statement has.
    #[schema(minimum = 0, example = 3)]
    pub entries: u64,
}

/// A line of a statement.
#[derive(Debug, Serialize, ToSchema)]
pub struct EntryView {
    /// Its place, from 1, without gaps.
    #[schema(minimum = 1, example = 3)]
    pub seq: u64,
    /// What it is about.
    #[schema(value_type = schema::EntryKind)]
    pub kind: &'static str,
    /// Below 0: it left the account.
    #[schema(minimum = -1000000000000_i64, maximum = 1000000000000_i64, example = -500)]
    pub amount_cents: i64,
    /// What the account had then.
    #[schema(minimum = 0, maximum = 1000000000000_i64, example = 9500)]
    pub balance_after_cents: i64,
    /// The other side.
    #[schema(value_type = schema::AccountName)]
    pub other: String,
    /// The movement.
    #[schema(value_type = schema::TransferId)]
    pub transfer_id: String,
    /// When.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
}

/// One page of a statement.
#[derive(Debug, Serialize, ToSchema)]
pub struct EntryPage {
    /// Newest first.
    pub entries: Vec<EntryView>,
    /// Give this as `before` to see the next; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, example = 3)]
    pub next_before: Option<u64>,
}

/// Which entries.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EntryQuery {
    /// `next_before` of the page before.
    #[param(minimum = 1, maximum = 9223372036854775807_u64, example = 3)]
    before: Option<u64>,
    /// How many to show, 1 to 100.
    #[param(minimum = 1, maximum = 100, example = 20)]
    limit: Option<u32>,
}

type Asked = Result<Query<EntryQuery>, QueryRejection>;

/// Show your account
///
/// What you have. What you grabbed is in it at once.
#[utoipa::path(get, path = "/api/v1/accounts/me", operation_id = "show_my_account", tag = "accounts", security(("token" = [])),
    responses((status = 200, description = "The account", body = AccountView)))]
pub async fn show_mine(
    State(accounts): State<Accounts>,
    Caller(who): Caller,
) -> Result<axum::Json<AccountView>, Problem> {
    accounts.view(who.user).await
}

/// Show your statement
///
/// Every movement of your money, newest first, with what you had after it.
#[utoipa::path(get, path = "/api/v1/accounts/me/entries", operation_id = "list_my_entries", tag = "accounts", security(("token" = [])),
    params(EntryQuery),
    responses((status = 200, description = "A page of the statement", body = EntryPage)))]
pub async fn list_my_entries(
    State(accounts): State<Accounts>,
    Caller(who): Caller,
    query: Asked,
) -> Result<axum::Json<EntryPage>, Problem> {
    accounts.statement(who.user, query).await
}

/// Show an account
///
/// What a user has; nothing, if they never had anything.
#[utoipa::path(get, path = "/api/v1/accounts/{owner}", operation_id = "show_account", tag = "accounts", security(("token" = ["viewer"])),
    params(("owner" = schema::UserId, Path, description = "The user")),
    responses((status = 200, description = "The account", body = AccountView)))]
pub async fn show(
    State(accounts): State<Accounts>,
    _: Viewer,
    Path(owner): Path<String>,
) -> Result<axum::Json<AccountView>, Problem> {
    accounts.view(user("owner", &owner)?).await
}

/// Show the statement of an account
///
/// Every movement of a user's money, newest first.
#[utoipa::path(get, path = "/api/v1/accounts/{owner}/entries", operation_id = "list_entries", tag = "accounts", security(("token" = ["viewer"])),
    params(("owner" = schema::UserId, Path, description = "The user"), EntryQuery),
    responses((status = 200, description = "A page of the statement", body = EntryPage)))]
pub async fn list_entries(
    State(accounts): State<Accounts>,
    _: Viewer,
    Path(owner): Path<String>,
    query: Asked,
) -> Result<axum::Json<EntryPage>, Problem> {
    accounts.statement(user("owner", &owner)?, query).await
}

impl Accounts {
    async fn view(&self, owner: UserId) -> Result<axum::Json<AccountView>, Problem> {
        self.app.catch_up().await?;
        let balance = self.app.store.balance(&Account::User(owner.clone())).await?;
        let Balance { posted, held, version } = balance;
        Ok(axum::Json(AccountView {
            user_id: owner.to_string(),
            balance_cents: posted.get(),
            held_cents: held.get(),
            available_cents: balance.available().get(),
            entries: version,
        }))
    }

    async fn statement(
        &self,
        owner: UserId,
        query: Asked,
    ) -> Result<axum::Json<EntryPage>, Problem> {
        let Query(EntryQuery { before, limit }) = query.map_err(Problem::from)?;
        if before.is_some_and(|seq| !(1..=MAX_SEQ).contains(&seq)) {
            return Err(cursor::refused("before"));
        }
        let limit = page_limit(limit, PAGE)?;
        self.app.catch_up().await?;
        let entries = self.app.store.entries(&Account::User(owner), before, limit).await?;
        let more = entries.len() == limit as usize;
        let next_before = entries.last().map(|last| last.seq).filter(|seq| more && *seq > 1);
        let entries = entries.into_iter().map(EntryView::of).collect();
        Ok(axum::Json(EntryPage { entries, next_before }))
    }
}

impl EntryView {
    fn of(entry: Entry) -> Self {
        Self {
            seq: entry.seq,
            kind: kind(&entry),
            amount_cents: entry.amount.get(),
            balance_after_cents: entry.balance_after.get(),
            other: entry.other.to_string(),
            transfer_id: entry.transfer,
            at: entry.at,
        }
    }
}

/// What an entry is about, from where the money came or went and the key it moved under.
fn kind(entry: &Entry) -> &'static str {
    let arrived = entry.amount > Cents::ZERO;
    let of_order = entry.transfer.starts_with("order:");
    match (&entry.other, arrived) {
        (Account::Outside, true) if of_order => "order_refund",
        (Account::Outside, false) if of_order => "order_payment",
        (Account::Outside, true) => "topup",
        (Account::Outside, false) => "withdrawal",
        (Account::Packet(_), false) => "packet_sent",
        (Account::Packet(_), true) if entry.transfer.ends_with(":refund") => "packet_refund",
        (Account::Packet(_), true) => "packet_grab",
        (Account::User(_), _) => "transfer",
    }
}
