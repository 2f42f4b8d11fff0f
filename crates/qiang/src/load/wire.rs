//! The two protocols behind one face: bytes of a request, and the answer in the bytes that came.

use std::net::SocketAddr;

use clap::ValueEnum;
use serde::Serialize;

use super::ask::{Answer, Ask, Nonsense};
use super::http::Http;
use super::resp::Resp;

/// Which door the crowd comes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    /// HTTP/1.1, as buyers come, each with a token
    Http,
    /// RESP, as a shop's own backend comes
    Resp,
}

impl Protocol {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Resp => "RESP",
        }
    }
}

/// How requests are written and answers read.
#[derive(Debug)]
pub(crate) enum Wire {
    Http(Http),
    Resp(Resp),
}

/// One answer, read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) answer: Answer,
    /// Bytes of it.
    pub(crate) used: usize,
    /// Whether the server closes the connection behind it.
    pub(crate) last: bool,
}

/// A wire and where it leads.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    pub(crate) wire: Wire,
}

impl Wire {
    /// What a new connection says first.
    pub(crate) fn greeting(&self) -> Option<Vec<u8>> {
        match self {
            Self::Http(_) => None,
            Self::Resp(resp) => Some(resp.greeting()),
        }
    }

    pub(crate) fn write(&self, ask: &Ask, out: &mut Vec<u8>) {
        match self {
            Self::Http(http) => http.write(ask, out),
            Self::Resp(resp) => resp.write(ask, out),
        }
    }

    /// The answer to `ask` at the beginning of `bytes`, or `None` if it is not all there yet.
    pub(crate) fn read(&self, bytes: &[u8], ask: &Ask) -> Result<Option<Read>, Nonsense> {
        match self {
            Self::Http(http) => http.read(bytes, ask),
            Self::Resp(resp) => resp.read(bytes, ask),
        }
    }
}
