//! `GET /events`: what happened, page by page, for those who would rather ask than be told.

use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use qiang_app::extract::{Viewer, page_limit};
use qiang_app::problem::{Code, Problem};
use qiang_app::{cursor, schema};
use qiang_core::PoolId;
use qiang_store::events::{FeedPage, FeedRead, Filter, From, Place};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Delivery, public};

/// Events on one page, unless asked for fewer.
const PAGE: u32 = 1_000;

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// `next_after` of the page before; `start` (the default) is the oldest event that is kept,
    /// `end` what comes from now on.
    #[param(value_type = Option<schema::EventCursor>)]
    after: Option<String>,
    /// How many to show, 1 to 1000.
    #[param(minimum = 1, maximum = 1000, example = 100)]
    limit: Option<u32>,
    /// Only events of this kind.
    #[param(value_type = Option<schema::EventKind>)]
    kind: Option<String>,
    /// Only events of this sale.
    #[param(value_type = Option<schema::SaleId>)]
    sale: Option<String>,
}

/// A part of what happened.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventPage {
    /// CloudEvents 1.0, see `docs/EVENTS.md`. Those of one pool are in order.
    pub events: Vec<serde_json::Value>,
    /// Give this as `after` to go on, now or later. It is good as long as events are kept.
    #[schema(value_type = schema::EventCursor)]
    pub next_after: String,
    /// Whether there is more already. A page may hold few events, or none, and there is more.
    pub more: bool,
}

/// List events
///
/// What happened, in its public form, oldest first. Nothing is left out between a page and the next
/// that begins with its `next_after`.
#[utoipa::path(get, path = "/api/v1/events", operation_id = "list_events", tag = "delivery", security(("token" = ["viewer"])),
    params(EventQuery),
    responses((status = 200, description = "A page of events", body = EventPage)))]
pub async fn list(
    State(delivery): State<Delivery>,
    _: Viewer,
    query: Result<Query<EventQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<impl IntoResponse, Problem> {
    let Query(EventQuery { after, limit, kind, sale }) = query.map_err(Problem::from)?;
    let from = match after.as_deref() {
        None | Some("start") => From::Start,
        Some("end") => From::End,
        Some(text) => From::After(read_place(text).ok_or_else(|| cursor::refused("after"))?),
    };
    let limit = page_limit(limit, PAGE)?;
    let kind = kind.as_deref().map(|word| {
        let rule = || format!("must be one of {}", public::kinds());
        public::kind(word).ok_or_else(|| Problem::invalid_field("kind", rule()))
    });
    let sale = sale.as_deref().map(|text| {
        text.parse::<PoolId>()
            .map_err(|_| Problem::invalid_field("sale", "must be the id of a sale"))
    });
    let filter = Filter { kind: kind.transpose()?, pool: sale.transpose()? };
    if delivery.app.config.delivery.keep_events.is_none() {
        return Err(Problem::new(Code::EventsDisabled));
    }
    match delivery.app.store.read_feed(from, filter, limit).await? {
        FeedRead::Page(page) => Ok(([(CONTENT_TYPE, "application/json")], json(&page))),
        FeedRead::TooOld => Err(Problem::new(Code::CursorTooOld)),
    }
}

/// The page, with its events as they are stored: they are JSON already.
fn json(page: &FeedPage) -> String {
    let bodies: Vec<&str> = page.events.iter().map(|event| event.body.as_str()).collect();
    let next = write_place(page.next);
    format!(r#"{{"events":[{}],"next_after":"{next}","more":{}}}"#, bodies.join(","), page.more)
}

/// `<epoch>_<id>`
fn write_place(place: Place) -> String {
    format!("{}_{}", place.epoch, place.id)
}

fn read_place(text: &str) -> Option<Place> {
    let (epoch, id) = text.split_once('_')?;
    let number = |digits: &str| {
        let plain = digits.len() <= 18 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| plain)
    };
    Some(Place { epoch: number(epoch)?, id: number(id)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_written_is_read_and_nothing_else() {
        let place = Place { epoch: 1_767_323_045_678, id: 12 };
        assert_eq!(read_place(&write_place(place)), Some(place));
        for bad in ["", "1", "1_", "_1", "-1_1", "+1_1", "1_1_1", " 1_1", "1_1 ", "x_1"] {
            assert_eq!(read_place(bad), None, "{bad}");
        }
        assert_eq!(read_place(&format!("1_{}", "9".repeat(19))), None);
    }
}
