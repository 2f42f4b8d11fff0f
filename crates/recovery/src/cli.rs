//! `qiang audit`: do all books agree? Against a running server, or on a folder at rest.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use qiang_app::Config;
use qiang_app::cli::output::{self, many};
use qiang_app::cli::{Command, Exit, ServerArgs};
use qiang_app::config::EngineUrl;
use qiang_engine::{Engine, FolderLock, OpenError, SqliteJournal, SystemClock, redis};
use qiang_sales::records;
use qiang_store::Store;
use tokio_util::sync::CancellationToken;

use crate::audit::{self, Mending, Report, Source};
use crate::epochs;
use crate::opened::Opened;

/// An audit of millions of claims takes its time.
const PATIENCE: Duration = Duration::from_secs(3_600);

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
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Write the engine's word into the records wherever they differ
    #[arg(long)]
    repair: bool,
    /// Print the whole report as JSON
    #[arg(long)]
    json: bool,
}

impl Command for Args {
    async fn run(&self, config: &Config) -> anyhow::Result<ExitCode> {
        let mut report = look(self, config).await?;
        if self.repair && !report.ok {
            output::say(
                "differences were found, and mended where the engine knows better: looking again …",
            );
            let again = Self { repair: false, server: self.server.clone(), ..*self };
            report = look(&again, config).await?;
        }
        if self.json {
            output::data(serde_json::to_string_pretty(&report)?)?;
        } else {
            print(&report)?;
        }
        Ok(if report.ok { ExitCode::SUCCESS } else { Exit::Failed.into() })
    }
}

async fn look(args: &Args, config: &Config) -> anyhow::Result<Report> {
    if args.server.url.is_some() {
        return online(args, config).await;
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
        Err(OpenError::Locked { .. }) => online(args, config).await,
        Err(error) => Err(error.into()),
    }
}

async fn online(args: &Args, config: &Config) -> anyhow::Result<Report> {
    let mut server = args.server.connect(config, "qiang-audit").await?;
    server.set_timeout(PATIENCE);
    if args.repair {
        server.post("/api/v1/admin/audit/repair", &serde_json::json!({})).await
    } else {
        server.get("/api/v1/admin/audit").await
    }
}

async fn offline(args: &Args, config: &Config, folder: &Path) -> anyhow::Result<Report> {
    output::say("no server runs on the folder: replaying its journal …");
    SqliteJournal::check_at_rest(folder)?;
    let store = config.open_store().await?;
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
    if let Some(what) = &report.accounts_off {
        output::data(format_args!("accounts\taccounts\t{what}"))?;
    }
    for review in &report.reviews {
        output::data(format_args!(
            "{}\treview\tpayment {} had paid order {} before: a person has to look at it",
            review.order_id, review.payment_id, review.first_order_id
        ))?;
    }
    let Report { sales, claims, orders, payments, refunds, packets, took_ms, .. } = report;
    let compared = [
        (*sales, "sale", "sales"),
        (*claims, "claim", "claims"),
        (*orders, "order", "orders"),
        (*payments, "payment", "payments"),
        (*refunds, "refund", "refunds"),
        (*packets, "packet", "packets"),
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
    for (count, what) in [
        (report.pending_retries, "could not be recorded yet and are tried again"),
        (
            report.dead_letters,
            "could not be recorded and are left to a person: see `qiang dlq list`",
        ),
        (report.discarded, "were given up by a person, and the records lack them"),
    ] {
        if count > 0 {
            output::say(format_args!("{count} events {what}"));
        }
    }
    Ok(())
}
