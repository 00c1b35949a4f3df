//! One call of the API.

use std::fmt::{self, Write as _};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request};
use serde::Serialize;

use super::ClientError;
use crate::encode;

/// What is asked.
pub struct Call {
    pub method: Method,
    /// With its query.
    pub path: String,
    pub body: Option<Bytes>,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    /// Whether the answer may take for ever.
    pub endless: bool,
}

impl Call {
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        let (path, content_type) = (path.into(), "application/json");
        Self { method, path, body: None, content_type, headers: Vec::new(), endless: false }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path)
    }

    pub fn post(path: impl Into<String>, body: &impl Serialize) -> Self {
        Self::new(Method::POST, path).with_json(body)
    }

    #[must_use]
    pub fn with_json(mut self, body: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(body).expect("what the API takes is always JSON");
        self.body = Some(bytes.into());
        self
    }

    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    #[must_use]
    pub fn endless(mut self) -> Self {
        self.endless = true;
        self
    }

    /// The request, for the given origin (`http://host:port`, or empty in process).
    pub fn request(self, origin: &str) -> Result<Request<Full<Bytes>>, ClientError> {
        let changes = self.method != Method::GET;
        let mut request = Request::builder().method(self.method).uri(format!("{origin}{}", self.path));
        if changes {
            request = request.header(CONTENT_TYPE, self.content_type);
        }
        for (name, value) in self.headers {
            let value = HeaderValue::try_from(value)
                .map_err(|_| ClientError::Strange(format!("bad header {name}")))?;
            request = request.header(name, value);
        }
        let body = Full::new(self.body.unwrap_or_default());
        request.body(body).map_err(|error| ClientError::Strange(error.to_string()))
    }
}

/// The query of a path, encoded.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(&'static str, String)>);

impl Query {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn set(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.0.push((name, format!("{value}")));
        self
    }

    #[must_use]
    pub fn maybe(self, name: &'static str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    pub fn on(&self, path: &str) -> String {
        let mut text = path.to_owned();
        for (index, (name, value)) in self.0.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            let _ = write!(text, "{mark}{name}={}", encode(value));
        }
        text
    }
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
