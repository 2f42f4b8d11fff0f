//! Vendored files are byte for byte what their list says, and the list has them all.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};

use super::Problem;

/// Where they are; what they say is not ours to change.
pub(super) const FOLDER: &str = "crates/pages/assets/vendor";
const LIST: &str = "vendored.toml";

pub(super) fn check(root: &Path, problems: &mut Vec<Problem>) -> Result<()> {
    let folder = root.join(FOLDER);
    let list =
        fs::read_to_string(folder.join(LIST)).context("there is no list of vendored files")?;
    let mut complain = |what: String| {
        problems.push(Problem::new(&format!("{FOLDER}/{LIST}"), 1, what));
    };
    let mut listed = BTreeSet::from([LIST.to_owned()]);
    for (name, hash) in entries(&list) {
        match fs::read(folder.join(&name)) {
            Ok(bytes) if hex(&Sha256::digest(&bytes)) == hash => {}
            Ok(_) => complain(format!("`{name}` is not what its package has: its hash differs")),
            Err(_) => complain(format!("`{name}` is listed and not there")),
        }
        listed.insert(name);
    }
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !listed.contains(&name) {
            complain(format!("`{name}` is not listed: where is it from, under which licence?"));
        }
    }
    Ok(())
}

/// Names and hashes; an entry without its origin and licence has neither.
fn entries(list: &str) -> Vec<(String, String)> {
    let value = |entry: &str, key: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        line.and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned()
    };
    let entry = |entry: &str| {
        let told = !value(entry, "from").is_empty() && !value(entry, "licence").is_empty();
        let hash = if told { value(entry, "sha256") } else { String::new() };
        (value(entry, "name"), hash)
    };
    list.split("[[file]]").skip(1).map(entry).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::entries;

    #[test]
    fn an_entry_says_where_it_is_from() {
        let list = "# a\n[[file]]\nname = \"a\"\nfrom = \"b@1\"\nlicence = \"MIT\"\nsha256 = \"00\"\n\
                    [[file]]\nname = \"c\"\nsha256 = \"00\"\n";
        assert_eq!(
            entries(list),
            [("a".to_owned(), "00".to_owned()), ("c".to_owned(), String::new())]
        );
    }
}
