//! The language of an answer, taken from `Accept-Language` once.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::header::ACCEPT_LANGUAGE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};

/// A header with more wishes than this is not read to its end.
const MAX_WISHES: usize = 32;
/// `q=1` in thousandths, the precision RFC 9110 gives it.
const FULL_WEIGHT: u16 = 1000;

/// The languages qiang speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lang {
    /// English, also for those who ask for neither.
    #[default]
    En,
    /// Chinese (simplified), for every `zh`.
    Zh,
}

impl Lang {
    /// The best we have for a request.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        Self::of_value(headers.get(ACCEPT_LANGUAGE).map(HeaderValue::as_bytes))
    }

    /// The best we have for an `Accept-Language` header, if there is one.
    #[must_use]
    pub fn of_value(wishes: Option<&[u8]>) -> Self {
        let text = wishes.filter(|wishes| wishes.is_ascii());
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        text.map_or_else(Self::default, Self::negotiate)
    }

    /// The best we have for the value of an `Accept-Language` header: the highest weight wins,
    /// then the earlier.
    #[must_use]
    pub fn negotiate(wishes: &str) -> Self {
        let mut best = (0, Self::default());
        for wish in wishes.split(',').take(MAX_WISHES) {
            let (range, parameters) = wish.split_once(';').unwrap_or((wish, ""));
            let primary = range.trim().split('-').next().unwrap_or_default();
            let lang = match primary {
                "*" => Self::default(),
                _ if primary.eq_ignore_ascii_case("zh") => Self::Zh,
                _ if primary.eq_ignore_ascii_case("en") => Self::En,
                _ => continue,
            };
            let weight = weight(parameters);
            if weight > best.0 {
                best = (weight, lang);
            }
        }
        best.1
    }

    pub(super) const fn header(self) -> HeaderValue {
        match self {
            Self::En => HeaderValue::from_static("en"),
            Self::Zh => HeaderValue::from_static("zh"),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Lang {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}

/// `q=0.8` in thousandths; what is not a weight counts as full.
fn weight(parameters: &str) -> u16 {
    let value = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then_some(value.trim())
    });
    let Some(value) = value else { return FULL_WEIGHT };
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    if whole != "0" {
        return FULL_WEIGHT;
    }
    let digits = fraction.bytes().chain(*b"000").take(3);
    digits.fold(0, |sum, digit| sum * 10 + u16::from(digit.wrapping_sub(b'0').min(9)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_weight_wins_then_the_earlier() {
        for (wishes, lang) in [
            ("", Lang::En),
            ("zh", Lang::Zh),
            ("ZH-Hans-CN", Lang::Zh),
            ("zh-CN,zh;q=0.9,en;q=0.8", Lang::Zh),
            ("en-GB,en;q=0.9,zh;q=0.8", Lang::En),
            ("en;q=0.8, zh", Lang::Zh),
            ("en;q=0.8,zh;q=0.81", Lang::Zh),
            ("en;q=0.8,zh;q=0.8", Lang::En),
            ("zh;q=0.8,en;q=0.8", Lang::Zh),
            ("zh ; q=0.001", Lang::Zh),
            ("zh;q=0", Lang::En),
            ("zh;q=0.000, en;q=0", Lang::En),
            ("fr, de;q=0.9", Lang::En),
            ("fr, zh;q=0.1", Lang::Zh),
            ("*", Lang::En),
            ("*;q=0.5, zh;q=0.4", Lang::En),
            ("zhx, english", Lang::En),
            (";;;q=,,=;zh;", Lang::En),
        ] {
            assert_eq!(Lang::negotiate(wishes), lang, "{wishes:?}");
        }
    }

    #[test]
    fn a_header_that_is_no_text_asks_for_nothing() {
        let mut headers = HeaderMap::new();
        assert_eq!(Lang::of(&headers), Lang::En);
        headers.insert(ACCEPT_LANGUAGE, HeaderValue::from_bytes(b"zh\xff").expect("bytes"));
        assert_eq!(Lang::of(&headers), Lang::En);
        headers.insert(ACCEPT_LANGUAGE, HeaderValue::from_static("zh-TW"));
        assert_eq!(Lang::of(&headers), Lang::Zh);
    }
}
