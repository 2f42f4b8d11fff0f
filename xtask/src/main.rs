//! The command behind `cargo xtask`; everything it does is in the library.

#![expect(clippy::print_stderr, reason = "a command line tool talks")]

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    xtask::run(&args).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
