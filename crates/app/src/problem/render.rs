//! One problem of one request, and the answer it becomes.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

use axum::body::{Body, Bytes};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LANGUAGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use qiang_core::{Fault, Refusal, Timestamp};

use super::{Code, Lang};
use crate::{json_time, token};

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// What stands before the sentence of the table.
const DETAIL: &str = ",\"detail\":\"";

/// Why this request was turned down, with its particulars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    /// Instead of the table's sentence; for those who write programs, so in English.
    detail: Option<Cow<'static, str>>,
    members: Vec<(&'static str, Member)>,
    retry_after_secs: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Member {
    Text(String),
    Number(u64),
    Time(Timestamp),
}

impl Problem {
    /// A problem that says what the table says.
    #[must_use]
    pub const fn new(code: Code) -> Self {
        Self { code, detail: None, members: Vec::new(), retry_after_secs: None }
    }

    /// A field that cannot be what it is, and what it must be.
    #[must_use]
    pub fn invalid_field(field: impl Into<String>, rule: impl Display) -> Self {
        let field = field.into();
        let detail = format!("`{field}` {rule}");
        Self::new(Code::InvalidField).detail(detail).text("field", field)
    }

    /// A field nobody knows.
    #[must_use]
    pub fn unknown_field(field: impl Into<String>) -> Self {
        let field = field.into();
        let detail = format!("`{field}` is not known here");
        Self::new(Code::UnknownField).detail(detail).text("field", field)
    }

    /// Its code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// What people call it.
    #[must_use]
    pub fn title(&self, lang: Lang) -> &'static str {
        let head = self.code.text(lang).head;
        let title = head.split_once(",\"title\":\"").and_then(|(_, rest)| rest.split_once('"'));
        title.map_or("", |(title, _)| title)
    }

    /// What is wrong and what to do, in English.
    #[must_use]
    pub fn sentence(&self) -> &str {
        let of_table = self.code.text(Lang::En).detail;
        let of_table = of_table.strip_prefix(DETAIL).and_then(|text| text.strip_suffix('"'));
        self.detail.as_deref().or(of_table).unwrap_or_default()
    }

    /// Says what exactly is wrong, instead of the table's sentence.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a member with a text.
    #[must_use]
    pub fn text(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.members.push((name, Member::Text(value.into())));
        self
    }

    /// Adds a member with a number.
    #[must_use]
    pub fn number(mut self, name: &'static str, value: impl Into<u64>) -> Self {
        self.members.push((name, Member::Number(value.into())));
        self
    }

    /// Adds a member with a time.
    #[must_use]
    pub fn time(mut self, name: &'static str, at: Timestamp) -> Self {
        self.members.push((name, Member::Time(at)));
        self
    }

    /// Says when to ask again, in the header and in the body, instead of the table's advice.
    #[must_use]
    pub fn retry_after(mut self, secs: u64) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    /// The answer, in a language.
    #[must_use]
    pub fn respond(self, lang: Lang) -> Response {
        let mut response = Response::new(Body::from(self.body(lang)));
        *response.status_mut() = self.code.status();
        response.headers_mut().extend(self.headers(lang));
        response
    }

    /// The headers of the answer.
    pub fn headers(&self, lang: Lang) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let of_table = self.code.retry_after_secs().map(HeaderValue::from_static);
        let retry_after = self.retry_after_secs.map(HeaderValue::from).or(of_table);
        let challenge = self.code.challenge().map(HeaderValue::from_static);
        [
            (CONTENT_TYPE, Some(PROBLEM_JSON)),
            (CONTENT_LANGUAGE, Some(lang.header())),
            (CACHE_CONTROL, Some(NO_STORE)),
            (RETRY_AFTER, retry_after),
            (WWW_AUTHENTICATE, challenge),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
    }

    /// The body; without particulars it is a constant and costs nothing.
    #[must_use]
    pub fn body(&self, lang: Lang) -> Bytes {
        let text = self.code.text(lang);
        if self.detail.is_none() && self.members.is_empty() && self.retry_after_secs.is_none() {
            return Bytes::from_static(text.whole.as_bytes());
        }
        let mut json = String::with_capacity(text.whole.len() + 128);
        json.push_str(text.head);
        match &self.detail {
            Some(detail) => push_text(&mut json, "detail", detail),
            None => json.push_str(text.detail),
        }
        match self.retry_after_secs {
            Some(secs) => push_plain(&mut json, "retry_after", secs),
            None => json.push_str(text.retry),
        }
        for (name, value) in &self.members {
            match value {
                Member::Text(text) => push_text(&mut json, name, text),
                Member::Number(number) => push_plain(&mut json, name, *number),
                Member::Time(at) => push_text(&mut json, name, json_time::format(*at).as_str()),
            }
        }
        json.push('}');
        Bytes::from(json)
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        let problem = Self::new(Code::from(refusal));
        match refusal {
            Refusal::NotOpenYet { opens_at } => problem.time("opens_at", *opens_at),
            Refusal::AlreadyClaimed { claim } => problem.text("claim_id", claim.to_string()),
            Refusal::OverLimit { had, limit } => {
                problem.number("had", *had).number("limit", *limit)
            }
            _ => problem,
        }
    }
}

impl From<qiang_engine::Error> for Problem {
    fn from(error: qiang_engine::Error) -> Self {
        Self::new(match error {
            qiang_engine::Error::Overloaded => Code::Overloaded,
            qiang_engine::Error::Unavailable => Code::Unavailable,
            qiang_engine::Error::OutcomeUnknown => Code::OutcomeUnknown,
        })
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::invalid_field(fault.field, fault.rule)
    }
}

impl From<token::Error> for Problem {
    fn from(error: token::Error) -> Self {
        match error {
            token::Error::Missing => Self::new(Code::Unauthenticated),
            token::Error::Expired => Self::new(Code::TokenExpired),
            error => Self::new(Code::Unauthenticated).detail(error.to_string()),
        }
    }
}

/// `,"name":"text"`, with the text escaped as JSON asks.
fn push_text(json: &mut String, name: &str, text: &str) {
    push_name(json, name);
    json.push_str(&serde_json::to_string(text).expect("text is always JSON"));
}

/// `,"name":number`
fn push_plain(json: &mut String, name: &str, number: u64) {
    push_name(json, name);
    write!(json, "{number}").expect("a string takes all that is written");
}

fn push_name(json: &mut String, name: &str) {
    json.push_str(",\"");
    json.push_str(name);
    json.push_str("\":");
}
