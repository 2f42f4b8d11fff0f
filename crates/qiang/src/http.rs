//! The HTTP front door: routes, what is taken from a request, how problems are told, and the
//! connections themselves.

pub mod cors;
pub mod cursor;
mod errors_page;
pub mod extract;
pub mod health;
pub mod json_time;
mod lane;
mod openapi;
pub mod problem;
mod router;
pub mod schema;
mod serve;
mod unread;
pub mod whole;
mod wire;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use self::problem::{Code, Problem};
use crate::app::App;

pub use router::router;
pub use serve::{serve, serve_health};

/// What every handler is given.
pub type Shared = State<Arc<App>>;

/// A problem as it is documented: RFC 9457, with a stable `code`. Which of the last members it
/// has depends on the code.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// Where the code is explained.
    #[schema(example = "/docs/errors#sold_out")]
    r#type: String,
    /// One line for people, in the language asked for.
    #[schema(example = "Sold out")]
    title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599, example = 410)]
    status: u16,
    /// Stable, for programs. New codes may come; none changes its meaning.
    #[schema(pattern = "^[a-z_]+$", example = "sold_out")]
    code: String,
    /// What to do.
    #[schema(example = "There is not enough left.")]
    detail: String,
    /// Seconds after which it makes sense to ask again.
    retry_after: Option<u64>,
    /// The field that is wrong.
    field: Option<String>,
    /// The header that was given twice.
    header: Option<String>,
    /// When the sale opens.
    #[schema(value_type = Option<schema::Time>)]
    opens_at: Option<String>,
    /// The claim that the buyer has.
    #[schema(value_type = Option<schema::ClaimId>)]
    claim_id: Option<String>,
    /// Units the buyer has.
    had: Option<u32>,
    /// Units a buyer may have.
    limit: Option<u32>,
    /// Bytes a body may have.
    limit_bytes: Option<u64>,
}

/// Leaves the writing to the edge of the server, which knows the language.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.code().status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<qiang_store::Error> for Problem {
    fn from(error: qiang_store::Error) -> Self {
        tracing::error!("the records failed: {}", crate::chain(&error));
        Self::new(Code::Unavailable)
            .detail("the records cannot be read or written at present; nothing was changed")
    }
}

impl From<axum::extract::rejection::QueryRejection> for Problem {
    fn from(rejection: axum::extract::rejection::QueryRejection) -> Self {
        let text = rejection.body_text();
        let wrong = text.rsplit_once("query string: ").and_then(|(_, rest)| rest.split_once(": "));
        match wrong {
            // The only fields that are not text are numbers and words out of a list.
            Some((field, why)) if !why.contains(", expected ") => {
                Self::invalid_field(field, "must be a whole number")
            }
            Some((field, why)) => match why.strip_prefix("unknown field `") {
                Some(rest) => {
                    let known = rest.split_once(", expected ").map_or("", |(_, known)| known);
                    Self::new(Code::InvalidField).detail(format!(
                        "`{field}` is no parameter of this call; take {}",
                        known.trim_start_matches("one of ")
                    ))
                }
                None => Self::invalid_field(field, extract::plain(why)),
            },
            None => {
                let twice = text.rsplit_once("duplicate field `");
                let twice = twice.and_then(|(_, rest)| rest.split_once('`'));
                match twice {
                    Some((field, _)) => Self::invalid_field(field.to_owned(), "is given twice"),
                    None => Self::new(Code::InvalidField).detail(text),
                }
            }
        }
    }
}
