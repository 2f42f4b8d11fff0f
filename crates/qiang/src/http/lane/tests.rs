//! Whatever comes, a claim is seen when it is whole and not before. That it is answered as the
//! general server answers is for the tests over real connections.

use proptest::prelude::*;

use super::{PREFACE, Speaks, Turn, read};

const CLAIM: &[u8] = b"POST /api/v1/sales/17/claims HTTP/1.1\r\nHost: a\r\n\
    Authorization: Bearer t\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\n\
    Content-Length: 14\r\n\r\n{\"quantity\":1}";

#[test]
fn a_claim_is_seen_when_it_is_whole() {
    let Turn::Claim(call) = read(CLAIM) else { panic!("not seen") };
    assert_eq!(
        (call.sale.get(), call.bytes, call.body),
        (17, CLAIM.len(), &CLAIM[CLAIM.len() - 14..])
    );
    assert_eq!((call.authorization, call.key), (Some(&b"Bearer t"[..]), Some(&b"k"[..])));
    for end in 0..CLAIM.len() {
        assert!(!matches!(read(&CLAIM[..end]), Turn::Claim(_)), "after {end} bytes");
    }
    let two = [CLAIM, CLAIM].concat();
    let Turn::Claim(first) = read(&two) else { panic!("not seen") };
    assert_eq!(first.bytes, CLAIM.len());
}

#[test]
fn http2_is_told_by_its_preface_and_by_nothing_less() {
    for end in 0..PREFACE.len() {
        assert!(matches!(read(&PREFACE[..end]), Turn::More), "after {end} bytes");
        let other = [&PREFACE[..end], b"?"].concat();
        assert!(
            matches!(read(&other), Turn::Other(Speaks::Http1)) || end == 1,
            "after {end} bytes"
        );
    }
    let more = [PREFACE, b"frames"].concat();
    assert!(matches!(read(&more), Turn::Other(Speaks::Http2)));
}

/// A piece of the input replaced by something that means something to somebody.
fn damage() -> impl Strategy<Value = (usize, usize, Vec<u8>)> {
    let word = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..6),
        prop::sample::select(vec![
            &b"\r\n"[..],
            b"\n",
            b"\r\n\r\n",
            b":",
            b" ",
            b"\t",
            b"\0",
            b"-1",
            b"+1",
            b"99999999999999999999",
            b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close\r\n",
            b"HTTP/1.0",
            b"GET ",
            b"/",
            b"%31",
            b"\xff",
        ])
        .prop_map(<[u8]>::to_vec),
    ];
    (0..=CLAIM.len(), 0..8_usize, word)
}

proptest! {
    /// A damaged request is no claim, or one that lies whole within what came, without any header
    /// that changes how it is to be read, and that stays the same whatever follows it.
    #[test]
    fn damaged_claims_are_whole_or_none(
        damages in prop::collection::vec(damage(), 0..4),
        behind in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut input = CLAIM.to_vec();
        for (at, gone, word) in damages {
            let at = at.min(input.len());
            let to = (at + gone).min(input.len());
            input.splice(at..to, word);
        }
        if let Turn::Claim(call) = read(&input) {
            let (bytes, body) = (call.bytes, call.body.to_vec());
            prop_assert!(bytes <= input.len());
            prop_assert_eq!(&input[bytes - body.len()..bytes], &body[..]);
            let head = String::from_utf8_lossy(&input[..bytes - body.len()]).to_ascii_lowercase();
            prop_assert!(!head.contains("\ntransfer-encoding:"));
            prop_assert!(head.matches("\ncontent-length:").count() <= 1);
            for end in 0..bytes {
                prop_assert!(!matches!(read(&input[..end]), Turn::Claim(_)), "after {} bytes", end);
            }
            input.truncate(bytes);
            input.extend(behind);
            let again = matches!(read(&input), Turn::Claim(again) if again.bytes == bytes && again.body == body);
            prop_assert!(again, "what follows changed it");
        }
    }
}
