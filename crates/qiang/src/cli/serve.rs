//! `qiang serve`: the whole product, until Ctrl-C or SIGTERM.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use qiang_engine::SystemClock;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::listener;
use crate::server::Server;
use qiang_app::cli::output;
use qiang_app::config::{Shown, Sources};

/// Run the server
///
/// Needs nothing else on the machine: journal, records and keys live in the data folder, which
/// is made on the first start. Stops on Ctrl-C or SIGTERM, after answering what it accepted. SIGHUP
/// stops it, too, in a terminal, which sends it when it is closed; without one, as under systemd, it
/// has certificates read again; under nohup it is ignored.
///
/// With an engine that is shared (redis://, redis-cluster://, sql:) any number of these can run,
/// on any number of machines, some as --roles api and some as --roles worker.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Where to listen for Redis clients, too [default: nowhere]
    #[arg(long, value_name = "ADDR")]
    resp: Option<String>,
    /// What this process does, of several that share an engine [default: api,worker]
    #[arg(long, value_name = "ROLES")]
    roles: Option<String>,
    /// Stop when standard input ends: for whoever starts it and may die
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

impl Args {
    pub(super) fn sources(&self, sources: Sources) -> Sources {
        let sources = sources.with_flag("--listen", "http.listen", self.listen.clone());
        let sources = sources.with_flag("--resp", "resp.listen", self.resp.clone());
        sources.with_flag("--roles", "roles", self.roles.clone())
    }
}

pub(super) fn run(args: &Args, mut config: Config) -> anyhow::Result<ExitCode> {
    super::log_to_stderr(&config)?;
    let first = !config.app.data.join(qiang_app::secrets::FILE_NAME).exists();
    for caution in config.cautions() {
        tracing::warn!("{caution}");
    }
    let few_files = listener::raise_open_files().and_then(|files| config.fit_connections(files));
    let narrow = [listener::narrow_backlog(), few_files];
    for narrow in narrow.into_iter().flatten() {
        tracing::warn!("{narrow}");
    }
    super::runtime()?.block_on(async {
        let mut stop = Stop::listen()?;
        // Where no terminal can be closed, SIGHUP asks a server to read its files again.
        let mut reload = if has_terminal() { None } else { stop.hangup.take() };
        let server = Server::start(config, Arc::new(SystemClock)).await?;
        welcome(&server, first);
        let reloading = async {
            loop {
                heard(reload.as_mut()).await;
                tracing::info!("SIGHUP: reading certificates again");
                server.certificates.clone().read_again().await;
            }
        };
        tokio::select! {
            () = stop.asked() => output::say("stopping: answering what was accepted …"),
            () = reloading => {}
            () = stdin_ends(), if args.until_stdin_ends => {}
            () = server.app.engine.ended() => {}
        }
        let poison = server.app.engine.poisoned().map(str::to_owned);
        server.stop().await;
        if let Some(reason) = poison {
            anyhow::bail!(reason);
        }
        output::say("stopped");
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns when nobody can write to standard input any more.
async fn stdin_ends() {
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    // Nothing else reads it, and a thread that waits there does not keep the process from ending.
    std::thread::spawn(move || {
        let _length = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(end);
    });
    let _ended = ended.await;
}

fn welcome(server: &Server, first: bool) {
    let (url, config) = (server.url(), &server.config);
    let data = config.app.data.display();
    let version = env!("CARGO_PKG_VERSION");
    if config.app.roles.api {
        output::say(format_args!(
            "qiang {version} is ready\n  shop   {url}/\n  API    {url}/api/v1\n  docs   {url}/docs/"
        ));
        match server.domains.pages.console_link() {
            Ok(link) => output::say(format_args!(
                "  console, signed in as admin, once and within 15 minutes:\n    {url}/en/console#link={link}"
            )),
            Err(_) => output::say(format_args!("  console {url}/en/console")),
        }
    } else {
        output::say(format_args!("qiang {version} is ready, as a worker\n  health {url}/readyz"));
    }
    if let Some(address) = server.resp_address {
        let scheme = if config.resp.tls.is_some() { "rediss" } else { "redis" };
        output::say(format_args!("  RESP   {scheme}://{address}"));
    }
    if let Some(address) = server.health_address {
        output::say(format_args!("  health http://{address}/readyz"));
    }
    output::say(format_args!("  data   {data}"));
    if server.app.engine.is_shared() {
        for (what, key) in [("engine", "engine.url"), ("store ", "database.url")] {
            let setting = config.settings.iter().find(|setting| setting.key == key);
            if let Some(Shown::Plain(value)) = setting.map(|setting| &setting.value) {
                output::say(format_args!("  {what} {}", value.as_str().unwrap_or_default()));
            }
        }
    }
    if first && config.app.data.join(qiang_app::secrets::FILE_NAME).exists() {
        output::say(format_args!("  keys   made, in {data}/{}", qiang_app::secrets::FILE_NAME));
    }
    if config.domains.sales.sandbox {
        output::say(
            "  sandbox payments are on: orders can be paid without money ([payments] sandbox = false)",
        );
    }
    output::say(format_args!("  admin token: {}", admin_token_command(&config.app.data)));
}

/// The command that prints an admin's token for a data folder, as it can be typed here.
pub(super) fn admin_token_command(data: &Path) -> String {
    let program = std::env::current_exe().ok();
    let here = std::env::current_dir().ok();
    let program = program.map(|program| match &here {
        Some(here) => {
            program.strip_prefix(here).map(|below| Path::new(".").join(below)).unwrap_or(program)
        }
        None => program,
    });
    let program = program.map_or("qiang".into(), |program| program.display().to_string());
    let data = if data == Path::new(qiang_app::config::DEFAULT_DATA) {
        String::new()
    } else {
        format!(" --data {}", data.display())
    };
    format!("{program} tokens --user admin --role admin{data}")
}

/// Ctrl-C, SIGTERM, and SIGHUP, which a terminal sends when it is closed.
pub(super) struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// `None`: whoever started us wants it ignored, as `nohup` does.
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Stop {
    pub(super) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let hangup = SignalKind::hangup();
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: if is_ignored(hangup) { None } else { Some(listen(hangup)?) },
        })
    }

    pub(super) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = heard(self.hangup.as_mut()) => {}
        }
    }
}

/// Returns when the signal comes; without one, never.
async fn heard(signal: Option<&mut tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether this process was started in a terminal.
fn has_terminal() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have anything in it: state, parent, group, session, terminal.
    let terminal = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(4));
    terminal.is_some_and(|number| number != "0")
}

/// Whether this process was started with a signal ignored.
fn is_ignored(signal: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> (signal.as_raw_value() - 1) & 1 == 1)
}
