//! The keys of the shop, and what is signed with them: tokens of buyers, callbacks of the provider
//! of payments. Written from what the documentation says, not with the product's own code.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use serde_json::json;
use sha2::Sha256;

use crate::clock::unix_seconds;

pub(crate) const JWT_SECRET: &str = "the keys of all nodes in the storm are the same";
pub(crate) const CALLBACK_SECRET: &str = "and the provider of payments has its own";
/// Longer than any round.
const TOKEN_SECONDS: u64 = 24 * 3_600;

/// A buyer's token.
pub(crate) fn buyer(user: &str) -> String {
    token(user, "buyer")
}

/// An admin's token.
pub(crate) fn admin() -> String {
    token("boss", "admin")
}

fn token(user: &str, role: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let says = json!({ "sub": user, "role": role, "exp": unix_seconds() + TOKEN_SECONDS });
    let text = format!("{header}.{}", URL_SAFE_NO_PAD.encode(says.to_string()));
    let signature = URL_SAFE_NO_PAD.encode(mac(JWT_SECRET, &text));
    format!("{text}.{signature}")
}

/// The headers of a callback with this body, signed now.
pub(crate) fn callback(body: &str) -> [(&'static str, String); 2] {
    let at = unix_seconds().to_string();
    let signature = mac(CALLBACK_SECRET, &format!("{at}.{body}"));
    let hex: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
    [("X-Qiang-Timestamp", at), ("X-Qiang-Signature", format!("sha256={hex}"))]
}

fn mac(key: &str, text: &str) -> Vec<u8> {
    let mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("a key of any length will do");
    mac.chain_update(text).finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::mac;

    #[test]
    fn signatures_are_those_of_the_standard() {
        let hex: String = mac("key", "The quick brown fox jumps over the lazy dog")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert!(hex.starts_with("f7bc83f430538424b13298e6aa6fb143ef4d59a1494617"), "{hex}");
    }
}
