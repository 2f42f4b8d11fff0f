//! `cargo xtask bench redis`: qiang on the servers it can stand on, each a private one with its
//! data on the disk of the build.
//!
//! The engine on Redis, in memory and with every write synced; the records in MariaDB and
//! PostgreSQL as they are shipped, which is durable. The benchmarks print their own results.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use qiang_testkit::servers::redis::{self, Durability};
use qiang_testkit::servers::{MARIADB, MARIADB_INSTALL, Mariadb, POSTGRES, Postgres, REDIS, Redis};
use qiang_testkit::servers::{mariadb, postgres, shared};

use crate::servers::{install, or_skip};
use crate::stopwatch::Stopwatch;

const PARTS: [&str; 2] = ["engine", "store"];

/// Runs both benchmarks, or those of `--only`; everything else in `args`, and all behind `--`, goes to
/// them.
pub(super) fn run(args: &[String], scratch: &Path) -> Result<ExitCode> {
    let (only, args) = parse(args)?;
    let clock = Stopwatch::start();
    let (_, failed) = measure(&only, &args, scratch);
    if failed.is_empty() {
        println!("measured in {clock}");
        return Ok(ExitCode::SUCCESS);
    }
    println!("FAILED: {}, after {clock}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

/// Runs the benchmark of many small pools, on the embedded engine and on a Redis without a file: what is
/// measured is the engine, not the disk. `args` go to it.
pub(super) fn run_pools(args: &[String], scratch: &Path) -> Result<ExitCode> {
    let clock = Stopwatch::start();
    install([REDIS]);
    let options = redis::Options { base: scratch.to_owned(), ..Default::default() };
    let options = redis::Options { durability: Durability::None, ..options };
    let redis = or_skip("Redis", Redis::start(&options))?;
    let url = redis.as_ref().map(|redis| ("QIANG_BENCH_REDIS_NO", redis.url()));
    let urls: Vec<_> = url.into_iter().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    cargo_bench("qiang-engine", "pools", &args, scratch, &urls)?;
    println!("measured in {clock}");
    Ok(ExitCode::SUCCESS)
}

/// Runs the benchmarks; what they printed, and which of them failed.
pub(super) fn measure(only: &[&str], args: &[&str], scratch: &Path) -> (String, Vec<&'static str>) {
    let (mut said, mut failed) = (String::new(), Vec::new());
    for part in PARTS.into_iter().filter(|part| only.is_empty() || only.contains(part)) {
        eprintln!("measuring {part} on other servers …");
        let measured = match part {
            "engine" => engine(args, scratch),
            _ => store(args, scratch),
        };
        match measured {
            Ok(lines) => said.push_str(&lines),
            Err(error) => {
                eprintln!("{part}: {error:#}");
                failed.push(part);
            }
        }
    }
    (said, failed)
}

fn parse(args: &[String]) -> Result<(Vec<&str>, Vec<&str>)> {
    let (mut only, mut rest) = (Vec::new(), Vec::new());
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        match arg {
            "--only" => match args.next() {
                Some(part) if PARTS.contains(&part) => only.push(part),
                _ => bail!("--only takes one of: {}", PARTS.join(", ")),
            },
            "--" => rest.extend(args.by_ref()),
            other => rest.push(other),
        }
    }
    Ok((only, rest))
}

fn engine(args: &[&str], scratch: &Path) -> Result<String> {
    install([REDIS]);
    let start = |durability| {
        let base = scratch.to_owned();
        or_skip("Redis", Redis::start(&redis::Options { durability, base, ..Default::default() }))
    };
    let Some(memory) = start(Durability::None)? else { return Ok(String::new()) };
    let Some(synced) = start(Durability::Always)? else { return Ok(String::new()) };
    let urls = [("QIANG_BENCH_REDIS_NO", memory.url()), ("QIANG_BENCH_REDIS_ALWAYS", synced.url())];
    cargo_bench("qiang-engine", "redis", args, scratch, &urls)
}

fn store(args: &[&str], scratch: &Path) -> Result<String> {
    install([MARIADB, MARIADB_INSTALL, POSTGRES]);
    let base = scratch.to_owned();
    let mysql = Mariadb::start(&mariadb::Options { base: base.clone(), ..Default::default() });
    let mysql = or_skip(shared::MYSQL.name, mysql)?;
    let postgres = Postgres::start(&postgres::Options { base, ..Default::default() });
    let postgres = or_skip(shared::POSTGRES.name, postgres)?;
    let mysql_url = mysql.as_ref().map(|server| (shared::MYSQL.variable, server.url()));
    let postgres_url = postgres.as_ref().map(|server| (shared::POSTGRES.variable, server.url()));
    let urls: Vec<_> = mysql_url.into_iter().chain(postgres_url).collect();
    cargo_bench("qiang-store", "project", args, scratch, &urls)
}

fn cargo_bench(
    package: &str,
    bench: &str,
    args: &[&str],
    scratch: &Path,
    urls: &[(&str, String)],
) -> Result<String> {
    let mut command = crate::cargo()?;
    command.args(["bench", "--locked", "-p", package, "--bench", bench, "--"]).args(args);
    command.env("TMPDIR", scratch).envs(urls.iter().map(|(name, url)| (name, url)));
    let spawned = command.stdout(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("cannot run {command:?}"))?;
    let stdout = child.stdout.take().context("its output was piped")?;
    let mut said = String::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        said.push_str(&line);
        said.push('\n');
    }
    let status = child.wait()?;
    if status.success() { Ok(said) } else { bail!("{command:?} ended with {status}") }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn what_is_not_ours_goes_to_the_benchmarks() {
        let args = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let line = args("--quick --only store -- --users 5");
        assert_eq!(parse(&line).unwrap(), (vec!["store"], vec!["--quick", "--users", "5"]));
        let line = args("--only engine -- --only longest");
        assert_eq!(parse(&line).unwrap(), (vec!["engine"], vec!["--only", "longest"]));
        assert!(parse(&args("--only http")).is_err());
    }
}
