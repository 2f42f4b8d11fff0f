//! `qiang account`, `qiang packet` and `qiang verify-packet`.

use std::process::ExitCode;

use anyhow::Context as _;
use qiang_app::Config;
use qiang_app::cli::output;
use qiang_app::cli::{Command, ServerArgs};
use serde_json::{Value, json};

use crate::packets::verify::{Finished, Verified, verify};
use crate::transfers::TransferView;

/// Look at accounts, and put money on them
#[derive(Debug, clap::Args)]
pub struct AccountArgs {
    #[command(subcommand)]
    command: AccountCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AccountCommand {
    /// Show what a user has
    Show {
        /// The user
        user: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show every movement of a user's money, newest first
    Entries {
        /// The user
        user: String,
        /// Show at most so many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Put money on a user's account that arrived outside
    Topup {
        /// The user
        user: String,
        /// How much, in cents
        #[arg(value_parser = clap::value_parser!(i64).range(1..=1_000_000_000_000))]
        cents: i64,
        /// Names the top-up: money moves once for each key [default: a random one]
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        #[command(flatten)]
        server: ServerArgs,
    },
}

impl Command for AccountArgs {
    async fn run(&self, config: &Config) -> anyhow::Result<ExitCode> {
        match &self.command {
            AccountCommand::Show { user, server } => {
                let mut server = server.connect(config, "qiang-account").await?;
                let account: Value = server.get(&address(user, "")).await?;
                output::data(serde_json::to_string_pretty(&account)?)?;
            }
            AccountCommand::Entries { user, limit, server } => {
                let mut server = server.connect(config, "qiang-account").await?;
                let (mut left, mut before) = (*limit, String::new());
                while left > 0 {
                    let query = format!("/entries?limit={}{before}", left.min(100));
                    let page: Value = server.get(&address(user, &query)).await?;
                    let entries = page["entries"].as_array().context("not a statement")?;
                    for entry in entries {
                        output::data(line(entry))?;
                    }
                    left = left.saturating_sub(u32::try_from(entries.len())?);
                    match page["next_before"].as_u64() {
                        Some(next) => before = format!("&before={next}"),
                        None => break,
                    }
                }
            }
            AccountCommand::Topup { user, cents, key, server } => {
                let mut server = server.connect(config, "qiang-account").await?;
                let key = match key {
                    Some(key) => key.clone(),
                    None => format!("{:032x}", u128::from_be_bytes(random()?)),
                };
                output::say(format_args!("asking again with --key {key} moves nothing twice"));
                let body = json!({ "amount_cents": cents });
                let made: TransferView =
                    server.post_as(&key, &address(user, "/topups"), &body).await?;
                output::data(serde_json::to_string_pretty(&made)?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Look at red packets
#[derive(Debug, clap::Args)]
pub struct PacketArgs {
    #[command(subcommand)]
    command: PacketCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PacketCommand {
    /// Show a packet; amounts and seed when it is over
    Show {
        /// Its id
        packet: String,
        #[command(flatten)]
        server: ServerArgs,
    },
}

impl Command for PacketArgs {
    async fn run(&self, config: &Config) -> anyhow::Result<ExitCode> {
        let PacketCommand::Show { packet, server } = &self.command;
        let mut server = server.connect(config, "qiang-packet").await?;
        let shown: Value = server.get(&format!("/api/v1/packets/{packet}")).await?;
        output::data(serde_json::to_string_pretty(&shown)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Check that a finished red packet is what its commitment promised
///
/// Reads the packet as `GET /api/v1/packets/{id}` shows it, from a file or from a server, computes the cut
/// again, and compares it with what everybody got. Exit code 0 only if all of it is right.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// A file with the packet as JSON, or the packet's id
    #[arg(value_name = "FILE|ID")]
    packet: String,
    #[command(flatten)]
    server: ServerArgs,
}

impl Command for VerifyArgs {
    async fn run(&self, config: &Config) -> anyhow::Result<ExitCode> {
        let packet: Finished = match std::fs::read(&self.packet) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is no packet in JSON", self.packet))?,
            Err(error) if is_id(&self.packet) => {
                anyhow::ensure!(error.kind() == std::io::ErrorKind::NotFound, error);
                let mut server = self.server.connect(config, "qiang-packet").await?;
                server.get(&format!("/api/v1/packets/{}", self.packet)).await?
            }
            Err(error) => {
                return Err(error).with_context(|| format!("{} cannot be read", self.packet));
            }
        };
        let Verified { grabs, seed_hash, portions } = verify(&packet)?;
        let portions: Vec<String> = portions.iter().map(ToString::to_string).collect();
        output::data(format_args!("portions\t{}", portions.join(" ")))?;
        output::data(format_args!("seed_hash\t{seed_hash}"))?;
        let grabs = output::many(grabs as u64, "grab", "grabs");
        output::say(format_args!(
            "packet {} is what its commitment promised: {grabs} as the cut says",
            packet.packet_id
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether it looks like the id of a packet.
fn is_id(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// An entry as one line: place, time, what it is, how much, what the account had then.
fn line(entry: &Value) -> String {
    let text = |name: &str| match &entry[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    ["seq", "at", "kind", "amount_cents", "balance_after_cents", "other"].map(text).join("\t")
}

fn address(user: &str, rest: &str) -> String {
    let mut path = "/api/v1/accounts/".to_owned();
    for byte in user.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                path.push(byte.into());
            }
            other => path.push_str(&format!("%{other:02X}")),
        }
    }
    path + rest
}

fn random<const BYTES: usize>() -> anyhow::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).context("the operating system gives no random numbers")?;
    Ok(bytes)
}
