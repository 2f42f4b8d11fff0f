//! The peer of claims and pages over HTTP: an axum handler that does nothing, under the same path.
//! Prints where it listens, and serves until its standard input ends.

#![expect(clippy::print_stdout, reason = "whoever started it wants to know where it is")]

use std::io;

use anyhow::Result;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};

const ANSWER: &str = r#"{"claim_id":"1-1","state":"paid"}"#;

#[tokio::main]
async fn main() -> Result<()> {
    let router = Router::new()
        .route("/", get(async || ANSWER))
        .route("/api/v1/sales/{id}/claims", post(async || (StatusCode::CREATED, ANSWER)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        drop(stream.set_nodelay(true));
    });
    let over = async {
        // However it ends, it has ended.
        let _read =
            tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink())).await;
    };
    Ok(axum::serve(listener, router).with_graceful_shutdown(over).await?)
}
