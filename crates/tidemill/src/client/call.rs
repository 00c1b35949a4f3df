//! One call of the API and its answer.

use std::fmt::{self, Write as _};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_api::{Page, ProblemDocument};

use super::{ClientError, HttpWay, LocalWay};

/// A list is read in pages of this many.
const PAGE: usize = 200;

/// Whoever answers. Clones share connections.
#[derive(Clone)]
pub(crate) enum Client {
    Http(Box<HttpWay>),
    Local(LocalWay),
}

/// What is asked.
pub(crate) struct Call {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: String,
    pub(crate) body: Option<Bytes>,
    pub(crate) content_type: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Whether the answer may take for ever.
    pub(crate) endless: bool,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        let (path, content_type) = (path.into(), "application/json");
        Self { method, path, body: None, content_type, headers: Vec::new(), endless: false }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>, body: &impl Serialize) -> Self {
        Self::new(Method::POST, path).with_json(body)
    }

    pub(crate) fn with_json(mut self, body: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(body).expect("what the API takes is always JSON");
        self.body = Some(bytes.into());
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn endless(mut self) -> Self {
        self.endless = true;
        self
    }

    /// The request, for the given origin (`http://host:port`, or empty in process).
    pub(super) fn request(self, origin: &str) -> Result<Request<Body>, ClientError> {
        let changes = self.method != Method::GET;
        let mut request = Request::builder().method(self.method).uri(format!("{origin}{}", self.path));
        if changes {
            request = request.header(header::CONTENT_TYPE, self.content_type);
        }
        for (name, value) in self.headers {
            let value = HeaderValue::try_from(value)
                .map_err(|_| ClientError::Strange(format!("bad header {name}")))?;
            request = request.header(name, value);
        }
        let body = self.body.map_or_else(Body::empty, Body::from);
        request.body(body).map_err(|error| ClientError::Strange(error.to_string()))
    }
}

impl Client {
    /// Sends a call. An answer that says no is an error.
    pub(crate) async fn send(&self, call: Call) -> Result<Response<Body>, ClientError> {
        let answer = match self {
            Self::Http(way) => way.send(call).await?,
            Self::Local(way) => way.send(call).await?,
        };
        if answer.status().is_success() { Ok(answer) } else { Err(problem_of(answer).await) }
    }

    pub(crate) async fn bytes(&self, call: Call) -> Result<Bytes, ClientError> {
        collect(self.send(call).await?).await
    }

    pub(crate) async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        let bytes = self.bytes(call).await?;
        serde_json::from_slice(&bytes).map_err(|error| ClientError::Strange(error.to_string()))
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: impl Into<String>) -> Result<T, ClientError> {
        self.json(Call::get(path)).await
    }

    /// A list from its first page on, up to `limit` items.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
        limit: usize,
    ) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let wanted = (limit - items.len()).min(PAGE);
            let query = query.clone().set("limit", wanted).maybe("cursor", cursor.as_ref());
            let page: Page<T> = self.get(query.on(path)).await?;
            items.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() || items.len() >= limit {
                items.truncate(limit);
                return Ok(items);
            }
        }
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Http(way) => way.origin().to_owned(),
            Self::Local(way) => way.place(),
        }
    }

    /// Looks after bulks in this process, if no server does.
    pub(crate) fn start_triage(&self) -> Option<crate::node::Triage> {
        match self {
            Self::Http(_) => None,
            Self::Local(way) => Some(way.start_triage()),
        }
    }

    /// Whether nobody is at work while this process asks.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Local(way) if way.is_alone())
    }
}

async fn collect(answer: Response<Body>) -> Result<Bytes, ClientError> {
    let body = answer.into_body().collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| ClientError::Unreachable {
        url: "the server".to_owned(),
        cause: format!("the answer broke off: {error}"),
    })
}

async fn problem_of(answer: Response<Body>) -> ClientError {
    let status = answer.status();
    let bytes = match collect(answer).await {
        Ok(bytes) => bytes,
        Err(error) => return error,
    };
    match serde_json::from_slice::<ProblemDocument>(&bytes) {
        Ok(problem) => ClientError::Problem(Box::new(problem)),
        Err(_) => ClientError::Strange(unknown(status, &bytes)),
    }
}

fn unknown(status: StatusCode, bytes: &Bytes) -> String {
    let text = String::from_utf8_lossy(bytes);
    let first: String = text.lines().next().unwrap_or_default().chars().take(200).collect();
    format!("status {status} with {first:?}; is this a Tidemill server?")
}

/// The query of a path, encoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(&'static str, String)>);

impl Query {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn set(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.0.push((name, format!("{value}")));
        self
    }

    pub(crate) fn maybe(self, name: &'static str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    pub(crate) fn on(&self, path: &str) -> String {
        let mut text = path.to_owned();
        for (index, (name, value)) in self.0.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            let _ = write!(text, "{mark}{name}={}", encode(value));
        }
        text
    }
}

/// A part of a path or query, with everything that could mean something else encoded.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded() {
        let query = Query::new().set("entity", "STORE/a b&c").maybe("x", None::<u32>).set("limit", 5);
        assert_eq!(query.on("/v1/events"), "/v1/events?entity=STORE%2Fa%20b%26c&limit=5");
        assert_eq!(Query::new().on("/a"), "/a");
    }
}
