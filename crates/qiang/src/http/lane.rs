//! The fast lane: claims, answered without the general machinery.
//!
//! On sale day nearly every request is the same small one. A claim that arrives as such requests
//! do (HTTP/1.1, whole, nothing special about its headers) is read, decided and answered right
//! here; it meets the same extractors' rules, the same handler and the same answers as anywhere
//! else. For a request that is anything else the connection goes over to the general server, with
//! every byte that was read, and comes back when that is answered.
//!
//! This is where connections wait, ten thousand of them perhaps, so one that waits has no buffers.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, UNIX_EPOCH};

use axum::http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use bytes::{Buf as _, Bytes, BytesMut};
use qiang_core::PoolId;
use qiang_engine::Stopwatch;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;
use utoipa::Path as _;

use crate::listener;
use crate::tls::{self, Stream};
use crate::traces::{Ended, Traces};
use qiang_app::App;
use qiang_app::Origin;
use qiang_app::extract::{Caller, IdempotencyKey, from_json};
use qiang_app::problem::{Lang, Problem};
use qiang_app::session::{self, Intent, Shown};
use qiang_sales::claims::{self, ClaimView, NewClaim};

/// A request with more is for the general server.
const MAX_HEADERS: usize = 32;
const MAX_HEAD_BYTES: usize = 8 << 10;
const MAX_BODY_BYTES: usize = 1 << 10;
/// Read at once.
const READ_BYTES: usize = 4 << 10;
/// Room for an answer of the usual size, and for its body.
const USUAL_BYTES: usize = 768;
const USUAL_BODY_BYTES: usize = 512;
/// Answers to requests that came together are sent together, up to so many bytes.
const ANSWER_BYTES: usize = 64 << 10;

const METHOD: &[u8] = b"POST ";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// What clients of HTTP/2 say first, unasked.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether claims are answered on this lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claims {
    Here,
    Elsewhere,
}

/// A connection for the general server.
pub(super) struct HandedOn {
    pub(super) stream: Stream,
    /// What was read of its request.
    pub(super) begun: Bytes,
    pub(super) speaks: Speaks,
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Http1,
    Http2,
}

/// What a connection has sent so far.
enum Turn<'a> {
    /// A claim.
    Claim(Call<'a>),
    /// Perhaps a claim, once the rest has come.
    More,
    /// Something for the general server.
    Other(Speaks),
}

/// A request for a claim.
struct Call<'a> {
    sale: PoolId,
    /// The address, with a name in place of the sale.
    route: &'static str,
    authorization: Option<&'a [u8]>,
    cookie: Option<&'a [u8]>,
    fetch_site: Option<&'a [u8]>,
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

/// Answers claims on a connection, of which `begun` was read already, for as long as nothing else
/// comes. Hands the connection on then, for the general server; `None` is that it has ended.
pub(super) async fn serve(
    mut stream: Stream,
    begun: Bytes,
    claims: Claims,
    app: &Arc<App>,
    traces: Option<&Traces>,
    origin: Origin,
    stop: &CancellationToken,
) -> Option<HandedOn> {
    let (patience, origins) = (app.config.http.header_timeout, &app.config.http.cors_origins);
    let (mut input, mut answers) = (BytesMut::from(begun), Answers::default());
    // One timer for the whole connection, looked at when it ends and not set for every request.
    let mut timer = std::pin::pin!(tokio::time::sleep(patience));
    let mut stopped = std::pin::pin!(stop.cancelled());
    let mut since = Stopwatch::start();
    loop {
        let turn = match read(&input) {
            Turn::Claim(_) if claims == Claims::Elsewhere => Turn::Other(Speaks::Http1),
            // Its answer says whose pages may read it, which is written elsewhere.
            Turn::Claim(call) if call.origin.is_some() && origins.are_named() => {
                Turn::Other(Speaks::Http1)
            }
            turn => turn,
        };
        match turn {
            Turn::Claim(call) if answers.bytes.len() < ANSWER_BYTES && !answers.closing => {
                let span = traces.map(Traces::begin);
                let ended = answers.add(app, &call, &origin, stop).await;
                if let Some(span) = span {
                    let (status, code) = ended;
                    span.end(&Ended { method: "POST", route: call.route, status, code });
                }
                let bytes = call.bytes;
                input.advance(bytes);
                since = Stopwatch::start();
                continue;
            }
            Turn::Other(speaks) if answers.bytes.is_empty() => {
                return Some(HandedOn { stream, begun: input.freeze(), speaks });
            }
            Turn::Claim(_) | Turn::More | Turn::Other(_) => {}
        }
        if !answers.bytes.is_empty() {
            let sent = async {
                stream.write_all(&answers.bytes).await?;
                stream.flush().await
            };
            let sent = tokio::time::timeout(app.config.http.write_timeout, sent);
            if !matches!(sent.await, Ok(Ok(()))) {
                return None;
            }
            answers.clear();
            if answers.closing {
                listener::close(stream).await;
                return None;
            }
            if !input.is_empty() {
                continue;
            }
        }
        if input.is_empty() {
            input = BytesMut::new();
        }
        tokio::select! {
            biased;
            read = listener::read::<READ_BYTES>(&mut stream, &mut input) => {
                if !matches!(read, Ok(1..)) {
                    return None;
                }
            }
            () = stopped.as_mut() => {
                tls::say_goodbye(stream).await;
                return None;
            }
            () = timer.as_mut() => {
                let left = patience.saturating_sub(since.elapsed());
                if left.is_zero() {
                    tls::say_goodbye(stream).await;
                    return None;
                }
                timer.set(tokio::time::sleep(left));
            }
        }
    }
}

/// Anything but a claim.
const OTHER: Turn<'static> = Turn::Other(Speaks::Http1);

/// Looks whether the input begins with a claim.
fn read(input: &[u8]) -> Turn<'_> {
    let begins = |with: &[u8]| {
        let len = input.len().min(with.len());
        input[..len] == with[..len]
    };
    if !begins(METHOD) {
        return match begins(PREFACE) {
            true if input.len() < PREFACE.len() => Turn::More,
            true => Turn::Other(Speaks::Http2),
            false => OTHER,
        };
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(input) {
        Ok(httparse::Status::Complete(head)) if head <= MAX_HEAD_BYTES => head,
        Ok(httparse::Status::Partial) if input.len() < MAX_HEAD_BYTES => return Turn::More,
        _ => return OTHER,
    };
    let Some((sale, route)) = request.path.and_then(sale) else { return OTHER };
    if request.version != Some(1) {
        return OTHER;
    }
    let mut call = Call {
        sale,
        route,
        authorization: None,
        cookie: None,
        fetch_site: None,
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
            6 if is("cookie") => (header.value, &mut call.cookie),
            14 if is("sec-fetch-site") => (header.value, &mut call.fetch_site),
            6 if is("origin") => (header.value, &mut call.origin),
            12 if is("content-type") => (header.value, &mut media_type),
            10 if is("connection") && header.value.eq_ignore_ascii_case(b"keep-alive") => continue,
            // Everything that changes how a request is read or a connection is used.
            10 if is("connection") => return OTHER,
            17 if is("transfer-encoding") => return OTHER,
            6 if is("expect") => return OTHER,
            7 if is("upgrade") || is("trailer") => return OTHER,
            _ => continue,
        };
        if place.replace(value).is_some() {
            return OTHER;
        }
    }
    let length = match length {
        None => 0,
        Some(digits) => match std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()) {
            Some(length) if length <= MAX_BODY_BYTES && digits.iter().all(u8::is_ascii_digit) => {
                length
            }
            _ => return OTHER,
        },
    };
    let is_json = |value: &[u8]| value.eq_ignore_ascii_case(b"application/json");
    if length > 0 && !media_type.is_some_and(is_json) {
        return OTHER;
    }
    call.bytes = head + length;
    match input.get(head..call.bytes) {
        Some(body) => Turn::Claim(Call { body, ..call }),
        // A body has a time limit of its own, which is kept elsewhere.
        None => OTHER,
    }
}

/// The sale a path claims from, and the route it is. The paths are those of the general server.
fn sale(path: &str) -> Option<(PoolId, &'static str)> {
    static PATHS: LazyLock<[(String, String, String); 2]> = LazyLock::new(|| {
        let around_id = |path: String| {
            let (before, rest) = path.split_once('{').expect("the path names its sale");
            let (_, behind) = rest.split_once('}').expect("the path names its sale");
            (before.to_owned(), behind.to_owned(), path.clone())
        };
        [claims::__path_create::path(), claims::__path_create_for_voucher::path()].map(around_id)
    });
    let (id, route) = PATHS.iter().find_map(|(before, behind, route)| {
        let id = path.strip_prefix(before.as_str())?.strip_suffix(behind.as_str())?;
        Some((id, route.as_str()))
    })?;
    Some((id.parse().ok()?, route))
}

async fn claim(
    app: &App,
    call: &Call<'_>,
    origin: &Origin,
) -> Result<(StatusCode, ClaimView), Problem> {
    let shown = Shown {
        authorization: call.authorization,
        cookie: session::find(|| call.cookie.into_iter())?,
        fetch_site: call.fetch_site,
        origin: call.origin,
    };
    let caller = Caller(app.caller(&shown, Intent::Change)?);
    let key = IdempotencyKey::of(call.key)?;
    let body = match call.body {
        [] => NewClaim::default(),
        body => from_json(body)?,
    };
    claims::claim(app, origin, caller, call.sale, key, &body).await
}

impl Answers {
    /// Forgets what was sent, and gives its memory back.
    fn clear(&mut self) {
        (self.bytes, self.body) = (Vec::new(), Vec::new());
    }

    /// Answers a claim, and says with which status, and with which code if it is a problem.
    async fn add(
        &mut self,
        app: &App,
        call: &Call<'_>,
        origin: &Origin,
        stop: &CancellationToken,
    ) -> (StatusCode, Option<&'static str>) {
        let answered = claim(app, call, origin).await;
        self.body.clear();
        self.body.reserve(USUAL_BODY_BYTES);
        self.bytes.reserve(USUAL_BYTES);
        self.look_at_clock(app);
        match answered {
            Ok((status, view)) => {
                serde_json::to_writer(&mut self.body, &view).expect("a claim is JSON");
                self.head(status, &[(CONTENT_TYPE, JSON)], stop);
                self.bytes.extend_from_slice(&self.body);
                (status, None)
            }
            Err(problem) => {
                let lang = Lang::of_value(call.language);
                let body = problem.body(lang);
                self.body.extend_from_slice(&body);
                let headers: Vec<_> = problem.headers(lang).collect();
                let code = problem.code();
                self.head(code.status(), &headers, stop);
                self.bytes.extend_from_slice(&body);
                (code.status(), Some(code.as_str()))
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
