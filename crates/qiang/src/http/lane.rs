//! The fast lane: claims, answered without the general machinery.
//!
//! On sale day nearly every request is the same small one. A claim that arrives as such requests
//! do (HTTP/1.1, whole, nothing special about its headers) is read, decided and answered right
//! here; it meets the same extractors' rules, the same handler and the same answers as anywhere
//! else. At the first request that is anything else, the connection goes over to the general
//! server, with every byte that was read, and stays there.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use bytes::{Buf as _, Bytes, BytesMut};
use qiang_core::PoolId;
use qiang_engine::Stopwatch;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::extract::{Caller, IdempotencyKey, from_json};
use super::problem::{Lang, Problem};
use crate::app::App;
use crate::listener;
use crate::sales::claims::{self, ClaimView, NewClaim};

/// A request with more is for the general server.
const MAX_HEADERS: usize = 32;
const MAX_HEAD_BYTES: usize = 8 << 10;
const MAX_BODY_BYTES: usize = 1 << 10;
/// Room made before each read.
const READ_BYTES: usize = 2 << 10;
/// Answers to requests that came together are sent together, up to so many bytes.
const ANSWER_BYTES: usize = 64 << 10;

const METHOD: &[u8] = b"POST ";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// What a connection has sent so far.
enum Turn<'a> {
    /// A claim.
    Claim(Call<'a>),
    /// Perhaps a claim, once the rest has come.
    More,
    /// Something for the general server.
    Other,
}

/// A request for a claim.
struct Call<'a> {
    sale: PoolId,
    authorization: Option<&'a [u8]>,
    key: Option<&'a [u8]>,
    language: Option<&'a [u8]>,
    /// The page of a browser it comes from.
    origin: Option<&'a [u8]>,
    body: &'a [u8],
    bytes: usize,
}

/// The answers of one connection.
#[derive(Default)]
struct Answers {
    bytes: Vec<u8>,
    body: Vec<u8>,
    /// The second the date was written for, and its text.
    date: (u64, String),
    /// The last one says that no more will come.
    closing: bool,
}

/// Answers claims on a connection for as long as nothing else comes. Hands back the connection,
/// with what was read of it, for the general server; `None` is that it has ended.
pub(super) async fn serve(
    mut stream: TcpStream,
    app: &Arc<App>,
    stop: &CancellationToken,
) -> Option<(TcpStream, Bytes)> {
    let (patience, origins) = (app.config.http.header_timeout, &app.config.http.cors_origins);
    let (mut input, mut answers) = (BytesMut::new(), Answers::default());
    // One timer for the whole connection, looked at when it ends and not set for every request.
    let mut timer = std::pin::pin!(tokio::time::sleep(patience));
    let mut stopped = std::pin::pin!(stop.cancelled());
    let mut since = Stopwatch::start();
    loop {
        let turn = match read(&input) {
            // Its answer says whose pages may read it, which is written elsewhere.
            Turn::Claim(call) if call.origin.is_some() && origins.are_named() => Turn::Other,
            turn => turn,
        };
        match turn {
            Turn::Claim(call) if answers.bytes.len() < ANSWER_BYTES && !answers.closing => {
                answers.add(app, &call, stop).await;
                let bytes = call.bytes;
                input.advance(bytes);
                since = Stopwatch::start();
                continue;
            }
            Turn::Other if answers.bytes.is_empty() => return Some((stream, input.freeze())),
            Turn::Claim(_) | Turn::More | Turn::Other => {}
        }
        if !answers.bytes.is_empty() {
            let sent = stream.write_all(&answers.bytes);
            let sent = tokio::time::timeout(app.config.http.write_timeout, sent);
            if !matches!(sent.await, Ok(Ok(()))) {
                return None;
            }
            answers.bytes.clear();
            if answers.closing {
                listener::close(stream).await;
                return None;
            }
            if !input.is_empty() {
                continue;
            }
        }
        input.reserve(READ_BYTES);
        tokio::select! {
            biased;
            read = stream.read_buf(&mut input) => if !matches!(read, Ok(1..)) {
                return None;
            },
            () = stopped.as_mut() => return None,
            () = timer.as_mut() => {
                let left = patience.saturating_sub(since.elapsed());
                if left.is_zero() {
                    return None;
                }
                timer.set(tokio::time::sleep(left));
            }
        }
    }
}

/// Looks whether the input begins with a claim.
fn read(input: &[u8]) -> Turn<'_> {
    let begin = input.len().min(METHOD.len());
    if input[..begin] != METHOD[..begin] {
        return Turn::Other;
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(input) {
        Ok(httparse::Status::Complete(head)) if head <= MAX_HEAD_BYTES => head,
        Ok(httparse::Status::Partial) if input.len() < MAX_HEAD_BYTES => return Turn::More,
        _ => return Turn::Other,
    };
    let Some(sale) = request.path.and_then(sale) else { return Turn::Other };
    if request.version != Some(1) {
        return Turn::Other;
    }
    let mut call = Call {
        sale,
        authorization: None,
        key: None,
        language: None,
        origin: None,
        body: &[],
        bytes: 0,
    };
    let (mut length, mut media_type) = (None, None);
    for header in request.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        let (value, place) = match header.name.len() {
            13 if is("authorization") => (header.value, &mut call.authorization),
            15 if is("idempotency-key") => (header.value, &mut call.key),
            15 if is("accept-language") => (header.value, &mut call.language),
            14 if is("content-length") => (header.value, &mut length),
            6 if is("origin") => (header.value, &mut call.origin),
            12 if is("content-type") => (header.value, &mut media_type),
            10 if is("connection") && header.value.eq_ignore_ascii_case(b"keep-alive") => continue,
            // Everything that changes how a request is read or a connection is used.
            10 if is("connection") => return Turn::Other,
            17 if is("transfer-encoding") => return Turn::Other,
            6 if is("expect") => return Turn::Other,
            7 if is("upgrade") || is("trailer") => return Turn::Other,
            _ => continue,
        };
        if place.replace(value).is_some() {
            return Turn::Other;
        }
    }
    let length = match length {
        None => 0,
        Some(digits) => match std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()) {
            Some(length) if length <= MAX_BODY_BYTES && digits.iter().all(u8::is_ascii_digit) => {
                length
            }
            _ => return Turn::Other,
        },
    };
    let is_json = |value: &[u8]| value.eq_ignore_ascii_case(b"application/json");
    if length > 0 && !media_type.is_some_and(is_json) {
        return Turn::Other;
    }
    call.bytes = head + length;
    match input.get(head..call.bytes) {
        Some(body) => Turn::Claim(Call { body, ..call }),
        // A body has a time limit of its own, which is kept elsewhere.
        None => Turn::Other,
    }
}

/// The sale a path claims from.
fn sale(path: &str) -> Option<PoolId> {
    let id = match path.strip_prefix("/api/v1/sales/") {
        Some(rest) => rest.strip_suffix("/claims")?,
        None => path.strip_prefix("/voucher-order/seckill/")?,
    };
    id.parse().ok()
}

async fn claim(app: &App, call: &Call<'_>) -> Result<(StatusCode, ClaimView), Problem> {
    let caller = Caller(app.tokens.authenticate(call.authorization, app.now())?);
    let key = IdempotencyKey::of(call.key)?;
    let body = match call.body {
        [] => NewClaim::default(),
        body => from_json(body)?,
    };
    claims::claim(app, caller, call.sale, key, &body).await
}

impl Answers {
    /// Answers a claim.
    async fn add(&mut self, app: &App, call: &Call<'_>, stop: &CancellationToken) {
        self.body.clear();
        let answered = claim(app, call).await;
        self.look_at_clock(app);
        match answered {
            Ok((status, view)) => {
                serde_json::to_writer(&mut self.body, &view).expect("a claim is JSON");
                self.head(status, &[(CONTENT_TYPE, JSON)], stop);
                self.bytes.extend_from_slice(&self.body);
            }
            Err(problem) => {
                let lang = Lang::of_value(call.language);
                let body = problem.body(lang);
                self.body.extend_from_slice(&body);
                let headers: Vec<_> = problem.headers(lang).collect();
                self.head(problem.code().status(), &headers, stop);
                self.bytes.extend_from_slice(&body);
            }
        }
    }

    /// Everything before the body, which is ready.
    fn head(
        &mut self,
        status: StatusCode,
        headers: &[(HeaderName, HeaderValue)],
        stop: &CancellationToken,
    ) {
        self.bytes.extend_from_slice(b"HTTP/1.1 ");
        self.bytes.extend_from_slice(status.as_str().as_bytes());
        self.bytes.push(b' ');
        let reason = status.canonical_reason().unwrap_or_default();
        self.bytes.extend_from_slice(reason.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
        for (name, value) in headers {
            self.header(name, value.as_bytes());
        }
        if stop.is_cancelled() {
            self.header(&CONNECTION, CLOSE.as_bytes());
            self.closing = true;
        }
        let length = self.body.len().to_string();
        self.header(&CONTENT_LENGTH, length.as_bytes());
        let date = std::mem::take(&mut self.date.1);
        self.header(&DATE, date.as_bytes());
        self.date.1 = date;
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn header(&mut self, name: &HeaderName, value: &[u8]) {
        self.bytes.extend_from_slice(name.as_str().as_bytes());
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A date is written once a second.
    fn look_at_clock(&mut self, app: &App) {
        let seconds = u64::try_from(app.now().millis().max(0)).unwrap_or_default() / 1000;
        if self.date.0 != seconds || self.date.1.is_empty() {
            let now = UNIX_EPOCH + Duration::from_secs(seconds);
            self.date = (seconds, httpdate::fmt_http_date(now));
        }
    }
}

#[cfg(test)]
mod tests;
