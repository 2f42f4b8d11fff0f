//! Connections: given time limits, and let finish at the end.

use std::convert::Infallible;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::header::{ALLOW, CONNECTION, EXPECT};
use axum::http::{HeaderValue, Version};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use super::impatient::Impatient;
use super::problem::{Lang, Problem};
use super::router::health_router;
use super::unread::{Lent, Rest};
use super::{lane, router};
use crate::app::App;
use crate::listener;

/// Connections of health checks; one that stays open without asking anything is closed soon.
const HEALTH_CONNECTIONS: usize = 64;

/// Who is let in at a door.
#[derive(Debug, Clone, Copy)]
struct Door {
    connections: usize,
    /// Whether claims come here.
    claims: bool,
}

/// Serves until told to stop; then takes nothing new, and returns when everything accepted is
/// answered or the grace is over.
pub async fn serve(listener: TcpListener, app: Arc<App>, stop: CancellationToken) {
    let router = router(Arc::clone(&app));
    let connections = app.config.http.max_connections;
    let door = Door { connections, claims: app.config.roles.api };
    serve_routes(listener, app, router, door, stop).await;
}

/// The same, for nothing but health checks and metrics.
pub async fn serve_health(listener: TcpListener, app: Arc<App>, stop: CancellationToken) {
    let router = health_router(Arc::clone(&app));
    let door = Door { connections: HEALTH_CONNECTIONS, claims: false };
    serve_routes(listener, app, router, door, stop).await;
}

async fn serve_routes(
    listener: TcpListener,
    app: Arc<App>,
    router: Router,
    door: Door,
    stop: CancellationToken,
) {
    let http = &app.config.http;
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(http.header_timeout)
        // A client that has said everything and closes its side, or leaves, takes nothing back:
        // what was accepted goes on.
        .half_close(true);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(256);
    let connections = GracefulShutdown::new();
    let serve = |stream: TcpStream| {
        let (builder, router) = (builder.clone(), router.clone());
        let watcher = connections.watcher();
        let (app, stop) = (Arc::clone(&app), stop.child_token());
        async move {
            let (stream, begun) = if door.claims {
                let Some(handed_on) = lane::serve(stream, &app, &stop).await else { return };
                handed_on
            } else {
                (stream, Bytes::new())
            };
            let asked = Arc::<AtomicBool>::default();
            let (from, to) = stream.into_split();
            let to = Impatient::new(to, app.config.http.write_timeout);
            let stream = tokio::io::join(Cursor::new(begun).chain(from), to);
            let connection = connection(&builder, stream, router, &app, Arc::clone(&asked));
            let connection = watcher.watch(connection);
            let first_request = app.config.http.header_timeout;
            let mut connection = std::pin::pin!(connection);
            // hyper times the headers once it knows the protocol; a client that never says
            // enough for that is ours to time.
            let early = tokio::time::timeout(first_request, &mut connection).await;
            if early.is_err() && asked.load(Ordering::Relaxed) {
                // A connection that breaks is the client's affair.
                let _ended = connection.await;
            }
        }
    };
    listener::accept(listener, door.connections, &stop, serve).await;
    if tokio::time::timeout(http.shutdown_grace, connections.shutdown()).await.is_err() {
        tracing::warn!("some connections were still open when the grace was over");
    }
}

fn connection(
    builder: &Builder<TokioExecutor>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    app: &App,
    asked: Arc<AtomicBool>,
) -> impl hyper_util::server::graceful::GracefulConnection<
    Error = Box<dyn std::error::Error + Send + Sync>,
> + Send
+ 'static {
    let origins = app.config.http.cors_origins.clone();
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        let lang = Lang::of(request.headers());
        let (mut router, rest) = (router.clone(), Rest::default());
        let is_http2 = request.version() == Version::HTTP_2;
        // Whoever waits to be told to go on has sent nothing that could be discarded.
        let waits = request.headers().contains_key(EXPECT);
        let origin = origins.ask(request.headers());
        async move {
            if let Some(mut may) = origin.preflight(&request) {
                origin.say(may.headers_mut());
                return Ok(may);
            }
            let request = request.map(|body| Body::new(Lent::new(body, &rest)));
            let mut response = localize(router.call(request).await?, lang);
            origin.say(response.headers_mut());
            if is_http2 {
                rest.discard_beside();
            } else if waits && rest.is_some() || !rest.has_arrived().await {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    builder.serve_connection(TokioIo::new(stream), service).into_owned()
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
