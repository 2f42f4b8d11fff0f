//! The OpenAPI document: what the handlers say about themselves, and what is true of all of them.
//!
//! Handlers describe their parameters, bodies and good answers. Problems are added here: every
//! call lists the codes that it can end in, with an example of each.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::OpenApi;

use qiang_app::problem::{Code, Lang, Problem, ProblemBody};
use qiang_app::{schema, session};

/// What each call can end in, beside what [`common`] adds, by its name.
pub(super) type Problems = BTreeMap<&'static str, &'static [Code]>;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "qiang",
        description = "Hands out scarce things to a crowd, exactly. Errors are RFC 9457 problems with a stable `code`; every code is explained at /docs/errors.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "This server")),
    components(schemas(ProblemBody, schema::Enough, schema::IdempotencyKey)),
    tags((name = "operations", description = "Health, metrics, audit")),
)]
pub(super) struct Description;

/// Completes what the handlers said.
pub(super) fn finish(description: &utoipa::openapi::OpenApi, problems: &Problems) -> Value {
    let mut document = serde_json::to_value(description).expect("a document is JSON");
    widen_counts(&mut document);
    let paths = document["paths"].as_object_mut().expect("paths are an object");
    for (path, methods) in paths {
        let is_api = path.starts_with("/api/") || path.starts_with("/voucher-order/");
        for (method, call) in methods.as_object_mut().expect("methods are an object") {
            leave_out_null(call);
            offer_cookie(call);
            let codes = if is_api { common(method, call) } else { Vec::new() };
            add_problems(call, codes, problems);
        }
    }
    document["components"]["securitySchemes"] = json!({ "token": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "HS256; `sub` is the user, `role` is buyer, viewer or admin. A call that \
            names `viewer` or `admin` here needs that role; an admin may do whatever a viewer may.",
    }, "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": session::COOKIE,
        "description": "For pages: given by `POST /api/v1/session`; where they come by https it is \
            called `__Host-qiang_session`. A change counts only when the \
            browser says that a page of this shop asks for it.",
    }});
    let named = |code: &Code| (code.as_str().to_owned(), example(*code));
    document["components"]["examples"] = Code::ALL.iter().map(named).collect();
    document
}

/// What any call of its kind can end in.
fn common(method: &str, call: &Value) -> Vec<Code> {
    let mut codes = vec![Code::Overloaded, Code::Unavailable, Code::Internal];
    let parameters = call["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    if let Some(roles) = call["security"][0]["token"].as_array() {
        codes.extend([Code::Unauthenticated, Code::TokenExpired, Code::RepeatedHeader]);
        codes.extend((!roles.is_empty()).then_some(Code::Forbidden));
        codes.extend((method != "get").then_some(Code::CrossSite));
    }
    if parameters.iter().any(|parameter| parameter["name"] == "Idempotency-Key") {
        codes.extend([Code::InvalidIdempotencyKey, Code::IdempotencyKeyReused]);
    }
    if parameters.iter().any(|parameter| parameter["in"] == "query") {
        codes.push(Code::InvalidField);
    }
    if method != "get" {
        // A call that needs no body takes an empty object, and refuses anything else.
        codes.extend([Code::BadJson, Code::InvalidField, Code::UnknownField]);
        codes.extend([Code::RequestTimeout, Code::BodyTooLarge, Code::UnsupportedMediaType]);
        codes.push(Code::OutcomeUnknown);
    }
    codes
}

/// Lists the problems of a call by their status, with their codes and an example of each.
fn add_problems(call: &mut Value, mut codes: Vec<Code>, problems: &Problems) {
    let own = call["operationId"].as_str().and_then(|name| problems.get(name));
    // A test looks for every call in the tables of the domains.
    codes.extend(own.into_iter().copied().flatten());
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in codes {
        by_status.entry(code.status().as_u16()).or_default().push(code);
    }
    for (status, mut codes) in by_status {
        codes.sort_unstable_by_key(|code| code.as_str());
        codes.dedup();
        let words: Vec<_> = codes.iter().map(|code| format!("`{}`", code.as_str())).collect();
        let reference = |code: &Code| {
            let name = code.as_str();
            (name.to_owned(), json!({ "$ref": format!("#/components/examples/{name}") }))
        };
        let examples: Value = codes.iter().map(reference).collect();
        let content =
            json!({ "schema": { "$ref": "#/components/schemas/Problem" }, "examples": examples });
        call["responses"][status.to_string()] = json!({
            "description": words.join(", "),
            "headers": headers(status),
            "content": { "application/problem+json": content },
        });
    }
}

/// What a client can read beside a problem.
fn headers(status: u16) -> Value {
    let header =
        |description: &str, schema: Value| json!({ "description": description, "schema": schema });
    match status {
        401 => json!({ "WWW-Authenticate":
            header("What is missing", json!({ "type": "string", "example": "Bearer" })) }),
        503 => json!({ "Retry-After":
            header("Seconds to wait", json!({ "type": "integer", "minimum": 0 })) }),
        _ => json!({}),
    }
}

/// A problem as it is answered in English.
fn example(code: Code) -> Value {
    let body: Value =
        serde_json::from_slice(&Problem::new(code).body(Lang::En)).expect("a problem is JSON");
    json!({ "summary": body["title"], "value": body })
}

/// A body or a header that may be left out is not `null` when it is there.
fn leave_out_null(call: &mut Value) {
    let without_null = |schema: &mut Value| {
        let kinds = schema["oneOf"].as_array().map(Vec::as_slice);
        let Some([other, null]) = kinds else { return };
        if null["type"] == "null" {
            *schema = other.clone();
        }
    };
    let body = call.get_mut("requestBody");
    if let Some(body) = body.filter(|body| body["content"].get("application/json").is_some()) {
        let required = body["content"]["application/json"]["schema"].get("oneOf").is_none();
        body["required"] = required.into();
        without_null(&mut body["content"]["application/json"]["schema"]);
    }
    let parameters = call.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        without_null(&mut parameter["schema"]);
    }
}

/// Whatever takes a token takes the cookie of the pages, too.
fn offer_cookie(call: &mut Value) {
    let ways = call.get_mut("security").and_then(Value::as_array_mut);
    if let Some(ways) = ways.filter(|ways| ways.iter().any(|way| way.get("token").is_some())) {
        ways.push(json!({ "session": [] }));
    }
}

/// A `u32` is more than an `int32` holds, which is what it is called by default.
fn widen_counts(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if members.get("format").is_some_and(|format| format == "int32") {
                members.insert("format".into(), "int64".into());
            }
            members.values_mut().for_each(widen_counts);
        }
        Value::Array(items) => items.iter_mut().for_each(widen_counts),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
