//! Requests and answers over RESP, the protocol of Redis, as `[resp] listen` speaks it.
//!
//! Replies are read without copying them; lengths, counts and depth are bounded, and a reply that
//! is not understood ends the connection.

use std::io::Write as _;

use super::ask::{Answer, Ask, Nonsense, Verb, fault, of_code};
use super::wire::Read;

/// A longer line of a reply is nonsense.
const MAX_LINE_BYTES: usize = 64 << 10;
/// A longer text is nonsense.
const MAX_BULK_BYTES: usize = 1 << 20;
/// More elements are nonsense.
const MAX_ELEMENTS: usize = 1_024;
/// Arrays in arrays in arrays are nonsense.
const MAX_DEPTH: usize = 4;

/// What all commands of a run have in common.
#[derive(Debug)]
pub struct Resp {
    sale: String,
    run: String,
    token: String,
    users: Vec<Box<str>>,
    price_cents: i64,
}

impl Resp {
    /// `token` opens the connection; `users` are the names, in order.
    pub fn new(sale: &str, run: &str, token: &str, users: Vec<Box<str>>, price_cents: i64) -> Self {
        let [sale, run, token] = [sale, run, token].map(str::to_owned);
        Self { sale, run, token, users, price_cents }
    }

    /// What every connection says first; the server answers it with one reply.
    pub fn greeting(&self) -> Vec<u8> {
        let mut out = Vec::new();
        command(&mut out, &["AUTH", &self.token]);
        out
    }

    /// Whether the reply to the greeting is there, and good.
    pub fn welcomed(bytes: &[u8]) -> Result<Option<usize>, Nonsense> {
        match Reply::parse(bytes)? {
            None => Ok(None),
            Some((Reply::Simple(b"OK"), used)) => Ok(Some(used)),
            Some((Reply::Error(said), _)) if said.windows(3).any(|word| word == b"TLS") => {
                Err(Nonsense("that port speaks TLS only, and this load does not"))
            }
            Some(_) => Err(Nonsense("AUTH was refused: that server has other keys")),
        }
    }

    /// Writes a command behind `out`.
    pub fn write(&self, ask: &Ask, out: &mut Vec<u8>) {
        let (sale, run, key) = (&*self.sale, &self.run, ask.key);
        let user = usize::try_from(ask.user).ok().and_then(|user| self.users.get(user));
        let user = user.map_or("", |user| user);
        match ask.verb {
            Verb::Claim => command(out, &["CLAIM", sale, user, "1", &format!("{run}-{key}")]),
            Verb::Order => command(out, &["ORDER", &format!("{sale}-{key}"), user]),
            Verb::Pay => {
                let payment = format!("{run}-{sale}-{key}");
                let amount = self.price_cents.to_string();
                command(out, &["PAY", &format!("{sale}-{key}"), &payment, &amount]);
            }
            Verb::Release => command(out, &["RELEASE", &format!("{sale}-{key}"), user]),
            Verb::Look => command(out, &["POOL", sale]),
        }
    }

    /// The reply at the beginning of `bytes`, or `None` if it is not all there yet.
    pub fn read(&self, bytes: &[u8], ask: &Ask) -> Result<Option<Read>, Nonsense> {
        let Some((reply, used)) = Reply::parse(bytes)? else { return Ok(None) };
        Ok(Some(Read { answer: self.answer(&reply, ask)?, used, last: false }))
    }

    fn answer(&self, reply: &Reply<'_>, ask: &Ask) -> Result<Answer, Nonsense> {
        let parts = match reply {
            Reply::Error(line) => return Ok(of_error(line)),
            Reply::Array(parts) if ask.verb == Verb::Look && !parts.is_empty() => {
                return Ok(Answer::Done { number: 0 });
            }
            Reply::Array(parts) => parts,
            _ => return Err(Nonsense("not a reply to this command")),
        };
        match (parts.as_slice(), ask.verb) {
            ([Reply::Int(0), Reply::Bulk(code), ..], _) => {
                Ok(of_code(std::str::from_utf8(code).unwrap_or_default()))
            }
            ([Reply::Int(1 | 2), Reply::Bulk(b"refund_due"), ..], Verb::Pay) => {
                Ok(Answer::RefundDue)
            }
            ([Reply::Int(which @ (1 | 2)), Reply::Bulk(_), ..], Verb::Pay) => Ok(done(*which, 0)),
            ([Reply::Int(which @ (1 | 2)), Reply::Int(number), Reply::Bulk(id)], _) => {
                let number = self.number(*number, id)?;
                // A claim given up twice answers as it did the first time.
                Ok(done(if ask.verb == Verb::Release { 1 } else { *which }, number))
            }
            _ => Err(Nonsense("not a reply to this command")),
        }
    }

    fn number(&self, number: i64, id: &[u8]) -> Result<u32, Nonsense> {
        let wrong = Nonsense("a claim of another sale, or of another number");
        let id = std::str::from_utf8(id).ok().and_then(|id| id.strip_prefix(&*self.sale));
        let named: Option<u32> = id.and_then(|id| id.strip_prefix('-')?.parse().ok());
        match (u32::try_from(number), named) {
            (Ok(number), Some(named)) if number == named && number > 0 => Ok(number),
            _ => Err(wrong),
        }
    }
}

fn done(which: i64, number: u32) -> Answer {
    if which == 1 { Answer::Done { number } } else { Answer::Again { number } }
}

/// `-OVERLOADED too busy` is the code `overloaded`.
fn of_error(line: &[u8]) -> Answer {
    let word = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let code = String::from_utf8_lossy(word).to_ascii_lowercase();
    match (of_code(&code), &*code) {
        (_, "noauth" | "wrongpass") => Answer::Failed("unauthenticated"),
        // What Redis itself says of anything it does not understand.
        (_, "err") => Answer::Failed(fault::STRANGE),
        (Answer::Refused(code), _) => Answer::Failed(code),
        (answer, _) => answer,
    }
}

fn command(out: &mut Vec<u8>, words: &[&str]) {
    // Writing to memory cannot fail.
    let _written = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _written = write!(out, "${}\r\n{word}\r\n", word.len());
    }
}

/// One reply, in RESP2.
#[derive(Debug, PartialEq, Eq)]
enum Reply<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Int(i64),
    Bulk(&'a [u8]),
    Nil,
    Array(Vec<Reply<'a>>),
}

impl<'a> Reply<'a> {
    /// The reply at the beginning, and how long it is.
    fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Nonsense> {
        let mut rest = bytes;
        let reply = Self::take(&mut rest, MAX_DEPTH)?;
        Ok(reply.map(|reply| (reply, bytes.len() - rest.len())))
    }

    fn take(rest: &mut &'a [u8], depth: usize) -> Result<Option<Self>, Nonsense> {
        let Some((&kind, _)) = rest.split_first() else { return Ok(None) };
        if !b"+-:$*".contains(&kind) {
            return Err(Nonsense("not RESP2"));
        }
        let Some(line) = line(rest)? else { return Ok(None) };
        match kind {
            b'+' => Ok(Some(Self::Simple(line))),
            b'-' => Ok(Some(Self::Error(line))),
            b':' => Ok(Some(Self::Int(integer(line)?))),
            b'$' => match integer(line)? {
                -1 => Ok(Some(Self::Nil)),
                length => bulk(rest, bounded(length, MAX_BULK_BYTES)?),
            },
            _ => match integer(line)? {
                -1 => Ok(Some(Self::Nil)),
                _ if depth == 0 => Err(Nonsense("too deep")),
                count => Self::array(rest, bounded(count, MAX_ELEMENTS)?, depth - 1),
            },
        }
    }

    fn array(rest: &mut &'a [u8], count: usize, depth: usize) -> Result<Option<Self>, Nonsense> {
        let mut parts = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(part) = Self::take(rest, depth)? else { return Ok(None) };
            parts.push(part);
        }
        Ok(Some(Self::Array(parts)))
    }
}

/// What stands between the kind and the end of the line.
fn line<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Nonsense> {
    let Some(end) = rest.iter().take(MAX_LINE_BYTES).position(|byte| *byte == b'\n') else {
        return if rest.len() < MAX_LINE_BYTES {
            Ok(None)
        } else {
            Err(Nonsense("a line without end"))
        };
    };
    let line = rest.get(1..end).and_then(|line| line.strip_suffix(b"\r"));
    *rest = rest.get(end + 1..).unwrap_or_default();
    line.map(Some).ok_or(Nonsense("a line that does not end in CRLF"))
}

fn bulk<'a>(rest: &mut &'a [u8], length: usize) -> Result<Option<Reply<'a>>, Nonsense> {
    let Some((text, behind)) = rest.split_at_checked(length) else { return Ok(None) };
    match behind {
        [b'\r', b'\n', behind @ ..] => {
            *rest = behind;
            Ok(Some(Reply::Bulk(text)))
        }
        [] | [b'\r'] => Ok(None),
        _ => Err(Nonsense("a text longer than it says")),
    }
}

fn integer(line: &[u8]) -> Result<i64, Nonsense> {
    let text = std::str::from_utf8(line).ok();
    text.and_then(|text| text.parse().ok()).ok_or(Nonsense("a number that is none"))
}

fn bounded(length: i64, bound: usize) -> Result<usize, Nonsense> {
    let length = usize::try_from(length).ok().filter(|length| *length <= bound);
    length.ok_or(Nonsense("a length out of bounds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resp() -> Resp {
        Resp::new("7", "r1", "secret", vec!["b0".into(), "b1".into()], 100)
    }

    fn written(verb: Verb) -> String {
        let mut out = Vec::new();
        resp().write(&Ask { verb, user: 1, key: 3 }, &mut out);
        String::from_utf8(out).expect("ASCII").replace("\r\n", " ")
    }

    fn said(verb: Verb, text: &str) -> Result<Option<Answer>, Nonsense> {
        let read = resp().read(text.as_bytes(), &Ask { verb, user: 1, key: 3 })?;
        Ok(read.map(|read| read.answer))
    }

    #[test]
    fn commands_are_written_as_arrays() {
        assert_eq!(written(Verb::Claim), "*5 $5 CLAIM $1 7 $2 b1 $1 1 $4 r1-3 ");
        assert_eq!(written(Verb::Order), "*3 $5 ORDER $3 7-3 $2 b1 ");
        assert_eq!(written(Verb::Pay), "*4 $3 PAY $3 7-3 $6 r1-7-3 $3 100 ");
        assert_eq!(written(Verb::Release), "*3 $7 RELEASE $3 7-3 $2 b1 ");
        assert_eq!(written(Verb::Look), "*2 $4 POOL $1 7 ");
        assert_eq!(resp().greeting(), b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n");
    }

    #[test]
    fn replies_mean_what_they_say() {
        let check = |verb, text, answer| assert_eq!(said(verb, text), Ok(Some(answer)), "{text}");
        let granted = "*3\r\n:1\r\n:3\r\n$3\r\n7-3\r\n";
        check(Verb::Claim, granted, Answer::Done { number: 3 });
        check(Verb::Claim, "*3\r\n:2\r\n:3\r\n$3\r\n7-3\r\n", Answer::Again { number: 3 });
        check(Verb::Release, "*3\r\n:2\r\n:3\r\n$3\r\n7-3\r\n", Answer::Done { number: 3 });
        check(Verb::Claim, "*2\r\n:0\r\n$8\r\nsold_out\r\n", Answer::Refused("sold_out"));
        check(Verb::Order, granted, Answer::Done { number: 3 });
        let paid = "*3\r\n:1\r\n$4\r\npaid\r\n$3\r\n7-3\r\n";
        check(Verb::Pay, paid, Answer::Done { number: 0 });
        let back = "*3\r\n:1\r\n$10\r\nrefund_due\r\n$3\r\n7-3\r\n";
        check(Verb::Pay, back, Answer::RefundDue);
        check(Verb::Look, "*2\r\n$5\r\nstock\r\n:9\r\n", Answer::Done { number: 0 });
        check(Verb::Claim, "-OVERLOADED too busy\r\n", Answer::Failed("overloaded"));
        check(Verb::Claim, "-UNAVAILABLE stopped\r\n", Answer::Failed("unavailable"));
        check(Verb::Claim, "-OUTCOME_UNKNOWN it may have happened\r\n", Answer::Unknown);
        check(Verb::Claim, "-NOAUTH sign in\r\n", Answer::Failed("unauthenticated"));
        check(Verb::Claim, "-ERR unknown command\r\n", Answer::Failed(fault::STRANGE));
    }

    #[test]
    fn a_reply_is_read_once_it_is_whole() {
        let text = "*3\r\n:1\r\n:3\r\n$3\r\n7-3\r\n";
        for cut in 0..text.len() {
            assert_eq!(said(Verb::Claim, &text[..cut]), Ok(None), "{cut}");
        }
        let (_, used) = Reply::parse(format!("{text}*2").as_bytes()).expect("sense").expect("all");
        assert_eq!(used, text.len());
    }

    #[test]
    fn nonsense_is_told_from_what_is_still_to_come() {
        let long = format!("+{}", "x".repeat(MAX_LINE_BYTES));
        let deep = "*1\r\n".repeat(MAX_DEPTH + 2);
        for text in [
            "HTTP/1.1 400 Bad Request\r\n",
            "%1\r\n",
            ":x\r\n",
            ":\r\n",
            "$-2\r\n",
            "$1048577\r\n",
            "*1025\r\n",
            "*9223372036854775808\r\n",
            "$1\r\nxyz",
            "+OK\n",
            "+PONG\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*3\r\n:1\r\n:3\r\n$3\r\n8-3\r\n",
            "*3\r\n:1\r\n:4\r\n$3\r\n7-3\r\n",
            "*3\r\n:1\r\n:-1\r\n$4\r\n7--1\r\n",
            "*3\r\n:5\r\n:3\r\n$3\r\n7-3\r\n",
            &long,
            &deep,
        ] {
            assert!(said(Verb::Claim, text).is_err(), "{text:.40}");
        }
        assert!(Resp::welcomed(b"-WRONGPASS no\r\n").is_err());
        assert_eq!(Resp::welcomed(b"+OK\r"), Ok(None));
        assert_eq!(Resp::welcomed(b"+OK\r\n"), Ok(Some(5)));
    }
}
