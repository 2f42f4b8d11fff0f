//! `qiang audit`: do all books agree? Against a running server, or on a folder at rest.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Method, StatusCode};
use bytes::Bytes;
use qiang_core::UserId;
use qiang_engine::{Clock as _, Engine, FolderLock, OpenError, SqliteJournal, SystemClock, redis};
use qiang_store::Store;
use tokio_util::sync::CancellationToken;

use super::output;
use crate::audit::{self, Mending, Report, Source};
use crate::client::Client;
use crate::config::{Config, EngineUrl};
use crate::records;
use crate::secrets::Secrets;
use crate::server::{Opened, open_store};
use crate::token::{Key, Principal, Role};
use crate::{epochs, running};
use qiang_load::words::many;

/// An audit of millions of claims takes its time.
const PATIENCE: Duration = Duration::from_secs(3_600);
const TOKEN_TTL_MS: u64 = 600_000;

/// Check that engine, log and records agree, claim by claim
///
/// Asks the server that runs on the data folder, or the one at --url. When none runs, replays
/// the journal in the folder, finishes recording what it holds, and compares. An engine on Redis
/// or on a database is asked itself; if Redis has lost something, its sales wait until --repair
/// has put it back from the records and what Redis still has.
///
/// Exit code 0 only if everything agrees. Differences are listed on stdout, a line each. So are
/// paid orders that a person has to look at, which do not change the exit code.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A running server, like http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// An admin's token for that server [default: $QIANG_TOKEN, or made with the keys in the data
    /// folder]
    #[arg(long, value_name = "TOKEN", requires = "url")]
    token: Option<String>,
    /// Write the engine's word into the records wherever they differ
    #[arg(long)]
    repair: bool,
    /// Print the whole report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, config: &Config) -> anyhow::Result<ExitCode> {
    super::log_to_stderr(config)?;
    let report = super::runtime()?.block_on(async {
        let report = look(args, config).await?;
        if !args.repair || report.ok {
            return anyhow::Ok(report);
        }
        output::say(
            "differences were found, and mended where the engine knows better: looking again …",
        );
        look(
            &Args { repair: false, url: args.url.clone(), token: args.token.clone(), ..*args },
            config,
        )
        .await
    })?;
    if args.json {
        output::data(serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&report)?;
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { super::Exit::Failed.into() })
}

async fn look(args: &Args, config: &Config) -> anyhow::Result<Report> {
    if let Some(url) = &args.url {
        return online(Client::connect_url(url).await?, args, config).await;
    }
    let EngineUrl::Embedded { folder } = &config.engine.url else {
        return shared(args, config).await;
    };
    if !folder.join("journal.db").exists() {
        anyhow::bail!("there is no journal in {}: name the folder with --data", folder.display());
    }
    match FolderLock::take(folder) {
        Ok(lock) => {
            let report = offline(args, config, folder).await;
            drop(lock);
            report
        }
        Err(OpenError::Locked { .. }) => {
            let address = running::address(&config.data).with_context(|| {
                format!("a server works on {}, but does not say where: use --url", folder.display())
            })?;
            output::say(format_args!("asking the server at http://{address} …"));
            online(Client::connect(address).await?, args, config).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn online(mut client: Client, args: &Args, config: &Config) -> anyhow::Result<Report> {
    let token = match super::token_for(args.url.as_deref(), args.token.as_deref()) {
        Some(token) => token,
        None => {
            let now = SystemClock.now();
            let who = Principal {
                user: UserId::new("qiang-audit").context("a user id")?,
                role: Role::Admin,
                identity: None,
                expires_at: now.plus_millis(TOKEN_TTL_MS),
            };
            Key::new(&Secrets::of(config)?.jwt_key).mint(&who, now)
        }
    };
    let headers = [(AUTHORIZATION, HeaderValue::from_str(&token).context("not a token")?)];
    let (method, path) = if args.repair {
        (Method::POST, "/api/v1/admin/audit/repair")
    } else {
        (Method::GET, "/api/v1/admin/audit")
    };
    client.set_timeout(PATIENCE);
    let answer = client.send(method, path, &headers, Bytes::new()).await?;
    if answer.status == StatusCode::OK {
        return Ok(answer.json()?);
    }
    let problem = String::from_utf8_lossy(&answer.body);
    anyhow::bail!("the server answered {}: {problem}", answer.status)
}

async fn offline(args: &Args, config: &Config, folder: &Path) -> anyhow::Result<Report> {
    output::say("no server runs on the folder: replaying its journal …");
    SqliteJournal::check_at_rest(folder)?;
    let store = open_store(config).await?;
    store.migrate().await?;
    let (book, log) = audit::replay(folder).await?;
    let carried = records::finish_journal(folder, log, &store).await?;
    if carried > 0 {
        output::say(format_args!("{carried} events were not in the records yet, and are now"));
    }
    let mending = if args.repair { Mending::Records } else { Mending::LookOnly };
    let report = audit::compare(&store, &Source::Book(&book), None, mending).await?;
    store.close().await;
    Ok(report)
}

/// A shared engine can be asked whether or not a server runs.
async fn shared(args: &Args, config: &Config) -> anyhow::Result<Report> {
    let stop = CancellationToken::new();
    let clock = Arc::new(SystemClock);
    let Opened { engine, store, .. } = Opened::open(config, clock, stop.clone()).await?;
    let mut report = None;
    if let (Engine::Redis(redis), true) = (&engine, args.repair) {
        repair(redis, &store).await?;
        report = Some(compared(args, &engine, &store).await);
        // Some losses show only when everything is read; then that is repaired, too.
        if !redis.lost().is_empty() {
            repair(redis, &store).await?;
            report = None;
        }
    }
    let report = match report {
        Some(report) => report,
        None => compared(args, &engine, &store).await,
    };
    // That Redis has lost something may show only when it is read.
    if let Some(trouble) = engine.trouble() {
        anyhow::bail!("{trouble}: run `qiang audit --repair`");
    }
    stop.cancel();
    engine.shut_down().await;
    store.close().await;
    report
}

async fn repair(engine: &redis::Engine, store: &Store) -> anyhow::Result<()> {
    let repaired = epochs::repair(engine, store).await?;
    if repaired.partitions > 0 {
        output::say(format_args!(
            "{} of Redis had lost something: {} and {} were put back from the records and what Redis \
             still had",
            many(repaired.partitions as u64, "partition", "partitions"),
            many(repaired.pools as u64, "sale", "sales"),
            many(repaired.claims as u64, "claim", "claims")
        ));
    }
    for what in repaired.conflicts.iter().chain(&repaired.oversold) {
        output::say(format_args!("a person has to look at this: {what}"));
    }
    Ok(())
}

async fn compared(args: &Args, engine: &Engine, store: &Store) -> anyhow::Result<Report> {
    let carried = records::catch_up(engine, store).await;
    match carried.context("the records could not be brought up to date")? {
        0 => {}
        events => output::say(format_args!("{events} events were not in the records yet")),
    }
    let mending = if args.repair { Mending::Records } else { Mending::LookOnly };
    Ok(audit::compare(store, &Source::At { engine, store }, None, mending).await?)
}

fn print(report: &Report) -> anyhow::Result<()> {
    for difference in &report.differences {
        let id = difference.claim_id.as_ref().unwrap_or(&difference.sale_id);
        output::data(format_args!("{id}\t{}\t{}", difference.book, difference.what))?;
    }
    for review in &report.reviews {
        output::data(format_args!(
            "{}\treview\tpayment {} had paid order {} before: a person has to look at it",
            review.order_id, review.payment_id, review.first_order_id
        ))?;
    }
    let Report { sales, claims, orders, payments, refunds, took_ms, .. } = report;
    let compared = [
        (*sales, "sale", "sales"),
        (*claims, "claim", "claims"),
        (*orders, "order", "orders"),
        (*payments, "payment", "payments"),
        (*refunds, "refund", "refunds"),
    ];
    let compared = compared.map(|(count, one, more)| many(count, one, more)).join(", ");
    output::say(format_args!("{compared} compared in {took_ms} ms"));
    output::say(match report.difference_count {
        0 => "all books agree".to_owned(),
        count => many(count, "difference", "differences"),
    });
    match report.pending_reviews {
        0 => {}
        count => output::say(format_args!(
            "{count} paid orders are left to a person: see /api/v1/admin/reviews"
        )),
    }
    Ok(())
}
