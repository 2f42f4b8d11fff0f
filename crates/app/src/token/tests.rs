//! What a token must survive: other issuers' spelling, and every kind of forgery.

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const HOUR_MS: u64 = 3_600_000;
const KEY: &[u8] = b"a key of thirty-two bytes, no less";

fn key() -> Key {
    Key::new(&Secret::new(KEY))
}

fn principal(user: &str) -> Principal {
    Principal {
        user: UserId::new(user).expect("a valid user id"),
        role: Role::Buyer,
        identity: None,
        expires_at: NOW.plus_millis(HOUR_MS),
    }
}

/// A token with any header and claims, signed correctly.
fn signed(header: &str, claims: &str) -> String {
    let mut token = URL_SAFE_NO_PAD.encode(header);
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(claims, &mut token);
    let signature = key().mac.chain_update(&token).finalize().into_bytes();
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    token
}

fn with_claims(claims: &str) -> Result<Principal, Error> {
    key().verify(&signed(r#"{"alg":"HS256"}"#, claims), NOW)
}

#[test]
fn a_minted_token_proves_what_it_was_minted_for() {
    let admin = Principal {
        role: Role::Admin,
        identity: Some(Identity::new("身份-1").expect("valid")),
        ..principal("店主\u{1F3EE}\"\\/")
    };
    for who in [principal("u1"), principal(&"长".repeat(21)), admin] {
        assert_eq!(key().verify(&key().mint(&who, NOW), NOW), Ok(who));
    }
}

#[test]
fn the_usual_header_is_what_it_says() {
    assert_eq!(URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#), USUAL_HEADER);
}

/// Made by hand with Python's `hmac`, `hashlib` and `base64`.
#[test]
fn a_token_made_elsewhere_is_understood() {
    let token = "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJzdWIiOiLnlKjmiLctNyIsInJvbGUiOiJhZG1pb\
                 iIsImlkZW50aXR5IjoiaWQtMSIsImV4cCI6MjAwMDAwMDAwMCwiaWF0IjoxNzAwMDAwMDAwfQ.Rgd0l\
                 81GAVjz3xkKsIjZELGlmb9FGwb_pglwCAiTgU4";
    let who = key().verify(token, NOW).expect("a good token");
    assert_eq!((who.user.as_str(), who.role), ("用户-7", Role::Admin));
    assert_eq!(who.identity, Some(Identity::new("id-1").expect("valid")));
    assert_eq!(who.expires_at, Timestamp::from_millis(2_000_000_000_000));
}

/// RFC 7515, appendix A.1: the signature is good, and the claims name no user.
#[test]
fn the_example_of_the_standard_has_a_good_signature() {
    let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9\
               CAow";
    let key = Key::new(&Secret::new(URL_SAFE_NO_PAD.decode(key).expect("base64url")));
    let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTk\
                 zODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJ\
                 U1p1r_wW1gFWFOEjXk";
    assert_eq!(key.verify(token, Timestamp::from_millis(0)), Err(Error::BadClaims));
    assert_eq!(key.verify(&token.replace("dBjft", "dBjfu"), NOW), Err(Error::BadSignature));
}

#[test]
fn no_other_algorithm_is_accepted_even_when_its_signature_is_good() {
    let claims = r#"{"sub":"u1","exp":2000000000}"#;
    for alg in ["none", "None", "HS512", "HS384", "RS256", "hs256", ""] {
        let token = signed(&format!(r#"{{"alg":"{alg}"}}"#), claims);
        assert_eq!(key().verify(&token, NOW), Err(Error::WrongAlgorithm), "{alg}");
    }
    let hs512 = "eyJhbGciOiJIUzUxMiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1MSIsImV4cCI6MjAwMDAwMDAwMH0.gei\
                 OrBzNriA9I-UVBPZI5hqHdiKtNSXBGrfP5od7leigQKAXSJdmmSFaPudtAEd_VdCg2nrNIGqWiglEVV\
                 QDQQ";
    assert_eq!(key().verify(hs512, NOW), Err(Error::WrongAlgorithm));
    let unsigned = signed(r#"{"alg":"none"}"#, claims);
    let unsigned = &unsigned[..=unsigned.rfind('.').expect("three parts")];
    assert_eq!(key().verify(unsigned, NOW), Err(Error::WrongAlgorithm));
}

#[test]
fn headers_are_read_strictly() {
    let claims = r#"{"sub":"u1","exp":2000000000}"#;
    for good in [r#"{"alg":"HS256"}"#, r#"{ "typ":"jwt","kid":"1", "alg":"HS256" }"#] {
        assert!(key().verify(&signed(good, claims), NOW).is_ok(), "{good}");
    }
    for bad in [
        "{}",
        "",
        "null",
        r#"{"alg":["HS256"]}"#,
        r#"{"alg":"HS256","alg":"none"}"#,
        r#"{"alg":"HS256","typ":"JWE"}"#,
        r#"{"alg":"HS256","crit":["exp"]}"#,
        r#"{"alg":"HS256"} x"#,
    ] {
        assert_eq!(key().verify(&signed(bad, claims), NOW), Err(Error::Malformed), "{bad}");
    }
    let huge = format!(r#"{{"alg":"HS256","kid":"{}"}}"#, "k".repeat(600));
    assert_eq!(key().verify(&signed(&huge, claims), NOW), Err(Error::Malformed));
}

#[test]
fn another_key_signs_nothing_here() {
    let other = Key::new(&Secret::new(*b"another key of thirty-two bytes!"));
    let token = other.mint(&principal("u1"), NOW);
    assert_eq!(key().verify(&token, NOW), Err(Error::BadSignature));
}

#[test]
fn no_changed_bit_goes_unseen() {
    let token = key().mint(&principal("u1"), NOW);
    for position in 0..token.len() {
        for bit in 0..8 {
            let mut bytes = token.clone().into_bytes();
            bytes[position] ^= 1 << bit;
            let answer = key().authenticate(Some(&bytes), NOW);
            assert!(answer.is_err(), "bit {bit} of byte {position} was changed");
        }
    }
}

#[test]
fn no_truncated_or_lengthened_token_is_accepted() {
    let token = key().mint(&principal("u1"), NOW);
    for len in 0..token.len() {
        assert!(key().verify(&token[..len], NOW).is_err(), "{len} bytes were enough");
    }
    for tail in ["A", "AA", "=", ".", ".e30", " ", "\n"] {
        assert!(key().verify(&format!("{token}{tail}"), NOW).is_err(), "{tail:?}");
    }
    assert_eq!(key().verify("", NOW), Err(Error::Malformed));
    assert_eq!(key().verify("..", NOW), Err(Error::Malformed));
}

#[test]
fn a_huge_token_is_refused_unread() {
    let token = "e".repeat(MAX_TOKEN_BYTES + 1);
    assert_eq!(key().verify(&token, NOW), Err(Error::TooLong));
    assert_eq!(key().authenticate(Some(token.as_bytes()), NOW), Err(Error::TooLong));
    let roomy = format!(r#"{{"sub":"u1","exp":2000000000,"x":"{}"}}"#, "x".repeat(1300));
    assert!(with_claims(&roomy).is_ok());
}

#[test]
fn a_token_ends_at_the_millisecond_it_says() {
    let token = key().mint(&principal("u1"), NOW);
    let end = NOW.plus_millis(HOUR_MS);
    assert!(key().verify(&token, end.plus_millis(0)).is_err());
    assert!(key().verify(&token, Timestamp::from_millis(end.millis() - 1)).is_ok());
    assert_eq!(key().verify(&token, end), Err(Error::Expired));
}

#[test]
fn claims_are_checked_one_by_one() {
    let table = [
        (r#"{"sub":"u1","exp":2000000000}"#, None),
        (r#"{"sub":"u1","exp":2000000000.5,"iat":"x","aud":["a"],"x":{}}"#, None),
        (r#"{"sub":"u1","exp":18446744073709551615}"#, None),
        (r#"{"sub":"u1","exp":1e300}"#, None),
        (r#"{"sub":"\u0041","exp":2000000000}"#, None),
        (r#"{"sub":"u1","exp":2000000000,"nbf":1800000060}"#, None),
        (r#"{"sub":"u1","exp":2000000000,"nbf":1800000061}"#, Some(Error::NotYetValid)),
        (r#"{"sub":"u1","exp":1800000000}"#, Some(Error::Expired)),
        (r#"{"sub":"u1","exp":-1}"#, Some(Error::Expired)),
        (r#"{"sub":"u1"}"#, Some(Error::BadClaims)),
        (r#"{"sub":"u1","exp":null}"#, Some(Error::BadClaims)),
        (r#"{"sub":"u1","exp":"2000000000"}"#, Some(Error::BadClaims)),
        (r#"{"exp":2000000000}"#, Some(Error::BadClaims)),
        (r#"{"sub":7,"exp":2000000000}"#, Some(Error::BadClaims)),
        (r#"{"sub":"u1","sub":"u2","exp":2000000000}"#, Some(Error::BadClaims)),
        (r#"{"sub":"u1","exp":2000000000,"role":"root"}"#, Some(Error::BadClaims)),
        (r#"{"sub":"","exp":2000000000}"#, Some(Error::BadUser(BadId::Empty))),
        (r#"{"sub":"a\nb","exp":2000000000}"#, Some(Error::BadUser(BadId::ControlCharacter))),
        (r#"{"sub":"u1","identity":"","exp":2000000000}"#, Some(Error::BadIdentity(BadId::Empty))),
        ("[]", Some(Error::BadClaims)),
        ("", Some(Error::BadClaims)),
        ("\u{feff}{}", Some(Error::BadClaims)),
    ];
    for (claims, expected) in table {
        assert_eq!(with_claims(claims).err(), expected, "{claims}");
    }
    let long = format!(r#"{{"sub":"{}","exp":2000000000}}"#, "x".repeat(65));
    assert_eq!(with_claims(&long), Err(Error::BadUser(BadId::TooLong { len: 65, max: 64 })));
    assert_eq!(
        with_claims(r#"{"sub":"u1","exp":2000000000}"#).map(|who| who.role),
        Ok(Role::Buyer)
    );
}

#[test]
fn the_header_may_say_bearer_or_not() {
    let token = key().mint(&principal("u1"), NOW);
    for value in [
        token.clone(),
        format!("Bearer {token}"),
        format!("bearer  {token} "),
        format!("BEARER {token}"),
    ] {
        assert!(key().authenticate(Some(value.as_bytes()), NOW).is_ok(), "{value}");
    }
    for missing in [None, Some(""), Some("  "), Some("Bearer"), Some("Bearer  ")] {
        let answer = key().authenticate(missing.map(str::as_bytes), NOW);
        assert_eq!(answer, Err(Error::Missing), "{missing:?}");
    }
    let basic = key().authenticate(Some(b"Basic dTE6cHc="), NOW);
    assert_eq!(basic, Err(Error::Malformed));
    assert_eq!(key().authenticate(Some(b"\xff\xfe"), NOW), Err(Error::Malformed));
}

#[test]
fn debug_shows_no_key() {
    assert_eq!(format!("{:?}", key()), "token::Key(hidden)");
}
