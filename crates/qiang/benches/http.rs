//! Claims a second over HTTP, whole product included, beside an axum handler that does nothing,
//! asked by the same client over as many connections. Rounds alternate, and each figure is the
//! median of its rounds, because a small machine is noisy. Prints one JSON object a line.
//! `--quick` shortens the rounds, `--only NAME` runs one figure.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::routing::post;
use bytes::Bytes;
use qiang::client::Client;
use qiang::config::{Config, Sources};
use qiang::server::Server;
use qiang::token::{Principal, Role};
use qiang_core::UserId;
use qiang_engine::{Clock as _, Stopwatch, SystemClock};
use serde_json::{Value, json};

/// As many as a crowd needs to keep two cores busy while a batch is being synced, unless
/// `--connections N` says otherwise.
const CONNECTIONS: usize = 256;
const NOOP_ANSWER: &str = r#"{"claim_id":"1-1","state":"paid"}"#;

fn main() -> Result<()> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let (rounds, requests) = if quick { (3, 20_000) } else { (5, 100_000) };
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let noop = serve_noop().await?;
        let folder = tempfile::tempdir()?;
        let server = start(folder.path().to_str().context("a UTF-8 path")?).await?;
        let tokens = tokens(&server, rounds * requests)?;
        let sale = open_sale(&server, &tokens, 2_000_000_000).await?;
        let empty = open_sale(&server, &tokens, 1).await?;
        crowd(server.address, &empty, &tokens[..1], 1).await?;
        let only = option("--only");
        let connections = match option("--connections") {
            Some(number) => number.parse().context("--connections takes a number")?,
            None => CONNECTIONS,
        };
        let mut contests = vec![
            ("http_noop", noop, &sale, Vec::new()),
            ("http_claims", server.address, &sale, Vec::new()),
            ("http_sold_out", server.address, &empty, Vec::new()),
        ];
        contests.retain(|(name, ..)| only.as_ref().is_none_or(|only| only == name));
        for crowd_of_round in tokens.chunks(requests) {
            for (_, address, path, figures) in &mut contests {
                figures.push(crowd(*address, path, crowd_of_round, connections).await?);
                server.drain().await?;
            }
        }
        for (name, .., mut figures) in contests {
            figures.sort_by(f64::total_cmp);
            let median = figures[figures.len() / 2];
            println!(r#"{{"name":"{name}","connections":{connections},"per_sec":{median:.0}}}"#);
        }
        server.stop().await;
        Ok(())
    })
}

fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != name).nth(1)
}

async fn serve_noop() -> Result<SocketAddr> {
    let router = Router::new()
        .route("/api/v1/sales/{id}/claims", post(async || (StatusCode::CREATED, NOOP_ANSWER)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        drop(stream.set_nodelay(true));
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

async fn start(folder: &str) -> Result<Server> {
    let sources = Sources::default()
        .with_flag("--data", "data", Some(folder.to_owned()))
        .with_flag("--listen", "http.listen", Some("127.0.0.1:0".to_owned()));
    Ok(Server::start(Config::load(sources)?, Arc::new(SystemClock)).await?)
}

/// An admin's token first, then those of `count` users.
fn tokens(server: &Server, count: usize) -> Result<Vec<HeaderValue>> {
    let now = SystemClock.now();
    let mint = |user: String| {
        let who = Principal {
            user: UserId::new(&user)?,
            role: if user == "user-0" { Role::Admin } else { Role::Buyer },
            identity: None,
            expires_at: now.plus_millis(3_600_000),
        };
        Ok(HeaderValue::from_str(&format!("Bearer {}", server.app.tokens.mint(&who, now)))?)
    };
    (0..count).map(|number| mint(format!("user-{number}"))).collect()
}

async fn open_sale(server: &Server, tokens: &[HeaderValue], stock: u32) -> Result<Uri> {
    let headers = [(AUTHORIZATION, tokens[0].clone())];
    let sale = json!({"title": "bench", "sku": "bench", "stock": stock, "price_cents": 100});
    let mut client = Client::connect(server.address).await?;
    let answer = client.send_json(Method::POST, "/api/v1/sales", &headers, &sale).await?;
    let sale: Value = answer.json()?;
    let id = sale["id"].as_str().context("no sale was opened")?;
    Ok(format!("/api/v1/sales/{id}/claims").parse()?)
}

/// Every token asks once; requests a second.
async fn crowd(
    address: SocketAddr,
    path: &Uri,
    tokens: &[HeaderValue],
    connections: usize,
) -> Result<f64> {
    let (next, tokens) = (Arc::new(AtomicUsize::new(0)), Arc::<[HeaderValue]>::from(tokens));
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(Client::connect(address).await?);
    }
    let watch = Stopwatch::start();
    let buyers: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            let (next, tokens, path) = (Arc::clone(&next), Arc::clone(&tokens), path.clone());
            tokio::spawn(async move {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(token) = tokens.get(place) else { return anyhow::Ok(()) };
                    let headers = [(AUTHORIZATION, token.clone())];
                    client.send(Method::POST, path.clone(), &headers, Bytes::new()).await?;
                }
            })
        })
        .collect();
    for buyer in buyers {
        buyer.await??;
    }
    Ok(tokens.len() as f64 / watch.elapsed().as_secs_f64())
}
