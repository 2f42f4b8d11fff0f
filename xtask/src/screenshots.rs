//! `cargo xtask screenshots [FOLDER]`: pictures of every page, for people to look at.
//!
//! The end-to-end tests of the browser take them, from a server of their own; without a folder to
//! write to they do not.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use qiang_testkit::servers::{AXE, CHROMEDRIVER};

use crate::servers;

/// Where pictures go unless told.
const FOLDER: &str = "target/screenshots";
/// What the test reads.
const VARIABLE: &str = "QIANG_SCREENSHOTS";

/// Takes all pictures.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let folder = match args {
        [] => crate::root()?.join(FOLDER),
        [folder] => std::env::current_dir()?.join(PathBuf::from(folder)),
        _ => bail!("one folder to write to; `cargo xtask help` says more"),
    };
    servers::install([CHROMEDRIVER, AXE]);
    let mut command = crate::cargo()?;
    command.args(["test", "--locked", "-p", "qiang", "--test", "e2e", "browser::screenshots"]);
    command.env(VARIABLE, &folder);
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        return Ok(ExitCode::FAILURE);
    }
    println!("{} pictures in {}", std::fs::read_dir(&folder)?.count(), folder.display());
    Ok(ExitCode::SUCCESS)
}
