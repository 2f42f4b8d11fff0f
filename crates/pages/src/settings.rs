//! `[pages]`: what people read at the top of every page, and which money they pay with.

use qiang_app::config::{Layers, Wrong};

const MAX_TITLE_CHARS: usize = 60;

/// What the operator decided about the pages.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name of the shop.
    pub title: String,
    /// What prices are shown in.
    pub currency: Currency,
}

/// An ISO 4217 code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Currency(String);

impl Currency {
    /// Three letters.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.0
    }
}

impl Settings {
    /// Takes this domain's part of the configuration.
    pub fn take(layers: &mut Layers) -> Self {
        Self {
            title: layers.text("pages.title", "qiang", title),
            currency: layers.text("pages.currency", "CNY", currency),
        }
    }
}

fn title(text: &str) -> Result<String, Wrong> {
    let fits = !text.trim().is_empty() && text.chars().count() <= MAX_TITLE_CHARS;
    if fits && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(Wrong::new("is no name of a shop", "write 1 to 60 characters"))
}

fn currency(text: &str) -> Result<Currency, Wrong> {
    let is_code = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_uppercase());
    let code = is_code.then(|| Currency(text.to_owned()));
    code.ok_or_else(|| {
        Wrong::new(
            format!("is {text:?}, which is no currency"),
            "write its ISO 4217 code, like CNY or EUR",
        )
    })
}
