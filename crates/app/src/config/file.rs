//! The layer of the configuration file: every value with its line and column.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::layers::{Fault, Layers, Origin, Raw};

/// Puts all values of a file into the layers; what is not TOML is one fault.
pub(super) fn read(path: &Path, text: &str, layers: &mut Layers) {
    // A mark at the beginning is how some editors say UTF-8; it is part of no key.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let origin = |at: usize| place(path, text, at);
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            return layers.misplaced(Fault {
                origin: origin(error.span().map_or(0, |span| span.start)),
                key: String::new(),
                problem: format!("not valid TOML: {}", error.message()),
                fix: "write `key = value` lines under [sections], texts in quotes".to_owned(),
            });
        }
    };
    for (key, value) in table.get_ref() {
        match value.get_ref() {
            DeValue::Table(section) => {
                for (name, value) in section {
                    let full = format!("{}.{}", key.get_ref(), name.get_ref());
                    layers.put(full, origin(name.span().start), raw(value));
                }
                if section.is_empty() {
                    layers.put_section(key.get_ref(), origin(key.span().start));
                }
            }
            _ => layers.put(key.get_ref().as_ref(), origin(key.span().start), raw(value)),
        }
    }
}

fn raw(value: &Spanned<DeValue<'_>>) -> Raw {
    match value.get_ref() {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
            .map_or(Raw::Other("a number too large"), Raw::Number),
        DeValue::Boolean(on) => Raw::Switch(*on),
        DeValue::Float(_) => Raw::Other("a number with a fraction"),
        DeValue::Datetime(_) => Raw::Other("a time"),
        DeValue::Array(_) => Raw::Other("a list"),
        DeValue::Table(_) => Raw::Other("a table"),
    }
}

fn place(path: &Path, text: &str, at: usize) -> Origin {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Origin::File { path: path.to_owned(), line, column }
}
