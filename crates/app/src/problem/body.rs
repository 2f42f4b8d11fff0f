//! A problem as OpenAPI documents it, and how it leaves a handler.

use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Code, Problem};
use crate::schema;

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
    /// Units a buyer may have, or packets a user may send on a day.
    limit: Option<u32>,
    /// The portion that the user has.
    #[schema(minimum = 1, example = 523)]
    amount_cents: Option<u64>,
    /// How often the password can still be tried.
    #[schema(minimum = 0, example = 4)]
    attempts_left: Option<u32>,
    /// What a user may send on a day.
    #[schema(minimum = 1, example = 10000000)]
    limit_cents: Option<u64>,
    /// What the account has available.
    #[schema(minimum = 0, example = 100)]
    available_cents: Option<u64>,
    /// What the hold keeps.
    #[schema(minimum = 1, example = 100)]
    held_cents: Option<u64>,
    /// How the hold ended.
    #[schema(value_type = Option<schema::HoldEnd>)]
    by: Option<String>,
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
        tracing::error!("the records failed: {}", qiang_engine::chain(&error));
        Self::new(Code::Unavailable)
            .detail("the records cannot be read or written at present; nothing was changed")
    }
}
