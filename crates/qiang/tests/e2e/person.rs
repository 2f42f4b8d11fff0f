//! Somebody with a connection and perhaps a token, and what they are answered.

use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use qiang::client::{self, Client, Error};
use qiang_app::config::Tls;
use qiang_app::tls;
use serde_json::Value;

const API: &str = "/api/v1";

/// One user agent.
pub(crate) struct Person {
    client: Client,
    token: Option<HeaderValue>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Person {
    pub(crate) async fn arrive(address: SocketAddr, token: Option<String>) -> Self {
        let client = Client::connect(address).await.expect("somebody listens");
        let token = token.map(|token| HeaderValue::from_str(&token).expect("a header"));
        Self { client, token }
    }

    /// The same, by TLS, to a server that has this certificate.
    pub(crate) async fn arrive_by_tls(
        address: SocketAddr,
        token: Option<String>,
        files: &Tls,
    ) -> Self {
        let trust = tls::Trust::only(files).expect("a certificate");
        let tls = client::Tls { trust, name: tls::name_of(address) };
        let client = Client::connect_tls(address, Some(tls)).await.expect("somebody listens");
        let token = token.map(|token| HeaderValue::from_str(&token).expect("a header"));
        Self { client, token }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.ask(Method::GET, &format!("{API}{path}"), &[], "").await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Answer {
        self.ask(Method::DELETE, &format!("{API}{path}"), &[], "").await
    }

    /// Without a body if it is null.
    pub(crate) async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, body, &[]).await
    }

    pub(crate) async fn put(&mut self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, body, &[]).await
    }

    /// With an `Idempotency-Key`.
    pub(crate) async fn post_as(&mut self, key: &str, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, body, &[("idempotency-key", key)]).await
    }

    /// Claims so many units of a sale.
    pub(crate) async fn claim(&mut self, sale: &str, quantity: u32) -> Answer {
        let body = serde_json::json!({ "quantity": quantity });
        self.post(&format!("/sales/{sale}/claims"), body).await
    }

    /// Claims one unit and gives the claim's id.
    pub(crate) async fn granted(&mut self, sale: &str) -> String {
        let claim = self.claim(sale, 1).await.ok(201);
        claim["claim_id"].as_str().expect("an id").to_owned()
    }

    /// The state of a claim.
    pub(crate) async fn state(&mut self, claim: &str) -> String {
        let claim = self.get(&format!("/claims/{claim}")).await.ok(200);
        claim["state"].as_str().expect("a word").to_owned()
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Value,
        headers: &[(&'static str, &str)],
    ) -> Answer {
        let path = format!("{API}{path}");
        if body.is_null() {
            return self.ask(method, &path, headers, "").await;
        }
        let headers = [headers, &[("content-type", "application/json")]].concat();
        self.ask(method, &path, &headers, body.to_string()).await
    }

    /// Any request, at any address.
    pub(crate) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut all: Vec<_> = headers
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header");
                (HeaderName::from_static(name), value)
            })
            .collect();
        if let Some(token) = &self.token {
            all.push((HeaderName::from_static("authorization"), token.clone()));
        }
        let body = body.into();
        let answer = match self.client.send(method.clone(), path, &all, body.clone()).await {
            // The server closed after a request it did not read to its end; nothing was sent.
            Err(Error::NotSent(_)) => {
                self.client.reconnect().await.expect("somebody listens");
                self.client.send(method, path, &all, body).await
            }
            answer => answer,
        };
        let answer = answer.expect("an answer");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        Answer { status: answer.status.as_u16(), headers: answer.headers, text }
    }

    /// Expects a refusal in English and the same in Chinese. A refusal changes nothing, so asking
    /// twice is asking once.
    pub(crate) async fn refused(
        &mut self,
        method: Method,
        path: &str,
        body: Value,
        status: u16,
        code: &str,
    ) -> Value {
        let zh = [("accept-language", "zh-CN,zh;q=0.9,en;q=0.5")];
        let chinese = self.send(method.clone(), path, body.clone(), &zh).await;
        let chinese = chinese.problem_in("zh", status, code);
        let title = chinese["title"].as_str().expect("a title");
        assert!(!title.is_ascii(), "{title} is no Chinese");
        self.send(method, path, body, &[]).await.problem(status, code)
    }
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_str(&self.text) {
            Ok(json) => json,
            Err(error) => panic!("{error}: {self:?}"),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// The JSON of an answer with this status.
    #[track_caller]
    pub(crate) fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/json");
        self.json()
    }

    /// The problem, which must be a whole one, in English.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        self.problem_in("en", status, code)
    }

    #[track_caller]
    pub(crate) fn problem_in(&self, lang: &str, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.header("content-language"), lang);
        assert_eq!(self.header("cache-control"), "no-store");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["type"], format!("/docs/errors#{code}"));
        for said in ["title", "detail"] {
            assert!(!problem[said].as_str().expect(said).is_empty());
        }
        problem
    }
}
