//! The command line.
//!
//! Data goes to stdout, talk to stderr, so that every command can stand in a pipe. A command is
//! one file under `cli/` with its `Args` and a `run`; this file only knows their names. Commands of
//! domains are in their crates, and listed in [`crate::domains`].

mod bench;
mod config_check;
mod demo;
mod export;
mod import;
mod migrate;
mod serve;
mod tokens;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};

use crate::config::Config;
use crate::domains;
use qiang_app::cli::output::{self, amount};
use qiang_app::cli::{Exit, Misuse};
use qiang_app::client;
use qiang_app::config::{self, Sources};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

const AFTER_HELP: &str = "\
Configuration, the later ones stronger: defaults, qiang.toml, the environment
(QIANG_HTTP__LISTEN for `listen` in [http]), flags. `qiang config check` shows the result.

Exit codes:
  0  done
  1  it failed, or something was found wrong
  2  the command line or the configuration makes no sense; nothing was done";

const GLOBAL_HEADING: &str = "Global options";

/// qiang (抢), a flash-sale engine: hands out scarce things to a crowd, exactly.
#[derive(Debug, Parser)]
#[command(name = "qiang", version, after_help = AFTER_HELP, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command can be told.
#[derive(Debug, Args)]
struct Global {
    /// The configuration file [default: ./qiang.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE", env = "QIANG_CONFIG")]
    #[arg(help_heading = GLOBAL_HEADING)]
    config: Option<PathBuf>,
    /// The folder everything lives in: journal, records, keys [default: ./qiang-data]
    #[arg(long, global = true, value_name = "DIR", help_heading = GLOBAL_HEADING)]
    data: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Demo(demo::Args),
    Bench(bench::Args),
    Tokens(tokens::Args),
    #[command(flatten)]
    OfDomain(domains::Commands),
    Migrate(migrate::Args),
    Export(export::Args),
    Import(import::Args),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Show every setting in effect and where it came from, or every mistake
    Check(config_check::Args),
}

impl Global {
    /// The layers below the flags of a command; the command adds its own.
    fn sources(&self) -> anyhow::Result<Sources> {
        let data = self.data.as_ref().map(|data| {
            data.to_str().map(str::to_owned).context("the path given with --data is not UTF-8")
        });
        let sources = Sources::of_process(self.config.clone());
        Ok(sources.with_flag("--data", "data", data.transpose()?))
    }

    fn config(&self) -> anyhow::Result<Config> {
        Ok(Config::load(self.sources()?)?)
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let no_url = |error| matches!(error, &client::Error::BadUrl { .. });
            let misused = error.is::<config::Error>()
                || error.is::<Misuse>()
                || error.downcast_ref().is_some_and(no_url);
            output::say(format_args!("error: {error:#}"));
            if misused { Exit::Misused.into() } else { Exit::Failed.into() }
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.command {
        Command::Serve(args) => {
            serve::run(args, Config::load(args.sources(cli.global.sources()?))?)
        }
        Command::Demo(args) => {
            let global = &cli.global;
            if global.data.is_some() || global.config.is_some() || args.names_a_place() {
                let told = "the demo works on a folder of its own: leave out --data and --config";
                return Err(Misuse(told).into());
            }
            demo::run(args)
        }
        Command::Bench(args) if args.has_server() => bench::run(args, &cli.global.config()?),
        Command::Bench(args) => {
            if cli.global.data.is_some() || cli.global.config.is_some() {
                let told = "without --url the bench works on a folder of its own: leave out --data \
                            and --config";
                return Err(Misuse(told).into());
            }
            bench::run(args, &Config::load(Sources::default())?)
        }
        Command::OfDomain(command) => {
            let config = cli.global.config()?;
            log_to_stderr(&config)?;
            runtime()?.block_on(command.run(&config))
        }
        Command::Migrate(args) => migrate::run(args, &cli.global.config()?),
        Command::Export(args) => export::run(args, &cli.global.config()?),
        Command::Import(args) => import::run(args, &cli.global.config()?),
        Command::Tokens(args) => tokens::run(args, &cli.global.config()?),
        Command::Config(ConfigCommand::Check(args)) => config_check::run(
            args,
            &Config::load(cli.global.sources()?).and_then(Config::with_readable_files),
        ),
    }
}

/// Reads a whole number within bounds, or says which it may be.
fn number<N>(bounds: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: FromStr + PartialOrd + Into<u64> + Copy,
{
    move |text| match text.parse() {
        Ok(number) if bounds.contains(&number) => Ok(number),
        _ => {
            let (least, most) = ((*bounds.start()).into(), (*bounds.end()).into());
            Err(format!("it must be a whole number from {} to {}", amount(least), amount(most)))
        }
    }
}

/// The threads a command works with.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the threads of the runtime")
}

/// Logs to stderr, as the configuration asks.
fn log_to_stderr(config: &Config) -> anyhow::Result<()> {
    let color = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // The most that is shown of a module is decided by the filter, not by the format.
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
    let log = log.with_writer(std::io::stderr).with_ansi(color).finish();
    Ok(log.with(config.app.log.filter.clone()).try_init()?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
