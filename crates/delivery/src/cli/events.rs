//! `qiang events`: what happened, a line for each event.

use std::process::ExitCode;
use std::time::Duration;

use qiang_app::Config;
use qiang_app::cli::output;
use qiang_app::cli::{Command, Server, ServerArgs};
use serde::Deserialize;

use super::escaped;

/// How long `--follow` waits at the end before it looks again.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often `--follow` tries to reach a server that went away: a minute.
const RECONNECTS: u32 = 120;
/// The name in the server's log.
const AS_WHOM: &str = "qiang-events";

/// Show what happened, a line of JSON for each event
///
/// Asks a running server for its public events (CloudEvents, docs/EVENTS.md), oldest first. The server
/// keeps them if `keep_events_hours` in [delivery] says so. At the end it says where to go on with
/// --after.
#[derive(Debug, clap::Args)]
pub struct EventsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Where to begin: `start` is the oldest event kept, `end` is now, otherwise where an earlier
    /// run ended
    #[arg(long, value_name = "PLACE", default_value = "start")]
    after: String,
    /// Go on with events as they come
    #[arg(long)]
    follow: bool,
    /// Only events of this kind, like claim_granted
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only events of this sale
    #[arg(long, value_name = "ID")]
    sale: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Page {
    events: Vec<serde_json::Value>,
    next_after: String,
    more: bool,
}

impl EventsArgs {
    /// Waits for a server that is being started again.
    async fn connect_again(&self, config: &Config) -> anyhow::Result<Server> {
        let mut left = RECONNECTS;
        loop {
            match self.server.connect(config, AS_WHOM).await {
                Err(_) if left > 0 => left -= 1,
                connected => return connected,
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn path(&self, after: &str) -> String {
        let kind = self.kind.as_deref().map(|kind| format!("&kind={}", escaped(kind)));
        let sale = self.sale.as_deref().map(|sale| format!("&sale={}", escaped(sale)));
        let (kind, sale) = (kind.unwrap_or_default(), sale.unwrap_or_default());
        format!("/api/v1/events?after={}{kind}{sale}", escaped(after))
    }
}

impl Command for EventsArgs {
    async fn run(&self, config: &Config) -> anyhow::Result<ExitCode> {
        let mut server = self.server.connect(config, AS_WHOM).await?;
        let (mut after, mut again) = (self.after.clone(), false);
        loop {
            let page: Page = match server.get(&self.path(&after)).await {
                // The server was started again, or our token has run out.
                Err(error) if self.follow && !again => {
                    output::say(format_args!("{error:#}: asking again …"));
                    server = self.connect_again(config).await?;
                    again = true;
                    continue;
                }
                answer => answer?,
            };
            again = false;
            for event in &page.events {
                output::data(event)?;
            }
            after = page.next_after;
            match (page.more, self.follow) {
                (true, _) => {}
                (false, true) => tokio::time::sleep(LOOK_EVERY).await,
                (false, false) => break,
            }
        }
        output::say(format_args!("go on with --after {after}"));
        Ok(ExitCode::SUCCESS)
    }
}
