//! `qiang dlq`: events that could not be recorded.

use std::process::ExitCode;

use clap::Subcommand;
use qiang_app::Config;
use qiang_app::cli::output::{self, many};
use qiang_app::cli::{Command, Server, ServerArgs};
use serde::Deserialize;
use serde_json::{Value, json};

use super::escaped;

/// The most of an error that a line shows.
const SHOWN: usize = 100;

/// Look at dead letters: events that could not be recorded
///
/// Asks a running server. An event that cannot be recorded is tried again after 1, 2, 4 … 30 s; when it
/// keeps failing it is a dead letter, and waits for a person: mend what stands in its way and retry it,
/// or discard it, which gives its claim back.
#[derive(Debug, clap::Args)]
pub struct DlqArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: DlqCommand,
}

#[derive(Debug, Subcommand)]
enum DlqCommand {
    /// List them, a line each
    List {
        /// Others than dead ones: waiting, discarding, discarded, resolved
        #[arg(long, value_name = "STATE", default_value = "dead")]
        state: String,
        /// Only events of this kind, like claim_granted
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// Print JSON, a line each
        #[arg(long)]
        json: bool,
    },
    /// Show one with its event and its error, as JSON
    Show {
        /// The event
        id: String,
    },
    /// Have one tried again, or many
    Retry {
        /// The event
        #[arg(required_unless_present = "all")]
        id: Option<String>,
        /// All of them, about a hundred a second
        #[arg(long, conflicts_with = "id")]
        all: bool,
        /// With --all: only events of this kind
        #[arg(long, value_name = "KIND", requires = "all")]
        kind: Option<String>,
        /// With --all: only those that failed first at this time or later, like 2027-01-15T08:00:00Z
        #[arg(long, value_name = "TIME", requires = "all")]
        since: Option<String>,
    },
    /// Give one up: its claim is given back, or refunded if it is paid
    Discard {
        /// The event
        id: String,
    },
}

#[derive(Debug, Deserialize)]
struct Page {
    dead_letters: Vec<Value>,
    next_after: Option<String>,
}

impl Command for DlqArgs {
    async fn run(&self, config: &Config) -> anyhow::Result<ExitCode> {
        let mut server = self.server.connect(config, "qiang-dlq").await?;
        match &self.command {
            DlqCommand::List { state, kind, json } => {
                list(&mut server, state, kind.as_deref(), *json).await?;
            }
            DlqCommand::Show { id } => {
                let one: Value = server.get(&path(id, "")).await?;
                output::data(serde_json::to_string_pretty(&one)?)?;
            }
            DlqCommand::Retry { id: Some(id), .. } => {
                let one: Value = server.post(&path(id, "/retry"), &json!({})).await?;
                output::data(line(&one))?;
            }
            DlqCommand::Retry { id: None, kind, since, .. } => {
                retry_all(&mut server, kind.as_deref(), since.as_deref()).await?;
            }
            DlqCommand::Discard { id } => {
                let one: Value = server.post(&path(id, "/discard"), &json!({})).await?;
                output::data(line(&one))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn list(
    server: &mut Server,
    state: &str,
    kind: Option<&str>,
    json: bool,
) -> anyhow::Result<()> {
    let kind = kind.map(|kind| format!("&kind={}", escaped(kind))).unwrap_or_default();
    let (mut after, mut count) = (String::new(), 0);
    loop {
        let path = format!("/api/v1/admin/dead-letters?state={}{kind}{after}", escaped(state));
        let page: Page = server.get(&path).await?;
        for one in &page.dead_letters {
            if json {
                output::data(one)?;
            } else {
                output::data(line(one))?;
            }
        }
        count += page.dead_letters.len() as u64;
        match page.next_after {
            Some(next) => after = format!("&after={}", escaped(&next)),
            None => break,
        }
    }
    output::say(format_args!("{} in state {state}", many(count, "event", "events")));
    Ok(())
}

/// A server takes a thousand at once.
async fn retry_all(
    server: &mut Server,
    kind: Option<&str>,
    since: Option<&str>,
) -> anyhow::Result<()> {
    let mut body = json!({});
    for (name, value) in [("kind", kind), ("since", since)] {
        if let Some(value) = value {
            body[name] = value.into();
        }
    }
    let answer: Value = server.post("/api/v1/admin/dead-letters/retry", &body).await?;
    let retried = answer["retried"].as_u64().unwrap_or_default();
    output::data(format_args!("{} tried again", many(retried, "event is", "events are")))?;
    Ok(())
}

fn path(id: &str, rest: &str) -> String {
    format!("/api/v1/admin/dead-letters/{}{rest}", escaped(id))
}

/// What a person wants to know at a glance.
fn line(one: &Value) -> String {
    let text = |name: &str| one[name].as_str().unwrap_or("-").to_owned();
    let error = text("error");
    let error = &error[..error.floor_char_boundary(SHOWN)];
    let undone = one["compensation"].as_str().map(|word| format!(" ({word})")).unwrap_or_default();
    let attempts = many(one["attempts"].as_u64().unwrap_or_default(), "attempt", "attempts");
    let (id, kind, state) = (text("id"), text("kind"), text("state"));
    format!("{id}  {kind}  {state}{undone} since {}  {attempts}: {error}", text("at"))
}
