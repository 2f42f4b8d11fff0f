//! `qiang export`: all sales of an engine into a file.

use std::fs::File;
use std::io::BufWriter;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use qiang_core::{Kind, PoolChange, PoolState, PoolView, SnapshotCursor, Timestamp};
use qiang_engine::redis::PoolRecord;
use qiang_engine::{Engine, FolderLock, SqliteJournal, SystemClock};
use qiang_store::{RefundRecord, RefundStatus, Store};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::transfer::{self, Known};
use qiang_app::cli::output;
use qiang_app::cli::output::many;
use qiang_app::config::EngineUrl;
use qiang_recovery::audit;
use qiang_recovery::opened::Opened;
use qiang_sales::current;
use qiang_sales::records;

const PAGE: u32 = 1_000;

/// Write all sales, with their claims, to a file
///
/// For moving to another engine: stop the servers, export with the old configuration, import with
/// the new one, start the servers with that. The file is JSON, a line for each change of a sale,
/// each claim and each refund, and its last line says how much is in it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file; it must not exist yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(args: &Args, config: &Config) -> anyhow::Result<ExitCode> {
    super::log_to_stderr(config)?;
    super::runtime()?.block_on(async {
        let (records, known) = match &config.app.engine.url {
            EngineUrl::Embedded { folder } => {
                anyhow::ensure!(
                    SqliteJournal::path_in(folder).exists(),
                    "there is no journal in {}: name the folder with --data",
                    folder.display()
                );
                let lock = FolderLock::take(folder)?;
                SqliteJournal::check_at_rest(folder)?;
                let (book, _) = audit::replay(folder).await?;
                let (mut cursor, mut events) = (SnapshotCursor::default(), Vec::new());
                while !book.snapshot(&mut cursor, usize::MAX, &mut |e| events.push(e.clone())) {}
                let store = config.app.open_store().await?;
                store.migrate().await?;
                let known = known(&store).await?;
                store.close().await;
                drop(lock);
                (transfer::gathered(events), known)
            }
            EngineUrl::Redis(_) | EngineUrl::Sql => shared(config).await?,
        };
        // Users' ids are in there.
        let file = File::options().write(true).create_new(true).mode(0o600).open(&args.file);
        let file = file.with_context(|| format!("cannot make {}", args.file.display()))?;
        let mut writer = transfer::Writer::new(BufWriter::new(&file))?;
        for record in &records {
            writer.add(record, &known)?;
        }
        let count = writer.finish(&known)?;
        file.sync_all()?;
        output::say(format_args!("{count} written to {}", args.file.display()));
        Ok(ExitCode::SUCCESS)
    })
}

/// Everything in an engine that others could work with; the caller has stopped them.
async fn shared(config: &Config) -> anyhow::Result<(Vec<PoolRecord>, Known)> {
    let stop = CancellationToken::new();
    let opened = Opened::open(&config.app, Arc::new(SystemClock), stop.clone()).await?;
    let Opened { engine, store, .. } = opened;
    if let Some(trouble) = engine.trouble() {
        anyhow::bail!("{trouble}: run `qiang audit --repair` first");
    }
    let workers = store.held_leases("worker/").await?;
    if !workers.is_empty() {
        anyhow::bail!(
            "{} at work on this database: stop all servers first",
            many(workers.len() as u64, "worker", "workers")
        );
    }
    records::catch_up(&engine, &store).await?;
    let mut records = Vec::new();
    for kind in Kind::ALL {
        let mut pools = engine.walk_pools(kind);
        while let Some(page) = pools.next().await? {
            for pool in &page {
                records.push(record(&engine, &store, pool).await?);
            }
        }
    }
    let known = known(&store).await?;
    stop.cancel();
    engine.shut_down().await;
    store.close().await;
    // Oldest first, so that the file reads like what happened.
    records.reverse();
    Ok((records, known))
}

async fn record(engine: &Engine, store: &Store, pool: &PoolView) -> anyhow::Result<PoolRecord> {
    let history = match pool.terms.kind {
        Kind::Sale => store.sale_history(pool.id).await?,
        Kind::Packet => history_of_packet(engine.pool_state(pool.id).await?, pool.opened_at),
    };
    let (mut claims, mut refunds) = (Vec::new(), Vec::new());
    let mut walk = engine.walk_claims(pool.id);
    while !pool.cleared
        && let Some(page) = walk.next().await?
    {
        claims.extend(page);
    }
    let mut walk = engine.walk_refunds(pool.id);
    while let Some(page) = walk.next().await? {
        refunds.extend(page);
    }
    let lost_through = store.lost_through(pool.id).await?;
    Ok(PoolRecord { history, claims, refunds, lost_through })
}

/// Every change of a packet, of which there are few: it is opened, closed and cleared, and nobody
/// adds to it. So its last state tells them all.
fn history_of_packet(last: Option<PoolState>, opened_at: Timestamp) -> Vec<PoolState> {
    let Some(last) = last else { return Vec::new() };
    let state = |version, change, closed_at, at| PoolState {
        version,
        change,
        closed_at,
        at,
        ..last.clone()
    };
    let mut history = vec![state(1, PoolChange::Opened, None, opened_at)];
    if let Some(closed_at) = last.closed_at {
        history.push(state(2, PoolChange::Closed, Some(closed_at), closed_at));
    }
    if last.change == PoolChange::Cleared {
        history.push(last.clone());
    }
    history
}

/// What only the records know.
async fn known(store: &Store) -> anyhow::Result<Known> {
    let mut known = Known { current: current::stored(store).await?, ..Known::default() };
    let mut after = None;
    loop {
        let sent = store.refunds(RefundStatus::Settled, after.as_ref(), PAGE).await?;
        let Some(last) = sent.last() else { return Ok(known) };
        after = Some(last.cursor());
        for RefundRecord { refund, settled_at } in sent {
            let key = (refund.order.pool, refund.payment);
            known.settled.extend(settled_at.map(|at| (key, at)));
        }
    }
}
