//! Signatures of payment callbacks: who says that money arrived.
//!
//! The provider sends `X-Qiang-Timestamp: <unix seconds>` and
//! `X-Qiang-Signature: sha256=<hex>`, an HMAC-SHA256 over `<timestamp>.<body>` with the shared
//! callback key. The body is signed byte for byte as sent. A signature older or newer than the
//! window is refused, so that a recorded callback cannot be sent again later; within the window
//! the payment id makes a repetition harmless.

use std::time::Duration;

use hmac::{Hmac, Mac as _};
use qiang_app::problem::{Code, Problem};
use qiang_app::secrets::Secret;
use qiang_core::Timestamp;
use sha2::Sha256;

/// When it was signed.
pub const TIMESTAMP_HEADER: &str = "x-qiang-timestamp";
/// The signature.
pub const SIGNATURE_HEADER: &str = "x-qiang-signature";

const PREFIX: &[u8] = b"sha256=";
const SIGNATURE_BYTES: usize = 32;
/// Seconds up to the year 5138; more digits are no time.
const MAX_TIMESTAMP_DIGITS: usize = 11;

/// Why a callback is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A header is not there.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// Not whole seconds since 1970.
    #[error("the header {TIMESTAMP_HEADER} is not a number of whole seconds since 1970")]
    BadTimestamp,
    /// Not `sha256=` and 64 hex digits.
    #[error("the header {SIGNATURE_HEADER} is not `sha256=` and 64 hex digits")]
    BadForm,
    /// Signed with another key, or the body or the time was changed.
    #[error("the signature does not match the body and the timestamp")]
    Mismatch,
    /// Signed well, but not now.
    #[error("the signature is more than {} s away from the server's clock", window.as_secs())]
    Stale {
        /// How far it may be away.
        window: Duration,
    },
}

/// Signs and checks callbacks.
#[derive(Clone)]
pub struct Key {
    mac: Hmac<Sha256>,
}

impl Key {
    /// Prepares a key.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        let mac = Hmac::new_from_slice(secret.expose()).expect("HMAC takes a key of any length");
        Self { mac }
    }

    /// The two header values, timestamp and signature, for a body sent at `now`.
    #[must_use]
    pub fn sign(&self, body: &[u8], now: Timestamp) -> (String, String) {
        let timestamp = now.millis().div_euclid(1000).to_string();
        let signature = self.over(timestamp.as_bytes(), body).finalize().into_bytes();
        (timestamp, format!("sha256={}", hex::encode(signature)))
    }

    /// Checks a callback: the two header values as they came, and the body as it came.
    pub fn verify(
        &self,
        timestamp: Option<&[u8]>,
        signature: Option<&[u8]>,
        body: &[u8],
        now: Timestamp,
        window: Duration,
    ) -> Result<(), Error> {
        let timestamp = timestamp.ok_or(Error::Missing(TIMESTAMP_HEADER))?;
        let signature = signature.ok_or(Error::Missing(SIGNATURE_HEADER))?;
        let signed_at = seconds(timestamp).ok_or(Error::BadTimestamp)?;
        let signature = unhex(signature).ok_or(Error::BadForm)?;
        self.over(timestamp, body).verify_slice(&signature).map_err(|_| Error::Mismatch)?;
        // Only a good signature learns that it is stale.
        let away_ms = now.millis().abs_diff(signed_at.saturating_mul(1000));
        let fresh = u128::from(away_ms) <= window.as_millis();
        if fresh { Ok(()) } else { Err(Error::Stale { window }) }
    }

    fn over(&self, timestamp: &[u8], body: &[u8]) -> Hmac<Sha256> {
        self.mac.clone().chain_update(timestamp).chain_update(b".").chain_update(body)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("signature::Key(hidden)")
    }
}

fn seconds(text: &[u8]) -> Option<i64> {
    let plain = text.len() <= MAX_TIMESTAMP_DIGITS && text.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

fn unhex(header: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
    let mut bytes = [0; SIGNATURE_BYTES];
    hex::decode_to_slice(header.strip_prefix(PREFIX)?, &mut bytes).ok()?;
    Some(bytes)
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Stale { .. } => Code::StaleSignature,
            Error::Missing(_) | Error::BadTimestamp | Error::BadForm | Error::Mismatch => {
                Code::BadSignature
            }
        };
        Self::new(code).detail(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"payment_id":"p1","order_id":"42-7","amount_cents":100}"#;
    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const WINDOW: Duration = Duration::from_secs(300);
    /// Made with Python: `hmac.new(key, b"1700000000." + body, "sha256").hexdigest()`.
    const ELSEWHERE: &str =
        "sha256=6038630cdaa9f702d4782e212219fb38acfcb8b43ede10c572b0e741269ada46";

    fn key() -> Key {
        Key::new(&Secret::new(*b"a key of thirty-two bytes, no less"))
    }

    fn verify(timestamp: &str, signature: &str, body: &[u8], now: Timestamp) -> Result<(), Error> {
        let (timestamp, signature) = (timestamp.as_bytes(), signature.as_bytes());
        key().verify(Some(timestamp), Some(signature), body, now, WINDOW)
    }

    #[test]
    fn a_signature_made_elsewhere_is_the_same() {
        assert_eq!(key().sign(BODY, NOW), ("1700000000".to_owned(), ELSEWHERE.to_owned()));
        assert_eq!(verify("1700000000", ELSEWHERE, BODY, NOW), Ok(()));
        let upper = format!("sha256={}", ELSEWHERE["sha256=".len()..].to_uppercase());
        assert_eq!(verify("1700000000", &upper, BODY, NOW), Ok(()));
    }

    #[test]
    fn whatever_was_changed_does_not_match() {
        let (timestamp, signature) = key().sign(BODY, NOW);
        assert_eq!(verify("1700000001", &signature, BODY, NOW), Err(Error::Mismatch));
        assert_eq!(verify("01700000000", &signature, BODY, NOW), Err(Error::Mismatch));
        for position in 0..BODY.len() {
            let mut body = BODY.to_vec();
            body[position] ^= 1;
            assert_eq!(verify(&timestamp, &signature, &body, NOW), Err(Error::Mismatch));
        }
        // The border between timestamp and body cannot be moved.
        let (_, over_dot) = key().sign(b"5.x", Timestamp::from_millis(1_700_000_000));
        assert_eq!(verify("1700000.5", &over_dot, b"x", NOW), Err(Error::BadTimestamp));
        let other = Key::new(&Secret::new(*b"another key of thirty-two bytes!"));
        let (timestamp, signature) = other.sign(BODY, NOW);
        assert_eq!(verify(&timestamp, &signature, BODY, NOW), Err(Error::Mismatch));
    }

    #[test]
    fn the_window_is_exact_on_both_sides() {
        let (timestamp, signature) = key().sign(BODY, NOW);
        for (away_ms, expected) in [
            (300_000, Ok(())),
            (300_001, Err(Error::Stale { window: WINDOW })),
            (-300_000, Ok(())),
            (-300_001, Err(Error::Stale { window: WINDOW })),
        ] {
            let now = Timestamp::from_millis(NOW.millis() + away_ms);
            assert_eq!(verify(&timestamp, &signature, BODY, now), expected, "{away_ms}");
        }
    }

    #[test]
    fn headers_that_say_nothing_are_refused() {
        let (timestamp, signature) = key().sign(BODY, NOW);
        let none = key().verify(None, Some(signature.as_bytes()), BODY, NOW, WINDOW);
        assert_eq!(none, Err(Error::Missing(TIMESTAMP_HEADER)));
        let none = key().verify(Some(timestamp.as_bytes()), None, BODY, NOW, WINDOW);
        assert_eq!(none, Err(Error::Missing(SIGNATURE_HEADER)));
        for bad in ["", "-1", "+1700000000", "1.7e9", " 1700000000", "170000000000", "１"] {
            assert_eq!(verify(bad, &signature, BODY, NOW), Err(Error::BadTimestamp), "{bad:?}");
        }
        let hex = &signature["sha256=".len()..];
        for bad in [
            "",
            hex,
            "sha256=",
            &signature[..70],
            &format!("{signature}0"),
            &format!("sha512={hex}"),
            &signature.replace('6', "g"),
            &format!("sha256={}", "+f".repeat(32)),
        ] {
            assert_eq!(verify(&timestamp, bad, BODY, NOW), Err(Error::BadForm), "{bad:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_signature_has_a_code() {
        let stale = Error::Stale { window: Duration::from_secs(300) };
        for (error, code) in [
            (Error::Mismatch, Code::BadSignature),
            (Error::Missing("x"), Code::BadSignature),
            (stale, Code::StaleSignature),
        ] {
            assert_eq!(Problem::from(error).code(), code);
        }
    }
}
