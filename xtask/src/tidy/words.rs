//! Words that may not stand in any file: notes to oneself, and paths of somebody's machine.

use super::Problem;
use super::files::File;
use super::rust_text::{RustText, is_word};
use super::vendored;

/// Notes that say the work is not done. Taken apart, or this file would complain of itself.
const NOTES: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// Beginnings of paths that exist on one machine only.
const PLACES: [&str; 3] = [concat!("/wo", "rk"), concat!("/ro", "ot"), concat!("shar", "ed/")];

pub(super) fn check(files: &[File], problems: &mut Vec<Problem>) {
    for file in files.iter().filter(|file| !file.path.starts_with(vendored::FOLDER)) {
        check_notes(file, problems);
        check_places(file, problems);
    }
}

fn check_notes(file: &File, problems: &mut Vec<Problem>) {
    let text =
        if file.is_rust() { RustText::split(&file.text).comments } else { file.text.clone() };
    for (index, line) in text.lines().enumerate() {
        for note in NOTES.into_iter().filter(|note| stands_alone(line, note)) {
            let what = format!("no {note}: do it, or open an issue and leave the code whole");
            problems.push(Problem::new(&file.path, index + 1, what));
        }
    }
}

fn check_places(file: &File, problems: &mut Vec<Problem>) {
    for (index, line) in file.text.lines().enumerate() {
        for place in PLACES.into_iter().filter(|place| names_place(line, place)) {
            let what =
                format!("`{place}` is a place on one machine; write a path of this repository");
            problems.push(Problem::new(&file.path, index + 1, what));
        }
    }
}

fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_word) && !line[at + word.len()..].starts_with(is_word)
    })
}

/// Whether `place` begins a path here: not the middle of an address or of a longer name.
fn names_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + place.len()..]);
        let whole = place.ends_with('/') || !after.starts_with(|c| is_word(c) || c == '-');
        let begins = !before.ends_with(|c| is_word(c) || c == '-' || c == '}');
        let names_user = before.ends_with(":/");
        whole && begins && !names_user
    })
}

#[cfg(test)]
mod tests {
    use super::super::files::File;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let mut problems = Vec::new();
        super::check(&[File { path: path.into(), text: text.into() }], &mut problems);
        problems.iter().map(|p| p.line).collect()
    }

    #[test]
    fn notes_to_oneself_are_found() {
        let note = super::NOTES[0];
        assert_eq!(lines("a.rs", &format!("//! A.\n// {note}: b\nlet x = \"{note}\";\n")), [2]);
        assert_eq!(lines("a.md", &format!("a\n{note} b\n{note}S\n")), [2]);
    }

    #[test]
    fn machine_paths_are_found_and_addresses_are_not() {
        let [work, root, common] = super::PLACES;
        assert_eq!(lines("a.md", &format!("see {work}/x\n`{root}`\n../{common}y\n")), [1, 2, 3]);
        let fine = format!("https://example.com{work}\nmysql:/{root}@h\n{work}ers\na{common}z\n");
        assert!(lines("a.md", &fine).is_empty());
    }
}
