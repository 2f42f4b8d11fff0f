//! What pages say, in each language. A page gets the words of its language along with its shell, so a
//! script has none of its own.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use qiang_app::problem::Lang;

/// Words by their names.
pub(crate) type Words = BTreeMap<String, String>;

/// Both sets, by page.
pub(crate) struct Book {
    /// For every page.
    pub(crate) store: Words,
    /// For the console.
    pub(crate) console: Words,
}

static EN: LazyLock<Book> = LazyLock::new(|| {
    read(include_str!("../assets/words/en.json"), include_str!("../assets/words/console.en.json"))
});
static ZH: LazyLock<Book> = LazyLock::new(|| {
    read(include_str!("../assets/words/zh.json"), include_str!("../assets/words/console.zh.json"))
});

/// The words of a language.
pub(crate) fn of(lang: Lang) -> &'static Book {
    match lang {
        Lang::En => &EN,
        Lang::Zh => &ZH,
    }
}

fn read(store: &str, console: &str) -> Book {
    let words = |text| serde_json::from_str(text).expect("a test reads the same words");
    Book { store: words(store), console: words(console) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_languages_say_the_same_things() {
        let (en, zh) = (of(Lang::En), of(Lang::Zh));
        for (en, zh) in [(&en.store, &zh.store), (&en.console, &zh.console)] {
            assert_eq!(en.keys().collect::<Vec<_>>(), zh.keys().collect::<Vec<_>>());
            for (name, text) in en {
                let blanks = |text: &str| {
                    let mut blanks: Vec<_> = text.split('{').skip(1).map(str::to_owned).collect();
                    blanks.iter_mut().for_each(|rest| {
                        rest.truncate(rest.find('}').unwrap_or(rest.len()));
                    });
                    blanks.sort();
                    blanks.dedup();
                    blanks
                };
                assert_eq!(blanks(text), blanks(&zh[name]), "{name}");
                assert!(!text.is_empty() && !zh[name].is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn scripts_use_words_that_there_are_and_no_word_is_left_over() {
        let used = |script: &str, words: &Words| {
            for (at, _) in script.match_indices("t('") {
                if script[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                    continue;
                }
                let name = script[at + 3..].split('\'').next().unwrap_or_default();
                let known = words.keys().any(|word| word == name);
                let prefix = name.ends_with('_') && words.keys().any(|word| word.starts_with(name));
                assert!(known || prefix, "there is no word {name:?}");
            }
        };
        let book = of(Lang::En);
        let both: Words =
            book.store.iter().chain(&book.console).map(|(a, b)| (a.clone(), b.clone())).collect();
        let (store, console) = (crate::assets::store_script(), crate::assets::console_script());
        used(&store, &book.store);
        used(&console, &both);
        let all = format!("{store}{console}{}", include_str!("shell.rs"));
        for word in both.keys() {
            let quoted = all.contains(&format!("'{word}'")) || all.contains(&format!("\"{word}\""));
            let heads = word.match_indices('_').map(|(at, _)| &word[..=at]);
            let built = heads.into_iter().any(|head| all.contains(&format!("'{head}'")));
            assert!(quoted || built, "nobody says {word:?}");
        }
    }

    /// What pages say for a word that the API answers with. Refusals bring their own words.
    #[test]
    fn every_answer_has_its_words() {
        for lang in [Lang::En, Lang::Zh] {
            let book = of(lang);
            let has = |word: String| {
                let known = book.store.contains_key(&word) || book.console.contains_key(&word);
                assert!(known, "{word}");
            };
            for (prefix, words) in [
                ("pay_", ["held", "ordered", "paid", "released"].as_slice()),
                ("have_", &["held", "ordered", "paid"]),
                ("why_", &["gave_up", "cancelled", "hold_expired", "pay_expired"]),
                ("status_", &["open", "scheduled", "sold_out", "closed"]),
                ("status_", &["held", "pending", "paid", "cancelled"]),
                ("c_reason_", &["late", "already_paid", "amount_mismatch", "claim_lost"]),
                ("c_role_", &["buyer", "viewer", "admin"]),
            ] {
                words.iter().for_each(|word| has(format!("{prefix}{word}")));
            }
        }
    }
}
