//! The one place that writes to the terminal: data to stdout, talk to stderr.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Data, for whoever reads the pipe.
pub fn data(line: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Talk, for whoever sits there. If nobody can hear it, it is not worth failing for.
pub fn say(line: impl Display) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

/// Whether the reader of our output left, as `head` does: no failure of ours.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(closed)
}

/// How many of what, with separators: `12,345 claims`.
#[must_use]
pub fn many(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", amount(count), if count == 1 { one } else { more })
}

/// A number with separators: `12,345`.
#[must_use]
pub fn amount(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", amount(number / 1_000), number % 1_000),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn amounts_have_separators() {
        let amounts = [0, 999, 1_000, 12_045, 1_000_007].map(super::amount);
        assert_eq!(amounts, ["0", "999", "1,000", "12,045", "1,000,007"]);
    }
}
