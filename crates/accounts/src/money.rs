//! What all calls share that move money: the key that makes it happen once, and what it is refused for.

use qiang_app::extract::IdempotencyKey;
use qiang_app::problem::{Code, Problem};
use qiang_core::{Cents, Fault, UserId};
use qiang_store::accounts::{MAX_BALANCE, Moved, Movement, Refusal, Transfer, TransferKind};
use sha2::{Digest as _, Sha256};

use crate::Accounts;

/// Bytes of a hash that make a name.
const NAME_BYTES: usize = 16;
/// What the keys of movements begin with that somebody asked for.
const ASKED: &str = "req:";

/// The name of what a user asks under a key. The same key of another user is another name.
pub(crate) fn name(who: &UserId, key: IdempotencyKey) -> Result<String, Problem> {
    let key = key.0.ok_or_else(|| Problem::new(Code::MissingIdempotencyKey))?;
    let hash = Sha256::digest(framed(&[who.as_str().as_bytes(), key.as_str().as_bytes()]));
    Ok(hex::encode(&hash[..NAME_BYTES]))
}

/// The key of the movement of that name.
pub(crate) fn movement_key(name: &str) -> String {
    format!("{ASKED}{name}")
}

/// What was asked for, as a hash: the same key with another one is a mistake.
pub(crate) fn hash(parts: &[&str]) -> String {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    hex::encode(Sha256::digest(framed(&parts)))
}

/// Each part behind its length, so that no two lists look the same.
fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let mut framed = Vec::new();
    for part in parts {
        framed.extend_from_slice(&(part.len() as u64).to_be_bytes());
        framed.extend_from_slice(part);
    }
    framed
}

/// An amount of money that can move.
pub(crate) fn amount(field: &'static str, cents: i64) -> Result<Cents, Problem> {
    let amount = Cents::new(cents);
    if (Cents::new(1)..=MAX_BALANCE).contains(&amount) {
        return Ok(amount);
    }
    Err(Fault { field, rule: "must be from 1 to 1000000000000" }.into())
}

/// A user that somebody else named.
pub(crate) fn user(field: &'static str, text: &str) -> Result<UserId, Problem> {
    UserId::new(text)
        .map_err(|error| Problem::invalid_field(field, format_args!("cannot be used: {error}")))
}

pub(crate) fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::KeyReused => Problem::new(Code::IdempotencyKeyReused),
        Refusal::BadAmount => {
            Fault { field: "amount_cents", rule: "must be from 1 to 1000000000000" }.into()
        }
        Refusal::SameAccount => Problem::new(Code::SameAccount),
        Refusal::NoSuchHold => Problem::new(Code::NoSuchHold),
        Refusal::HoldOver { by } => Problem::new(Code::HoldOver).text("by", by.as_str()),
        Refusal::HoldExpired | Refusal::HoldNotExpired => {
            Problem::new(Code::HoldOver).text("by", TransferKind::Expire.as_str())
        }
        Refusal::AboveHold { held } => {
            Problem::new(Code::AboveHold).number("held_cents", shown(held))
        }
        Refusal::InsufficientFunds { available } => {
            Problem::new(Code::InsufficientFunds).number("available_cents", shown(available))
        }
        Refusal::TooMuch => Problem::new(Code::BalanceTooLarge),
    }
}

fn shown(cents: Cents) -> u64 {
    u64::try_from(cents.get()).unwrap_or(0)
}

/// The database failed while money was being moved: it may have happened.
pub(crate) fn unsure(error: &qiang_store::Error) -> Problem {
    tracing::error!("money could not be moved: {}", qiang_engine::chain(error));
    Problem::new(Code::OutcomeUnknown)
}

impl Accounts {
    /// Does one movement, and says whether it had happened before. A grab that was decided and is not
    /// recorded yet counts: before anybody hears that there is not enough, the records catch up.
    pub(crate) async fn move_one(
        &self,
        movement: &Movement<'_>,
    ) -> Result<(Transfer, bool), Problem> {
        let mut moved = self.try_to_move(movement).await?;
        if matches!(moved, Moved::Refused(Refusal::InsufficientFunds { .. })) {
            self.app.catch_up().await?;
            moved = self.try_to_move(movement).await?;
        }
        match moved {
            Moved::Done(transfer) => Ok((transfer, false)),
            Moved::Replayed(transfer) => Ok((transfer, true)),
            Moved::Refused(refusal) => Err(refused(refusal)),
        }
    }

    async fn try_to_move(&self, movement: &Movement<'_>) -> Result<Moved, Problem> {
        let moved = self.app.store.move_money(std::slice::from_ref(movement), self.app.now()).await;
        moved.map_err(|error| unsure(&error))?.pop().ok_or_else(|| Problem::new(Code::Internal))
    }
}

#[cfg(test)]
mod tests {
    use qiang_core::RequestId;

    use super::*;

    #[test]
    fn a_key_is_of_whoever_asks() {
        let name = |user: &str, key: &str| {
            let key = IdempotencyKey(Some(RequestId::new(key).expect("a key")));
            name(&UserId::new(user).expect("a user"), key).expect("a name")
        };
        assert_eq!(name("ann", "1"), name("ann", "1"));
        assert_ne!(name("ann", "1"), name("bob", "1"));
        // Where one ends and the other begins is not a matter of luck.
        assert_ne!(name("a", "bc"), name("ab", "c"));
    }

    #[test]
    fn what_moves_money_has_a_key() {
        let ann = UserId::new("ann").expect("a user");
        let problem = name(&ann, IdempotencyKey(None)).expect_err("refused");
        assert_eq!(problem.code(), Code::MissingIdempotencyKey);
    }
}
