//! `qiang config check`: what would be in effect, and where each value comes from.

use std::process::ExitCode;

use crate::config::{Config, Report};
use qiang_app::cli::{Exit, output};
use qiang_app::config::Error;
use qiang_engine::{Clock as _, SystemClock};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, loaded: &Result<Config, Error>) -> anyhow::Result<ExitCode> {
    let report = Report(loaded);
    match loaded {
        _ if args.json => output::data(format_args!("{:#}", report.json()))?,
        Ok(config) => {
            output::data(report.to_string().trim_end())?;
            let ending = config.ending_certificates(SystemClock.now());
            for caution in config.cautions().into_iter().chain(ending) {
                output::say(format_args!("caution: {caution}"));
            }
        }
        Err(_) => output::say(report),
    }
    Ok(if loaded.is_ok() { ExitCode::SUCCESS } else { Exit::Misused.into() })
}
