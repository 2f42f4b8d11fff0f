//! Answers as they go over the wire, in the version of the protocol the client asked for.

use qiang_core::{Claim, ClaimId, Outcome, Refusal, Settlement, State};
use serde_json::Value;

use qiang_accounts::packets::grab::Granted;
use qiang_app::problem::Code;

/// It happened now.
const DONE: i64 = 1;
/// It had happened before, or the user has theirs already.
const BEFORE: i64 = 2;
/// It did not happen; a code says why.
const REFUSED: i64 = 0;

/// Which words of the protocol a client understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Version {
    /// Maps are flat arrays, and nothing is an empty bulk string of length -1.
    #[default]
    Two,
    /// Maps and nulls are what they are.
    Three,
}

/// Answers on their way to one client.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Everything not sent yet.
    pub(super) bytes: Vec<u8>,
    /// How to say it.
    pub(super) version: Version,
}

impl Answers {
    /// `+OK` and other words of one line.
    pub(super) fn simple(&mut self, word: &str) {
        self.line(b'+', word.as_bytes());
    }

    /// Something that was not done, because it was not understood or cannot be done: a word in
    /// capitals for programs and a sentence for people.
    pub(super) fn error(&mut self, word: &str, sentence: &str) {
        self.bytes.push(b'-');
        self.bytes.extend_from_slice(word.as_bytes());
        self.bytes.push(b' ');
        // A line has one end, whatever it quotes.
        self.bytes.extend(sentence.bytes().map(|byte| if byte < b' ' { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A number.
    pub(super) fn number(&mut self, number: i64) {
        self.line(b':', itoa::Buffer::new().format(number).as_bytes());
    }

    /// A text.
    pub(super) fn bulk(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        self.prefixed(b'$', text.len() as u64);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Nothing.
    pub(super) fn null(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// The head of a list of so many.
    pub(super) fn array(&mut self, len: usize) {
        self.prefixed(b'*', len as u64);
    }

    /// The head of a list of so many names, each with its value.
    pub(super) fn map(&mut self, len: usize) {
        match self.version {
            Version::Two => self.array(2 * len),
            Version::Three => self.prefixed(b'%', len as u64),
        }
    }

    /// A value as JSON has it.
    pub(super) fn json(&mut self, value: &Value) {
        match value {
            Value::Null => self.null(),
            Value::Bool(on) => self.number(i64::from(*on)),
            Value::Number(number) => match number.as_i64() {
                Some(number) => self.number(number),
                None => self.bulk(number.to_string()),
            },
            Value::String(text) => self.bulk(text),
            Value::Array(values) => {
                self.array(values.len());
                values.iter().for_each(|value| self.json(value));
            }
            Value::Object(members) => {
                self.map(members.len());
                for (name, value) in members {
                    self.bulk(name);
                    self.json(value);
                }
            }
        }
    }

    /// The answer to somebody who wants units: as [`Answers::claim`], but that a request which was
    /// granted once does not have what was released since.
    pub(super) fn wish(&mut self, outcome: &Outcome<Claim>) {
        match outcome {
            Outcome::Replayed(claim) if claim.state == State::Released => {
                self.refused(Code::Released);
            }
            _ => self.claim(outcome),
        }
    }

    /// What became of a claim: `[1, number, claim_id]`, `[2, number, claim_id]` or `[0, code]`.
    pub(super) fn claim(&mut self, outcome: &Outcome<Claim>) {
        match outcome {
            Outcome::Done(claim) => self.of_claim(DONE, claim.id),
            Outcome::Replayed(claim) => self.of_claim(BEFORE, claim.id),
            Outcome::Refused(Refusal::AlreadyClaimed { claim }) => self.of_claim(BEFORE, *claim),
            Outcome::Refused(refusal) => self.refused(Code::from(refusal)),
        }
    }

    /// A portion: `[1, number, cents]`, or `[2, number, cents]` if the user had it before.
    pub(super) fn grab(&mut self, granted: &Granted) {
        let (sign, grab) = match granted {
            Granted::Now(grab) => (DONE, grab),
            Granted::Before(grab) | Granted::Had(grab) => (BEFORE, grab),
        };
        self.array(3);
        self.number(sign);
        self.number(grab.number.into());
        self.number(grab.amount_cents);
    }

    /// What became of a payment: `[1|2, "paid"|"regranted"|"refund_due", order_id]` or `[0, code]`.
    pub(super) fn settlement(&mut self, outcome: &Outcome<Settlement>) {
        let (sign, settlement) = match outcome {
            Outcome::Done(settlement) => (DONE, settlement),
            Outcome::Replayed(settlement) => (BEFORE, settlement),
            Outcome::Refused(Refusal::NoSuchClaim) => return self.refused(Code::NoSuchOrder),
            Outcome::Refused(refusal) => return self.refused(Code::from(refusal)),
        };
        let (word, order) = match settlement {
            Settlement::Paid(claim) => ("paid", claim.id),
            Settlement::Regranted(claim) => ("regranted", claim.id),
            Settlement::RefundDue(refund) => ("refund_due", refund.order),
        };
        self.array(3);
        self.number(sign);
        self.bulk(word);
        self.id(order);
    }

    /// `[0, code]`
    pub(super) fn refused(&mut self, code: Code) {
        self.array(2);
        self.number(REFUSED);
        self.bulk(code.as_str());
    }

    fn of_claim(&mut self, sign: i64, claim: ClaimId) {
        self.array(3);
        self.number(sign);
        self.number(claim.number.into());
        self.id(claim);
    }

    /// `<sale>-<number>`
    fn id(&mut self, claim: ClaimId) {
        let (mut pool, mut number) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (pool, number) = (pool.format(claim.pool.get()), number.format(claim.number));
        self.prefixed(b'$', (pool.len() + 1 + number.len()) as u64);
        self.bytes.extend_from_slice(pool.as_bytes());
        self.bytes.push(b'-');
        self.line_end(number.as_bytes());
    }

    fn prefixed(&mut self, sign: u8, number: u64) {
        self.bytes.push(sign);
        self.line_end(itoa::Buffer::new().format(number).as_bytes());
    }

    fn line(&mut self, sign: u8, text: &[u8]) {
        self.bytes.push(sign);
        self.line_end(text);
    }

    fn line_end(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(version: Version, say: impl FnOnce(&mut Answers)) -> String {
        let mut answers = Answers { version, ..Default::default() };
        say(&mut answers);
        String::from_utf8(answers.bytes).unwrap()
    }

    #[test]
    fn every_shape_in_both_versions() {
        let both = |say: fn(&mut Answers)| (said(Version::Two, say), said(Version::Three, say));
        let same = |say, text: &str| assert_eq!(both(say), (text.to_owned(), text.to_owned()));
        same(|a| a.simple("OK"), "+OK\r\n");
        same(|a| a.error("ERR", "no\r\nway"), "-ERR no  way\r\n");
        same(|a| a.number(-5), ":-5\r\n");
        same(|a| a.number(i64::MAX), ":9223372036854775807\r\n");
        same(|a| a.number(0), ":0\r\n");
        same(|a| a.bulk("hé"), "$3\r\nhé\r\n");
        same(|a| a.refused(Code::SoldOut), "*2\r\n:0\r\n$8\r\nsold_out\r\n");
        assert_eq!(both(Answers::null), ("$-1\r\n".into(), "_\r\n".into()));
        let json = |a: &mut Answers| a.json(&json!({"a": [1, true], "b": null}));
        assert_eq!(
            said(Version::Two, json),
            "*4\r\n$1\r\na\r\n*2\r\n:1\r\n:1\r\n$1\r\nb\r\n$-1\r\n"
        );
        assert_eq!(
            said(Version::Three, json),
            "%2\r\n$1\r\na\r\n*2\r\n:1\r\n:1\r\n$1\r\nb\r\n_\r\n"
        );
    }

    #[test]
    fn a_claim_answers_as_the_usual_script_does() {
        let claim = ClaimId { pool: "7".parse().unwrap(), number: 12 };
        let said = said(Version::Two, |answers| {
            answers.claim(&Outcome::Refused(Refusal::AlreadyClaimed { claim }));
            answers.claim(&Outcome::Refused(Refusal::SoldOut));
        });
        assert_eq!(said, "*3\r\n:2\r\n:12\r\n$4\r\n7-12\r\n*2\r\n:0\r\n$8\r\nsold_out\r\n");
    }
}
