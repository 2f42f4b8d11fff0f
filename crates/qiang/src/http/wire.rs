//! The connection that hyper reads from and writes to.
//!
//! It does three things more than a socket. It first gives hyper the bytes that the fast lane has read
//! already. It fails if the client takes no byte for longer than the write timeout; each byte that is taken
//! starts that time anew, so a slow reader gets everything, and a client that never reads loses its place.
//! And it counts requests and answers, so that the caller knows when hyper has nothing left to do.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::tls::Stream;

/// A client has to take at least this many bytes of its answers within the write timeout. One that takes
/// fewer is treated as if it took none.
pub(super) const LEAST: usize = 1 << 10;

/// A socket with a timeout for writing.
pub(super) struct Wire {
    stream: Stream,
    /// What the fast lane has read of the request.
    begun: Bytes,
    patience: Duration,
    /// Runs while the socket takes no bytes.
    timer: Option<Pin<Box<Sleep>>>,
    progress: Arc<Progress>,
}

/// What was asked and answered on a connection so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Requests that have begun.
    heard: AtomicUsize,
    /// Requests and parts of answers that are not written yet.
    open: AtomicUsize,
    /// Requests without an answer.
    unanswered: AtomicUsize,
    /// How much of the answers hyper has taken, in bytes. A finished part counts [`LEAST`] more, so that
    /// many short answers are progress, too.
    taken: AtomicUsize,
    /// The last read found no bytes.
    nothing_to_read: AtomicBool,
    /// The last write found the socket full.
    cannot_write: AtomicBool,
    /// An answer said `Connection: close`.
    closing: AtomicBool,
}

/// Counts as open in [`Progress`] until it is dropped, which hyper does when it has written it.
#[derive(Debug)]
struct Open(Arc<Progress>);

/// A request that has no answer yet.
#[derive(Debug)]
pub(super) struct Request(Open);

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    open: Open,
}

/// A part of an answer. Over HTTP/2, hyper keeps it until the client's flow control lets it be sent.
#[derive(Debug)]
pub(super) struct Part {
    bytes: Bytes,
    open: Open,
}

/// Whom a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// For the client, to ask something.
    Request,
    /// For us, to answer.
    Us,
    /// For the client, to take its answers.
    Client,
}

impl Progress {
    /// A request begins.
    pub(super) fn request(self: &Arc<Self>) -> Request {
        self.heard.fetch_add(1, Ordering::Relaxed);
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        Request(Open::new(self))
    }

    /// Whom the connection waits for.
    pub(super) fn waits(&self) -> Waits {
        if self.unanswered.load(Ordering::Relaxed) > 0 {
            Waits::Us
        } else if self.open.load(Ordering::Relaxed) > 0 {
            Waits::Client
        } else {
            Waits::Request
        }
    }

    /// How much of the answers was taken so far. The client makes progress if this grows by [`LEAST`].
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Notes that an answer says `Connection: close`.
    pub(super) fn closes(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Whether every request is answered, every answer is sent, and no byte of the next request has
    /// arrived. Ask only after hyper was polled and is pending.
    pub(super) fn is_idle(&self) -> bool {
        self.heard.load(Ordering::Relaxed) > 0
            && self.open.load(Ordering::Relaxed) == 0
            && self.nothing_to_read.load(Ordering::Relaxed)
            && !self.cannot_write.load(Ordering::Relaxed)
            && !self.closing.load(Ordering::Relaxed)
    }
}

impl Open {
    fn new(progress: &Arc<Progress>) -> Self {
        progress.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(progress))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.open.0.taken.fetch_add(LEAST, Ordering::Relaxed);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.0.0.unanswered.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Answer {
    /// The answer to a request.
    #[expect(clippy::needless_pass_by_value, reason = "from here on the request is answered")]
    pub(super) fn new(body: Body, request: Request) -> Self {
        Self { body, open: Open::new(&request.0.0) }
    }
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.open.0.taken.fetch_add(count, Ordering::Relaxed);
    }
}

impl hyper::body::Body for Answer {
    type Data = Part;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Part>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let part = |bytes| Part { bytes, open: Open::new(&self.open.0) };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Wire {
    pub(super) fn new(stream: Stream, begun: Bytes, patience: Duration) -> Self {
        Self { stream, begun, patience, timer: None, progress: Arc::default() }
    }

    /// What was asked and answered; stays readable while hyper owns the connection.
    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// The socket. Nothing may be waiting to be written.
    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Passes on how a write ended. If the socket stays full for too long, the write fails.
    fn timed<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.progress.cannot_write.store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.patience)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.begun.is_empty() {
            let len = self.begun.len().min(buffer.remaining());
            buffer.put_slice(&self.begun[..len]);
            self.begun.advance(len);
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.progress.nothing_to_read.store(read.is_pending(), Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.timed(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.timed(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // With TLS a write may be kept, and it is the flush, or the last word, that waits for the socket.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.timed(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.timed(cx, ended)
    }
}
