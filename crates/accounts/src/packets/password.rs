//! Passwords of packets (口令红包). Only a salted HMAC is ever stored.

use hmac::{Hmac, Mac as _};
use qiang_app::problem::Problem;
use sha2::Sha256;

use super::random;

/// Bytes of a salt.
const SALT: usize = 16;

/// What is stored of a password: salt and HMAC, in hex.
pub(super) fn hash(password: &str) -> Result<String, Problem> {
    let salt: [u8; SALT] = random()?;
    let code = keyed(&salt, password).finalize().into_bytes();
    Ok(format!("{}:{}", hex::encode(salt), hex::encode(code)))
}

/// Whether it is the password, in a time that says nothing about how wrong it is.
pub(super) fn is_right(stored: &str, password: &str) -> bool {
    let Some((salt, code)) = stored.split_once(':') else { return false };
    let (Ok(salt), Ok(code)) = (hex::decode(salt), hex::decode(code)) else { return false };
    keyed(&salt, password).verify_slice(&code).is_ok()
}

fn keyed(salt: &[u8], password: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(salt).expect("HMAC takes any key");
    mac.update(password.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_known_again_and_not_to_be_read() {
        let (one, two) = (hash("恭喜发财").expect("hashed"), hash("恭喜发财").expect("hashed"));
        assert_ne!(one, two, "each has its own salt");
        assert!(!one.contains("恭喜发财"));
        assert!(is_right(&one, "恭喜发财") && is_right(&two, "恭喜发财"));
        assert!(!is_right(&one, "恭喜发财 ") && !is_right(&one, ""));
        assert!(!is_right("", "") && !is_right("zz:zz", ""));
    }
}
