//! Connections: given time limits, and let finish at the end.
//!
//! A connection begins on the [fast lane](super::lane), which takes claims and waits for little memory.
//! Anything else is answered by hyper, and over HTTP/1 the connection comes back to the lane then: a
//! connection that waits for its next request holds no buffers.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use axum::body::Body;
use axum::http::header::{ALLOW, CONNECTION, EXPECT};
use axum::http::{HeaderValue, Version};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use super::lane::{self, HandedOn, Speaks};
use super::problem::{Lang, Problem};
use super::router;
use super::router::health_router;
use super::unread::{Lent, Rest};
use super::wire::{Answer, Progress, Wire};
use crate::app::App;
use crate::entry::Origin;
use crate::listener;

/// Connections of health checks; one that stays open without asking anything is closed soon.
const HEALTH_CONNECTIONS: usize = 64;
/// Requests that one connection may have under way over HTTP/2.
const MAX_STREAMS: u32 = 256;

/// Who is let in at a door.
#[derive(Debug, Clone, Copy)]
struct Door {
    connections: usize,
    claims: lane::Claims,
}

/// What every connection of a door is served with.
struct Served {
    app: Arc<App>,
    router: Router,
    claims: lane::Claims,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

/// Serves until told to stop; then takes nothing new, and returns when everything accepted is
/// answered or the grace is over.
pub async fn serve(listener: TcpListener, app: Arc<App>, stop: CancellationToken) {
    let router = router(Arc::clone(&app));
    let connections = app.config.http.max_connections;
    let claims = if app.config.roles.api { lane::Claims::Here } else { lane::Claims::Elsewhere };
    serve_routes(listener, app, router, Door { connections, claims }, stop).await;
}

/// The same, for nothing but health checks and metrics.
pub async fn serve_health(listener: TcpListener, app: Arc<App>, stop: CancellationToken) {
    let router = health_router(Arc::clone(&app));
    let door = Door { connections: HEALTH_CONNECTIONS, claims: lane::Claims::Elsewhere };
    serve_routes(listener, app, router, door, stop).await;
}

async fn serve_routes(
    listener: TcpListener,
    app: Arc<App>,
    router: Router,
    door: Door,
    stop: CancellationToken,
) {
    let grace = app.config.http.shutdown_grace;
    let mut http1 = http1::Builder::new();
    http1
        .timer(TokioTimer::new())
        .header_read_timeout(app.config.http.header_timeout)
        // A client that has said everything and closes its side, or leaves, takes nothing back:
        // what was accepted goes on.
        .half_close(true);
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
    let served = Arc::new(Served { app, router, claims: door.claims, http1, http2 });
    let connections = TaskTracker::new();
    let serve = |stream: TcpStream, origin| {
        let (served, stop) = (Arc::clone(&served), stop.child_token());
        connections.track_future(async move { served.connection(stream, origin, &stop).await })
    };
    listener::accept(listener, door.connections, &stop, serve).await;
    connections.close();
    if tokio::time::timeout(grace, connections.wait()).await.is_err() {
        tracing::warn!("some connections were still open when the grace was over");
    }
}

impl Served {
    /// Serves a connection to its end.
    async fn connection(&self, stream: TcpStream, origin: Origin, stop: &CancellationToken) {
        let (mut stream, mut begun) = (stream, Bytes::new());
        loop {
            let handed_on = lane::serve(stream, begun, self.claims, &self.app, origin, stop).await;
            let Some(HandedOn { stream: its, begun: read, speaks }) = handed_on else { return };
            let wire = Wire::new(its, read, self.app.config.http.write_timeout);
            // In boxes: they are large, and most connections wait on the lane.
            match speaks {
                Speaks::Http1 => match Box::pin(self.http1(wire, origin, stop)).await {
                    Some(back) => (stream, begun) = back,
                    None => return,
                },
                Speaks::Http2 => return Box::pin(self.http2(wire, origin, stop)).await,
            }
        }
    }

    async fn http1(
        &self,
        wire: Wire,
        origin: Origin,
        stop: &CancellationToken,
    ) -> Option<(TcpStream, Bytes)> {
        let progress = wire.progress();
        until_idle(&self.http1, wire, |request| self.answer(request, origin, &progress), stop).await
    }

    /// Answers requests over HTTP/2 until the connection ends.
    async fn http2(&self, wire: Wire, origin: Origin, stop: &CancellationToken) {
        let progress = wire.progress();
        let service = service_fn(|request| self.answer(request, origin, &progress));
        let connection = self.http2.serve_connection(TokioIo::new(wire), service);
        let (mut connection, mut stopped) = (pin!(connection), pin!(stop.cancelled()));
        // hyper times no headers here; a client that never asks anything is ours to time.
        let first_request = tokio::time::sleep(self.app.config.http.header_timeout);
        let mut first_request = pin!(first_request);
        let (mut told, mut timed) = (false, true);
        loop {
            tokio::select! {
                biased;
                // One that breaks is the client's affair.
                _ended = connection.as_mut() => return,
                () = stopped.as_mut(), if !told => {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = first_request.as_mut(), if timed => {
                    timed = false;
                    if !progress.has_heard() {
                        return;
                    }
                }
            }
        }
    }

    /// Answers a request.
    fn answer(
        &self,
        mut request: hyper::Request<Incoming>,
        origin: Origin,
        progress: &Arc<Progress>,
    ) -> impl Future<Output = Result<Response<Answer>, Infallible>> + Send + 'static {
        let (open, progress) = (progress.request(), Arc::clone(progress));
        let lang = Lang::of(request.headers());
        let (mut router, rest) = (self.router.clone(), Rest::default());
        let is_http2 = request.version() == Version::HTTP_2;
        // Whoever waits to be told to go on has sent nothing that could be discarded.
        let waits = request.headers().contains_key(EXPECT);
        let page = self.app.config.http.cors_origins.ask(request.headers());
        request.extensions_mut().insert(origin);
        async move {
            if let Some(mut may) = page.preflight(&request) {
                page.say(may.headers_mut());
                return Ok(may.map(|body| Answer::new(body, open)));
            }
            let request = request.map(|body| Body::new(Lent::new(body, &rest)));
            let Ok(answered) = router.call(request).await;
            let mut response = localize(answered, lang);
            page.say(response.headers_mut());
            if is_http2 {
                rest.discard_beside();
            } else if waits && rest.is_some() || !rest.has_arrived().await {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                progress.closes();
            }
            Ok(response.map(|body| Answer::new(body, open)))
        }
    }
}

/// Answers requests over HTTP/1 until none waits any more. Hands the connection back, with what was
/// read of the next request; `None` is that it has ended.
async fn until_idle<F>(
    http1: &http1::Builder,
    wire: Wire,
    answer: impl Fn(hyper::Request<Incoming>) -> F + Unpin,
    stop: &CancellationToken,
) -> Option<(TcpStream, Bytes)>
where
    F: Future<Output = Result<Response<Answer>, Infallible>>,
{
    let progress = wire.progress();
    let mut connection = http1.serve_connection(TokioIo::new(wire), service_fn(answer));
    let (mut stopped, mut told) = (pin!(stop.cancelled()), false);
    let is_idle = std::future::poll_fn(|cx| {
        if !told && stopped.as_mut().poll(cx).is_ready() {
            told = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        match Pin::new(&mut connection).poll(cx) {
            // One that breaks is the client's affair.
            Poll::Ready(_ended) => Poll::Ready(false),
            Poll::Pending if progress.is_idle() => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    });
    if !is_idle.await {
        return None;
    }
    let parts = connection.into_parts();
    Some((parts.io.into_inner().into_stream(), parts.read_buf))
}

/// A problem is written out here and nowhere else, once, in the language asked for.
fn localize(mut response: Response, lang: Lang) -> Response {
    match response.extensions_mut().remove::<Problem>() {
        Some(problem) => {
            let mut answer = problem.respond(lang);
            // The router knows which methods an address takes; the problem does not.
            if let Some(methods) = response.headers_mut().remove(ALLOW) {
                answer.headers_mut().insert(ALLOW, methods);
            }
            answer
        }
        None => response,
    }
}

#[cfg(test)]
mod tests;
