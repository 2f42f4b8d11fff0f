//! `GET /api/v1/admin/actions`: who did what, when. Rows are written by [`qiang_app::actions`]; here they
//! are listed, and forgotten when the operator no longer wants them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use qiang_app::config::Layers;
use qiang_app::extract::{Shared, Viewer, page_limit};
use qiang_app::problem::Problem;
use qiang_app::workers::Turn;
use qiang_app::{App, cursor, json_time, schema};
use qiang_core::{Timestamp, UserId};
use qiang_store::{Action, ActionFilter};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Actions on one page, unless asked for fewer.
const PAGE: u32 = 100;
/// How often those that are too old are forgotten.
pub(crate) const FORGET_EVERY: Duration = Duration::from_secs(3_600);
const DAY_MS: i64 = 86_400_000;

/// `[actions]`: for how long it is known who did what.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Days.
    pub keep_days: u32,
}

impl Settings {
    /// Takes this part of the configuration.
    pub fn take(layers: &mut Layers) -> Self {
        Self { keep_days: layers.number("actions.keep_days", 400, 1..=36_500) }
    }
}

/// What somebody did.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActionView {
    /// Names it.
    #[schema(value_type = schema::MadeId)]
    pub id: String,
    /// When it was asked for.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// Who.
    #[schema(value_type = schema::UserId)]
    pub user_id: String,
    /// What they were allowed to do.
    #[schema(value_type = schema::Role)]
    pub role: String,
    /// The method of the call.
    #[schema(example = "POST")]
    pub method: String,
    /// The address of the call, with names for what varies.
    #[schema(example = "/api/v1/sales/{sale_id}/close")]
    pub route: String,
    /// What it was about: the parts of the address that vary, or the id of what was made.
    #[schema(value_type = Option<schema::Thing>)]
    pub thing: Option<String>,
    /// The status of the answer; null if nobody waited for it.
    #[schema(minimum = 100, maximum = 599, example = 200)]
    pub status: Option<u16>,
    /// The code of the problem, if it was turned down.
    #[schema(example = "sale_in_use")]
    pub code: Option<String>,
    /// Its `Idempotency-Key`, if it had one.
    pub request_id: Option<String>,
    /// Why, in the words of whoever did it.
    #[schema(max_length = 200, example = "arrived broken")]
    pub note: Option<String>,
}

/// One page of actions.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActionPage {
    /// Newest first.
    pub actions: Vec<ActionView>,
    /// Give this as `before` to see older ones; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::MadeCursor>)]
    pub next_before: Option<String>,
}

/// Which actions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ActionQuery {
    /// What this user did.
    #[param(value_type = Option<schema::UserId>)]
    user: Option<String>,
    /// What was done to this: a sale, an order, a session.
    #[param(value_type = Option<schema::Thing>)]
    thing: Option<String>,
    /// At this time or later.
    #[param(value_type = Option<schema::Time>)]
    from: Option<String>,
    /// Before this time.
    #[param(value_type = Option<schema::Time>)]
    to: Option<String>,
    /// `next_before` of the page before.
    #[param(value_type = Option<schema::MadeCursor>)]
    before: Option<String>,
    /// How many to show, 1 to 100.
    #[param(minimum = 1, maximum = 100, example = 20)]
    limit: Option<u32>,
}

impl From<Action> for ActionView {
    fn from(action: Action) -> Self {
        Self {
            id: action.id.to_string(),
            at: action.at,
            user_id: action.user.to_string(),
            role: action.role,
            method: action.method,
            route: action.route,
            thing: action.thing,
            status: action.status,
            code: action.code,
            request_id: action.request,
            note: action.note,
        }
    }
}

/// List who did what
///
/// Every change that an admin made over HTTP, newest first, whatever became of it. Claims are not among
/// them, and neither is what was done over RESP.
#[utoipa::path(get, path = "/api/v1/admin/actions", operation_id = "list_actions", tag = "operations", security(("token" = ["viewer"])),
    params(ActionQuery),
    responses((status = 200, description = "A page of actions", body = ActionPage)))]
pub async fn list(
    State(app): Shared,
    _: Viewer,
    query: Result<Query<ActionQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<axum::Json<ActionPage>, Problem> {
    let Query(ActionQuery { user, thing, from, to, before, limit }) =
        query.map_err(Problem::from)?;
    let user = user
        .map(|user| UserId::new(&user))
        .transpose()
        .map_err(|_| Problem::invalid_field("user", "must be an id of a user: 1 to 64 bytes"))?;
    let is_thing = |thing: &String| {
        (1..=200).contains(&thing.chars().count()) && !thing.contains(char::is_control)
    };
    if thing.as_ref().is_some_and(|thing| !is_thing(thing)) {
        let rule = "must have 1 to 200 characters, and no control characters";
        return Err(Problem::invalid_field("thing", rule));
    }
    let filter = ActionFilter {
        user,
        thing,
        from: json_time::of_query("from", from)?,
        to: json_time::of_query("to", to)?,
        before: cursor::of_query("before", before, cursor::read_moment)?,
    };
    let limit = page_limit(limit, PAGE)?;
    let actions = app.store.actions(&filter, limit).await?;
    let full = actions.len() == limit as usize;
    let next_before = actions.last().filter(|_| full).map(|last| last.moment());
    let next_before = next_before.map(cursor::write_moment);
    let actions = actions.into_iter().map(ActionView::from).collect();
    Ok(axum::Json(ActionPage { actions, next_before }))
}

/// Forgets what is too old.
pub(crate) async fn forget(app: Arc<App>, keep_days: u32) -> Turn {
    let before = app.now().millis().saturating_sub(i64::from(keep_days) * DAY_MS);
    let before = Timestamp::from_millis(before);
    while app.store.forget_actions(before).await? > 0 {}
    Ok(())
}
