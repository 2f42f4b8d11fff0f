//! `cargo xtask test`: every test of the workspace with one command.
//!
//! Benchmarks are left out (`--all-targets` would run them), documentation tests are not. No
//! test needs a server yet; the first that does gets it from [`crate::servers`] here.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::stopwatch::Stopwatch;

/// Runs the tests; `args` may hold `--` and what to hand on to `cargo test`.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let extra = match args.split_first() {
        None => args,
        Some((dashes, extra)) if dashes == "--" => extra,
        Some((other, _)) => bail!("`{other}`? Arguments for cargo test stand behind `--`"),
    };
    let clock = Stopwatch::start();
    let mut passed = succeeds(crate::cargo()?.args(test_args(extra)))?;
    if passed && extra.is_empty() {
        passed = succeeds(crate::cargo()?.args(["test", "--locked", "--workspace", "--doc"]))?;
    }
    println!("{} in {clock}", if passed { "every test passed" } else { "TESTS FAILED" });
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn test_args(extra: &[String]) -> Vec<&str> {
    let mut args = vec!["test", "--locked"];
    let own = extra.split(|arg| arg == "--").next().unwrap_or_default();
    let picks_package = own.iter().any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
    if !picks_package {
        args.push("--workspace");
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
    use super::test_args;

    fn check(extra: &[&str], expected: &str) {
        let extra: Vec<String> = extra.iter().map(ToString::to_string).collect();
        assert_eq!(test_args(&extra).join(" "), expected);
    }

    #[test]
    fn benches_are_never_run_by_accident() {
        check(&[], "test --locked --workspace --lib --bins --tests --examples");
    }

    #[test]
    fn a_choice_of_package_or_target_narrows_the_run() {
        check(&["-p", "xtask"], "test --locked --lib --bins --tests --examples -p xtask");
        check(&["--test", "kill"], "test --locked --workspace --test kill");
    }

    #[test]
    fn what_the_test_binary_gets_chooses_nothing() {
        check(
            &["--", "--nocapture", "-p"],
            "test --locked --workspace --lib --bins --tests --examples -- --nocapture -p",
        );
    }
}
