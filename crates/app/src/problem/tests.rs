//! Every code, in every language: well formed, documented, and cheap where it must be.

use std::collections::{BTreeMap, HashSet};

use axum::body::to_bytes;
use axum::response::Response;
use proptest::prelude::*;
use qiang_core::{ClaimId, Fault, PoolId, Timestamp};
use serde_json::{Value, json};

use super::*;

const LANGS: [Lang; 2] = [Lang::En, Lang::Zh];

fn body(response: Response) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let bytes = runtime.block_on(to_bytes(response.into_body(), 1 << 20)).expect("a whole body");
    serde_json::from_slice(&bytes).expect("a problem is JSON")
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().expect("ASCII"))
}

fn every_refusal() -> Vec<Refusal> {
    let claim = ClaimId { pool: PoolId::new(42).expect("positive"), number: 7 };
    vec![
        Refusal::NoSuchPool,
        Refusal::NotOpenYet { opens_at: Timestamp::from_millis(0) },
        Refusal::Closed,
        Refusal::NotEligible,
        Refusal::AlreadyClaimed { claim },
        Refusal::OverLimit { had: 2, limit: 3 },
        Refusal::SoldOut,
        Refusal::NoSuchClaim,
        Refusal::Released,
        Refusal::AlreadyPaid,
        Refusal::NotOrdered,
        Refusal::NotPaid,
        Refusal::PaymentConflict,
        Refusal::RequestConflict,
        Refusal::PoolExists,
        Refusal::CannotRestock,
        Refusal::PoolInUse,
        Refusal::Cleared,
    ]
}

#[test]
fn every_code_is_one_well_formed_problem_in_both_languages() {
    let mut seen = HashSet::new();
    for &code in Code::ALL {
        assert!(seen.insert(code.as_str()), "{} is used twice", code.as_str());
        for lang in LANGS {
            let response = Problem::new(code).respond(lang);
            assert_eq!(response.status(), code.status());
            assert!(code.status().is_client_error() || code.status().is_server_error());
            assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
            assert_eq!(header(&response, "cache-control"), Some("no-store"));
            let retry = header(&response, "retry-after").map(str::to_owned);
            let body = body(response);
            assert_eq!(body["type"], code.doc_link());
            assert_eq!(body["code"], code.as_str());
            assert_eq!(body["status"], code.status().as_u16());
            assert_eq!(body.get("retry_after").map(Value::to_string), retry);
            for text in ["title", "detail"] {
                let text = body[text].as_str().expect("a sentence");
                assert_eq!(text.is_ascii(), lang == Lang::En, "{text}");
            }
        }
    }
}

#[test]
fn what_must_be_asked_again_says_when() {
    for &code in Code::ALL {
        let wants = code.status().as_u16() == 503;
        assert_eq!(code.retry_after_secs().is_some(), wants, "{code:?}");
        assert_eq!(code.challenge().is_some(), code.status() == 401, "{code:?}");
    }
    let response = Problem::new(Code::Overloaded).retry_after(17).respond(Lang::En);
    assert_eq!(header(&response, "retry-after"), Some("17"));
    let body = body(response);
    assert_eq!(body["retry_after"], 17);
    assert_eq!(body["detail"], "The server is too busy; nothing was done. Ask again in a moment.");
}

#[test]
fn an_answer_without_particulars_is_a_constant_of_the_program() {
    for (problem, lang) in
        [(Problem::from(&Refusal::SoldOut), Lang::Zh), (Problem::new(Code::Overloaded), Lang::En)]
    {
        let (one, other) = (problem.body(lang), problem.body(lang));
        assert_eq!(one.as_ptr(), other.as_ptr());
        assert_eq!(one, problem.code().text(lang).whole);
    }
}

#[test]
fn refusals_keep_their_particulars() {
    let extra: BTreeMap<&str, Value> = BTreeMap::from([
        ("not_open_yet", json!({"opens_at": "1970-01-01T00:00:00.000Z"})),
        ("already_claimed", json!({"claim_id": "42-7"})),
        ("over_limit", json!({"had": 2, "limit": 3})),
    ]);
    for refusal in every_refusal() {
        let problem = Problem::from(&refusal);
        let code = problem.code();
        let mut answer = body(problem.respond(Lang::Zh));
        let answer = answer.as_object_mut().expect("an object");
        for common in ["type", "title", "status", "code", "detail"] {
            assert!(answer.remove(common).is_some(), "{common} is missing");
        }
        let expected = extra.get(code.as_str()).cloned().unwrap_or_else(|| json!({}));
        assert_eq!(Value::Object(answer.clone()), expected, "{code:?}");
    }
}

/// The names of the rules and of the API differ only where a pool is called a sale.
#[test]
fn refusals_have_the_statuses_of_the_contract() {
    let table = [
        ("no_such_sale", 404),
        ("not_open_yet", 425),
        ("closed", 410),
        ("not_eligible", 403),
        ("already_claimed", 409),
        ("over_limit", 409),
        ("sold_out", 410),
        ("no_such_claim", 404),
        ("released", 409),
        ("already_paid", 409),
        ("not_ordered", 409),
        ("not_paid", 409),
        ("payment_conflict", 409),
        ("idempotency_key_reused", 422),
        ("sale_exists", 409),
        ("cannot_restock", 409),
        ("sale_in_use", 409),
        ("sale_cleared", 410),
    ];
    let answers: Vec<_> = every_refusal()
        .iter()
        .map(Code::from)
        .map(|code| (code.as_str(), code.status().as_u16()))
        .collect();
    assert_eq!(answers, table);
}

#[test]
fn errors_of_the_doors_become_problems() {
    let fault = Fault { field: "stock", rule: "must be from 1 to 2147483648" };
    let answer = body(Problem::from(fault).respond(Lang::En));
    assert_eq!(answer["code"], "invalid_field");
    assert_eq!(answer["field"], "stock");
    assert_eq!(answer["detail"], "`stock` must be from 1 to 2147483648");
    let answer = body(Problem::unknown_field("stok").respond(Lang::Zh));
    assert_eq!((&answer["code"], &answer["title"]), (&json!("unknown_field"), &json!("未知字段")));

    use crate::token;
    for (problem, code) in [
        (Problem::from(qiang_engine::Error::Overloaded), Code::Overloaded),
        (Problem::from(qiang_engine::Error::Unavailable), Code::Unavailable),
        (Problem::from(qiang_engine::Error::OutcomeUnknown), Code::OutcomeUnknown),
        (Problem::from(token::Error::Missing), Code::Unauthenticated),
        (Problem::from(token::Error::BadSignature), Code::Unauthenticated),
        (Problem::from(token::Error::NotYetValid), Code::Unauthenticated),
        (Problem::from(token::Error::Expired), Code::TokenExpired),
    ] {
        assert_eq!(problem.code(), code);
    }
}

proptest! {
    #[test]
    fn any_text_survives_the_way_into_json(detail in ".*", value: String) {
        let problem = Problem::new(Code::BadJson).detail(detail.clone()).text("field", value.clone());
        let answer: Value = serde_json::from_slice(&problem.body(Lang::En)).expect("JSON");
        prop_assert_eq!(answer["detail"].as_str(), Some(detail.as_str()));
        prop_assert_eq!(answer["field"].as_str(), Some(value.as_str()));
    }
}

/// A code without its section, a section without its code, or another status than the table's.
#[test]
fn every_code_has_its_section_in_the_documentation() {
    let page = include_str!("../../../../docs/errors.md");
    let sections: BTreeMap<&str, &str> = page
        .split("\n## ")
        .skip(1)
        .map(|section| section.split_once('\n').expect("a heading and a text"))
        .collect();
    for &code in Code::ALL {
        let text = sections.get(code.as_str());
        let text = text.unwrap_or_else(|| panic!("docs/errors.md lacks `## {}`", code.as_str()));
        let status = format!("**{}**", code.status().as_u16());
        assert!(text.trim_start().starts_with(&status), "`{}` is {status}", code.as_str());
        assert!(text.len() > 60, "`{}` is not explained", code.as_str());
    }
    assert_eq!(sections.len(), Code::ALL.len(), "a section without a code");
}

#[test]
fn every_code_has_words_in_both_languages() {
    for code in Code::ALL {
        for lang in [Lang::En, Lang::Zh] {
            let text = code.text(lang);
            let is_chinese =
                |text: &str| text.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
            for said in [text.head, text.detail] {
                assert!(!said.contains("\"\""), "{}: {said}", code.as_str());
                assert_eq!(is_chinese(said), lang == Lang::Zh, "{}: {said}", code.as_str());
            }
        }
    }
}
