//! The one place that writes to the terminal: data to stdout, talk to stderr.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Data, for whoever reads the pipe.
pub(super) fn data(line: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Talk, for whoever sits there. If nobody can hear it, it is not worth failing for.
pub(super) fn say(line: impl Display) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

/// Whether the reader of our output left, as `head` does: no failure of ours.
pub(super) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(closed)
}
