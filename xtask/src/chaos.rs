//! `cargo xtask chaos`: random faults under a crowd of buyers, and a verdict. And the short round of
//! it that belongs to `cargo xtask test`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qiang_chaos::{Options, Setting};
use qiang_testkit::servers::{MARIADB, POSTGRES, REDIS};

use crate::servers;

/// How long faults strike in each setting of the short round.
const SHORT: Duration = Duration::from_secs(10);
/// Its seed: always the same, so that a test fails for what was changed. It begins with a flush and two
/// repairs at once, a link to a master that hangs, a master lost behind its replica, a slot that moves and
/// a killed database.
const SHORT_SEED: u64 = 4_584;
const SHORT_SETTINGS: [Setting; 3] = [Setting::Redis, Setting::ClusterWait, Setting::Postgres];

/// As the command line says.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let options = Options::parse(args)?;
    let good = run_with(&options, &["build", "--locked", "--package", "qiang", "--bin", "qiang"])?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The short round. True if it was good, or nothing could be had to run it on.
pub(crate) fn short_round() -> Result<bool> {
    // The binary that the tests before it have used: another build would take minutes.
    let build = [
        &["test", "--locked", "--package", "qiang", "--features", crate::test::FEATURES][..],
        &["--test", "e2e", "--no-run"],
    ]
    .concat();
    run_with(&Options::short(&SHORT_SETTINGS, SHORT, SHORT_SEED), &build)
}

fn run_with(options: &Options, build_args: &[&str]) -> Result<bool> {
    for program in [REDIS, POSTGRES, MARIADB] {
        if !servers::ensure_installed(program)? {
            return Ok(true);
        }
    }
    qiang_chaos::run(&build(build_args)?, options)
}

/// Has cargo build the binary, and says where it is.
fn build(args: &[&str]) -> Result<PathBuf> {
    let mut command = crate::cargo()?;
    command.args(args);
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    let root = crate::root()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join("debug/qiang"))
}
