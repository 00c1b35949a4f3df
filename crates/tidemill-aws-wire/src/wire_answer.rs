//! An answer as it goes over the wire. The shell adds `Date`, `Content-Length` and the id of the request.

use std::borrow::Cow;

use serde_json::Value;

/// JSON of SQS, DynamoDB and Step Functions.
pub const JSON_1_0: &str = "application/x-amz-json-1.0";
/// JSON of EventBridge.
pub const JSON_1_1: &str = "application/x-amz-json-1.1";
/// XML of the query protocol.
pub const TEXT_XML: &str = "text/xml";
/// XML of S3.
pub const APPLICATION_XML: &str = "application/xml";

/// A status, a media type, further headers and a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireAnswer {
    pub status: u16,
    /// None when there is no body.
    pub media_type: Option<&'static str>,
    pub headers: Vec<(Cow<'static, str>, String)>,
    pub body: Vec<u8>,
}

impl WireAnswer {
    pub fn json(status: u16, media_type: &'static str, body: &Value) -> Self {
        Self {
            status,
            media_type: Some(media_type),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        }
    }

    pub fn xml(status: u16, media_type: &'static str, body: String) -> Self {
        Self { status, media_type: Some(media_type), headers: Vec::new(), body: body.into_bytes() }
    }

    /// An answer whose headers say everything.
    pub fn empty(status: u16) -> Self {
        Self { status, media_type: None, headers: Vec::new(), body: Vec::new() }
    }

    #[must_use]
    pub fn with_header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}
