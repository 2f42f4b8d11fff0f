//! What happens to the rest of a body when the request was answered before all of it was read: a bad
//! token, too many bytes, an address that does not exist.
//!
//! Over HTTP/2, hyper resets a stream whose body is dropped. After many resets it closes the whole
//! connection, and other requests on it fail. So we answer, and meanwhile read and discard the rest, up
//! to [`MAX_BYTES`] and for at most [`PATIENCE`]. Over HTTP/1.1 we discard what has arrived already; if
//! that is not all, the answer says `Connection: close`.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// At most this many bytes of one body are discarded.
const MAX_BYTES: usize = 1 << 20;
/// And for at most this long.
const PATIENCE: Duration = Duration::from_secs(2);
/// Over HTTP/1.1 we look so often whether the rest has arrived; in between, hyper can read it.
const LOOKS: usize = 4;

/// A body that a handler reads. If the handler drops it before its end, it goes to [`Rest`].
#[derive(Debug)]
pub(super) struct Lent {
    body: Option<Incoming>,
    back: Rest,
}

/// Holds a body that was dropped before its end.
#[derive(Debug, Clone, Default)]
pub(super) struct Rest(Arc<Mutex<Option<Incoming>>>);

impl Lent {
    /// Lends a body to a handler; `rest` gets it if it is not read to its end.
    pub(super) fn new(body: Incoming, rest: &Rest) -> Self {
        Self { body: Some(body), back: rest.clone() }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        *self.back.0.lock().unwrap_or_else(PoisonError::into_inner) = rest;
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Rest {
    fn take(&self) -> Option<Incoming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether a body was dropped before its end.
    pub(super) fn is_some(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// For HTTP/2: discards the rest in a task of its own, so that the stream is not reset.
    pub(super) fn discard_beside(&self) {
        if let Some(body) = self.take() {
            tokio::spawn(async { tokio::time::timeout(PATIENCE, discard(body)).await });
        }
    }

    /// For HTTP/1.1: discards what has arrived, and says whether that was all.
    pub(super) async fn has_arrived(&self) -> bool {
        let Some(body) = self.take() else { return true };
        let mut rest = pin!(discard(body));
        for _ in 0..LOOKS {
            let looked = std::future::poll_fn(|cx| Poll::Ready(rest.as_mut().poll(cx))).await;
            if let Poll::Ready(whole) = looked {
                return whole;
            }
            tokio::task::yield_now().await;
        }
        false
    }
}

/// Reads to the end or to [`MAX_BYTES`]; says whether it was the end.
async fn discard(mut body: Incoming) -> bool {
    let mut bytes = 0;
    while bytes <= MAX_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) => return false,
            None => return true,
        }
    }
    false
}
