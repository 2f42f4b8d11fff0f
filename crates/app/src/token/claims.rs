//! The JSON inside a token. Fields nobody here knows are the issuer's own and are passed over;
//! fields that are known must be right.

use std::borrow::Cow;
use std::fmt;

use qiang_core::{Identity, Timestamp, UserId};
use serde::de::{IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Error, NOT_BEFORE_LEEWAY_MS, Principal, Role};

/// RFC 7515: a token whose `crit` is not understood is refused, and nothing is understood here.
#[derive(Deserialize)]
struct Header<'a> {
    #[serde(borrow)]
    alg: Cow<'a, str>,
    #[serde(borrow, default)]
    typ: Option<Cow<'a, str>>,
    #[serde(default)]
    crit: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Claims<'a> {
    #[serde(borrow)]
    sub: Cow<'a, str>,
    exp: NumericDate,
    #[serde(default)]
    nbf: Option<NumericDate>,
    #[serde(default)]
    role: Option<Role>,
    #[serde(borrow, default)]
    identity: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct Minted<'a> {
    sub: &'a str,
    role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'a str>,
    iat: i64,
    exp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<&'a str>,
}

/// A token with an id of its own.
#[derive(Deserialize)]
struct Named {
    jti: String,
}

/// Seconds since 1970, whole or with a fraction, as RFC 7519 allows.
struct NumericDate(Timestamp);

pub(super) fn check_header(json: &[u8]) -> Result<(), Error> {
    let header: Header<'_> = serde_json::from_slice(json).map_err(|_| Error::Malformed)?;
    if header.alg != "HS256" {
        return Err(Error::WrongAlgorithm);
    }
    let is_jwt = header.typ.is_none_or(|typ| typ.eq_ignore_ascii_case("JWT"));
    if is_jwt && header.crit.is_none() { Ok(()) } else { Err(Error::Malformed) }
}

pub(super) fn check(json: &[u8], now: Timestamp) -> Result<Principal, Error> {
    let claims: Claims<'_> = serde_json::from_slice(json).map_err(|_| Error::BadClaims)?;
    let expires_at = claims.exp.0;
    if expires_at <= now {
        return Err(Error::Expired);
    }
    if claims.nbf.is_some_and(|nbf| nbf.0 > now.plus_millis(NOT_BEFORE_LEEWAY_MS)) {
        return Err(Error::NotYetValid);
    }
    let identity = claims.identity.map(|text| Identity::new(&text));
    Ok(Principal {
        user: UserId::new(&claims.sub).map_err(Error::BadUser)?,
        role: claims.role.unwrap_or_default(),
        identity: identity.transpose().map_err(Error::BadIdentity)?,
        expires_at,
    })
}

pub(super) fn id(json: &[u8]) -> Result<String, Error> {
    let named: Named = serde_json::from_slice(json).map_err(|_| Error::BadClaims)?;
    Ok(named.jti)
}

pub(super) fn encode(who: &Principal, id: Option<&str>, now: Timestamp) -> Vec<u8> {
    let minted = Minted {
        sub: who.user.as_str(),
        role: who.role,
        identity: who.identity.as_ref().map(Identity::as_str),
        iat: now.millis().div_euclid(1000),
        exp: who.expires_at.millis().div_euclid(1000),
        jti: id,
    };
    serde_json::to_vec(&minted).expect("strings and numbers are always JSON")
}

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecondsVisitor)
    }
}

struct SecondsVisitor;

impl Visitor<'_> for SecondsVisitor {
    type Value = NumericDate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("seconds since 1970")
    }

    fn visit_u64<E: serde::de::Error>(self, seconds: u64) -> Result<NumericDate, E> {
        let millis = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000);
        Ok(NumericDate(Timestamp::from_millis(millis)))
    }

    fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<NumericDate, E> {
        Ok(NumericDate(Timestamp::from_millis(seconds.saturating_mul(1000))))
    }

    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, which is what is meant")]
    fn visit_f64<E: serde::de::Error>(self, seconds: f64) -> Result<NumericDate, E> {
        Ok(NumericDate(Timestamp::from_millis((seconds * 1000.0).floor() as i64)))
    }
}
