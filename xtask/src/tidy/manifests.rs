//! Every dependency from outside says in its Cargo.toml why it is there.
//!
//! Crates of this workspace, and those inherited from the workspace (which gives the reason),
//! need none. Every crate has the lints of the workspace, which forbid unsafe code, but for the one that
//! was made for it.

use super::Problem;
use super::files::File;

/// The one crate with unsafe code, and so with lints of its own.
const UNSAFE: &str = "crates/memory/Cargo.toml";

pub(super) fn check(files: &[File], problems: &mut Vec<Problem>) {
    for file in files.iter().filter(|file| file.name() == "Cargo.toml") {
        check_manifest(file, problems);
        if file.text.contains("[package]") && !has_lints(file) && file.path != UNSAFE {
            let what = "inherit the lints: `[lints]` with `workspace = true`";
            problems.push(Problem::new(&file.path, 1, what));
        }
    }
}

fn has_lints(file: &File) -> bool {
    let mut lines = file.text.lines().map(str::trim);
    lines.any(|line| line == "[lints]") && lines.next() == Some("workspace = true")
}

fn check_manifest(file: &File, problems: &mut Vec<Problem>) {
    let (mut in_dependencies, mut depth, mut explained) = (false, 0, false);
    for (index, line) in file.text.lines().map(str::trim).enumerate() {
        if depth == 0 && line.starts_with('[') {
            in_dependencies = line.trim_end_matches(']').ends_with("dependencies");
            if line.contains("dependencies.") {
                let what = "write a dependency as one entry under [dependencies]";
                problems.push(Problem::new(&file.path, index + 1, what));
            }
        } else if depth == 0 && in_dependencies && is_entry(line) {
            let reasoned = explained || line.contains('#');
            if !reasoned && !is_inherited(line) {
                let name = line.split(['=', '.']).next().unwrap_or(line).trim();
                let what = format!("say why `{name}` is needed, in a comment line before it");
                problems.push(Problem::new(&file.path, index + 1, what));
            }
        }
        explained = line.starts_with('#');
        depth += nesting(line);
    }
}

fn is_entry(line: &str) -> bool {
    !line.starts_with('#') && line.contains('=')
}

fn is_inherited(line: &str) -> bool {
    let packed: String = line.split_whitespace().collect();
    packed.contains("workspace=true") || packed.contains("{path=")
}

/// How many brackets a line of values leaves open; section headers close their own.
fn nesting(line: &str) -> i32 {
    let value = line.split('#').next().unwrap_or(line);
    value
        .chars()
        .map(|c| i32::from(matches!(c, '[' | '{')) - i32::from(matches!(c, ']' | '}')))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::super::files::File;

    fn lines(text: &str) -> Vec<usize> {
        let mut problems = Vec::new();
        let file = File { path: "a/Cargo.toml".into(), text: text.into() };
        super::check(&[file], &mut problems);
        problems.iter().map(|p| p.line).collect()
    }

    #[test]
    fn each_dependency_needs_its_own_reason() {
        let text = "[dependencies]\n# because\nb = \"1\"\nc = \"1\"\nd = \"1\" # so\n";
        assert_eq!(lines(text), [4]);
    }

    #[test]
    fn inherited_and_own_crates_need_none() {
        let text = "[workspace.dependencies]\na = { path = \"a\" }\n[dev-dependencies]\nb.workspace = true\nc = { workspace = true, features = [\"x\"] }\n";
        assert!(lines(text).is_empty());
    }

    #[test]
    fn an_entry_over_several_lines_is_one_entry() {
        let text = "[dependencies]\n# because\nb = { version = \"1\", features = [\n  \"c=d\",\n] }\ne = \"1\"\n";
        assert_eq!(lines(text), [6]);
    }

    #[test]
    fn a_table_for_one_dependency_is_refused() {
        assert_eq!(lines("[dependencies.b]\nversion = \"1\"\n"), [1]);
    }

    #[test]
    fn every_crate_has_the_lints_of_the_workspace() {
        assert_eq!(lines("[package]\nname = \"a\"\n"), [1]);
        assert_eq!(lines("[package]\nname = \"a\"\n[lints.rust]\nunsafe_code = \"deny\"\n"), [1]);
        assert!(lines("[package]\nname = \"a\"\n[lints]\nworkspace = true\n").is_empty());
    }
}
