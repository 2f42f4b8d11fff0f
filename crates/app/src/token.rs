//! Tokens: who is asking.
//!
//! JWT with HS256 and nothing else. The algorithm is not negotiated: a header that names any
//! other is refused before a key is touched, and claims are read only after the signature was
//! found good. Checking stands on the way of every claim, so it works on the stack: no heap
//! beyond the ids it hands on.

mod claims;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use qiang_core::{BadId, Identity, Timestamp, UserId};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::secrets::Secret;

/// A longer token is refused unread.
pub const MAX_TOKEN_BYTES: usize = 2048;
/// How far a `nbf` may lie ahead: clocks of two machines are never quite equal.
pub const NOT_BEFORE_LEEWAY_MS: u64 = 60_000;

const SIGNATURE_BYTES: usize = 32;
/// `{"alg":"HS256","typ":"JWT"}`, as most issuers write it and as [`Key::mint`] does.
const USUAL_HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";
const MAX_HEADER_BYTES: usize = 512;

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Buys, for itself.
    #[default]
    Buyer,
    /// Reads what those who run the shop read, and changes nothing of it.
    Viewer,
    /// Runs the shop.
    Admin,
}

/// Who is asking, proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The shop's own id of the user.
    pub user: UserId,
    /// What they may do.
    pub role: Role,
    /// The real person behind the account, if the shop knows.
    pub identity: Option<Identity>,
    /// From then on the token is worth nothing.
    pub expires_at: Timestamp,
}

/// Why a token proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is none.
    #[error("there is no token")]
    Missing,
    /// Longer than [`MAX_TOKEN_BYTES`].
    #[error("the token is longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// Not three parts of base64url with JSON inside.
    #[error("the token is not a JWT")]
    Malformed,
    /// Another algorithm than HS256, or none.
    #[error("the token is not signed with HS256")]
    WrongAlgorithm,
    /// Signed with another key, or changed afterwards.
    #[error("the signature of the token is wrong")]
    BadSignature,
    /// A claim is missing or has the wrong type.
    #[error(
        "the token lacks valid claims: `sub` and `exp` are required, `role` is buyer, viewer or admin"
    )]
    BadClaims,
    /// `sub` cannot be a user id.
    #[error("the token's `sub` cannot be a user id: {0}")]
    BadUser(BadId),
    /// `identity` cannot be one.
    #[error("the token's `identity` is not valid: {0}")]
    BadIdentity(BadId),
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet")]
    NotYetValid,
}

/// Signs and checks tokens.
#[derive(Clone)]
pub struct Key {
    mac: Hmac<Sha256>,
}

impl Role {
    /// The word for it in tokens, JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Buyer => "buyer",
            Self::Viewer => "viewer",
            Self::Admin => "admin",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Buyer, Self::Viewer, Self::Admin].into_iter().find(|role| role.as_str() == word)
    }
}

impl Key {
    /// Prepares a key, once, so that a check need not.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        let mac = Hmac::new_from_slice(secret.expose()).expect("HMAC takes a key of any length");
        Self { mac }
    }

    /// A token that proves `who`, issued at `now`.
    #[must_use]
    pub fn mint(&self, who: &Principal, now: Timestamp) -> String {
        self.sign(&claims::encode(who, None, now))
    }

    /// The same, with an id of its own.
    #[must_use]
    pub fn mint_named(&self, who: &Principal, id: &str, now: Timestamp) -> String {
        self.sign(&claims::encode(who, Some(id), now))
    }

    fn sign(&self, claims: &[u8]) -> String {
        let mut token = String::with_capacity(256);
        token.push_str(USUAL_HEADER);
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signature = self.mac.clone().chain_update(&token).finalize().into_bytes();
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        token
    }

    /// Checks the value of an `Authorization` header: a token, with or without `Bearer`.
    pub fn authenticate(
        &self,
        authorization: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<Principal, Error> {
        let value = authorization.ok_or(Error::Missing)?.trim_ascii();
        let token = match value.split_at_checked(6) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"bearer") => match rest.first() {
                Some(b' ') => rest.trim_ascii_start(),
                None => rest,
                Some(_) => value,
            },
            _ => value,
        };
        if token.is_empty() {
            return Err(Error::Missing);
        }
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Error::TooLong);
        }
        self.verify(std::str::from_utf8(token).map_err(|_| Error::Malformed)?, now)
    }

    /// Checks a token.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<Principal, Error> {
        let mut buffer = [0; MAX_TOKEN_BYTES];
        claims::check(self.open(token, &mut buffer)?, now)
    }

    /// The id of a token that was signed here, whether or not its time is over.
    pub fn id_of(&self, token: &str) -> Result<String, Error> {
        let mut buffer = [0; MAX_TOKEN_BYTES];
        claims::id(self.open(token, &mut buffer)?)
    }

    /// The claims of a token whose signature is good.
    fn open<'a>(
        &self,
        token: &str,
        buffer: &'a mut [u8; MAX_TOKEN_BYTES],
    ) -> Result<&'a [u8], Error> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Error::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(Error::Malformed)?;
        let (header, payload) = signed.split_once('.').ok_or(Error::Malformed)?;
        if payload.contains('.') {
            return Err(Error::Malformed);
        }
        check_header(header)?;
        self.check_signature(signed, signature)?;
        decode(payload, buffer)
    }

    fn check_signature(&self, signed: &str, signature: &str) -> Result<(), Error> {
        // One byte more than a signature has, so that a longer one is seen as such.
        let mut buffer = [0; SIGNATURE_BYTES + 1];
        let signature =
            URL_SAFE_NO_PAD.decode_slice(signature, &mut buffer).map_err(|_| Error::BadSignature);
        let mac = self.mac.clone().chain_update(signed);
        mac.verify_slice(&buffer[..signature?]).map_err(|_| Error::BadSignature)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("token::Key(hidden)")
    }
}

fn check_header(header: &str) -> Result<(), Error> {
    if header == USUAL_HEADER {
        return Ok(());
    }
    let mut buffer = [0; MAX_HEADER_BYTES];
    claims::check_header(decode(header, &mut buffer)?)
}

fn decode<'a>(text: &str, buffer: &'a mut [u8]) -> Result<&'a [u8], Error> {
    let len = URL_SAFE_NO_PAD.decode_slice(text, buffer).map_err(|_| Error::Malformed)?;
    Ok(&buffer[..len])
}

#[cfg(test)]
mod tests;
