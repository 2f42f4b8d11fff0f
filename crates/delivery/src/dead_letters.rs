//! Dead letters: events that could not be recorded, for a person to look at, try again or give up.
//!
//! Giving one up undoes what it stood for, once: an open claim is given back, a paid one is taken back
//! and its money owed back. The engine does either only once for a claim, so whoever is cut off in the
//! middle is finished by another turn, and nothing happens twice.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use qiang_app::extract::{Admin, Nothing, OptionalJson, Path, Viewer, page_limit};
use qiang_app::problem::{Code, Problem};
use qiang_app::workers::Turn;
use qiang_app::{App, cursor, json_time, parked, schema};
use qiang_core::{
    ClaimId, Command, Outcome, Refusal, ReleaseReason, State as ClaimState, Timestamp,
};
use qiang_store::RECORDS;
use qiang_store::retries::{Compensation, Retry, RetryCursor, RetryState};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Delivery, public};

/// Dead letters on one page, unless asked for fewer.
const PAGE: u32 = 100;
/// Between two of many that are tried again: a hundred a second.
const APART: Duration = Duration::from_millis(10);
/// How often discards are looked for that were cut off.
pub(crate) const FINISH_EVERY: Duration = Duration::from_secs(5);
/// How often it is read which claims a person has to look at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A claim may change while it is looked at, but not for ever.
const LOOKS: usize = 5;

/// An event that could not be recorded.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeadLetterView {
    /// The event's id.
    #[schema(value_type = schema::EventId)]
    pub id: String,
    /// What happened.
    #[schema(value_type = schema::EventKind)]
    pub kind: String,
    /// The sale it happened in.
    #[schema(value_type = schema::SaleId)]
    pub sale_id: String,
    /// The claim it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ClaimId>)]
    pub claim_id: Option<String>,
    /// The version of the sale or claim.
    pub version: u32,
    /// Where it stands.
    #[schema(value_type = schema::DeadLetterState)]
    pub state: &'static str,
    /// How often it was tried.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub error: String,
    /// When it failed first.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub parked_at: Timestamp,
    /// Since when it stands so; of one that waits, when it is tried next.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// What discarding it has undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Compensation>)]
    pub compensation: Option<&'static str>,
    /// The event in its public form; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<serde_json::Value>,
}

/// One page of dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeadLetterPage {
    /// Longest so first.
    pub dead_letters: Vec<DeadLetterView>,
    /// Give this as `after` to see the next; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::DeadLetterCursor>)]
    pub next_after: Option<String>,
}

/// Which dead letters.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeadLetterQuery {
    /// `dead` (the default), `waiting` for another attempt, `discarding`, `discarded` or `resolved`.
    #[param(value_type = Option<schema::DeadLetterState>)]
    state: Option<String>,
    /// Only events of this kind.
    #[param(value_type = Option<schema::EventKind>)]
    kind: Option<String>,
    /// `next_after` of the page before.
    #[param(value_type = Option<schema::DeadLetterCursor>)]
    after: Option<String>,
    /// How many to show, 1 to 100.
    #[param(minimum = 1, maximum = 100, example = 20)]
    limit: Option<u32>,
}

/// Which dead letters to try again; all, if nothing is said.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryMany {
    /// Only events of this kind.
    #[schema(value_type = Option<schema::EventKind>)]
    #[serde(default)]
    kind: Option<String>,
    /// Only those that failed first at this time or later.
    #[schema(value_type = Option<schema::Time>)]
    #[serde(default, with = "json_time::option")]
    since: Option<Timestamp>,
}

/// How many are tried again.
#[derive(Debug, Serialize, ToSchema)]
pub struct Retried {
    /// So many, about a hundred a second. At most a thousand at once: ask again for more.
    pub retried: u64,
}

impl DeadLetterView {
    fn of(retry: &Retry) -> Self {
        let claim = (retry.number > 0).then(|| claim(retry).to_string());
        Self {
            id: retry.event_id.clone(),
            kind: retry.kind.clone(),
            sale_id: retry.pool.to_string(),
            claim_id: claim,
            version: retry.version,
            state: retry.state.as_str(),
            attempts: retry.attempts,
            error: retry.error.clone(),
            parked_at: retry.parked_at,
            at: retry.at,
            compensation: retry.outcome.map(Compensation::as_str),
            event: None,
        }
    }

    fn whole(retry: &Retry, source: &str) -> Self {
        let event = parked::event(&retry.bytes).ok().and_then(|event| {
            let told = public::of(&event, source).into_iter().next()?;
            serde_json::from_str(&told.json).ok()
        });
        Self { event, ..Self::of(retry) }
    }
}

/// List dead letters
///
/// Events that could not be recorded although they were tried several times.
#[utoipa::path(get, path = "/api/v1/admin/dead-letters", operation_id = "list_dead_letters", tag = "delivery", security(("token" = ["viewer"])),
    params(DeadLetterQuery),
    responses((status = 200, description = "A page of dead letters", body = DeadLetterPage)))]
pub async fn list(
    State(delivery): State<Delivery>,
    _: Viewer,
    query: Result<Query<DeadLetterQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<axum::Json<DeadLetterPage>, Problem> {
    let Query(DeadLetterQuery { state, kind, after, limit }) = query.map_err(Problem::from)?;
    let state = RetryState::from_word(state.as_deref().unwrap_or("dead")).ok_or_else(|| {
        let words = RetryState::ALL.map(RetryState::as_str).join(", ");
        Problem::invalid_field("state", format_args!("must be one of {words}"))
    })?;
    let kind = known_kind(kind.as_deref())?;
    let after =
        after.as_deref().map(|text| read_cursor(text).ok_or_else(|| cursor::refused("after")));
    let (after, limit) = (after.transpose()?, page_limit(limit, PAGE)?);
    let found = delivery.app.store.retries(state, kind, after.as_ref(), limit).await?;
    let full = found.len() == limit as usize;
    let next_after = found.last().filter(|_| full).map(|last| write_cursor(&last.cursor()));
    let dead_letters = found.iter().map(DeadLetterView::of).collect();
    Ok(axum::Json(DeadLetterPage { dead_letters, next_after }))
}

/// Show a dead letter
///
/// With the event, and why it failed.
#[utoipa::path(get, path = "/api/v1/admin/dead-letters/{id}", operation_id = "show_dead_letter", tag = "delivery", security(("token" = ["viewer"])),
    params(("id" = schema::EventId, Path, description = "The event")),
    responses((status = 200, description = "The dead letter", body = DeadLetterView)))]
pub async fn show(
    State(delivery): State<Delivery>,
    _: Viewer,
    Path(id): Path<String>,
) -> Result<axum::Json<DeadLetterView>, Problem> {
    found(&delivery.app, &id).await
}

/// Retry a dead letter
///
/// Has it tried at once, and again if that fails, as often as the first time.
#[utoipa::path(post, path = "/api/v1/admin/dead-letters/{id}/retry", operation_id = "retry_dead_letter", tag = "delivery", security(("token" = ["admin"])),
    params(("id" = schema::EventId, Path, description = "The event")),
    responses((status = 200, description = "It waits for its next attempt", body = DeadLetterView)))]
pub async fn retry(
    State(delivery): State<Delivery>,
    _: Admin,
    Path(id): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<DeadLetterView>, Problem> {
    if !delivery.app.store.revive(RECORDS, &id).await? {
        return Err(not_dead(&delivery.app, &id).await);
    }
    found(&delivery.app, &id).await
}

/// Retry many dead letters
///
/// One after the other, about a hundred a second, those of one claim in their order.
#[utoipa::path(post, path = "/api/v1/admin/dead-letters/retry", operation_id = "retry_dead_letters", tag = "delivery", security(("token" = ["admin"])),
    request_body = Option<RetryMany>,
    responses((status = 200, description = "How many wait for their next attempt", body = Retried)))]
pub async fn retry_many(
    State(delivery): State<Delivery>,
    _: Admin,
    OptionalJson(RetryMany { kind, since }): OptionalJson<RetryMany>,
) -> Result<axum::Json<Retried>, Problem> {
    let kind = known_kind(kind.as_deref())?;
    let retried = delivery.app.store.revive_all(kind, since, APART).await?;
    Ok(axum::Json(Retried { retried }))
}

/// Discard a dead letter
///
/// Gives it up and undoes what it stood for, once: an open claim is given back, a paid one is taken
/// back and its money owed back. Asking again changes nothing.
#[utoipa::path(post, path = "/api/v1/admin/dead-letters/{id}/discard", operation_id = "discard_dead_letter", tag = "delivery", security(("token" = ["admin"])),
    params(("id" = schema::EventId, Path, description = "The event")),
    responses((status = 200, description = "It is discarded", body = DeadLetterView)))]
pub async fn discard(
    State(delivery): State<Delivery>,
    _: Admin,
    Path(id): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<DeadLetterView>, Problem> {
    let app = &delivery.app;
    // A newer version of its claim may have been recorded meanwhile; then there is nothing to undo.
    app.store.resolve_superseded().await?;
    let retry = app.store.retry(RECORDS, &id).await?;
    let retry = retry.ok_or_else(|| Problem::new(Code::NoSuchDeadLetter))?;
    if retry.state == RetryState::Dead {
        can_be_undone(app, &retry).await?;
    }
    let Some(retry) = app.store.begin_discarding(RECORDS, &id).await? else {
        return Err(not_dead(app, &id).await);
    };
    finish(app, &retry).await?;
    found(app, &id).await
}

/// Undoes what a dead letter stood for, and notes it.
async fn finish(app: &App, retry: &Retry) -> Result<(), Problem> {
    if retry.state == RetryState::Discarding {
        let undone = undo(app, retry).await?;
        app.store.end_discarding(retry, undone).await?;
        let (id, undone) = (&retry.event_id, undone.as_str());
        tracing::warn!(id, undone, "a dead letter was discarded");
    }
    Ok(())
}

/// Finishes discards that were cut off.
pub(crate) async fn finish_discards(app: Arc<App>) -> Turn {
    for retry in app.store.retries(RetryState::Discarding, None, None, PAGE).await? {
        let finished = finish(&app, &retry).await;
        finished
            .map_err(|problem| format!("{} is not discarded yet: {problem:?}", retry.event_id))?;
    }
    Ok(())
}

/// Reads which claims a person has to look at, so that whoever asks for one is told.
pub(crate) async fn look(app: Arc<App>) -> Turn {
    let claims = app.store.dead_claims(qiang_store::MAX_PAGE).await?;
    app.set_aside.replace(claims.into_iter().collect());
    Ok(())
}

/// What cannot be undone must not be discarded: money that is owed, and what was paid without a
/// payment that could go back.
async fn can_be_undone(app: &App, retry: &Retry) -> Result<(), Problem> {
    let refused = |why: &'static str| Err(Problem::new(Code::CannotDiscard).detail(why));
    if retry.kind == "refund_due" {
        return refused("money is owed back; mend what stands in the way, and retry it");
    }
    if retry.number == 0 {
        return Ok(());
    }
    let claim = app.answer(app.engine.claim_view(claim(retry))).await?;
    match claim {
        Some(claim) if claim.state == ClaimState::Paid && claim.payment.is_none() => {
            refused("its claim was paid without a payment and cannot be taken back; retry it")
        }
        _ => Ok(()),
    }
}

/// Gives the claim back, or takes it back if it is paid. The engine does either once.
async fn undo(app: &App, retry: &Retry) -> Result<Compensation, Problem> {
    if retry.number == 0 {
        return Ok(Compensation::Nothing);
    }
    let id = claim(retry);
    for _ in 0..LOOKS {
        let Some(now) = app.answer(app.engine.claim_view(id)).await? else {
            return Ok(Compensation::Nothing);
        };
        let (command, undone) = match (now.state, now.reason) {
            (ClaimState::Released, Some(ReleaseReason::Revoked)) => {
                return Ok(Compensation::Revoked);
            }
            (ClaimState::Released, Some(ReleaseReason::Cancelled)) => {
                return Ok(Compensation::Released);
            }
            (ClaimState::Released, _) => return Ok(Compensation::Nothing),
            (ClaimState::Paid, _) => (Command::Revoke { claim: id }, Compensation::Revoked),
            (ClaimState::Held | ClaimState::Ordered, _) => {
                let reason = ReleaseReason::Cancelled;
                (Command::Release { claim: id, by: None, reason }, Compensation::Released)
            }
        };
        match app.answer(app.engine.ask(command)).await?.into_claim() {
            Outcome::Done(_) | Outcome::Replayed(_) => return Ok(undone),
            Outcome::Refused(Refusal::NoSuchClaim | Refusal::NoSuchPool | Refusal::Cleared) => {
                return Ok(Compensation::Nothing);
            }
            // It changed between the look and the command.
            Outcome::Refused(_) => {}
        }
    }
    Err(Problem::new(Code::CannotDiscard).detail("its claim keeps changing; try again"))
}

fn claim(retry: &Retry) -> ClaimId {
    ClaimId { pool: retry.pool, number: retry.number }
}

fn known_kind(word: Option<&str>) -> Result<Option<&'static str>, Problem> {
    let rule = || format!("must be one of {}", public::kinds());
    let kind =
        word.map(|word| public::kind(word).ok_or_else(|| Problem::invalid_field("kind", rule())));
    kind.transpose()
}

async fn found(app: &App, id: &str) -> Result<axum::Json<DeadLetterView>, Problem> {
    let retry = app.store.retry(RECORDS, id).await?;
    let retry = retry.ok_or_else(|| Problem::new(Code::NoSuchDeadLetter))?;
    Ok(axum::Json(DeadLetterView::whole(&retry, &app.config.delivery.source)))
}

/// Why an event is no dead letter.
async fn not_dead(app: &App, id: &str) -> Problem {
    match app.store.retry(RECORDS, id).await {
        Ok(Some(retry)) => Problem::new(Code::NotDead).text("state", retry.state.as_str()),
        Ok(None) => Problem::new(Code::NoSuchDeadLetter),
        Err(error) => error.into(),
    }
}

/// `<milliseconds>_<event>`
fn write_cursor(cursor: &RetryCursor) -> String {
    format!("{}_{}", cursor.at.millis(), cursor.event_id)
}

fn read_cursor(text: &str) -> Option<RetryCursor> {
    let (at, event) = text.split_once('_')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let event = Some(event).filter(|event| !event.is_empty() && event.bytes().all(plain))?;
    Some(RetryCursor { at: cursor::time(at)?, event_id: event.to_owned() })
}
