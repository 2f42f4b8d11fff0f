//! `qiang report`: what a sale came to, from a running server.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use qiang_app::Config;
use qiang_app::cli::output;
use qiang_app::cli::{Command, ServerArgs};
use qiang_core::PoolId;

/// Adding up millions of claims takes its time.
const PATIENCE: Duration = Duration::from_secs(600);

/// Print what a sale came to: units, money, speed, who was refused why
///
/// Asks the server that runs on the data folder, or the one at --url. Works while a sale runs and
/// after it was cleared.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The sale
    #[arg(value_name = "SALE")]
    sale: String,
    #[command(flatten)]
    server: ServerArgs,
    /// For programs, for spreadsheets, or one page for people
    #[arg(long, value_enum, default_value = "json")]
    format: Format,
    /// The language of the page
    #[arg(long, value_enum, default_value = "en")]
    lang: Language,
    /// Write to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Json,
    Csv,
    Html,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Language {
    En,
    Zh,
}

impl Command for Args {
    async fn run(&self, config: &Config) -> anyhow::Result<ExitCode> {
        let sale: PoolId = self.sale.parse().ok().with_context(|| {
            format!("{:?} is no id of a sale: it must be a number like 12", self.sale)
        })?;
        let mut server = self.server.connect(config, "qiang-report").await?;
        server.set_timeout(PATIENCE);
        let format = match self.format {
            Format::Json => "json",
            Format::Csv => "csv",
            Format::Html => "html",
        };
        let lang = match self.lang {
            Language::En => "en",
            Language::Zh => "zh",
        };
        let path = format!("/api/v1/admin/sales/{sale}/report?format={format}&lang={lang}");
        let mut report = server.get_text(&path).await?;
        if self.format == Format::Json {
            let value: serde_json::Value = serde_json::from_str(&report).context("not JSON")?;
            report = serde_json::to_string_pretty(&value)?;
        }
        match &self.out {
            None => output::data(report)?,
            Some(file) => {
                let cannot = || format!("cannot write {}", file.display());
                std::fs::write(file, report).with_context(cannot)?;
                output::say(format_args!("written to {}", file.display()));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
