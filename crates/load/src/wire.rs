//! The two protocols behind one face: bytes of a request, and the answer in the bytes that came.

use std::fmt;
use std::net::SocketAddr;

use clap::ValueEnum;
use serde::Serialize;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::ask::{Answer, Ask, Nonsense};
use super::http::Http;
use super::resp::Resp;

/// Which door the crowd comes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1, as buyers come, each with a token
    Http,
    /// RESP, as a shop's own backend comes
    Resp,
}

impl Protocol {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Resp => "RESP",
        }
    }
}

/// How requests are written and answers read.
#[derive(Debug)]
pub enum Wire {
    Http(Http),
    Resp(Resp),
}

/// One answer, read.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    pub answer: Answer,
    /// Bytes of it.
    pub used: usize,
    /// Whether the server closes the connection behind it.
    pub last: bool,
}

/// A wire and where it leads.
#[derive(Debug)]
pub struct Door {
    pub address: SocketAddr,
    /// With what the server is recognised, if it speaks TLS.
    pub tls: Option<Tls>,
    pub wire: Wire,
}

/// Whom to trust, and under which name.
pub struct Tls {
    pub connector: TlsConnector,
    pub name: ServerName<'static>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Wire {
    /// What a new connection says first.
    pub fn greeting(&self) -> Option<Vec<u8>> {
        match self {
            Self::Http(_) => None,
            Self::Resp(resp) => Some(resp.greeting()),
        }
    }

    pub fn write(&self, ask: &Ask, out: &mut Vec<u8>) {
        match self {
            Self::Http(http) => http.write(ask, out),
            Self::Resp(resp) => resp.write(ask, out),
        }
    }

    /// The answer to `ask` at the beginning of `bytes`, or `None` if it is not all there yet.
    pub fn read(&self, bytes: &[u8], ask: &Ask) -> Result<Option<Read>, Nonsense> {
        match self {
            Self::Http(http) => http.read(bytes, ask),
            Self::Resp(resp) => resp.read(bytes, ask),
        }
    }
}
