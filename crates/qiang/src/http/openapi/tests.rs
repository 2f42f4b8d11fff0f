//! The document as a whole: names, explanations, problems.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use qiang_app::Domain;
use qiang_app::config::Sources;
use qiang_app::problem::Code;
use qiang_engine::SystemClock;

use crate::config::Config;
use crate::http::router;
use crate::server::Server;

/// The document of a server, and the calls that its domains have problems for.
async fn document() -> (Value, Vec<&'static str>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().to_str().expect("a plain path").to_owned();
    let sources = Sources::default().with_flag("--data", "data", Some(data));
    let sources = sources.with_flag("--listen", "http.listen", Some("127.0.0.1:0".to_owned()));
    let config = Config::load(sources).expect("a good configuration");
    let server = Server::start(config, Arc::new(SystemClock)).await.expect("it starts");
    let problems = server.domains.all().flat_map(Domain::problems).map(|(name, _)| *name);
    let (problems, document) = (problems.collect(), router::document(&server.domains));
    server.stop().await;
    (document, problems)
}

fn calls(document: &Value) -> Vec<&Value> {
    let paths = document["paths"].as_object().expect("paths");
    let calls = paths.values().flat_map(|path| path.as_object().expect("methods").values());
    calls.collect()
}

#[tokio::test]
async fn every_call_has_a_name_of_its_own_and_is_in_the_table() {
    let (document, named) = document().await;
    let names: Vec<_> = calls(&document)
        .into_iter()
        .map(|call| call["operationId"].as_str().expect("a name"))
        .collect();
    let known: BTreeSet<_> = named.iter().copied().collect();
    assert_eq!(names.iter().copied().collect::<BTreeSet<_>>(), known);
    assert_eq!((names.len(), named.len()), (known.len(), known.len()));
}

#[tokio::test]
async fn everything_is_explained() {
    let document = document().await.0;
    let said = |value: &Value| value.as_str().is_some_and(|text| text.len() > 3);
    for call in calls(&document) {
        let name = &call["operationId"];
        assert!(said(&call["summary"]) && said(&call["description"]), "{name}");
        assert!(!call["summary"].as_str().expect("a text").contains('\n'), "{name}");
        for (status, answer) in call["responses"].as_object().expect("answers") {
            assert!(said(&answer["description"]), "{name} {status}");
            let media = answer["content"].as_object().into_iter().flatten();
            let problem = media.filter(|(kind, _)| *kind == "application/problem+json").count();
            // The one refusal that is not a problem tells more than one could.
            let refused = &**status >= "400" && !(name == "show_readiness" && status == "503");
            assert_eq!(problem == 1, refused, "{name} {status}");
        }
        for parameter in call["parameters"].as_array().into_iter().flatten() {
            assert!(said(&parameter["description"]), "{name} {parameter}");
        }
    }
    for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
        assert!(said(&schema["description"]), "{name}");
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            let schema = schema["oneOf"].get(0).unwrap_or(schema);
            assert!(said(&schema["description"]), "{name}.{field}");
        }
    }
}

#[tokio::test]
async fn every_code_is_told_of_by_some_call() {
    let text = document().await.0["paths"].to_string();
    // These two are for addresses and methods that are not described.
    for code in Code::ALL {
        let told = text.contains(&format!("#/components/examples/{}\"", code.as_str()));
        let undescribed = matches!(code, Code::NoSuchRoute | Code::MethodNotAllowed);
        assert_ne!(told, undescribed, "{code:?}");
    }
}
