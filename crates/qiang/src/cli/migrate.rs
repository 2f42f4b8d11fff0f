//! `qiang migrate`: brings the records to the shape this binary expects, without serving.

use std::os::unix::fs::DirBuilderExt as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use qiang_engine::SystemClock;
use qiang_store::{Migration, Store};

use crate::config::Config;
use qiang_app::cli::{Exit, output};
use qiang_app::config::{DatabaseUrl, EngineUrl};
use qiang_recovery::epochs;
use qiang_recovery::opened::open_redis;

/// Bring the database to the shape this version expects
///
/// `serve` does that by itself; this is for those who want it done before. Doing it again does
/// nothing. Each migration applied is a line on stdout.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only show what is pending; exit code 1 if anything is
    #[arg(long)]
    check: bool,
    /// Take the sales in the configured Redis for this database's: only after its own database was
    /// lost. Workers then fill the records from there
    #[arg(long, conflicts_with = "check")]
    adopt_redis: bool,
}

pub(super) fn run(args: &Args, config: &Config) -> anyhow::Result<ExitCode> {
    super::log_to_stderr(config)?;
    super::runtime()?.block_on(async {
        let file = match &config.app.database.url {
            DatabaseUrl::Sqlite { path } => Some(path),
            DatabaseUrl::Server(_) => None,
        };
        let migrations = if args.check && file.is_some_and(|path| !path.exists()) {
            Migration::all()
        } else {
            if let Some(folder) = file.and_then(|path| path.parent()) {
                let mut private = std::fs::DirBuilder::new();
                private
                    .recursive(true)
                    .mode(0o700)
                    .create(folder)
                    .with_context(|| format!("cannot make the folder {}", folder.display()))?;
            }
            let store = config.app.open_store().await?;
            let migrations =
                if args.check { store.schema().await?.pending } else { store.migrate().await? };
            if args.adopt_redis {
                adopt_redis(config, &store).await?;
            }
            store.close().await;
            migrations
        };
        for migration in &migrations {
            output::data(format_args!("{:04} {}", migration.version, migration.name))?;
        }
        let pending = args.check && !migrations.is_empty();
        output::say(match (args.check, migrations.len()) {
            (_, 0) => "the database is up to date".to_owned(),
            (true, count) => format!("{count} pending"),
            (false, count) => format!("{count} applied"),
        });
        Ok(if pending { Exit::Failed.into() } else { ExitCode::SUCCESS })
    })
}

async fn adopt_redis(config: &Config, store: &Store) -> anyhow::Result<()> {
    let EngineUrl::Redis(place) = &config.app.engine.url else {
        anyhow::bail!("--adopt-redis is for an engine on Redis; engine.url names another one");
    };
    let engine = open_redis(&config.app, place, Arc::new(SystemClock)).await?;
    epochs::adopt(&engine, store).await?;
    output::say(format_args!("{place} belongs to this database now; start a worker to fill it"));
    Ok(())
}
