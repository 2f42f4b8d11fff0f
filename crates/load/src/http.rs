//! Requests and answers over HTTP/1.1, as cheap as they can be: a request is a few pieces that
//! were written before the load began, an answer is its status and a look at its body.
//!
//! Every length is bounded, and an answer that is not understood ends the connection.

use std::io::Write as _;

use serde::Deserialize;

use super::ask::{Answer, Ask, Nonsense, Verb, of_code};
use super::wire::Read;

/// Longer headers are nonsense.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// More headers are nonsense.
const MAX_HEADERS: usize = 64;
/// A longer body is nonsense; that of a claim has some 300 bytes.
const MAX_BODY_BYTES: usize = 1 << 20;

/// What all requests of a run have in common.
#[derive(Debug)]
pub struct Http {
    sale: String,
    /// Behind the path: version, host, and the beginning of what everybody sends.
    tail: Vec<u8>,
    /// In front of the key of a claim, so that runs do not meet.
    run: String,
    tokens: Vec<Box<str>>,
}

impl Http {
    /// `tokens` are those of the users, in order.
    pub fn new(host: &str, sale: &str, run: &str, tokens: Vec<Box<str>>) -> Self {
        let tail = format!(" HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
        Self { sale: sale.to_owned(), tail, run: run.to_owned(), tokens }
    }

    /// Writes a request behind `out`.
    pub fn write(&self, ask: &Ask, out: &mut Vec<u8>) {
        let Self { sale, run, .. } = self;
        let key = ask.key;
        // Writing to memory cannot fail.
        let _written = match ask.verb {
            Verb::Claim => write!(out, "POST /api/v1/sales/{sale}/claims"),
            Verb::Order => write!(out, "POST /api/v1/claims/{sale}-{key}/order"),
            Verb::Pay => write!(out, "POST /api/v1/orders/{sale}-{key}/pay"),
            Verb::Release => write!(out, "DELETE /api/v1/claims/{sale}-{key}"),
            Verb::Look if key > 0 => write!(out, "GET /api/v1/claims/{sale}-{key}"),
            Verb::Look => write!(out, "GET /api/v1/sales/{sale}"),
        };
        out.extend_from_slice(&self.tail);
        out.extend_from_slice(b"Authorization: ");
        let token = usize::try_from(ask.user).ok().and_then(|user| self.tokens.get(user));
        out.extend_from_slice(token.map_or(&b""[..], |token| token.as_bytes()));
        if ask.verb == Verb::Claim {
            let _written = write!(out, "\r\nIdempotency-Key: {run}-{key}");
        }
        let has_body = !matches!(ask.verb, Verb::Look);
        out.extend_from_slice(if has_body {
            b"\r\nContent-Length: 0\r\n\r\n"
        } else {
            b"\r\n\r\n"
        });
    }

    /// The answer at the beginning of `bytes`, or `None` if it is not all there yet.
    pub fn read(&self, bytes: &[u8], ask: &Ask) -> Result<Option<Read>, Nonsense> {
        let Some(response) = Response::parse(bytes)? else { return Ok(None) };
        let answer = match response.status {
            200 | 201 => self.good(&response, ask)?,
            _ => refused(response.body)?,
        };
        Ok(Some(Read { answer, used: response.used, last: response.last }))
    }

    fn good(&self, response: &Response<'_>, ask: &Ask) -> Result<Answer, Nonsense> {
        let number = match ask.verb {
            Verb::Look => return Ok(Answer::Done { number: 0 }),
            Verb::Pay => return paid(response.body),
            Verb::Claim | Verb::Order | Verb::Release => self.number(response.body)?,
        };
        // A claim given up twice answers as it did the first time.
        let again = response.status == 200 && ask.verb != Verb::Release;
        Ok(if again { Answer::Again { number } } else { Answer::Done { number } })
    }

    fn number(&self, body: &[u8]) -> Result<u32, Nonsense> {
        let claim: Claim<'_> = json(body)?;
        let own = claim.claim_id.strip_prefix(self.sale.as_str());
        let number = own.and_then(|rest| rest.strip_prefix('-')).and_then(|n| n.parse().ok());
        match number {
            Some(number) if number == claim.number && number > 0 => Ok(number),
            _ => Err(Nonsense("a claim of another sale, or of another number")),
        }
    }
}

#[derive(Deserialize)]
struct Claim<'a> {
    claim_id: &'a str,
    number: u32,
}

#[derive(Deserialize)]
struct Settled<'a> {
    outcome: &'a str,
    replayed: bool,
}

#[derive(Deserialize)]
struct Problem<'a> {
    code: &'a str,
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Nonsense> {
    serde_json::from_slice(body).map_err(|_| Nonsense("not the JSON that belongs to the status"))
}

fn paid(body: &[u8]) -> Result<Answer, Nonsense> {
    let settled: Settled<'_> = json(body)?;
    Ok(match (settled.outcome, settled.replayed) {
        ("refund_due", _) => Answer::RefundDue,
        (_, false) => Answer::Done { number: 0 },
        (_, true) => Answer::Again { number: 0 },
    })
}

fn refused(body: &[u8]) -> Result<Answer, Nonsense> {
    Ok(of_code(json::<Problem<'_>>(body)?.code))
}

/// As much of an answer as is looked at.
#[derive(Debug, PartialEq, Eq)]
struct Response<'a> {
    status: u16,
    body: &'a [u8],
    /// Bytes of the whole.
    used: usize,
    /// Whether the server closes the connection behind it.
    last: bool,
}

impl<'a> Response<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Nonsense> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let begins = match head.parse(bytes) {
            Ok(httparse::Status::Complete(begins)) => begins,
            Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
            Ok(httparse::Status::Partial) => return Err(Nonsense("the headers do not end")),
            Err(_) => return Err(Nonsense("not HTTP/1.1")),
        };
        let status = head.code.ok_or(Nonsense("no status"))?;
        let (mut length, mut last) = (None, head.version == Some(0));
        for header in head.headers.iter() {
            if header.name.eq_ignore_ascii_case("content-length") {
                let digits = std::str::from_utf8(header.value).ok();
                let read: Option<usize> = digits.and_then(|text| text.trim().parse().ok());
                length = Some(read.ok_or(Nonsense("a length that is no number"))?);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                return Err(Nonsense("in chunks, which this client does not take"));
            } else if header.name.eq_ignore_ascii_case("connection") {
                last |= header.value.eq_ignore_ascii_case(b"close");
            }
        }
        let length = length.ok_or(Nonsense("no length"))?;
        if length > MAX_BODY_BYTES {
            return Err(Nonsense("the body is too long"));
        }
        let used = begins + length;
        Ok(bytes.get(begins..used).map(|body| Self { status, body, used, last }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http() -> Http {
        Http::new("127.0.0.1:8080", "7", "r1", vec!["tok0".into(), "tok1".into()])
    }

    fn written(verb: Verb, key: u64) -> String {
        let mut out = Vec::new();
        http().write(&Ask { verb, user: 1, key }, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    fn answer(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    fn read(verb: Verb, text: &str) -> Result<Option<Read>, Nonsense> {
        http().read(text.as_bytes(), &Ask { verb, user: 0, key: 3 })
    }

    fn said(verb: Verb, text: &str) -> Answer {
        read(verb, text).expect("sense").expect("whole").answer
    }

    #[test]
    fn requests_are_written_whole() {
        assert_eq!(
            written(Verb::Claim, 5),
            "POST /api/v1/sales/7/claims HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
             Authorization: tok1\r\nIdempotency-Key: r1-5\r\nContent-Length: 0\r\n\r\n"
        );
        for (verb, key, line) in [
            (Verb::Order, 3, "POST /api/v1/claims/7-3/order "),
            (Verb::Pay, 3, "POST /api/v1/orders/7-3/pay "),
            (Verb::Release, 3, "DELETE /api/v1/claims/7-3 "),
            (Verb::Look, 3, "GET /api/v1/claims/7-3 "),
            (Verb::Look, 0, "GET /api/v1/sales/7 "),
        ] {
            let request = written(verb, key);
            assert!(request.starts_with(line), "{request}");
            assert!(request.ends_with("\r\n\r\n") && !request.contains("Idempotency"));
        }
    }

    #[test]
    fn answers_mean_what_they_say() {
        let claim = r#"{"claim_id":"7-3","number":3,"state":"held"}"#;
        assert_eq!(said(Verb::Claim, &answer("201 Created", claim)), Answer::Done { number: 3 });
        assert_eq!(said(Verb::Claim, &answer("200 OK", claim)), Answer::Again { number: 3 });
        assert_eq!(said(Verb::Release, &answer("200 OK", claim)), Answer::Done { number: 3 });
        assert_eq!(said(Verb::Look, &answer("200 OK", "{}")), Answer::Done { number: 0 });
        let paid = r#"{"outcome":"paid","replayed":false}"#;
        assert_eq!(said(Verb::Pay, &answer("200 OK", paid)), Answer::Done { number: 0 });
        let back = r#"{"outcome":"refund_due","replayed":false}"#;
        assert_eq!(said(Verb::Pay, &answer("200 OK", back)), Answer::RefundDue);
        let gone = r#"{"title":"Sold out","code":"sold_out"}"#;
        assert_eq!(said(Verb::Claim, &answer("410 Gone", gone)), Answer::Refused("sold_out"));
        let lost = r#"{"code":"outcome_unknown"}"#;
        assert_eq!(said(Verb::Claim, &answer("503 Busy", lost)), Answer::Unknown);
    }

    #[test]
    fn an_answer_is_read_once_it_is_whole() {
        let text = answer("410 Gone", r#"{"code":"sold_out"}"#);
        for cut in 0..text.len() {
            assert_eq!(read(Verb::Claim, &text[..cut]), Ok(None), "{cut}");
        }
        let two = format!("{text}HTTP/1.1 410");
        assert_eq!(read(Verb::Claim, &two).expect("sense").expect("whole").used, text.len());
    }

    #[test]
    fn nonsense_is_told_from_what_is_still_to_come() {
        let long = "x".repeat(MAX_HEAD_BYTES);
        for text in [
            "SSH-2.0-OpenSSH\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1048577\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            &format!("HTTP/1.1 200 OK\r\na: {long}"),
            &answer("201 Created", "no JSON"),
            &answer("201 Created", r#"{"claim_id":"8-3","number":3}"#),
            &answer("201 Created", r#"{"claim_id":"7-3","number":4}"#),
            &answer("502 Bad Gateway", "<html>"),
        ] {
            assert!(read(Verb::Claim, text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_server_that_closes_says_so() {
        let text = "HTTP/1.1 410 Gone\r\nConnection: Close\r\ncontent-length: 19\r\n\r\n{\"code\":\"sold_out\"}";
        assert!(read(Verb::Claim, text).expect("sense").expect("whole").last);
    }
}
