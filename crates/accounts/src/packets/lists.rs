//! What somebody sent and received in a year, and what that adds up to.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use qiang_app::extract::{Caller, page_limit};
use qiang_app::problem::Problem;
use qiang_app::{cursor, json_time, schema};
use qiang_core::{Opened, Timestamp};
use qiang_store::packets::{Packet, Received, Totals};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::Accounts;

/// Packets on one page, unless asked for fewer.
const PAGE: u32 = 100;
/// The years that can be asked for.
const YEARS: std::ops::RangeInclusive<i64> = 1970..=9998;

/// Which packets.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PacketQuery {
    /// `sent` or `received`.
    #[serde(rename = "box")]
    #[param(value_type = schema::PacketBox)]
    which: String,
    /// A year of the shop's time zone; this one if left out.
    #[param(minimum = 1970, maximum = 9998, example = 2027)]
    year: Option<i64>,
    /// `next_after` of the page before.
    #[param(value_type = Option<schema::PacketCursor>)]
    after: Option<String>,
    /// How many to show, 1 to 100.
    #[param(minimum = 1, maximum = 100, example = 20)]
    limit: Option<u32>,
}

/// A packet that was sent or received, in short.
#[derive(Debug, Serialize, ToSchema)]
pub struct PacketLine {
    /// Its id.
    #[schema(value_type = schema::PacketId)]
    pub packet_id: String,
    /// Who sent it.
    #[schema(value_type = schema::UserId)]
    pub sender: String,
    /// How it is divided.
    #[schema(value_type = schema::PacketKind)]
    pub kind: &'static str,
    /// What everybody reads.
    #[schema(max_length = 200, example = "恭喜发财")]
    pub greeting: String,
    /// Sent: all of it. Received: your portion.
    #[schema(minimum = 1, maximum = 500000000000_i64, example = 20000)]
    pub amount_cents: i64,
    /// When it was sent, or when you took your portion.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// Sent: where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::PacketStatus>)]
    pub status: Option<&'static str>,
    /// Sent: how many portions it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 500, example = 10)]
    pub shares: Option<u32>,
    /// Sent: how many of them were taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 500, example = 3)]
    pub taken: Option<u32>,
    /// Sent: what went back to you.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, example = 0)]
    pub refunded_cents: Option<i64>,
}

/// One page of packets, and the year in two figures.
#[derive(Debug, Serialize, ToSchema)]
pub struct PacketPage {
    /// The year.
    #[schema(minimum = 1970, maximum = 9998, example = 2027)]
    pub year: i64,
    /// How many in the whole year.
    #[schema(minimum = 0, example = 3)]
    pub count: u64,
    /// How much in the whole year.
    #[schema(minimum = 0, example = 60000)]
    pub total_cents: i64,
    /// Newest first.
    pub packets: Vec<PacketLine>,
    /// Give this as `after` to see the next; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::PacketCursor>)]
    pub next_after: Option<String>,
}

/// List packets
///
/// What you sent or received in a year, newest first.
#[utoipa::path(get, path = "/api/v1/packets", operation_id = "list_packets", tag = "packets", security(("token" = [])),
    params(PacketQuery),
    responses((status = 200, description = "A page of packets", body = PacketPage)))]
pub async fn list(
    State(accounts): State<Accounts>,
    Caller(who): Caller,
    query: Result<Query<PacketQuery>, QueryRejection>,
) -> Result<axum::Json<PacketPage>, Problem> {
    let Query(PacketQuery { which, year, after, limit }) = query.map_err(Problem::from)?;
    let zone = accounts.settings.packets.time_zone;
    let year = year.unwrap_or_else(|| zone.year(accounts.app.now()));
    if !YEARS.contains(&year) {
        return Err(Problem::invalid_field("year", "must be from 1970 to 9998"));
    }
    let limit = page_limit(limit, PAGE)?;
    let (store, within) = (&accounts.app.store, zone.whole_year(year));
    let (totals, packets, next_after) = match which.as_str() {
        "sent" => {
            let after = after.as_deref().map(read_sent).transpose()?;
            accounts.app.catch_up().await?;
            let sent = store.packets_sent(&who.user, within, after, limit).await?;
            let last = sent.last().filter(|_| sent.len() == limit as usize);
            let next =
                last.map(|last| cursor::write_sale(Opened { at: last.created_at, id: last.pool }));
            let totals = store.total_sent(&who.user, within).await?;
            (totals, sent.iter().map(PacketLine::sent).collect(), next)
        }
        "received" => {
            let after = after.as_deref().map(read_received).transpose()?;
            accounts.app.catch_up().await?;
            let received = store.packets_received(&who.user, within, after, limit).await?;
            let last = received.last().filter(|_| received.len() == limit as usize);
            let next = last.map(|last| cursor::write(last.cursor()));
            let totals = store.total_received(&who.user, within).await?;
            (totals, received.iter().map(PacketLine::received).collect(), next)
        }
        _ => return Err(Problem::invalid_field("box", "must be sent or received")),
    };
    let Totals { count, cents } = totals;
    Ok(axum::Json(PacketPage { year, count, total_cents: cents.get(), packets, next_after }))
}

impl PacketLine {
    fn sent(packet: &Packet) -> Self {
        Self {
            packet_id: packet.id(),
            sender: packet.sender.to_string(),
            kind: packet.kind.as_str(),
            greeting: packet.greeting.clone(),
            amount_cents: packet.total.get(),
            at: packet.created_at,
            status: Some(packet.status().as_str()),
            shares: Some(packet.shares),
            taken: Some(packet.grabs),
            refunded_cents: Some(packet.refunded.get()),
        }
    }

    fn received(received: &Received) -> Self {
        Self {
            packet_id: received.packet.clone(),
            sender: received.sender.to_string(),
            kind: received.kind.as_str(),
            greeting: received.greeting.clone(),
            amount_cents: received.grab.amount.get(),
            at: received.grab.at,
            status: None,
            shares: None,
            taken: None,
            refunded_cents: None,
        }
    }
}

fn read_sent(text: &str) -> Result<Opened, Problem> {
    cursor::read_sale(text).ok_or_else(|| cursor::refused("after"))
}

fn read_received(text: &str) -> Result<qiang_store::Cursor, Problem> {
    cursor::read(text).ok_or_else(|| cursor::refused("after"))
}
