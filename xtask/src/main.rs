//! The command behind `cargo xtask`; everything it does is in the library.

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    xtask::run(&args)
}
