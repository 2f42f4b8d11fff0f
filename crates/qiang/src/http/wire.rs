//! A connection as hyper gets it: what was read before hyper came comes first, a peer that takes
//! nothing for too long is given up, and whoever drives hyper can see when it has nothing to do.
//!
//! The time counts from the last byte that was taken, so a slow reader gets everything, and one that
//! never reads holds no place.

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
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// A client that takes less of its answers than this many bytes, in the time it has, takes nothing.
pub(super) const LEAST: usize = 1 << 10;

/// A connection that does not wait for ever to write.
pub(super) struct Wire {
    stream: TcpStream,
    /// What was read before.
    begun: Bytes,
    patience: Duration,
    /// Runs while something waits to be written.
    timer: Option<Pin<Box<Sleep>>>,
    progress: Arc<Progress>,
}

/// How far a connection has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Requests heard so far.
    heard: AtomicUsize,
    /// Requests and parts of answers that are not written yet.
    open: AtomicUsize,
    /// Requests without an answer so far.
    unanswered: AtomicUsize,
    /// How much of the answers was taken, in bytes; a part that is finished counts [`LEAST`] more.
    taken: AtomicUsize,
    /// The last attempt to read found nothing.
    nothing_to_read: AtomicBool,
    /// The last attempt to write could not.
    cannot_write: AtomicBool,
    /// The last answer says that the connection is closed.
    closing: AtomicBool,
}

/// Something that is not written yet; dropped when it is.
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

/// A part of an answer. Over HTTP/2 it lies with hyper until the client gives it a window.
#[derive(Debug)]
pub(super) struct Part {
    bytes: Bytes,
    open: Open,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// For a request.
    Request,
    /// For us: something was asked, and is not answered yet.
    Us,
    /// For the client, to take what it was answered.
    Client,
}

impl Progress {
    /// A request begins.
    pub(super) fn request(self: &Arc<Self>) -> Request {
        self.heard.fetch_add(1, Ordering::Relaxed);
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        Request(Open::new(self))
    }

    /// What the connection waits for.
    pub(super) fn waits(&self) -> Waits {
        if self.unanswered.load(Ordering::Relaxed) > 0 {
            Waits::Us
        } else if self.open.load(Ordering::Relaxed) > 0 {
            Waits::Client
        } else {
            Waits::Request
        }
    }

    /// How much of the answers was taken so far; [`LEAST`] more of it is progress.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// An answer says that the connection is closed behind it.
    pub(super) fn closes(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Whether everything that was asked is answered and sent, and the next request has not begun
    /// to arrive. To be asked when hyper has done all it can.
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
    pub(super) fn new(stream: TcpStream, begun: Bytes, patience: Duration) -> Self {
        Self { stream, begun, patience, timer: None, progress: Arc::default() }
    }

    /// How far it has come, for whoever has given it away.
    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// The connection itself, on which nothing waits to be written.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// What came of an attempt to write.
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

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
