//! Serves HTTP connections: enforces their timeouts, and lets them finish when the server stops.
//!
//! A connection begins on the [fast lane](super::lane), which answers claims itself and holds no buffers
//! while it waits. Every other request is answered by hyper. Over HTTP/1 the connection then goes back to
//! the lane, so that a connection which waits for its next request holds no buffers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::header::{ALLOW, CONNECTION, EXPECT};
use axum::http::{HeaderValue, Method, Version};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use qiang_engine::Stopwatch;
use tokio::net::TcpStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use super::cors::Asked;
use super::lane::{self, HandedOn, Speaks};
use super::router::{Pages, router};
use super::unread::{Lent, Rest};
use super::wire::{Answer, LEAST, Progress, Waits, Wire};
use crate::domains::Domains;
use crate::listener::{self, Listener};
use crate::tls::{self, Stream};
use crate::traces::{Ended, Span, Traces};
use qiang_app::actions::Watched;
use qiang_app::problem::{Lang, Problem};
use qiang_app::{App, Origin, Stopping};

/// Connections at the address for health checks. One more closes the oldest, so that nobody can keep a
/// check out by holding them all.
const HEALTH_CONNECTIONS: usize = 64;
/// Requests that one HTTP/2 connection may have under way.
const MAX_STREAMS: u32 = 256;

/// An address, and what is answered there.
#[derive(Debug)]
pub struct Door {
    /// The address, taken.
    pub listener: Listener,
    /// Whether it is spoken to by TLS.
    pub tls: Option<tls::Door>,
    /// What records requests, if anything does.
    pub traces: Option<Arc<Traces>>,
    /// What the answers are made with.
    pub app: Arc<App>,
    /// Who answers.
    pub domains: Arc<Domains>,
}

/// What every connection of a door is served with.
struct Served {
    app: Arc<App>,
    router: Router,
    claims: lane::Claims,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    stopping: Stopping,
    traces: Option<Arc<Traces>>,
}

/// Serves until told to stop; then takes nothing new, and returns when everything accepted is
/// answered or the grace is over.
pub async fn serve(door: Door, stop: CancellationToken) {
    let Door { listener, tls, traces, app, domains } = door;
    let max = app.config.http.max_connections;
    let (pages, claims) = if app.config.roles.api {
        (Pages::All, lane::Claims::Here)
    } else {
        let elsewhere = Pages::Health("this process is a worker; ask one with the role api");
        (elsewhere, lane::Claims::Elsewhere)
    };
    let router = router(&domains, pages);
    let router = if traces.is_some() { router.layer(from_fn(tell_route)) } else { router };
    let served = Arc::new(Served { traces, ..Served::new(app, router, claims, &stop) });
    let connections = TaskTracker::new();
    let serve = |stream: TcpStream, origin| {
        let (served, tls, stop) = (Arc::clone(&served), tls.clone(), stop.child_token());
        connections.track_future(async move {
            let greeting = tls::greet(tls.as_ref(), stream, served.app.config.http.header_timeout);
            if let Some(Some(stream)) = stop.run_until_cancelled(greeting).await {
                served.connection(stream, origin, &stop).await;
            }
        })
    };
    listener::accept(listener, max, &stop, serve).await;
    served.finish(connections).await;
}

/// The same, for health checks and metrics only.
pub async fn serve_health(door: Door, stop: CancellationToken) {
    let Door { listener, app, domains, .. } = door;
    let pages = Pages::Health("only health checks and metrics are answered here");
    let claims = lane::Claims::Elsewhere;
    let served = Arc::new(Served::new(app, router(&domains, pages), claims, &stop));
    let connections = TaskTracker::new();
    // Oldest first; one that has ended is cancelled.
    let mut open = VecDeque::<CancellationToken>::new();
    let serve = |stream: TcpStream, origin| {
        let (served, stop) = (Arc::clone(&served), stop.child_token());
        let end = CancellationToken::new();
        open.retain(|end| !end.is_cancelled());
        open.push_back(end.clone());
        if open.len() > HEALTH_CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.cancel();
        }
        connections.track_future(async move {
            let _ended = end.clone().drop_guard();
            tokio::select! {
                () = served.connection(Either::Left(stream), origin, &stop) => {}
                () = end.cancelled() => {}
            }
        })
    };
    // Twice as many places: connections that are being closed still have theirs.
    listener::accept(listener, 2 * HEALTH_CONNECTIONS, &stop, serve).await;
    served.finish(connections).await;
}

impl Served {
    fn new(app: Arc<App>, router: Router, claims: lane::Claims, stop: &CancellationToken) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(app.config.http.header_timeout)
            // A client that has said everything and closes its side, or leaves, takes nothing back:
            // what was accepted goes on.
            .half_close(true);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
        let stopping = Stopping(stop.clone());
        Self { app, router, claims, http1, http2, stopping, traces: None }
    }

    /// Waits until all connections have ended, or the grace is over.
    async fn finish(&self, connections: TaskTracker) {
        connections.close();
        let grace = self.app.config.http.shutdown_grace;
        if tokio::time::timeout(grace, connections.wait()).await.is_err() {
            tracing::warn!("some connections were still open when the grace was over");
        }
    }

    /// Serves a connection to its end.
    async fn connection(&self, stream: Stream, origin: Origin, stop: &CancellationToken) {
        let (mut stream, mut begun) = (stream, Bytes::new());
        loop {
            let traces = self.traces.as_deref();
            let lane = lane::serve(stream, begun, self.claims, &self.app, traces, origin, stop);
            let handed_on = lane.await;
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
    ) -> Option<(Stream, Bytes)> {
        let progress = wire.progress();
        until_idle(&self.http1, wire, |request| self.answer(request, origin, &progress), stop).await
    }

    /// Answers requests over HTTP/2 until the connection ends.
    async fn http2(&self, wire: Wire, origin: Origin, stop: &CancellationToken) {
        let progress = wire.progress();
        let service = service_fn(|request| self.answer(request, origin, &progress));
        let connection = self.http2.serve_connection(TokioIo::new(wire), service);
        let (mut connection, mut stopped) = (pin!(connection), pin!(stop.cancelled()));
        // hyper has no timeout for an HTTP/2 client that asks nothing or takes no answers, so we do it.
        let (header, write) =
            (self.app.config.http.header_timeout, self.app.config.http.write_timeout);
        // The timer never runs longer than this, so that neither timeout is noticed late.
        let shorter = header.min(write);
        let mut timer = pin!(tokio::time::sleep(shorter));
        let (clock, mut since, mut looked) = (Stopwatch::start(), Duration::ZERO, Duration::ZERO);
        let (mut taken, mut waited_for, mut told) = (0, Waits::Request, false);
        std::future::poll_fn(|cx| {
            if !told && stopped.as_mut().poll(cx).is_ready() {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
            loop {
                // If the connection broke, there is nobody to tell.
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                let (now, waits, all_taken) = (clock.elapsed(), progress.waits(), progress.taken());
                let idle_changed = (waits == Waits::Request) != (waited_for == Waits::Request);
                if idle_changed || all_taken.wrapping_sub(taken) >= LEAST {
                    (since, taken) = (now, all_taken);
                } else if waited_for == Waits::Us {
                    // The time that we need does not count against the client. A new request is no
                    // progress: a client that takes no answers could stay by asking on.
                    since += now.saturating_sub(looked);
                }
                (looked, waited_for) = (now, waits);
                ready!(timer.as_mut().poll(cx));
                let patience = if waits == Waits::Request && !told { header } else { write };
                let left = (since + patience).saturating_sub(now);
                if waits == Waits::Us {
                    timer.set(tokio::time::sleep(shorter));
                } else if !left.is_zero() {
                    timer.set(tokio::time::sleep(left.min(shorter)));
                } else if waits == Waits::Request && !told {
                    (told, since) = (true, now);
                    connection.as_mut().graceful_shutdown();
                } else {
                    return Poll::Ready(());
                }
            }
        })
        .await;
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
        // A client that waits for `100 Continue` has not sent its body, so there is nothing to discard.
        let waits = request.headers().contains_key(EXPECT);
        let page = Asked::of(request.headers(), &self.app.config.http.cors_origins);
        let span = self.traces.as_ref().map(|traces| (traces.begin(), request.method().clone()));
        request.extensions_mut().insert(origin);
        request.extensions_mut().insert(self.stopping.clone());
        let watched = Watched::begin(&self.app, &mut request);
        async move {
            if let Some(mut may) = page.preflight(&request) {
                page.say(may.headers_mut());
                return Ok(may.map(|body| Answer::new(body, open)));
            }
            let request = request.map(|body| Body::new(Lent::new(body, &rest)));
            let Ok(mut answered) = router.call(request).await;
            if let Some((span, method)) = span {
                end(span, &method, &mut answered);
            }
            if let Some(watched) = watched {
                watched.end(&answered).await;
            }
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

/// Answers requests over HTTP/1 until the client has all answers. Then gives the connection back, with
/// what was read of the next request. `None` if the connection has ended.
async fn until_idle<F>(
    http1: &http1::Builder,
    wire: Wire,
    answer: impl Fn(hyper::Request<Incoming>) -> F + Unpin,
    stop: &CancellationToken,
) -> Option<(Stream, Bytes)>
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
            // If the connection broke, there is nobody to tell.
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

/// Has an answer say which route gave it.
async fn tell_route(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(route);
    }
    response
}

/// Records how a request ended.
fn end(span: Span, method: &Method, answered: &mut Response) {
    let route = answered.extensions_mut().remove::<MatchedPath>();
    span.end(&Ended {
        method: method.as_str(),
        route: route.as_ref().map_or("(no route)", MatchedPath::as_str),
        status: answered.status(),
        code: answered.extensions().get::<Problem>().map(|problem| problem.code().as_str()),
    });
}

/// Writes a problem as the answer, in the language the client asked for. Only done here.
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
