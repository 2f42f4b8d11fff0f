//! Pages of other origins that may call the API from a browser (`[http] cors_origins`).

use std::sync::Arc;

use axum::http::HeaderValue;

/// The origins whose pages may call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(Arc<[HeaderValue]>);

impl Origins {
    /// Reads a list with commas; the error is the origin that is none.
    pub fn read(text: &str) -> Result<Self, String> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let origin = |word: &str| {
            let host = word.strip_prefix("https://").or_else(|| word.strip_prefix("http://"));
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
            let is_origin = host.is_some_and(|host| !host.is_empty() && host.bytes().all(plain));
            let value = HeaderValue::from_str(&word.to_ascii_lowercase()).ok();
            value.filter(|_| is_origin).ok_or_else(|| word.to_owned())
        };
        words.map(origin).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there are any.
    #[must_use]
    pub fn are_named(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn contain(&self, origin: &HeaderValue) -> bool {
        self.0.contains(origin)
    }
}
