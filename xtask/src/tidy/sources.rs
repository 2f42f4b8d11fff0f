//! Rules of Rust sources.
//!
//! Text rules, beside clippy rather than instead of it: they also hold where a lint can be
//! switched off.

use std::collections::BTreeSet;

use super::Problem;
use super::files::File;
use super::rust_text::{RustText, is_word};

/// A file longer than this holds more than one thing.
const LONGEST_FILE: usize = 800;

/// A piece of code that may not stand anywhere, and what to do instead.
const BANNED: [(&str, &str); 6] = [
    ("#[allow(", "use #[expect(…, reason = \"…\")], which complains once it is needless"),
    ("#![allow(", "use #![expect(…, reason = \"…\")], which complains once it is needless"),
    ("#[ignore", "a test runs or does not exist; make it quick, or give it what it needs"),
    ("todo!", "finish it, or return an error that says it cannot be had"),
    ("unimplemented!", "finish it, or return an error that says it cannot be had"),
    ("dbg!", "remove it"),
];

pub(super) fn check(files: &[File], problems: &mut Vec<Problem>) {
    let rust: Vec<(&File, RustText)> =
        files.iter().filter(|f| f.is_rust()).map(|f| (f, RustText::split(&f.text))).collect();
    let test_modules: BTreeSet<String> =
        rust.iter().flat_map(|(file, text)| far_test_modules(&file.path, text)).collect();
    for (file, text) in &rust {
        let only_tests = is_test_path(&file.path)
            || test_modules.iter().any(|module| {
                file.path
                    .strip_prefix(module)
                    .is_some_and(|end| end == ".rs" || end.starts_with('/'))
            });
        check_file(file, text, only_tests, problems);
    }
}

fn check_file(file: &File, text: &RustText, only_tests: bool, problems: &mut Vec<Problem>) {
    let mut complain = |line, what: String| problems.push(Problem::new(&file.path, line, what));
    if file.name() == "mod.rs" {
        complain(1, "name it after its folder, beside the folder: foo.rs and foo/".into());
    }
    if !file.text.starts_with("//!") {
        complain(1, "open with `//!`: what the file is for, guarantees and must never do".into());
    }
    let length = file.text.lines().count();
    if length > LONGEST_FILE {
        complain(LONGEST_FILE, format!("{length} lines; split it below {LONGEST_FILE}"));
    }
    let in_test = text.test_lines();
    for (index, code) in text.code.lines().enumerate() {
        for (banned, instead) in BANNED {
            if holds(code, banned) {
                complain(index + 1, format!("no `{banned}`: {instead}"));
            }
        }
        let test = only_tests || in_test.get(index).copied().unwrap_or_default();
        if test && holds(code, "sleep(") {
            complain(index + 1, "no sleep in tests: wait for what must happen".into());
        }
        if !test && code.contains(".unwrap()") {
            complain(index + 1, "no unwrap: handle it, or `expect` why it cannot fail".into());
        }
    }
}

/// Whether `code` holds `piece`, not as the tail of a longer name.
fn holds(code: &str, piece: &str) -> bool {
    code.match_indices(piece).any(|(at, _)| !code[..at].ends_with(is_word))
}

fn is_test_path(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Paths, without `.rs`, of the modules that `path` declares for tests only.
fn far_test_modules(path: &str, text: &RustText) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.trim_end_matches(".rs");
    let base = match stem {
        "lib" | "main" => folder.to_owned(),
        _ => format!("{folder}/{stem}"),
    };
    text.test_modules().iter().map(|module| format!("{base}/{module}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::files::File;

    fn complaints(sources: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = sources
            .iter()
            .map(|(path, text)| File { path: (*path).into(), text: (*text).into() })
            .collect();
        let mut problems = Vec::new();
        super::check(&files, &mut problems);
        problems.iter().map(|p| format!("{}:{}", p.file, p.line)).collect()
    }

    #[test]
    fn unwrap_is_for_tests() {
        let text = "//! A.\nfn a() {\n    b().unwrap();\n}\n#[cfg(test)]\nmod tests {\n    fn t() { b().unwrap() }\n}\n";
        assert_eq!(complaints(&[("crates/a/src/lib.rs", text)]), ["crates/a/src/lib.rs:3"]);
        assert!(complaints(&[("crates/a/tests/b.rs", text)]).is_empty());
    }

    #[test]
    fn a_module_only_declared_for_tests_is_a_test() {
        let parent = ("crates/a/src/b.rs", "//! B.\n#[cfg(test)]\nmod oracle;\n");
        let child = ("crates/a/src/b/oracle.rs", "//! O.\nfn o() { b().unwrap() }\n");
        assert!(complaints(&[parent, child]).is_empty());
        assert_eq!(complaints(&[child]), ["crates/a/src/b/oracle.rs:2"]);
    }

    #[test]
    fn every_file_says_what_it_is_for() {
        assert_eq!(complaints(&[("crates/a/src/mod.rs", "fn a() {}\n")]).len(), 2);
    }

    #[test]
    fn tests_do_not_sleep_but_servers_may_wait() {
        let text = "//! A.\nfn a() { std::thread::sleep(d) }\n";
        assert_eq!(complaints(&[("crates/a/tests/a.rs", text)]), ["crates/a/tests/a.rs:2"]);
        assert!(complaints(&[("crates/a/src/a.rs", text)]).is_empty());
    }

    #[test]
    fn nothing_is_silenced_ignored_or_left_undone() {
        for line in ["#[allow(dead_code)]", "#[ignore = \"slow\"]", "fn a() { todo!() }"] {
            let text = format!("//! A.\n{line}\n");
            assert_eq!(complaints(&[("a/src/a.rs", &text)]), ["a/src/a.rs:2"], "{line}");
        }
    }

    #[test]
    fn a_long_file_is_too_long() {
        let text = format!("//! A.\n{}", "// b\n".repeat(800));
        assert_eq!(complaints(&[("a/src/a.rs", &text)]), ["a/src/a.rs:800"]);
    }
}
