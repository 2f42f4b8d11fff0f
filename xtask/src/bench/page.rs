//! The page of benchmarks: what was measured stands between two marks, and people write around it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const BEGIN: &str = "<!-- measured: written by cargo xtask bench -->\n";
const END: &str = "<!-- end of measured -->\n";

/// Puts what was measured into the page, or begins one.
pub(super) fn write(path: &Path, measured: &str) -> Result<()> {
    let old = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {path:?}")),
    };
    fs::write(path, with(&old, measured)).with_context(|| format!("cannot write {path:?}"))
}

fn with(old: &str, measured: &str) -> String {
    let (before, after) = match (old.find(BEGIN), old.find(END)) {
        (Some(begin), Some(end)) if begin < end => (&old[..begin], &old[end + END.len()..]),
        _ => ("# Benchmarks\n\n", ""),
    };
    format!("{before}{BEGIN}{}\n{END}{after}", measured.trim_end())
}

#[cfg(test)]
mod tests {
    use super::with;

    #[test]
    fn what_people_wrote_stays() {
        let first = with("", "one\n");
        assert!(first.starts_with("# Benchmarks\n\n<!-- measured"), "{first}");
        let page = format!("before\n{first}after\n");
        let second = with(&page, "two");
        assert_eq!(second, page.replace("one", "two"));
    }
}
