//! docs/PITFALLS.md and the tests that carry its numbers agree.
//!
//! A test named in the page (`p07_…`, lower case) exists; a line number in lower case (`p07`)
//! has at least one test; and every test `p07_…` in the tree is named in the page, in full or
//! by number. A line in upper case (`P07`) without a test name is one that is still to come.

use std::collections::BTreeMap;

use super::Problem;
use super::files::File;
use super::rust_text::{RustText, is_word};

const PAGE: &str = "docs/PITFALLS.md";

pub(super) fn check(files: &[File], problems: &mut Vec<Problem>) {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        problems.push(Problem::new(PAGE, 1, "missing: the page that lists what must not go wrong"));
        return;
    };
    let named = names_in(&page.text);
    let mut tests = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for (test, line) in tests_in(&RustText::split(&file.text).code) {
            tests.insert(test, (file.path.as_str(), line));
        }
    }
    for (name, line) in &named {
        if !tests.keys().any(|test| test == name || number(test) == name) {
            let what = format!("there is no test `{name}`; write it, or take the name out");
            problems.push(Problem::new(PAGE, *line, what));
        }
    }
    for (test, (file, line)) in &tests {
        if !named.contains_key(test) && !named.contains_key(number(test)) {
            let what = format!("name `{test}` in {PAGE}, on its line");
            problems.push(Problem::new(file, *line, what));
        }
    }
}

/// `p07_…` and `p07` in the page, with the line where each stands first.
fn names_in(page: &str) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for (index, line) in page.lines().enumerate() {
        for word in line.split(|c| !is_word(c)).filter(|word| is_name(word)) {
            names.entry(word.trim_end_matches('_').to_owned()).or_insert(index + 1);
        }
    }
    names
}

fn tests_in(code: &str) -> Vec<(String, usize)> {
    let mut tests = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let function = line.split_once("fn ").and_then(|(_, f)| f.split(|c| !is_word(c)).next());
        let test = function.filter(|f| is_name(f) && f.len() > number(f).len());
        tests.extend(test.map(|test| (test.to_owned(), index + 1)));
    }
    tests
}

/// `p` and two digits, alone or before an underscore.
fn is_name(word: &str) -> bool {
    match word.as_bytes() {
        [b'p', tens, ones, rest @ ..] => {
            tens.is_ascii_digit() && ones.is_ascii_digit() && (rest.is_empty() || rest[0] == b'_')
        }
        _ => false,
    }
}

fn number(name: &str) -> &str {
    name.split('_').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::super::files::File;

    fn complaints(page: &str, source: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let mut problems = Vec::new();
        super::check(&[file(super::PAGE, page), file("a.rs", source)], &mut problems);
        problems.iter().map(|p| format!("{}:{}", p.file, p.line)).collect()
    }

    #[test]
    fn page_and_tests_agree() {
        let source = "fn p07_a() {}\nasync fn p08_b() {}\n";
        assert!(
            complaints("| P07 | `p07_a` |\n| P08 | p08 |\n| P09 | later |\n", source).is_empty()
        );
    }

    #[test]
    fn a_name_without_a_test_is_found() {
        assert_eq!(complaints("p07_a\np08\n", "fn p07_a() {}\n"), ["docs/PITFALLS.md:2"]);
        assert_eq!(complaints("p07_b p07\n", "fn p07_a() {}\n"), ["docs/PITFALLS.md:1"]);
    }

    #[test]
    fn a_test_without_a_line_is_found() {
        assert_eq!(complaints("P07\n", "\nfn p07_a() {}\n"), ["a.rs:2"]);
    }
}
