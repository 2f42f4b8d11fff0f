//! Sending a packet: checked, cut, paid for and written in one transaction; then opened.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use qiang_app::extract::{Caller, IdempotencyKey, Json, Nothing, OptionalJson};
use qiang_app::problem::{Code, Problem};
use qiang_app::token::Principal;
use qiang_app::{schema, whole};
use qiang_core::packets::{self, Kind, MAX_NONCE, MAX_SHARES, Recipe, Seed};
use qiang_core::{Cents, UserId};
use qiang_store::accounts::Refusal;
use qiang_store::packets::{DayLimits, Packet, Sending, Sent};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::view::PacketView;
use super::{RANDOM_BYTES, password, random};
use crate::Accounts;
use crate::money::{self, movement_key, refused, unsure, user};

/// Characters of a greeting.
const MAX_GREETING: usize = 200;
/// Characters of what names a cover.
const MAX_COVER: usize = 200;
/// Characters of a password.
const MAX_PASSWORD: usize = 64;
/// Named people.
const MAX_RECIPIENTS: usize = 500;
/// The shortest and the longest time to grab.
const EXPIRE_SECS: std::ops::RangeInclusive<i64> = 60..=86_400;
/// Half an hour.
const DEFAULT_EXPIRE_SECS: i64 = 1_800;
/// Bytes that name a seed.
const SEED_ID_BYTES: usize = 16;

/// A packet to be sent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPacket {
    /// `lucky` (拼手气): by chance. `fixed` (固定金额): equal shares.
    #[schema(value_type = schema::PacketKind)]
    kind: String,
    /// All of it. Give either this or `share_cents`.
    #[serde(default, deserialize_with = "whole::option")]
    #[schema(minimum = 1, maximum = 500000000000_i64, example = 20000)]
    total_cents: Option<i64>,
    /// What each gets, for `fixed`.
    #[serde(default, deserialize_with = "whole::option")]
    #[schema(minimum = 1, maximum = 1000000000, example = 100)]
    share_cents: Option<i64>,
    /// How many portions.
    #[serde(deserialize_with = "whole::deserialize")]
    #[schema(minimum = 1, maximum = 500, example = 10)]
    shares: i64,
    /// What everybody reads: at most 200 characters.
    #[serde(default)]
    #[schema(max_length = 200, example = "恭喜发财")]
    greeting: Option<String>,
    /// Names a picture, for the pages of the shop: at most 200 characters.
    #[serde(default)]
    #[schema(max_length = 200, example = "dragon")]
    cover: Option<String>,
    /// Only these may grab: at most 500 users.
    #[serde(default)]
    #[schema(value_type = Option<Vec<schema::UserId>>, min_items = 1, max_items = 500)]
    to: Option<Vec<String>>,
    /// What one has to know to grab (口令红包): at most 64 characters.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64, example = "恭喜发财")]
    password: Option<String>,
    /// How long it can be grabbed, 60 to 86400; then what is left goes back. Half an hour if left out.
    #[serde(default, deserialize_with = "whole::option")]
    #[schema(minimum = 60, maximum = 86400, example = 1800)]
    expire_secs: Option<i64>,
    /// The seed whose hash you were shown, together with a `nonce` of your own: proves that nobody chose
    /// the cut.
    #[serde(default)]
    #[schema(value_type = Option<schema::SeedId>)]
    seed_id: Option<String>,
    /// 1 to 64 bytes of your own, in hex.
    #[serde(default)]
    #[schema(value_type = Option<schema::Nonce>)]
    nonce: Option<String>,
}

/// A seed that the server keeps for you.
#[derive(Debug, Serialize, ToSchema)]
pub struct SeedView {
    /// Names it, for the packet.
    #[schema(value_type = schema::SeedId)]
    pub seed_id: String,
    /// Its hash: it cannot be changed any more.
    #[schema(value_type = schema::Sha256)]
    pub seed_hash: String,
}

/// What was asked for, checked.
struct Asked {
    kind: Kind,
    total: Cents,
    shares: u32,
    greeting: String,
    cover: Option<String>,
    recipients: Option<Vec<UserId>>,
    password: Option<String>,
    expire_secs: u64,
    /// The seed to use, and the nonce.
    seed: Option<(String, Vec<u8>)>,
    /// All of it but the password, as a hash.
    hash: String,
}

/// Send a packet
///
/// Takes the money from your account and cuts it. Needs an `Idempotency-Key`: asking again with the same
/// key gives the same packet.
#[utoipa::path(post, path = "/api/v1/packets", operation_id = "send_packet", tag = "packets", security(("token" = [])),
    params(("Idempotency-Key" = schema::IdempotencyKey, Header, description = "One packet for each key")),
    request_body = NewPacket,
    responses((status = 201, description = "It was sent", body = PacketView), (status = 200, description = "It was sent before", body = PacketView)))]
pub async fn create(
    State(accounts): State<Accounts>,
    Caller(who): Caller,
    key: IdempotencyKey,
    Json(body): Json<NewPacket>,
) -> Result<impl IntoResponse, Problem> {
    let asked = accounts.check(body)?;
    let request_key = movement_key(&money::name(&who.user, key)?);
    if let Some(before) = accounts.app.store.packet_of_request(&request_key).await? {
        return accounts.sent_before(&before, &asked, &who).await;
    }
    let seed = match &asked.seed {
        None => Seed(random()?),
        Some((id, _)) => accounts.seed_of(id, &who.user).await?,
    };
    let packet = accounts.cut(&asked, request_key, who.user.clone(), seed)?;
    match accounts.send(&packet, &asked).await? {
        Sent::Done => {}
        Sent::Before(before) => return accounts.sent_before(&before, &asked, &who).await,
        Sent::Refused(refusal) => return Err(refused(refusal)),
        Sent::OverDayLimit => {
            let limits = &accounts.settings.packets;
            let problem = Problem::new(Code::DailyLimit).number("limit", limits.max_day_packets);
            return Err(problem.number("limit_cents", limits.max_day_cents));
        }
        Sent::NoSuchSeed => return Err(Problem::new(Code::NoSuchSeed)),
    }
    accounts.metrics.sent(packet.total);
    // If this fails, the job does it.
    let opened_at = accounts.open(&packet).await.inspect_err(|error| {
        tracing::warn!(packet = %packet.pool, "not opened yet: {}", qiang_engine::chain(&**error));
    });
    let packet = Packet { opened_at: opened_at.ok(), ..packet };
    let view = PacketView::of(&packet, &[], &who);
    Ok((StatusCode::CREATED, axum::Json(view)))
}

/// Ask for a seed
///
/// The server draws a seed and shows its hash. Send it with a nonce of your own within an hour: then neither
/// side could choose the cut. `docs/PACKETS.md` says how to check it.
#[utoipa::path(post, path = "/api/v1/packets/seeds", operation_id = "draw_seed", tag = "packets", security(("token" = [])),
    responses((status = 201, description = "The hash of the seed", body = SeedView)))]
pub async fn draw_seed(
    State(accounts): State<Accounts>,
    Caller(who): Caller,
    _: OptionalJson<Nothing>,
) -> Result<impl IntoResponse, Problem> {
    let seed_id = hex::encode(random::<SEED_ID_BYTES>()?);
    let seed = Seed(random()?);
    accounts.app.store.add_packet_seed(&seed_id, &who.user, &seed, accounts.app.now()).await?;
    let view = SeedView { seed_id, seed_hash: hex::encode(seed.hash()) };
    Ok((StatusCode::CREATED, axum::Json(view)))
}

impl Accounts {
    fn check(&self, body: NewPacket) -> Result<Asked, Problem> {
        let shown = NewPacket { password: None, ..body.clone() };
        let shown = serde_json::to_string(&shown).map_err(|_| Problem::new(Code::Internal))?;
        let secret = if body.password.is_some() { "password" } else { "" };
        let hash = money::hash(&["packet", &shown, secret]);
        let kind = Kind::from_word(&body.kind)
            .ok_or_else(|| Problem::invalid_field("kind", "must be lucky or fixed"))?;
        let shares = u32::try_from(body.shares).ok().filter(|n| (1..=MAX_SHARES).contains(n));
        let shares =
            shares.ok_or_else(|| Problem::invalid_field("shares", "must be from 1 to 500"))?;
        let total = total(kind, body.total_cents, body.share_cents, shares)?;
        packets::check(kind, total, shares, b"")?;
        self.check_limits(kind, total, shares)?;
        let expire = body.expire_secs.unwrap_or(DEFAULT_EXPIRE_SECS);
        let expire_secs = u64::try_from(expire).ok().filter(|_| EXPIRE_SECS.contains(&expire));
        let expire_secs = expire_secs
            .ok_or_else(|| Problem::invalid_field("expire_secs", "must be from 60 to 86400"))?;
        Ok(Asked {
            kind,
            total,
            shares,
            greeting: text("greeting", body.greeting, MAX_GREETING)?.unwrap_or_default(),
            cover: text("cover", body.cover, MAX_COVER)?,
            recipients: body.to.as_deref().map(recipients).transpose()?,
            password: secret_text(body.password)?,
            expire_secs,
            seed: seed_and_nonce(body.seed_id, body.nonce)?,
            hash,
        })
    }

    /// What the shop allows in one packet and one share. A lucky share is meant in the mean: which one it
    /// will be is nobody's to know.
    fn check_limits(&self, kind: Kind, total: Cents, shares: u32) -> Result<(), Problem> {
        let limits = &self.settings.packets;
        if total > limits.max_packet_cents {
            let most = limits.max_packet_cents.get();
            let rule = format_args!("must be at most {most} cents in one packet");
            return Err(Problem::invalid_field("total_cents", rule));
        }
        if total > limits.max_share_cents.times(shares) {
            let most = limits.max_share_cents.get();
            let rule = match kind {
                Kind::Fixed => format!("must be at most {most} cents for each share"),
                Kind::Lucky => format!("must be at most {most} cents for each share in the mean"),
            };
            return Err(Problem::invalid_field("total_cents", rule));
        }
        Ok(())
    }

    fn cut(
        &self,
        asked: &Asked,
        request_key: String,
        sender: UserId,
        seed: Seed,
    ) -> Result<Packet, Problem> {
        let created_at = self.app.now();
        let mut packet = Packet {
            pool: self.app.next_id()?,
            random_part: hex::encode(random::<RANDOM_BYTES>()?),
            request_key,
            request_hash: asked.hash.clone(),
            sender,
            kind: asked.kind,
            total: asked.total,
            shares: asked.shares,
            nonce: asked.seed.as_ref().map(|(_, nonce)| nonce.clone()).unwrap_or_default(),
            seed,
            commitment: [0; 32],
            greeting: asked.greeting.clone(),
            cover: asked.cover.clone(),
            recipients: asked.recipients.clone(),
            password_hash: asked.password.as_deref().map(password::hash).transpose()?,
            created_at,
            expires_at: created_at.plus_millis(asked.expire_secs * 1_000),
            opened_at: None,
            grabs: 0,
            grabbed: Cents::ZERO,
            last_grab_at: None,
            refunded: Cents::ZERO,
            recycled_at: None,
        };
        let id = packet.id();
        let recipe = Recipe {
            packet: &id,
            kind: packet.kind,
            total: packet.total,
            shares: packet.shares,
            nonce: &packet.nonce,
            seed: &packet.seed,
        };
        packet.commitment = recipe.commitment();
        // Whatever cannot be cut must not be paid for.
        packet.terms()?.check()?;
        Ok(packet)
    }

    /// Sends it. Before anybody hears that there is not enough money, what they grabbed is recorded.
    async fn send(&self, packet: &Packet, asked: &Asked) -> Result<Sent, Problem> {
        let settings = &self.settings.packets;
        let limits = DayLimits {
            day: settings.time_zone.day(packet.created_at),
            cents: Cents::new(i64::try_from(settings.max_day_cents).unwrap_or(i64::MAX)),
            packets: settings.max_day_packets,
        };
        let seed_id = asked.seed.as_ref().map(|(id, _)| id.as_str());
        let sending = Sending { packet, limits, seed_id };
        let (store, now) = (&self.app.store, packet.created_at);
        let sent = store.send_packet(&sending, now).await.map_err(|error| unsure(&error))?;
        if !matches!(sent, Sent::Refused(Refusal::InsufficientFunds { .. })) {
            return Ok(sent);
        }
        self.app.catch_up().await?;
        store.send_packet(&sending, now).await.map_err(|error| unsure(&error))
    }

    async fn seed_of(&self, id: &str, user: &UserId) -> Result<Seed, Problem> {
        let seed = self.app.store.packet_seed(id, user).await?;
        seed.ok_or_else(|| Problem::new(Code::NoSuchSeed))
    }

    async fn sent_before(
        &self,
        packet: &Packet,
        asked: &Asked,
        who: &Principal,
    ) -> Result<(StatusCode, axum::Json<PacketView>), Problem> {
        let same_password = match (&packet.password_hash, &asked.password) {
            (None, None) => true,
            (Some(stored), Some(said)) => password::is_right(stored, said),
            _ => false,
        };
        if packet.request_hash != asked.hash || !same_password {
            return Err(Problem::new(Code::IdempotencyKeyReused));
        }
        let view = self.view_of(packet.pool, who).await?;
        Ok((StatusCode::OK, axum::Json(view)))
    }
}

fn total(
    kind: Kind,
    total: Option<i64>,
    share: Option<i64>,
    shares: u32,
) -> Result<Cents, Problem> {
    match (total, share) {
        (Some(_), Some(_)) => {
            Err(Problem::invalid_field("share_cents", "does not go with total_cents"))
        }
        (None, None) => Err(Problem::invalid_field("total_cents", "is missing")),
        (Some(total), None) => Ok(Cents::new(total)),
        (None, Some(_)) if kind == Kind::Lucky => {
            Err(Problem::invalid_field("share_cents", "goes with the kind fixed only"))
        }
        (None, Some(share)) => {
            let share = Cents::new(share);
            if !(Cents::new(1)..=packets::MAX_SHARE).contains(&share) {
                return Err(Problem::invalid_field("share_cents", "must be from 1 to 1000000000"));
            }
            Ok(share.times(shares))
        }
    }
}

/// A text that people read; an empty one is none.
fn text(field: &'static str, text: Option<String>, max: usize) -> Result<Option<String>, Problem> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.chars().count() > max || text.chars().any(char::is_control) {
        let rule = format_args!("must have at most {max} characters, and no control characters");
        return Err(Problem::invalid_field(field, rule));
    }
    Ok(Some(text))
}

fn secret_text(password: Option<String>) -> Result<Option<String>, Problem> {
    let is_empty = password.as_ref().is_some_and(String::is_empty);
    if is_empty {
        return Err(Problem::invalid_field("password", "must not be empty"));
    }
    text("password", password, MAX_PASSWORD)
}

fn recipients(to: &[String]) -> Result<Vec<UserId>, Problem> {
    if to.is_empty() || to.len() > MAX_RECIPIENTS {
        let rule = format_args!("must name 1 to {MAX_RECIPIENTS} users");
        return Err(Problem::invalid_field("to", rule));
    }
    to.iter().map(|name| user("to", name)).collect()
}

fn seed_and_nonce(
    seed_id: Option<String>,
    nonce: Option<String>,
) -> Result<Option<(String, Vec<u8>)>, Problem> {
    match (seed_id, nonce) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(Problem::invalid_field("nonce", "is needed with seed_id")),
        (None, Some(_)) => Err(Problem::invalid_field("seed_id", "is needed with nonce")),
        (Some(id), Some(nonce)) => {
            let bytes = hex::decode(&nonce).ok();
            let bytes = bytes.filter(|bytes| (1..=MAX_NONCE).contains(&bytes.len()));
            let wrong = || Problem::invalid_field("nonce", "must be 1 to 64 bytes in hex");
            Ok(Some((id, bytes.ok_or_else(wrong)?)))
        }
    }
}
