//! `qiang demo packets`: a crowd empties a red packet over real HTTP, and every cent is proven.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Method, StatusCode};
use bytes::Bytes;
use qiang_accounts::packets::verify::{Finished, verify};
use qiang_app::cli::output::{self, many};
use qiang_app::client::Client;
use qiang_app::extract::IDEMPOTENCY_KEY;
use qiang_app::token::Role;
use qiang_core::Timestamp;
use qiang_engine::{Clock as _, Stopwatch, SystemClock};
use qiang_recovery::audit::{Depth, Mending, Report};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::token;
use crate::server::Server;

const SENDER: &str = "sender";

/// Show a crowd that empties a red packet
///
/// Starts a server on a temporary folder, sends a lucky packet, has a crowd of distinct users grab it over
/// real HTTP, and shows who got what. Then it adds up all money, checks the cut against its commitment, and
/// compares all books.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct PacketsArgs {
    /// How many users want a portion
    #[arg(long, default_value_t = 1_000, value_parser = crate::cli::number(1..=1_000_000_u32))]
    users: u32,
    /// Portions of the packet
    #[arg(long, default_value_t = 100, value_parser = crate::cli::number(1..=500_u32))]
    shares: u32,
    /// What is in the packet
    #[arg(long, default_value_t = 20_000, value_parser = crate::cli::number(1..=1_000_000_u32))]
    cents: u32,
    /// Connections the crowd uses
    #[arg(long, default_value_t = 32, value_parser = crate::cli::number(1..=4_096_u32))]
    connections: u32,
}

/// What became of the crowd: how many by outcome, and the cents they got.
#[derive(Default)]
struct Tally {
    outcomes: BTreeMap<String, u64>,
    cents: i64,
}

pub(super) async fn show(args: &PacketsArgs, server: &Server) -> anyhow::Result<Report> {
    output::say(format_args!("a server on {}, its data in a temporary folder", server.url()));
    let now = SystemClock.now();
    let id = send(args, server, now).await?;
    let (cents, shares) = (args.cents, many(args.shares.into(), "portion", "portions"));
    output::say(format_args!("a lucky packet of {cents} cents in {shares} is open"));
    let users = many(args.users.into(), "user comes", "users come");
    let over = many(args.connections.into(), "connection", "connections");
    output::say(format_args!("{users} running over {over}"));
    let watch = Stopwatch::start();
    let tally = crowd(args, server, &id, now).await?;
    let secs = watch.elapsed().as_secs_f64();
    for (outcome, count) in &tally.outcomes {
        output::data(format_args!("{outcome:<9} {count}"))?;
    }
    let asked: u64 = tally.outcomes.values().sum();
    output::data(format_args!("speed     {asked} asked in {secs:.2} s"))?;
    prove(args, server, &id, &tally, now).await
}

/// Puts the money on the sender's account, and sends it.
async fn send(args: &PacketsArgs, server: &Server, now: Timestamp) -> anyhow::Result<String> {
    let mut client = Client::connect(server.address).await?;
    let key = (IDEMPOTENCY_KEY, HeaderValue::from_static("demo"));
    let admin = [(AUTHORIZATION, token(server, "admin", Role::Admin, now)?), key.clone()];
    let body = json!({ "amount_cents": args.cents });
    let path = format!("/api/v1/accounts/{SENDER}/topups");
    let answer = client.send_json(Method::POST, &path, &admin, &body).await?;
    anyhow::ensure!(answer.status == StatusCode::CREATED, "topping up: {:?}", answer.body);
    let sender = [(AUTHORIZATION, token(server, SENDER, Role::Buyer, now)?), key];
    let body = json!({
        "kind": "lucky", "total_cents": args.cents, "shares": args.shares, "greeting": "恭喜发财",
    });
    let answer = client.send_json(Method::POST, "/api/v1/packets", &sender, &body).await?;
    anyhow::ensure!(answer.status == StatusCode::CREATED, "sending: {:?}", answer.body);
    let packet: Value = answer.json()?;
    packet["packet_id"].as_str().map(str::to_owned).context("the packet has no id")
}

/// Everybody asks once.
async fn crowd(
    args: &PacketsArgs,
    server: &Server,
    id: &str,
    now: Timestamp,
) -> anyhow::Result<Tally> {
    let tokens = (1..=args.users).map(|n| token(server, &format!("user-{n}"), Role::Buyer, now));
    let tokens: Arc<Vec<HeaderValue>> = Arc::new(tokens.collect::<anyhow::Result<_>>()?);
    let next = Arc::new(AtomicU32::new(0));
    let path = format!("/api/v1/packets/{id}/grabs");
    let mut connections = JoinSet::new();
    for _ in 0..args.connections {
        let (tokens, next, path) = (Arc::clone(&tokens), Arc::clone(&next), path.clone());
        let mut client = Client::connect(server.address).await?;
        connections.spawn(async move {
            let mut tally = Tally::default();
            while let Some(token) = tokens.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                let headers = [(AUTHORIZATION, token.clone())];
                let answer = client.send(Method::POST, &path, &headers, Bytes::new()).await?;
                let body: Value = answer.json()?;
                let outcome = if answer.status == StatusCode::CREATED {
                    tally.cents += body["amount_cents"].as_i64().context("no amount")?;
                    "granted"
                } else {
                    body["code"].as_str().context("no code")?
                };
                *tally.outcomes.entry(outcome.to_owned()).or_default() += 1;
            }
            anyhow::Ok(tally)
        });
    }
    let mut all = Tally::default();
    while let Some(tally) = connections.join_next().await {
        let tally = tally??;
        all.cents += tally.cents;
        for (outcome, count) in tally.outcomes {
            *all.outcomes.entry(outcome).or_default() += count;
        }
    }
    Ok(all)
}

/// The money, the cut and the books.
async fn prove(
    args: &PacketsArgs,
    server: &Server,
    id: &str,
    tally: &Tally,
    now: Timestamp,
) -> anyhow::Result<Report> {
    let mut client = Client::connect(server.address).await?;
    let sender = [(AUTHORIZATION, token(server, SENDER, Role::Buyer, now)?)];
    let path = format!("/api/v1/packets/{id}");
    let answer = client.send(Method::GET, &path, &sender, Bytes::new()).await?;
    let packet: Value = answer.json()?;
    let (left, best) = (packet["left_cents"].as_i64().context("no rest")?, &packet["best_luck"]);
    let best = packet["grabs"]
        .as_array()
        .and_then(|grabs| grabs.iter().find(|grab| grab["number"] == *best && best.is_u64()));
    if let Some(best) = best {
        let user = best["user_id"].as_str().unwrap_or_default();
        output::data(format_args!("best luck {user} with {} cents", best["amount_cents"]))?;
    }
    if packet["status"] == "empty" {
        let finished: Finished = serde_json::from_value(packet)?;
        let verified = verify(&finished)?;
        let grabs = many(verified.grabs as u64, "grab", "grabs");
        output::data(format_args!("cut       {grabs} as the commitment promised"))?;
    }
    server.drain().await?;
    let report = server.domains.audit.run(Depth::RecordsAndLog, Mending::LookOnly).await?;
    let verdict = if report.ok { "all books agree" } else { "THE BOOKS DIFFER" };
    output::data(format_args!(
        "money     {} cents sent = {} grabbed + {left} left; all accounts together are 0",
        args.cents, tally.cents
    ))?;
    output::data(format_args!("audit     {verdict} in {} ms", report.took_ms))?;
    anyhow::ensure!(tally.cents + left == i64::from(args.cents), "cents are missing");
    let granted = tally.outcomes.get("granted").copied().unwrap_or(0);
    let expected = u64::from(args.shares.min(args.users));
    anyhow::ensure!(granted == expected, "{granted} portions were granted");
    Ok(report)
}
