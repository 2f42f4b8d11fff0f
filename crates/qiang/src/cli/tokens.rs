//! `qiang tokens`: one token for trying things out, or a crowd of them for a load test.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use qiang_core::{Identity, Timestamp, UserId};
use qiang_engine::{Clock as _, SystemClock};

use crate::config::Config;
use qiang_app::cli::output;
use qiang_app::secrets::{FILE_NAME, Secrets};
use qiang_app::token::{Key, Principal, Role};

/// Enough for any test; a file of three gigabytes.
const MAX_COUNT: u64 = 10_000_000;
const YEAR_SECS: u64 = 366 * 86_400;
const PROGRESS_STEP: u64 = 10_000;

const EXAMPLES: &str = "\
Examples:
  qiang tokens --user alice --role admin            one token, on stdout
  qiang tokens --count 100000 --out tokens.csv      a crowd, for a load test";

/// Make tokens that say who a user is
///
/// They are signed with the key that `qiang serve` checks with: [auth] jwt_secret, or the one in
/// the secrets file of the data folder, which is made if it is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("whose").required(true))]
pub(super) struct Args {
    /// The user the token is for: any text of 1 to 64 bytes. The token goes to stdout
    #[arg(long, value_name = "ID", group = "whose", value_parser = user)]
    user: Option<UserId>,
    /// What the user may do
    #[arg(long, value_enum, default_value = "buyer", conflicts_with = "count")]
    role: RoleName,
    /// The real person behind the user, for sales that count persons
    #[arg(long, value_name = "TEXT", value_parser = identity, conflicts_with = "count")]
    identity: Option<Identity>,
    /// Make tokens for the users u1 to uN, as CSV: user_id,token
    #[arg(long, value_name = "N", group = "whose", requires = "out",
        value_parser = super::number(1..=MAX_COUNT))]
    count: Option<u64>,
    /// Where the CSV goes; - is stdout
    #[arg(long, value_name = "FILE", requires = "count")]
    out: Option<PathBuf>,
    /// How long the tokens are good [default: [auth] token_ttl_secs, a day]
    #[arg(long, value_name = "N", value_parser = super::number(1..=YEAR_SECS))]
    ttl_secs: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleName {
    Buyer,
    Viewer,
    Admin,
}

/// Who signs, from when to when.
struct Mint {
    key: Key,
    now: Timestamp,
    expires_at: Timestamp,
}

pub(super) fn run(args: &Args, config: &Config) -> anyhow::Result<ExitCode> {
    let mint = Mint::new(config, args.ttl_secs, SystemClock.now())?;
    match (&args.user, args.count, &args.out) {
        (Some(user), _, _) => {
            let role = match args.role {
                RoleName::Buyer => Role::Buyer,
                RoleName::Viewer => Role::Viewer,
                RoleName::Admin => Role::Admin,
            };
            output::data(mint.token(user.clone(), role, args.identity.clone()))?;
        }
        (None, Some(count), Some(out)) if out.as_os_str() == "-" => {
            mint.crowd(count, io::stdout().lock())?;
        }
        (None, Some(count), Some(out)) => {
            write_private(out, |file| mint.crowd(count, file))
                .with_context(|| format!("cannot write {}", out.display()))?;
            output::say(format_args!("{count} tokens are in {}", out.display()));
        }
        (None, _, _) => anyhow::bail!("say --user ID, or --count N --out FILE"),
    }
    Ok(ExitCode::SUCCESS)
}

impl Mint {
    fn new(config: &Config, ttl_secs: Option<u64>, now: Timestamp) -> anyhow::Result<Self> {
        let file = config.app.data.join(FILE_NAME);
        let had_keys = config.app.auth.jwt_secret.is_some() || file.exists();
        let key = Key::new(&Secrets::jwt_key_of(&config.app)?);
        if !had_keys {
            output::say(format_args!(
                "there were no keys in {}: new ones were made. A server on another folder will not \
                 take this token; name its folder with --data",
                config.app.data.display()
            ));
        }
        let ttl = ttl_secs.map_or(config.app.auth.token_ttl, Duration::from_secs);
        Ok(Self { key, now, expires_at: now.plus_millis(ttl.as_secs().saturating_mul(1000)) })
    }

    fn token(&self, user: UserId, role: Role, identity: Option<Identity>) -> String {
        let who = Principal { user, role, identity, expires_at: self.expires_at };
        self.key.mint(&who, self.now)
    }

    fn crowd(&self, count: u64, out: impl Write) -> anyhow::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let progress = progress(count);
        writeln!(out, "user_id,token")?;
        for number in 1..=count {
            let user = UserId::new(&format!("u{number}")).context("u and digits are a user id")?;
            writeln!(out, "{user},{}", self.token(user.clone(), Role::Buyer, None))?;
            if number % PROGRESS_STEP == 0 {
                progress.set_position(number);
            }
        }
        out.flush()?;
        progress.finish_and_clear();
        Ok(())
    }
}

/// On stderr, and only if that is a terminal.
fn progress(count: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} tokens, {eta} left");
    let bar = ProgressBar::new(count);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Tokens open doors, so only the owner may read them; and there is the whole file or none.
fn write_private(
    path: &Path,
    fill: impl FnOnce(&fs::File) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut name = path.file_name().context("it does not name a file")?.to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let aside = path.with_file_name(name);
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    let filled = fill(&file).and_then(|()| Ok(file.sync_all()?)).and_then(|()| {
        fs::rename(&aside, path)?;
        Ok(())
    });
    if filled.is_err() {
        fs::remove_file(&aside).ok();
    }
    filled
}

fn user(text: &str) -> Result<UserId, qiang_core::BadId> {
    UserId::new(text)
}

fn identity(text: &str) -> Result<Identity, qiang_core::BadId> {
    Identity::new(text)
}
