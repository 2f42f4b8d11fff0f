//! Grabbing a portion: one for each user, decided by the engine. Both doors call [`Accounts::grab`].

use std::num::NonZeroU32;

use axum::extract::State;
use axum::response::IntoResponse;
use qiang_app::extract::{Caller, IdempotencyKey, OptionalJson, Path};
use qiang_app::problem::{Code, Problem};
use qiang_app::{Origin, schema};
use qiang_core::{ClaimId, ClaimRequest, Command, Kind, Outcome, Refusal, RequestId, UserId};
use qiang_store::packets::Status;
use serde::Deserialize;
use utoipa::ToSchema;

use super::view::GrabView;
use super::{Facts, PacketId, no_such_packet, password};
use crate::Accounts;
use crate::transfers::made;

/// What a packet asks for.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGrab {
    /// The password (口令), if the packet has one.
    #[schema(min_length = 1, max_length = 64, example = "恭喜发财")]
    password: Option<String>,
}

/// Somebody who wants a portion.
#[derive(Debug)]
pub struct Wish<'a> {
    /// The packet's public id.
    pub packet: &'a str,
    pub user: UserId,
    pub password: Option<&'a str>,
    /// Names the request, so that a retry gets the first answer again.
    pub request: Option<RequestId>,
}

/// What came of a wish that was not refused.
#[derive(Debug)]
pub enum Granted {
    /// The portion is the user's from now on.
    Now(GrabView),
    /// This very request had been granted before.
    Before(GrabView),
    /// Another request of the user had been granted before: one for each user.
    Had(GrabView),
}

/// Grab a portion of a packet
///
/// One for each user. The amount is in the answer, and in the balance at once. With an `Idempotency-Key`,
/// asking again gives the same answer; without one, `already_claimed` with the amount.
#[utoipa::path(post, path = "/api/v1/packets/{packet_id}/grabs", operation_id = "grab_packet", tag = "packets", security(("token" = [])),
    params(("packet_id" = schema::PacketId, Path, description = "The packet"), ("Idempotency-Key" = Option<schema::IdempotencyKey>, Header, description = "Asking again with the same key is not asking twice")),
    request_body = Option<NewGrab>,
    responses((status = 201, description = "Yours", body = GrabView), (status = 200, description = "It was yours before", body = GrabView)))]
pub async fn create(
    State(accounts): State<Accounts>,
    origin: Origin,
    Caller(who): Caller,
    Path(id): Path<String>,
    IdempotencyKey(request): IdempotencyKey,
    OptionalJson(body): OptionalJson<NewGrab>,
) -> Result<impl IntoResponse, Problem> {
    let password = body.password.as_deref();
    let wish = Wish { packet: &id, user: who.user, password, request };
    match accounts.grab(wish, &origin).await? {
        Granted::Now(grab) => Ok((made(false), axum::Json(grab))),
        Granted::Before(grab) => Ok((made(true), axum::Json(grab))),
        Granted::Had(grab) => {
            let cents = u64::try_from(grab.amount_cents).unwrap_or(0);
            Err(Problem::new(Code::AlreadyClaimed).number("amount_cents", cents))
        }
    }
}

impl Accounts {
    /// Takes a portion for a user.
    pub async fn grab(&self, wish: Wish<'_>, origin: &Origin) -> Result<Granted, Problem> {
        let granted = self.try_to_grab(wish, origin).await;
        self.metrics.grabbed(&granted);
        granted
    }

    async fn try_to_grab(&self, wish: Wish<'_>, origin: &Origin) -> Result<Granted, Problem> {
        let id = PacketId::read(wish.packet)?;
        let facts = self.facts(id).await?;
        let Wish { user, password, request, .. } = wish;
        if !facts.is_for(&user) {
            return Err(Problem::new(Code::NotEligible));
        }
        self.check_password(&facts, id, &user, password).await?;
        let claim = ClaimRequest {
            kind: Kind::Packet,
            pool: id.pool,
            user: user.clone(),
            identity: None,
            request,
            quantity: NonZeroU32::MIN,
        };
        match self.app.decide(Command::Claim(claim), origin).await?.into_claim() {
            Outcome::Done(claim) => Ok(Granted::Now(GrabView::of_claim(&claim))),
            Outcome::Replayed(claim) => Ok(Granted::Before(GrabView::of_claim(&claim))),
            Outcome::Refused(Refusal::AlreadyClaimed { claim }) => self.had(claim, &user).await,
            Outcome::Refused(Refusal::NoSuchPool | Refusal::Cleared) => {
                self.not_in_engine(id, &user).await
            }
            Outcome::Refused(refusal) => Err(Problem::from(&refusal)),
        }
    }

    /// Each attempt counts before it is compared, for all nodes; one that was right is taken back.
    async fn check_password(
        &self,
        facts: &Facts,
        id: PacketId<'_>,
        user: &UserId,
        said: Option<&str>,
    ) -> Result<(), Problem> {
        let Some(stored) = &facts.password_hash else { return Ok(()) };
        let max = self.settings.packets.max_attempts;
        let wrong = |left: u32| Problem::new(Code::WrongPassword).number("attempts_left", left);
        let Some(said) = said else {
            return Err(Problem::new(Code::WrongPassword).detail("this packet asks for a password"));
        };
        let store = &self.app.store;
        let Some(made) = store.begin_attempt(id.pool, user, max).await? else {
            return Err(Problem::new(Code::TooManyAttempts));
        };
        if !password::is_right(stored, said) {
            return Err(wrong(max.saturating_sub(made)));
        }
        Ok(store.forget_attempt(id.pool, user).await?)
    }

    async fn had(&self, claim: ClaimId, user: &UserId) -> Result<Granted, Problem> {
        let held = self.app.answer(self.app.engine.claim_view(claim)).await?;
        if let Some(held) = held.filter(|held| held.user == *user) {
            return Ok(Granted::Had(GrabView::of_claim(&held)));
        }
        // It was cleared away at this moment.
        let grab = self.app.store.grab_of(claim.pool, user).await?;
        let grab = grab.ok_or_else(|| Problem::new(Code::AlreadyClaimed))?;
        Ok(Granted::Had(GrabView::of(&grab)))
    }

    /// The engine does not know the packet: it is not open yet, or it is over and was cleared away.
    async fn not_in_engine(&self, id: PacketId<'_>, user: &UserId) -> Result<Granted, Problem> {
        let packet = self.app.store.packet(id.pool).await?.ok_or_else(no_such_packet)?;
        if let Some(grab) = self.app.store.grab_of(id.pool, user).await? {
            return Ok(Granted::Had(GrabView::of(&grab)));
        }
        Err(match packet.status() {
            Status::Empty => Problem::new(Code::SoldOut),
            Status::Recycled => Problem::new(Code::Closed),
            Status::Opening | Status::Open => Problem::new(Code::NotOpenYet).retry_after(1),
        })
    }
}
