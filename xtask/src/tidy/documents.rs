//! The pages a stranger needs exist, and links between files lead somewhere.

use std::path::Path;

use super::Problem;
use super::files::File;

const REQUIRED: [&str; 5] =
    ["README.md", "README.zh-CN.md", "CHANGELOG.md", "LICENSE", "docs/ARCHITECTURE.md"];

pub(super) fn check(root: &Path, files: &[File], problems: &mut Vec<Problem>) {
    for page in REQUIRED {
        if !files.iter().any(|file| file.path == page) {
            problems.push(Problem::new(page, 1, "missing: write it"));
        }
    }
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = root.join(&file.path).parent().unwrap_or(root).to_path_buf();
        for (target, line) in local_links(&file.text) {
            if !folder.join(&target).exists() {
                let what = format!("the link to `{target}` leads nowhere");
                problems.push(Problem::new(&file.path, line, what));
            }
        }
    }
}

/// Targets of links to files, outside of code, without their fragment.
fn local_links(page: &str) -> Vec<(String, usize)> {
    let mut links = Vec::new();
    let mut in_fence = false;
    for (index, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        if in_fence {
            continue;
        }
        let prose = without_code(line);
        let definition = prose.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        let inline = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in inline.chain(definition.map(|(_, target)| target)) {
            let target = target.split_whitespace().next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !elsewhere && !file.is_empty() {
                links.push((file.to_owned(), index + 1));
            }
        }
    }
    links
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::local_links;

    #[test]
    fn links_to_files_are_found_wherever_they_stand() {
        let page = "[a](docs/a.md#b) ![c](c.svg \"title\")\n[d]: e.md\n";
        assert_eq!(
            local_links(page),
            [("docs/a.md".into(), 1), ("c.svg".into(), 1), ("e.md".into(), 2)]
        );
    }

    #[test]
    fn code_addresses_and_anchors_are_not_files() {
        let page = "`[a](b)` [c](https://example.com/d) [e](#f)\n```\n[g](h)\n```\n";
        assert!(local_links(page).is_empty());
    }
}
