//! `cargo xtask tidy`: the house rules that no compiler and no linter checks.
//!
//! Reads files and `cargo metadata`, builds nothing, takes about a second. Every complaint
//! names the place and what to do about it. Also runs as a test of this crate.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::stopwatch::Stopwatch;

mod direction;
mod documents;
mod files;
mod manifests;
mod pitfalls;
mod rust_text;
mod sources;
mod vendored;
mod words;

/// One broken rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Relative to the workspace.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl Problem {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Prints what is wrong; fails if anything is.
pub fn run(args: &[String]) -> Result<ExitCode> {
    if let Some(arg) = args.first() {
        bail!("tidy takes no arguments, yet got `{arg}`");
    }
    let clock = Stopwatch::start();
    let problems = check(&crate::root()?)?;
    for problem in &problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        println!("tidy in {clock}");
        return Ok(ExitCode::SUCCESS);
    }
    println!("NOT TIDY: {} complaints in {clock}", problems.len());
    Ok(ExitCode::FAILURE)
}

/// Everything that breaks a rule under `root`, sorted by place.
pub fn check(root: &Path) -> Result<Vec<Problem>> {
    let files = files::read(root)?;
    let mut problems = Vec::new();
    direction::check(&direction::metadata(root)?, &mut problems);
    manifests::check(&files, &mut problems);
    sources::check(&files, &mut problems);
    words::check(&files, &mut problems);
    pitfalls::check(&files, &mut problems);
    documents::check(root, &files, &mut problems);
    vendored::check(root, &mut problems)?;
    problems.sort();
    Ok(problems)
}
