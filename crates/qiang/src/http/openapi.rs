//! The OpenAPI document: what the handlers say about themselves, and what is true of all of them.
//!
//! Handlers describe their parameters, bodies and good answers. Problems are added here: every
//! call lists the codes that it can end in, with an example of each.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::OpenApi;

use super::problem::{Code, Lang, Problem};
use super::{ProblemBody, schema};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "qiang",
        description = "Hands out scarce things to a crowd, exactly. Errors are RFC 9457 problems with a stable `code`; every code is explained at /docs/errors.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "This server")),
    components(schemas(ProblemBody, schema::Enough, schema::IdempotencyKey, schema::SignedAt, schema::Signature)),
    tags(
        (name = "sales", description = "Open, look at, restock, close and clear sales"),
        (name = "claims", description = "Take units, order them, give them up"),
        (name = "orders", description = "Orders, and paying them in the sandbox"),
        (name = "payments", description = "Money that arrives, and money that goes back"),
        (name = "current sale", description = "For shops that run one sale at a time"),
        (name = "operations", description = "Health, metrics, audit"),
    ),
)]
pub(super) struct Description;

/// What a claim can be refused for.
const CLAIM: &[Code] = &[
    Code::NoSuchSale,
    Code::NotOpenYet,
    Code::Closed,
    Code::SoldOut,
    Code::SaleCleared,
    Code::AlreadyClaimed,
    Code::OverLimit,
    Code::Released,
    Code::NotEligible,
];

/// What each call can end in, beside what [`common`] adds. Every call is named here.
const PROBLEMS: &[(&str, &[Code])] = &[
    ("create_sale", &[Code::SaleExists, Code::InvalidIdempotencyKey]),
    ("list_sales", &[]),
    ("show_sale", &[Code::NoSuchSale, Code::SaleCleared]),
    ("clear_sale", &[Code::NoSuchSale, Code::SaleCleared, Code::SaleInUse]),
    ("close_sale", &[Code::NoSuchSale, Code::SaleCleared, Code::SaleInUse]),
    ("restock_sale", &[Code::NoSuchSale, Code::Closed, Code::SaleCleared, Code::CannotRestock]),
    ("claim_sale", CLAIM),
    ("claim_voucher", CLAIM),
    ("show_claim", &[Code::NoSuchClaim]),
    ("give_up_claim", &[Code::NoSuchClaim, Code::Released, Code::AlreadyPaid, Code::SaleCleared]),
    ("order_claim", &[Code::NoSuchClaim, Code::Released, Code::AlreadyPaid, Code::SaleCleared]),
    ("show_current_sale", &[Code::NoCurrentSale, Code::NoSuchSale, Code::SaleCleared]),
    ("set_current_sale", &[Code::NoSuchSale, Code::SaleCleared]),
    ("claim_current_sale", CLAIM),
    ("list_orders", &[]),
    ("show_order", &[Code::NoSuchOrder]),
    (
        "cancel_order",
        &[
            Code::NoSuchOrder,
            Code::NotOrdered,
            Code::Released,
            Code::AlreadyPaid,
            Code::SaleCleared,
        ],
    ),
    (
        "pay_order",
        &[
            Code::SandboxDisabled,
            Code::NoSuchOrder,
            Code::NotOrdered,
            Code::AlreadyPaid,
            Code::PaymentConflict,
        ],
    ),
    (
        "report_payment",
        &[
            Code::BadSignature,
            Code::StaleSignature,
            Code::NoSuchOrder,
            Code::NotOrdered,
            Code::PaymentConflict,
        ],
    ),
    ("list_refunds", &[]),
    ("settle_refund", &[Code::NoSuchSale, Code::NoSuchRefund]),
    ("list_reviews", &[]),
    ("end_review", &[Code::NoSuchReview]),
    ("list_nodes", &[]),
    ("run_audit", &[]),
    ("repair_records", &[]),
    ("show_metrics", &[]),
    ("show_health", &[]),
    ("show_readiness", &[Code::InvalidField]),
];

/// Completes what the handlers said.
pub(super) fn finish(description: &utoipa::openapi::OpenApi) -> Value {
    let mut document = serde_json::to_value(description).expect("a document is JSON");
    widen_counts(&mut document);
    let paths = document["paths"].as_object_mut().expect("paths are an object");
    for (path, methods) in paths {
        let is_api = path.starts_with("/api/") || path.starts_with("/voucher-order/");
        for (method, call) in methods.as_object_mut().expect("methods are an object") {
            leave_out_null(call);
            let codes = if is_api { common(method, call) } else { Vec::new() };
            add_problems(call, codes);
        }
    }
    document["components"]["securitySchemes"] = json!({ "token": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "HS256; `sub` is the user, `role` is buyer or admin. A call that names \
            `admin` here needs that role.",
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
fn add_problems(call: &mut Value, mut codes: Vec<Code>) {
    let own = PROBLEMS.iter().find(|(name, _)| call["operationId"] == *name);
    let (_, own) = own.expect("a test looks for every call in the table");
    codes.extend_from_slice(own);
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
    if let Some(body) = call.get_mut("requestBody") {
        let required = body["content"]["application/json"]["schema"].get("oneOf").is_none();
        body["required"] = required.into();
        without_null(&mut body["content"]["application/json"]["schema"]);
    }
    let parameters = call.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        without_null(&mut parameter["schema"]);
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
