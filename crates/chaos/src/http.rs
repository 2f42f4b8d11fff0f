//! One question over HTTP, on a connection of its own. There is an answer, whole, or there is none:
//! why not is nobody's business here, because whoever gets none asks again.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::keys;

/// Longer than a node waits for its engine (10 s); a node that was stopped meets it.
const ANSWER_LIMIT: Duration = Duration::from_secs(12);
/// A larger answer is none.
const LARGEST: u64 = 8 << 20;
/// Codes that promise nothing: it may have happened, or may happen when asked again.
const NO_ANSWER: [&str; 4] = ["unavailable", "outcome_unknown", "overloaded", "internal"];

/// What is asked.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: String,
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Question {
    pub(crate) fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: String::new() }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new("POST", path)
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn by(self, user: &str) -> Self {
        self.header("Authorization", keys::buyer(user))
    }

    pub(crate) fn by_admin(self) -> Self {
        self.header("Authorization", keys::admin())
    }

    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string();
        self.header("Content-Type", "application/json")
    }

    /// A callback of the provider, signed for this very attempt.
    pub(crate) fn callback(body: &Value) -> Self {
        let question = Self::post("/api/v1/payments/callback").json(body);
        let signed = keys::callback(&question.body);
        signed.into_iter().fold(question, |question, (name, value)| question.header(name, value))
    }

    /// Asks at a door; `None` if there is no whole answer in time.
    pub(crate) async fn ask(&self, door: SocketAddr) -> Option<Answer> {
        self.ask_within(door, ANSWER_LIMIT).await
    }

    pub(crate) async fn ask_within(&self, door: SocketAddr, limit: Duration) -> Option<Answer> {
        tokio::time::timeout(limit, self.exchange(door)).await.ok()?
    }

    async fn exchange(&self, door: SocketAddr) -> Option<Answer> {
        let mut stream = TcpStream::connect(door).await.ok()?;
        stream.write_all(self.text(door).as_bytes()).await.ok()?;
        let mut bytes = Vec::new();
        stream.take(LARGEST).read_to_end(&mut bytes).await.ok()?;
        read(&String::from_utf8_lossy(&bytes))
    }

    fn text(&self, door: SocketAddr) -> String {
        let Self { method, path, body, .. } = self;
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {door}\r\nConnection: close\r\n");
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        text
    }
}

impl Answer {
    /// A field of the body that is text; empty if it is not there.
    pub(crate) fn text(&self, name: &str) -> &str {
        text(&self.body, name)
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> &str {
        self.text("code")
    }

    pub(crate) fn is_success(&self) -> bool {
        self.status == 200 || self.status == 201
    }

    /// Whether whoever asked now knows.
    pub(crate) fn is_definite(&self) -> bool {
        self.is_success() || !NO_ANSWER.contains(&self.code())
    }
}

/// A field that is text; empty if it is not there.
pub(crate) fn text<'a>(body: &'a Value, name: &str) -> &'a str {
    body[name].as_str().unwrap_or_default()
}

/// An answer whose body is as long as it says.
fn read(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    if body.len() != length {
        return None;
    }
    let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    Some(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn only_a_whole_answer_is_one() {
        let whole = "HTTP/1.1 201 Created\r\nA: b\r\nContent-Length: 15\r\n\r\n{\"code\":\"none\"}";
        let answer = read(whole).unwrap();
        assert_eq!((answer.status, answer.code()), (201, "none"));
        assert!(read(&whole[..whole.len() - 1]).is_none());
        assert!(read("HTTP/1.1 200 OK\r\n\r\n").is_none());
        assert!(read("").is_none());
    }

    #[test]
    fn what_promises_nothing_is_asked_again() {
        let body = r#"{"code":"outcome_unknown"}"#;
        let text = format!("HTTP/1.1 503 x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        assert!(!read(&text).unwrap().is_definite());
        let text = text.replace("outcome_unknown", "already_claimed");
        assert!(read(&text).unwrap().is_definite());
    }
}
