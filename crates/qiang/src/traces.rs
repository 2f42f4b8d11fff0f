//! Traces of requests, sent to a collector of OpenTelemetry by OTLP. Only in a program that was built with
//! the feature `otlp`, and only where `[traces] endpoint` names a collector.
//!
//! A request is one span and a trace of its own: what clients say about traces is not believed, or
//! anybody could have every request of theirs recorded. Whether it is recorded is drawn when it begins.

#[cfg(feature = "otlp")]
mod otlp;
#[cfg(not(feature = "otlp"))]
mod without;

use axum::http::StatusCode;
use qiang_app::config::{Layers, Origins, Wrong};

#[cfg(feature = "otlp")]
use otlp as built;
#[cfg(not(feature = "otlp"))]
use without as built;

pub use built::{Error, Span, Traces};

/// The most that can be drawn: every request.
const EVERY: u32 = 1_000_000;

/// `[traces]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where the collector is, if spans are sent.
    pub endpoint: Option<String>,
    /// Of a million requests so many are recorded.
    pub per_million: u32,
}

impl Settings {
    pub(crate) fn take(layers: &mut Layers) -> Self {
        Self {
            endpoint: layers.text("traces.endpoint", "", endpoint),
            per_million: layers.number("traces.per_million", 1_000, 1..=u64::from(EVERY)),
        }
    }
}

fn endpoint(text: &str) -> Result<Option<String>, Wrong> {
    if text.is_empty() {
        return Ok(None);
    }
    if !built::IS_BUILT {
        return Err(Wrong::new(
            "names a collector of traces, and this program was built without the feature `otlp`",
            "build it with `--features otlp`, or leave the setting out",
        ));
    }
    match Origins::read(text) {
        Ok(_) if !text.contains(',') => Ok(Some(text.to_owned())),
        _ => Err(Wrong::new(
            format!("is {text:?}, which is no address of a collector"),
            "write http://127.0.0.1:4318, without a path; spans are sent to its /v1/traces",
        )),
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// `GET`, `POST`, …
    pub method: &'a str,
    /// Its address, with names in place of ids.
    pub route: &'a str,
    /// The status of the answer.
    pub status: StatusCode,
    /// The code of the problem, if it is one.
    pub code: Option<&'static str>,
}

impl Ended<'_> {
    /// One word for it: the code of a refusal, or what a claim got.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        let is_claim = self.method == "POST"
            && (self.route.ends_with("/claims") || self.route.contains("/seckill/"));
        match (self.code, self.status) {
            (Some(code), _) => code,
            (None, StatusCode::CREATED) if is_claim => "granted",
            (None, StatusCode::OK) if is_claim => "replayed",
            (None, _) => "done",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_ends_as_granted_replayed_or_with_a_code() {
        let ended = |method, route, status, code| Ended { method, route, status, code }.outcome();
        let claims = "/api/v1/sales/{sale_id}/claims";
        assert_eq!(ended("POST", claims, StatusCode::CREATED, None), "granted");
        assert_eq!(ended("POST", "/voucher-order/seckill/{id}", StatusCode::OK, None), "replayed");
        assert_eq!(ended("POST", claims, StatusCode::GONE, Some("sold_out")), "sold_out");
        assert_eq!(ended("GET", "/api/v1/sales/{sale_id}", StatusCode::OK, None), "done");
    }

    #[cfg(not(feature = "otlp"))]
    #[test]
    fn a_program_without_traces_says_how_to_get_them() {
        let said = format!("{:?}", endpoint("http://127.0.0.1:4318").expect_err("not built"));
        assert!(said.contains("without the feature `otlp`"), "{said}");
        assert!(said.contains("--features otlp"), "{said}");
        assert_eq!(endpoint("").expect("nothing named"), None);
    }

    #[cfg(feature = "otlp")]
    #[test]
    fn a_collector_is_named_by_its_address_alone() {
        let good = endpoint("http://127.0.0.1:4318").expect("an address");
        assert_eq!(good.as_deref(), Some("http://127.0.0.1:4318"));
        for bad in ["127.0.0.1:4318", "grpc://h:1", "http://h:1/v1/traces", "http://a,http://b"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }
}
