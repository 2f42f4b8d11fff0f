//! A packet as it is shown, and to whom what.
//!
//! The sender and those who grabbed see the total, what is left and who got what. Others do not: the
//! total less what was taken is the last portion. The seed, from which all portions follow, is shown when
//! the packet is over; then those who run the shop see all of it, too.

use axum::extract::State;
use qiang_app::extract::{Caller, Path};
use qiang_app::problem::Problem;
use qiang_app::token::{Principal, Role};
use qiang_app::{json_time, schema};
use qiang_core::packets::Kind;
use qiang_core::{Cents, Claim, PoolId, Timestamp};
use qiang_store::packets::{Grab, Packet, Status};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{PacketId, no_such_packet};
use crate::Accounts;

/// A packet. What only some may see is absent for others.
#[derive(Debug, Serialize, ToSchema)]
pub struct PacketView {
    /// Its id, for every call and link. Nobody can guess it.
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
    /// Names a picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200, example = "dragon")]
    pub cover: Option<String>,
    /// How many portions it has.
    #[schema(minimum = 1, maximum = 500, example = 10)]
    pub shares: u32,
    /// Where it stands.
    #[schema(value_type = schema::PacketStatus)]
    pub status: &'static str,
    /// Whether one has to know a password.
    pub has_password: bool,
    /// Whether it is for named people only.
    pub is_for_named: bool,
    /// When it was sent.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub created_at: Timestamp,
    /// Until when it can be grabbed.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub expires_at: Timestamp,
    /// Fixes the cut before the first grab: see `docs/PACKETS.md`.
    #[schema(value_type = schema::Sha256)]
    pub commitment: String,
    /// What the sender added to the seed, in hex.
    #[schema(pattern = "^([0-9a-f]{2}){0,64}$", max_length = 128, example = "")]
    pub nonce: String,
    /// Your own portion, if you have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mine: Option<GrabView>,
    /// For the sender and those who grabbed.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub inside: Option<Inside>,
}

/// What the sender and those who grabbed see; when it is over, also those who run the shop.
#[derive(Debug, Serialize, ToSchema)]
pub struct Inside {
    /// All of it.
    #[schema(minimum = 1, maximum = 500000000000_i64, example = 20000)]
    pub total_cents: i64,
    /// What nobody has taken.
    #[schema(minimum = 0, maximum = 500000000000_i64, example = 12000)]
    pub left_cents: i64,
    /// What went back to the sender.
    #[schema(minimum = 0, maximum = 500000000000_i64, example = 0)]
    pub refunded_cents: i64,
    /// Who took what, in order.
    pub grabs: Vec<GrabView>,
    /// The luckiest grab (手气最佳), once a lucky packet is over. Of two equal ones the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, example = 3)]
    pub best_luck: Option<u32>,
    /// How long it took until it was empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, example = 1200)]
    pub time_to_empty_ms: Option<u64>,
    /// All portions follow from it; shown when the packet is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Sha256>)]
    pub seed: Option<String>,
}

/// A portion that somebody took.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GrabView {
    /// Its place among the grabs, from 1.
    #[schema(minimum = 1, maximum = 4294967295_u32, example = 1)]
    pub number: u32,
    /// Its place in the cut, from 0.
    #[schema(minimum = 0, maximum = 499, example = 0)]
    pub portion: u32,
    /// Who took it.
    #[schema(value_type = schema::UserId)]
    pub user_id: String,
    /// How much it is.
    #[schema(minimum = 1, maximum = 1000000000, example = 523)]
    pub amount_cents: i64,
    /// When.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
}

impl GrabView {
    pub(crate) fn of_claim(claim: &Claim) -> Self {
        Self {
            number: claim.id.number,
            portion: claim.portion.unwrap_or_default(),
            user_id: claim.user.to_string(),
            amount_cents: claim.unit_price.get(),
            at: claim.created_at,
        }
    }

    pub(crate) fn of(grab: &Grab) -> Self {
        Self {
            number: grab.number,
            portion: grab.portion,
            user_id: grab.user.to_string(),
            amount_cents: grab.amount.get(),
            at: grab.at,
        }
    }
}

impl PacketView {
    pub(crate) fn of(packet: &Packet, grabs: &[Grab], who: &Principal) -> Self {
        let mine = grabs.iter().find(|grab| grab.user == who.user).map(GrabView::of);
        let status = packet.status();
        let runs_the_shop = who.role != Role::Buyer;
        let may_see =
            packet.sender == who.user || mine.is_some() || (runs_the_shop && status.is_over());
        Self {
            packet_id: packet.id(),
            sender: packet.sender.to_string(),
            kind: packet.kind.as_str(),
            greeting: packet.greeting.clone(),
            cover: packet.cover.clone(),
            shares: packet.shares,
            status: status.as_str(),
            has_password: packet.password_hash.is_some(),
            is_for_named: packet.recipients.is_some(),
            created_at: packet.created_at,
            expires_at: packet.expires_at,
            commitment: hex::encode(packet.commitment),
            nonce: hex::encode(&packet.nonce),
            mine,
            inside: may_see.then(|| Inside::of(packet, grabs)),
        }
    }
}

impl Inside {
    fn of(packet: &Packet, grabs: &[Grab]) -> Self {
        let status = packet.status();
        let taken = grabs.iter().fold(Cents::ZERO, |sum, grab| sum.plus(grab.amount));
        let left = packet.total.get() - taken.get();
        let is_over = status.is_over();
        Self {
            total_cents: packet.total.get(),
            left_cents: if status == Status::Recycled { 0 } else { left },
            refunded_cents: packet.refunded.get(),
            grabs: grabs.iter().map(GrabView::of).collect(),
            best_luck: best(grabs).filter(|_| is_over && packet.kind == Kind::Lucky),
            time_to_empty_ms: time_to_empty(packet),
            seed: is_over.then(|| hex::encode(packet.seed.0)),
        }
    }
}

/// The grab with the most; of equal ones the first.
fn best(grabs: &[Grab]) -> Option<u32> {
    let best = grabs.iter().max_by_key(|grab| (grab.amount, std::cmp::Reverse(grab.number)));
    best.map(|grab| grab.number)
}

/// From the moment it was open until the last portion was taken.
pub(crate) fn time_to_empty(packet: &Packet) -> Option<u64> {
    let is_empty = packet.status() == Status::Empty;
    let (opened, emptied) = (packet.opened_at?, packet.last_grab_at.filter(|_| is_empty)?);
    u64::try_from(emptied.millis() - opened.millis()).ok()
}

/// Show a packet
///
/// Who has the link sees who sent it and where it stands. The sender and those who grabbed also see the
/// amounts; when it is over, the seed, with which anybody can compute the cut again.
#[utoipa::path(get, path = "/api/v1/packets/{packet_id}", operation_id = "show_packet", tag = "packets", security(("token" = [])),
    params(("packet_id" = schema::PacketId, Path, description = "The packet")),
    responses((status = 200, description = "The packet", body = PacketView)))]
pub async fn show(
    State(accounts): State<Accounts>,
    Caller(who): Caller,
    Path(id): Path<String>,
) -> Result<axum::Json<PacketView>, Problem> {
    let id = PacketId::read(&id)?;
    accounts.facts(id).await?;
    accounts.view_of(id.pool, &who).await.map(axum::Json)
}

impl Accounts {
    /// The packet with everything decided so far.
    pub(crate) async fn view_of(
        &self,
        pool: PoolId,
        who: &Principal,
    ) -> Result<PacketView, Problem> {
        let (packet, grabs) = self.whole(pool).await?;
        Ok(PacketView::of(&packet, &grabs, who))
    }

    /// A packet and its grabs. What is recycled changes no more; otherwise the records catch up first.
    async fn whole(&self, pool: PoolId) -> Result<(Packet, Vec<Grab>), Problem> {
        let store = &self.app.store;
        let mut packet = store.packet(pool).await?.ok_or_else(no_such_packet)?;
        if packet.recycled_at.is_none() {
            self.app.catch_up().await?;
            packet = store.packet(pool).await?.ok_or_else(no_such_packet)?;
        }
        let grabs = store.grabs(pool).await?;
        // Those that came after the packet was read are not in its figures.
        let grabs = grabs.into_iter().take(packet.grabs as usize).collect();
        Ok((packet, grabs))
    }
}

#[cfg(test)]
mod tests {
    use qiang_core::UserId;

    use super::*;

    fn grab(number: u32, amount: i64) -> Grab {
        Grab {
            pool: PoolId::new(1).expect("an id"),
            number,
            user: UserId::new("ann").expect("a user"),
            portion: number - 1,
            amount: Cents::new(amount),
            at: Timestamp::from_millis(0),
        }
    }

    #[test]
    fn of_equal_portions_the_first_is_the_luckiest() {
        assert_eq!(best(&[grab(1, 3), grab(2, 7), grab(3, 7), grab(4, 1)]), Some(2));
        assert_eq!(best(&[]), None);
    }
}
