//! What pages say, in each language. Both stand side by side in a `words.json`. A page gets the words of its language along with its shell, so a
//! script has none of its own.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use qiang_app::problem::Lang;

use crate::assets::Part;

/// Words by their names.
pub(crate) type Words = BTreeMap<String, String>;

/// The words of one language, by part.
pub(crate) struct Book {
    pub(crate) store: Words,
    pub(crate) console: Words,
}

impl Book {
    /// What the pages of a part say.
    pub(crate) const fn part(&self, part: Part) -> &Words {
        match part {
            Part::Store => &self.store,
            Part::Console => &self.console,
        }
    }
}

static EN: LazyLock<Book> = LazyLock::new(|| book(Lang::En));
static ZH: LazyLock<Book> = LazyLock::new(|| book(Lang::Zh));

/// The words of a language.
pub(crate) fn of(lang: Lang) -> &'static Book {
    match lang {
        Lang::En => &EN,
        Lang::Zh => &ZH,
    }
}

fn book(lang: Lang) -> Book {
    let words = |part| {
        read(part).map(|(_, name, [en, zh])| match lang {
            Lang::En => (name, en),
            Lang::Zh => (name, zh),
        })
    };
    Book { store: words(Part::Store).collect(), console: words(Part::Console).collect() }
}

/// Each word with the file it stands in, in English and in Chinese.
fn read(part: Part) -> impl Iterator<Item = (String, String, [String; 2])> {
    part.words().into_iter().flat_map(|(path, text)| {
        let words: BTreeMap<String, [String; 2]> =
            serde_json::from_str(&text).expect("a test reads the same words");
        words.into_iter().map(move |(name, both)| (path.clone(), name, both))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Part; 2] = [Part::Store, Part::Console];

    fn blanks(text: &str) -> Vec<&str> {
        let rest = text.split('{').skip(1);
        let mut blanks: Vec<_> =
            rest.map(|rest| &rest[..rest.find('}').unwrap_or(rest.len())]).collect();
        blanks.sort_unstable();
        blanks.dedup();
        blanks
    }

    #[test]
    fn both_languages_say_the_same_things() {
        for (path, name, [en, zh]) in BOTH.into_iter().flat_map(read) {
            assert!(!en.is_empty() && !zh.is_empty(), "{path}: {name}");
            assert_eq!(blanks(&en), blanks(&zh), "{path}: {name}");
        }
    }

    #[test]
    fn a_name_means_one_thing() {
        for part in BOTH {
            let mut known = BTreeMap::new();
            for (path, name, _) in read(part) {
                let before = known.insert(name.clone(), path.clone());
                assert_eq!(before, None, "{path} says {name:?}, too");
            }
        }
    }

    #[test]
    fn scripts_use_words_that_there_are_and_no_word_is_left_over() {
        let book = of(Lang::En);
        for (part, words) in [(Part::Store, &book.store), (Part::Console, &book.console)] {
            let script = part.script();
            for (at, _) in script.match_indices("t('") {
                if script[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                    continue;
                }
                let name = script[at + 3..].split('\'').next().unwrap_or_default();
                let prefix = name.ends_with('_') && words.keys().any(|word| word.starts_with(name));
                assert!(words.contains_key(name) || prefix, "there is no word {name:?}");
            }
        }
        let mut all = [Part::Store.script(), Part::Console.script()].concat();
        all.push_str(include_str!("shell.rs"));
        all.extend(crate::assets::pages().iter().map(|page| format!("'{}'", page.title)));
        for (path, word, _) in BOTH.into_iter().flat_map(read) {
            let quoted = all.contains(&format!("'{word}'")) || all.contains(&format!("\"{word}\""));
            let heads = word.match_indices('_').map(|(at, _)| &word[..=at]);
            let built = heads.into_iter().any(|head| {
                all.contains(&format!("'{head}'")) || all.contains(&format!("`{head}$"))
            });
            assert!(quoted || built, "{path}: nobody says {word:?}");
        }
    }

    /// What pages say for a word that the API answers with.
    #[test]
    fn every_answer_has_its_words() {
        let book = of(Lang::En);
        let has = |words: &Words, prefix: &str, all: &[&str]| {
            for word in all {
                assert!(words.contains_key(&format!("{prefix}{word}")), "{prefix}{word}");
            }
        };
        has(&book.store, "pay_", &["held", "ordered", "paid", "released"]);
        has(&book.store, "have_", &["held", "ordered", "paid"]);
        has(
            &book.store,
            "why_",
            &["gave_up", "cancelled", "hold_expired", "pay_expired", "revoked"],
        );
        for words in [&book.store, &book.console] {
            has(words, "status_", &["open", "scheduled", "sold_out", "closed", "cleared"]);
            has(words, "status_", &["held", "ordered", "released"]);
            has(words, "status_", &["pending", "paid", "cancelled", "refunded"]);
        }
        has(
            &book.console,
            "reason_",
            &["late", "already_paid", "amount_mismatch", "claim_lost", "revoked"],
        );
        has(&book.console, "role_", &["buyer", "viewer", "admin"]);
    }
}
