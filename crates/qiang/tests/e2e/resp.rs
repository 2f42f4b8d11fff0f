//! The RESP door, over bare sockets and with clients people use: every command, every answer,
//! and everything that no good client would do.

mod access;
mod clients;
mod every_door;
mod hostile;
mod nonsense;
mod pipelines;
mod shutdown;
mod tls;
mod verbs;

use std::net::SocketAddr;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::raw;
use crate::shop::Shop;

const PASSWORD: &str = "let the backend in";
const OPEN: [(&str, &str); 2] =
    [("QIANG_RESP__LISTEN", "127.0.0.1:0"), ("QIANG_RESP__PASSWORD", PASSWORD)];

/// A shop with a RESP door.
pub(crate) async fn open() -> Shop {
    Shop::with(&OPEN).await
}

/// The same, with more settings.
pub(crate) async fn open_with(settings: &[(&str, &str)]) -> Shop {
    Shop::with(&[&OPEN, settings].concat()).await
}

fn address(shop: &Shop) -> SocketAddr {
    shop.server.resp_address.expect("it listens for RESP")
}

/// Somebody who has not signed in.
async fn stranger(shop: &Shop) -> Client {
    Client::new(raw::connect(address(shop)).await)
}

/// The shop's own backend.
pub(crate) async fn backend(shop: &Shop) -> Client {
    signed_in(shop, PASSWORD).await
}

/// Somebody with this password or token.
pub(crate) async fn signed_in(shop: &Shop, said: &str) -> Client {
    let mut client = stranger(shop).await;
    assert_eq!(client.say(&["AUTH", said]).await, json!("+OK"));
    client
}

/// A connection, and what arrived on it and was not read yet.
pub(crate) struct Client<S = TcpStream> {
    stream: S,
    input: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    fn new(stream: S) -> Self {
        Self { stream, input: Vec::new() }
    }

    /// Says words with spaces between them, and gives the answer.
    async fn ask(&mut self, line: &str) -> Value {
        self.say(&line.split(' ').collect::<Vec<_>>()).await
    }

    /// Says these words, and gives the answer.
    pub(crate) async fn say(&mut self, words: &[&str]) -> Value {
        self.send(&command(words)).await;
        self.answer().await
    }

    /// Says all lines in one write, and gives all answers.
    async fn pipeline<L: AsRef<str>>(&mut self, lines: &[L]) -> Vec<Value> {
        self.send(&commands(lines)).await;
        self.answers(lines.len()).await
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
        self.stream.flush().await.expect("sent");
    }

    async fn answers(&mut self, count: usize) -> Vec<Value> {
        let mut answers = Vec::new();
        while answers.len() < count {
            answers.push(self.answer().await);
        }
        answers
    }

    async fn answer(&mut self) -> Value {
        self.next().await.expect("the connection holds")
    }

    /// The next answer, or nothing after the last.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((answer, len)) = read(&self.input) {
                self.input.drain(..len);
                return Some(answer);
            }
            let read = self.stream.read_buf(&mut self.input);
            let read = tokio::time::timeout(raw::PATIENCE, read).await;
            if !read.expect("the server answers or closes").is_ok_and(|len| len > 0) {
                assert!(self.input.is_empty(), "cut off: {}", self.input.escape_ascii());
                return None;
            }
        }
    }

    /// Every answer up to the end of the connection.
    async fn rest(&mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(answer) = self.next().await {
            rest.push(answer);
        }
        rest
    }
}

/// A command as clients send it.
fn command<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.as_ref().len()).into_bytes());
        bytes.extend(word.as_ref());
        bytes.extend(b"\r\n");
    }
    bytes
}

fn commands<L: AsRef<str>>(lines: &[L]) -> Vec<u8> {
    lines.iter().flat_map(|line| command(&line.as_ref().split(' ').collect::<Vec<_>>())).collect()
}

/// The answer that bytes begin with, as JSON, and its length; nothing if it is not whole.
/// Simple strings and errors keep their sign.
fn read(input: &[u8]) -> Option<(Value, usize)> {
    let end = input.windows(2).position(|two| two == b"\r\n")?;
    let line = std::str::from_utf8(&input[..end]).expect("UTF-8");
    let (number, mut at) = (|| line[1..].parse::<i64>().expect(line), end + 2);
    let value = match input[0] {
        b'+' | b'-' => json!(line),
        b':' => json!(number()),
        b'_' => Value::Null,
        b'$' | b'*' if number() < 0 => Value::Null,
        b'$' => {
            let len = usize::try_from(number()).expect("a length");
            let text = input.get(at..at + len + 2)?;
            assert!(text.ends_with(b"\r\n"), "{}", input.escape_ascii());
            at += len + 2;
            json!(String::from_utf8_lossy(&text[..len]))
        }
        b'*' => {
            let mut list = Vec::new();
            for _ in 0..number() {
                let (value, len) = read(&input[at..])?;
                list.push(value);
                at += len;
            }
            Value::Array(list)
        }
        b'%' => {
            let mut map = Map::new();
            for _ in 0..number() {
                let (name, len) = read(&input[at..])?;
                at += len;
                let (value, len) = read(&input[at..])?;
                at += len;
                map.insert(name.as_str().expect("a name").to_owned(), value);
            }
            Value::Object(map)
        }
        _ => panic!("not an answer: {}", input.escape_ascii()),
    };
    Some((value, at))
}

/// A flat list of names and values, as version 2 has it, as a map.
fn paired(list: &Value) -> Value {
    let list = list.as_array().expect("a list");
    let name = |value: &Value| value.as_str().expect("a name").to_owned();
    list.chunks(2).map(|two| (name(&two[0]), two[1].clone())).collect::<Map<_, _>>().into()
}

/// Expects an error that begins with `word` and says all of `words`.
#[track_caller]
fn wrong(answer: &Value, word: &str, words: &[&str]) {
    let said = answer.as_str().unwrap_or_default();
    assert!(said.starts_with(&format!("-{word} ")), "{answer} is not {word}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing from {said}");
    }
}
