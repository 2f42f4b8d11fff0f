//! `qiang import`: sales out of a file into an engine.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use qiang_core::{Event, Terms};
use qiang_engine::redis::{self, PoolRecord};
use qiang_engine::{Clock as _, Engine, SystemClock};
use qiang_store::Store;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::transfer::{self, Contents, Known, Sale};
use qiang_app::cli::output;
use qiang_app::cli::output::many;
use qiang_app::config::EngineUrl;
use qiang_recovery::epochs;
use qiang_recovery::opened::Opened;
use qiang_sales::current;

const BATCH: usize = 1_000;

/// Put the sales of a file into the configured engine and database
///
/// The file is one that `qiang export` wrote. No server may run, and no sale of the file may be
/// there already. If it is cut off, do it again.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(args: &Args, config: &Config) -> anyhow::Result<ExitCode> {
    super::log_to_stderr(config)?;
    super::runtime()?.block_on(async {
        let Contents { sales, known } = read(&args.file)?;
        if let EngineUrl::Embedded { .. } = &config.app.engine.url {
            sales.iter().try_for_each(Sale::fits_embedded)?;
        }
        let mut records: Vec<PoolRecord> = sales.into_iter().map(|sale| sale.record).collect();
        match &config.app.engine.url {
            EngineUrl::Embedded { folder } => embedded(folder, config, &records, &known).await?,
            EngineUrl::Redis(_) => {
                for record in &mut records {
                    gather(record);
                }
                import_to_redis(config, &records, &known).await?;
            }
            EngineUrl::Sql => anyhow::bail!(
                "an engine on a database cannot take over sales yet: import into redis:// or embedded:"
            ),
        }
        let claims: usize = records.iter().map(|record| record.claims.len()).sum();
        let (sales, claims) = (many(records.len() as u64, "sale", "sales"), many(claims as u64, "claim", "claims"));
        output::say(format_args!("{sales} with {claims} imported"));
        Ok(ExitCode::SUCCESS)
    })
}

fn read(path: &Path) -> anyhow::Result<Contents> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(transfer::read(BufReader::new(file), SystemClock.now())?)
}

/// A sale whose claims were not numbered by bucket has all its quotas in one place, and so it goes
/// on in one bucket.
fn gather(record: &mut PoolRecord) {
    let terms = Arc::clone(&record.history[0].terms);
    if record.claims.iter().all(|claim| redis::is_in_its_bucket(claim, &terms)) {
        return;
    }
    output::say(format_args!(
        "sale {} was not spread over buckets before, and goes on in one",
        record.history[0].id
    ));
    let terms = Arc::new(Terms { buckets: 1, ..Terms::clone(&terms) });
    for state in &mut record.history {
        state.terms = Arc::clone(&terms);
    }
}

async fn import_to_redis(
    config: &Config,
    records: &[PoolRecord],
    known: &Known,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let opened = Opened::open(&config.app, Arc::new(SystemClock), stop.clone()).await?;
    let Opened { engine, store, .. } = opened;
    let Engine::Redis(engine) = &engine else { unreachable!("the URL says redis") };
    let workers = store.held_leases("worker/").await?;
    if !workers.is_empty() {
        anyhow::bail!(
            "{} at work on this database: stop all servers first",
            many(workers.len() as u64, "worker", "workers")
        );
    }
    epochs::import(engine, &store, records).await?;
    write_records(&store, records, known).await?;
    // Terms may have changed, which no version tells.
    let sales = records.iter().filter_map(|record| record.history.last().cloned());
    store.rewrite(&sales.map(Event::Pool).collect::<Vec<_>>()).await?;
    stop.cancel();
    store.close().await;
    Ok(())
}

async fn embedded(
    folder: &Path,
    config: &Config,
    records: &[PoolRecord],
    known: &Known,
) -> anyhow::Result<()> {
    let (folder, events) = (folder.to_owned(), records.iter().flat_map(PoolRecord::events));
    let events: Vec<Event> = events.collect();
    let written =
        tokio::task::spawn_blocking(move || qiang_engine::embedded::import(&folder, &events));
    written.await??;
    let store = config.app.open_store().await?;
    store.migrate().await?;
    write_records(&store, records, known).await?;
    store.close().await;
    Ok(())
}

async fn write_records(store: &Store, records: &[PoolRecord], known: &Known) -> anyhow::Result<()> {
    for record in records {
        let events: Vec<Event> = record.events().collect();
        for events in events.chunks(BATCH) {
            store.upsert(events).await?;
        }
    }
    for ((sale, payment), at) in &known.settled {
        store.settle_refund(*sale, payment, *at).await?;
    }
    // A current sale that the shop has already chosen here stays.
    if let (Some(sale), None) = (known.current, current::stored(store).await?) {
        current::store(store, Some(sale)).await?;
    }
    Ok(())
}
