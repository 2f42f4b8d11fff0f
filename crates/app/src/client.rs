//! A small HTTP/1.1 client over one connection that is kept open, with TLS or without: for the demo's crowd, load,
//! `audit --url` and the tests.
//!
//! It never sends a request twice. When the connection is gone the caller is told whether the
//! request can have arrived, and decides: [`Client::reconnect`], and ask again with the same
//! `Idempotency-Key`. Every wait and every body is bounded.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;

use crate::tls::{self, Trust};

/// How long an answer may take unless [`Client::set_timeout`] says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// A larger answer is not read to its end.
pub const MAX_ANSWER_BYTES: usize = 256 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// One connection to a server. Requests go one after the other.
pub struct Client {
    address: SocketAddr,
    host: HeaderValue,
    tls: Option<Tls>,
    sender: SendRequest<Full<Bytes>>,
    timeout: Duration,
}

/// Whom to trust, and under which name.
#[derive(Debug, Clone)]
pub struct Tls {
    pub trust: Trust,
    /// What the certificate has to be for.
    pub name: ServerName<'static>,
}

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not `http://host:port` or `https://host:port`.
    #[error("{url:?} is not an address like http://127.0.0.1:8080 or https://shop.example")]
    BadUrl {
        /// What was given.
        url: String,
    },
    /// Nobody answers there.
    #[error("cannot connect to {to}")]
    Connect { to: String, source: std::io::Error },
    /// The files for TLS cannot be used.
    #[error(transparent)]
    Trust(#[from] tls::Error),
    /// The server is not one that is trusted, or does not speak TLS.
    #[error(
        "{to} is not trusted, or speaks no TLS (if its certificate is of a CA of your own, name \
         that with --ca)"
    )]
    Untrusted { to: String, source: std::io::Error },
    /// The server does not speak HTTP/1.1, or hung up at once.
    #[error("cannot speak HTTP with the server")]
    Handshake(#[source] hyper::Error),
    /// The method, path or headers make no request. Nothing was sent.
    #[error("not a valid request")]
    BadRequest(#[source] axum::http::Error),
    /// The body cannot be written as JSON. Nothing was sent.
    #[error("the body cannot be written as JSON")]
    Encode(#[source] serde_json::Error),
    /// The connection was closed before the request was sent. Nothing was sent.
    #[error("the connection is closed; the request was not sent")]
    NotSent(#[source] hyper::Error),
    /// The connection broke after the request was sent. It may have been carried out.
    #[error("the connection broke before the answer came; it may have happened")]
    Broken(#[source] hyper::Error),
    /// No answer in time. It may have been carried out.
    #[error("no answer within {0:?}; it may have happened")]
    Timeout(Duration),
    /// The answer began and did not end well. It may have been carried out.
    #[error("the answer could not be read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer is not the JSON that was expected.
    #[error("the answer (status {status}) is not the expected JSON")]
    Json {
        /// The status it came with.
        status: StatusCode,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl Error {
    /// Whether the request may have been carried out although there is no answer.
    #[must_use]
    pub const fn outcome_unknown(&self) -> bool {
        match self {
            Self::BadUrl { .. }
            | Self::Connect { .. }
            | Self::Trust(_)
            | Self::Untrusted { .. }
            | Self::Handshake(_)
            | Self::BadRequest(_)
            | Self::Encode(_)
            | Self::NotSent(_) => false,
            Self::Broken(_) | Self::Timeout(_) | Self::Body(_) | Self::Json { .. } => true,
        }
    }
}

impl Client {
    /// Connects to an address.
    pub async fn connect(address: SocketAddr) -> Result<Self, Error> {
        Self::connect_tls(address, None).await
    }

    /// The same, with TLS if there is whom to trust.
    pub async fn connect_tls(address: SocketAddr, tls: Option<Tls>) -> Result<Self, Error> {
        let host = HeaderValue::from_str(&address.to_string()).expect("an address is ASCII");
        Self::open(address, host, tls, DEFAULT_TIMEOUT).await
    }

    /// Connects to the host and port of an `http://` or `https://` URL; its path is not looked at.
    /// With `https` whoever the system trusts is trusted, or only those in the file `ca`.
    pub async fn connect_url(url: &str, ca: Option<&Path>) -> Result<Self, Error> {
        let bad = || Error::BadUrl { url: url.to_owned() };
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?;
        if authority.as_str().contains('@') {
            return Err(bad());
        }
        let bare = authority.host().trim_start_matches('[').trim_end_matches(']');
        let (tls, port) = match uri.scheme_str() {
            None | Some("http") => (None, 80),
            Some("https") => {
                let name = ServerName::try_from(bare.to_owned()).map_err(|_| bad())?;
                (Some(Tls { trust: Trust::new(ca)?, name }), 443)
            }
            Some(_) => return Err(bad()),
        };
        let to = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(port));
        let failed = |source| Error::Connect { to: to.clone(), source };
        let nowhere = || std::io::Error::other("the name has no address");
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad())?;
        let mut last = Error::Connect { to: to.clone(), source: nowhere() };
        for address in lookup_host(&to).await.map_err(failed)? {
            match Self::open(address, host.clone(), tls.clone(), DEFAULT_TIMEOUT).await {
                Ok(client) => return Ok(client),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Replaces the connection by a new one to the same server. What was asked on the old one
    /// is not asked again.
    pub async fn reconnect(&mut self) -> Result<(), Error> {
        let (host, tls) = (self.host.clone(), self.tls.clone());
        *self = Self::open(self.address, host, tls, self.timeout).await?;
        Ok(())
    }

    /// How long an answer may take from now on.
    pub const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Whom it trusts, if it speaks TLS.
    #[must_use]
    pub const fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Whether the connection is still there, as far as can be known without asking.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Where it is connected to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends one request, once, and waits for the whole answer. Whoever sends many prepares
    /// path, headers and body before: their clones cost nothing.
    pub async fn send<P>(
        &mut self,
        method: Method,
        path: P,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Response, Error>
    where
        P: TryInto<Uri>,
        P::Error: Into<axum::http::Error>,
    {
        let uri = path.try_into().map_err(|error| Error::BadRequest(error.into()))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let map = request.headers_mut();
        map.reserve(headers.len() + 2);
        map.insert(HOST, self.host.clone());
        map.extend(headers.iter().cloned());
        let limit = self.timeout;
        within(limit, self.exchange(request)).await
    }

    /// `GET`, and the JSON of the answer.
    pub async fn get_json<T: DeserializeOwned>(
        &mut self,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<(StatusCode, T), Error> {
        let response = self.send(Method::GET, path, headers, Bytes::new()).await?;
        Ok((response.status, response.json()?))
    }

    /// Sends a value as JSON.
    pub async fn send_json<B: Serialize + ?Sized>(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: &B,
    ) -> Result<Response, Error> {
        let body = serde_json::to_vec(body).map_err(Error::Encode)?;
        let mut all = Vec::with_capacity(headers.len() + 1);
        all.extend_from_slice(headers);
        all.push((CONTENT_TYPE, JSON));
        self.send(method, path, &all, body.into()).await
    }

    async fn open(
        address: SocketAddr,
        host: HeaderValue,
        tls: Option<Tls>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Connect { to: address.to_string(), source };
        let stream = tokio::time::timeout(timeout, TcpStream::connect(address)).await;
        let stream = stream.map_err(|late| failed(late.into()))?.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let stream = match &tls {
            None => Either::Left(stream),
            Some(Tls { trust, name }) => {
                let untrusted = |source| Error::Untrusted { to: address.to_string(), source };
                let greeted = tokio::time::timeout(timeout, trust.greet(name.clone(), stream));
                let greeted = greeted.await.map_err(|late| untrusted(late.into()))?;
                Either::Right(Box::new(greeted.map_err(untrusted)?))
            }
        };
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(Error::Handshake)?;
        tokio::spawn(async move {
            // Whoever waits for an answer is told by the sender; nobody else minds.
            if let Err(error) = connection.await {
                tracing::debug!(%address, %error, "connection ended");
            }
        });
        Ok(Self { address, host, tls, sender, timeout })
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Response, Error> {
        self.sender.ready().await.map_err(Error::NotSent)?;
        let answer =
            self.sender.try_send_request(request).await.map_err(|mut failed| {
                match failed.take_message() {
                    Some(_) => Error::NotSent(failed.into_error()),
                    None => Error::Broken(failed.into_error()),
                }
            })?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(Error::Body)?;
        Ok(Response { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Response {
    /// The body, as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let status = self.status;
        serde_json::from_slice(&self.body).map_err(|source| Error::Json { status, source })
    }

    /// A header, if it is there and text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, answer).await.unwrap_or(Err(Error::Timeout(limit)))
}
