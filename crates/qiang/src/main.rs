//! The `qiang` command.

fn main() -> std::process::ExitCode {
    qiang::cli::main()
}
