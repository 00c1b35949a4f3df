//! The interface of the runtime: invocations are asked for, and answered.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tidemill_model::Timestamp;

use crate::answer::Failure;

/// Where the runtime listens: `HOST:PORT`.
const ADDRESS: &str = "AWS_LAMBDA_RUNTIME_API";
const REQUEST_ID: &str = "lambda-runtime-aws-request-id";
const DEADLINE: &str = "lambda-runtime-deadline-ms";
/// What an invocation has if the runtime does not say.
const TIME_DEFAULT: Duration = Duration::from_secs(30);

pub(crate) struct Runtime {
    client: Client<HttpConnector, Body>,
    base: String,
}

pub(crate) struct Invocation {
    id: String,
    deadline: Option<u64>,
    pub(crate) event: Bytes,
}

impl Invocation {
    pub(crate) fn time_left(&self, now: Timestamp) -> Duration {
        let left = |deadline: u64| Duration::from_millis(deadline.saturating_sub(now.millis()));
        self.deadline.map_or(TIME_DEFAULT, left)
    }
}

impl Runtime {
    pub(crate) fn of(environment: &BTreeMap<String, String>) -> Result<Self, String> {
        let address = environment
            .get(ADDRESS)
            .ok_or_else(|| format!("{ADDRESS} is not set: this program is started by AWS Lambda"))?;
        let base = format!("http://{address}/2018-06-01/runtime");
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { client, base })
    }

    /// Waits for the next invocation, for as long as it takes.
    pub(crate) async fn next(&self) -> Result<Invocation, String> {
        let (headers, event) = self.ask(Method::GET, "invocation/next", &[], Bytes::new()).await?;
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let id = text(REQUEST_ID).ok_or_else(|| format!("an invocation came without {REQUEST_ID}"))?;
        let deadline = text(DEADLINE).and_then(|deadline| deadline.parse().ok());
        Ok(Invocation { id: id.to_owned(), deadline, event })
    }

    pub(crate) async fn respond(&self, invocation: &Invocation, answer: Vec<u8>) -> Result<(), String> {
        let path = format!("invocation/{}/response", invocation.id);
        self.ask(Method::POST, &path, &[], answer.into()).await.map(drop)
    }

    pub(crate) async fn report(&self, invocation: &Invocation, failure: &Failure) -> Result<(), String> {
        self.post_failure(&format!("invocation/{}/error", invocation.id), failure).await
    }

    /// The process cannot take any invocation.
    pub(crate) async fn report_start(&self, failure: &Failure) -> Result<(), String> {
        self.post_failure("init/error", failure).await
    }

    async fn post_failure(&self, path: &str, failure: &Failure) -> Result<(), String> {
        let body = json!({ "errorType": failure.kind, "errorMessage": failure.message, "stackTrace": [] });
        let kind = [("lambda-runtime-function-error-type", failure.kind)];
        self.ask(Method::POST, path, &kind, body.to_string().into()).await.map(drop)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<(HeaderMap, Bytes), String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("the runtime cannot be asked for {path}: {error}");
        let mut request = Request::builder().method(method).uri(format!("{}/{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).map_err(|error| failed(&error))?;
        let answer = self.client.request(request).await.map_err(|error| failed(&error))?;
        let (parts, body) = answer.into_parts();
        if !matches!(parts.status, StatusCode::OK | StatusCode::ACCEPTED) {
            return Err(failed(&format_args!("it answered {}", parts.status)));
        }
        let body = body.collect().await.map_err(|error| failed(&error))?;
        Ok((parts.headers, body.to_bytes()))
    }
}
