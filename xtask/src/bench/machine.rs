//! What stands around the table: on what, with what and when it was measured.

use std::fs;
use std::process::Command;

use anyhow::Result;

/// Everything measured, as Markdown.
pub(super) fn measured(table: &str, backends: &str, command: &str) -> Result<String> {
    let quick = command.contains(" --quick");
    let caution = if quick { "\nA quick look, not a result: one short round each.\n" } else { "" };
    let backends = match backends.trim() {
        "" => String::new(),
        said => format!("\n## On other servers\n\n```text\n{said}\n```\n"),
    };
    let facts: Vec<String> =
        facts()?.iter().map(|(what, value)| format!("| {what} | {value} |")).collect();
    Ok(format!(
        "Written by `{command}`, everything in one run on one machine. Run it on yours: the\n\
        ratios carry over, the figures do not. Whatever syncs does so on the same disk.\n\
        {caution}\n{table}\n\
        Redis runs [the usual script](../bench/seckill.lua) once for each claim, driven by\n\
        `redis-benchmark` with 64 connections and a new user for each request (`-c 64 -P 1` or\n\
        `-P 64 -r 1000000000 EVALSHA … __rand_int__ …`): `always` syncs its append-only file before\n\
        it answers, as qiang does; `no` leaves that to the kernel; `memory` keeps nothing. `resp` is\n\
        the same against qiang (`CLAIM <sale> __rand_int__`). They take turns, round by round. The\n\
        no-op is an axum handler that returns a constant. The open loop is\n\
        `qiang bench --rate 20000`, three times; the run from which the host took least counts, and\n\
        every error. Its refusals need no journal.\n{backends}\n\
        ## The machine\n\n| what | |\n| --- | --- |\n{}\n",
        facts.join("\n")
    ))
}

fn facts() -> Result<Vec<(&'static str, String)>> {
    let cores = std::thread::available_parallelism()?;
    Ok(vec![
        ("date", said_by("date", &["-u", "+%Y-%m-%d"])),
        ("processor", format!("{}, {cores} cores", processor())),
        ("memory", memory()),
        ("kernel", said_by("uname", &["-sr"])),
        ("rustc", said_by("rustc", &["--version"])),
        ("redis", said_by("redis-server", &["--version"])),
        ("mariadb", said_by("mariadbd", &["--version"])),
        ("postgresql", said_by("psql", &["--version"])),
        ("axum", locked_version("axum")),
        ("commit", said_by("git", &["describe", "--always", "--dirty"])),
    ])
}

/// The version of a library that was built in.
fn locked_version(library: &str) -> String {
    let lock = crate::root().and_then(|root| Ok(fs::read_to_string(root.join("Cargo.lock"))?));
    let lock = lock.unwrap_or_default();
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{library}\""));
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
    version.unwrap_or("unknown").trim_matches('"').to_owned()
}

/// The first line a program prints, or that it is not here.
fn said_by(program: &str, args: &[&str]) -> String {
    let printed = crate::output_of(Command::new(program).args(args));
    let first =
        printed.ok().and_then(|text| text.lines().next().map(|line| line.trim().to_owned()));
    first.unwrap_or_else(|| format!("no {program}"))
}

fn processor() -> String {
    value_in("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.into())
}

fn memory() -> String {
    value_in("/proc/meminfo", "MemTotal").unwrap_or_else(|| "unknown".into())
}

fn value_in(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
