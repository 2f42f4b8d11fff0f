//! `cargo xtask bench`: qiang and its peers, measured in one run on one machine. `bench all` also
//! measures qiang on other servers, and writes the page.
//!
//! The benchmarks print figures as JSON lines; this gathers them, measures Redis with the
//! usual script, and prints one table with ratios and targets. Everything that syncs does so
//! on the same disk, under `target/`. A target that is missed is shown, not punished; a
//! benchmark that fails is a failure.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::stopwatch::Stopwatch;
use figures::Figures;

mod backends;
mod buckets;
mod connections;
mod figures;
mod footprint;
mod goals;
mod http;
mod load;
mod machine;
mod page;
mod pages;
mod product;
mod redis;
mod resp;
mod table;

const PARTS: [&str; 6] = ["engine", "http", "resp", "load", "connections", "footprint"];
/// What `bench all` writes.
const PAGE: &str = "docs/BENCHMARKS.md";

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    all: bool,
    quick: bool,
    only: Vec<String>,
    binary: Option<PathBuf>,
    write: Option<PathBuf>,
}

/// What a part that measures the product works with.
struct Stage<'a> {
    /// The repository.
    root: &'a Path,
    /// The product, as it is shipped, unless another was named.
    binary: &'a Path,
    /// A folder on the disk of the build.
    scratch: &'a Path,
    quick: bool,
}

/// Measures, prints the table, and writes it when asked.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let root = crate::root()?;
    match args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("redis", rest)) => return backends::run(rest, &empty_scratch(&root)?),
        Some(("buckets", rest)) => return buckets::run(rest),
        Some(("pages", rest)) => return pages::run(rest),
        Some(("pools", rest)) => return backends::run_pools(rest, &empty_scratch(&root)?),
        _ => {}
    }
    let options = parse(args)?;
    let clock = Stopwatch::start();
    let scratch = empty_scratch(&root)?;

    let mut figures = Figures::default();
    let (mut failed, mut binary) = (Vec::new(), options.binary.clone());
    for part in PARTS.into_iter().filter(|part| options.wants(part)) {
        eprintln!("measuring {part} …");
        let measured = match part {
            "engine" => cargo_bench("qiang-engine", "claims", &options, &scratch, &mut figures),
            _ => built(&root, &mut binary).and_then(|binary| {
                let stage = Stage { root: &root, binary, scratch: &scratch, quick: options.quick };
                match part {
                    "http" => http::measure(&stage, &mut figures),
                    "resp" => resp::measure(&stage, &mut figures),
                    "load" => load::measure(&stage, &mut figures),
                    "connections" => connections::measure(&stage, &mut figures),
                    _ => footprint::measure(&stage, &mut figures),
                }
            }),
        };
        if let Err(error) = measured {
            eprintln!("{part}: {error:#}");
            failed.push(part);
        }
    }

    let mut backends = String::new();
    if options.all {
        let args = if options.quick { vec!["--quick"] } else { Vec::new() };
        let (said, missed) = backends::measure(&[], &args, &scratch);
        backends = said;
        failed.extend(missed);
    }

    let table = table::render(&goals::rows(&figures));
    println!("{table}\n{backends}");
    if let Some(file) = &options.write {
        let measured = machine::measured(&table, &backends, &options.command())?;
        page::write(&root.join(file), &measured)?;
        eprintln!("wrote {}", file.display());
    }
    if failed.is_empty() {
        println!("measured in {clock}");
        return Ok(ExitCode::SUCCESS);
    }
    println!("FAILED: {}, after {clock}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

/// The product's binary, built when it is first needed, unless one was named.
fn built<'a>(root: &Path, binary: &'a mut Option<PathBuf>) -> Result<&'a Path> {
    match binary {
        Some(binary) => Ok(binary),
        None => Ok(binary.insert(product::build(root)?)),
    }
}

/// A folder on the disk of the build; what an interrupted run left there goes.
fn empty_scratch(root: &Path) -> Result<PathBuf> {
    let scratch = root.join("target/bench-scratch");
    if scratch.exists() {
        fs::remove_dir_all(&scratch).with_context(|| format!("cannot empty {scratch:?}"))?;
    }
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {scratch:?}"))?;
    Ok(scratch)
}

impl Options {
    /// What was typed, or would have been.
    fn command(&self) -> String {
        let words = [(self.all, " all"), (self.quick, " --quick")];
        let words = words.iter().filter(|(said, _)| *said).map(|(_, word)| (*word).to_owned());
        let parts = self.only.iter().map(|part| format!(" --only {part}"));
        format!("cargo xtask bench{}", words.chain(parts).collect::<String>())
    }

    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "all" => {
                options.all = true;
                options.write.get_or_insert_with(|| PAGE.into());
            }
            "--quick" => options.quick = true,
            "--only" => match args.next() {
                Some(part) if PARTS.contains(&part.as_str()) => options.only.push(part.clone()),
                _ => bail!("--only takes one of: {}", PARTS.join(", ")),
            },
            "--binary" => {
                let file = args.next().context("--binary takes a file")?;
                options.binary =
                    Some(fs::canonicalize(file).with_context(|| format!("no {file}"))?);
            }
            "--write" => {
                options.write = Some(args.next().context("--write takes a file")?.into());
            }
            other => bail!("bench does not know `{other}`; see `cargo xtask help`"),
        }
    }
    ensure!(
        options.binary.is_none() || options.write.is_none(),
        "the page tells what is shipped: --binary cannot be written to it"
    );
    Ok(options)
}

/// Runs one benchmark of the workspace; its lines of JSON become figures, as they come.
fn cargo_bench(
    package: &str,
    bench: &str,
    options: &Options,
    scratch: &Path,
    figures: &mut Figures,
) -> Result<()> {
    let mut command = crate::cargo()?;
    command.args(["bench", "--locked", "-p", package, "--bench", bench, "--", "--json"]);
    if options.quick {
        command.arg("--quick");
    }
    let mut child = command.env("TMPDIR", scratch).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().context("its output was piped")?;
    for line in BufReader::new(stdout).lines() {
        figures.hear(&line?);
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { bail!("{command:?} ended with {status}") }
}

#[cfg(test)]
mod tests {
    use super::{Options, parse};

    fn options(line: &str) -> anyhow::Result<Options> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_understood_or_refused() {
        let all = options("--quick --only resp --only http --write docs/B.md").unwrap();
        assert!(all.quick && all.wants("resp") && all.wants("http") && !all.wants("engine"));
        assert_eq!(all.write, Some("docs/B.md".into()));
        assert_eq!(all.command(), "cargo xtask bench --quick --only resp --only http");
        let page = options("all --quick").unwrap();
        assert!(page.all && page.wants("resp") && page.write == Some(super::PAGE.into()));
        assert_eq!(page.command(), "cargo xtask bench all --quick");
        assert!(options("").unwrap().wants("engine"));
        assert!(options("--binary .").unwrap().binary.is_some());
        for bad in ["--binary", "--binary no-such-file", "--binary . --write docs/B.md"] {
            assert!(options(bad).is_err(), "{bad}");
        }
        for bad in ["--only mysql", "--only", "--write", "--fast"] {
            assert!(options(bad).is_err(), "{bad}");
        }
    }
}
