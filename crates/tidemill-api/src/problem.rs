//! What an error looks like: RFC 9457.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a request was not carried out (RFC 9457, `application/problem+json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemDocument {
    /// A URN made of the code.
    pub r#type: String,
    /// What the status means.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Stable; programs decide by it.
    pub code: Cow<'static, str>,
    /// What went wrong this time, for people.
    pub detail: String,
    /// This answer as a URN; its header `X-Request-Id` has the same id, and so have lines of the server's log about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Everything that is wrong with the request, as far as it is known.
    pub details: Vec<Detail>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ProblemDetail")]
pub struct Detail {
    /// Where, such as `tasks[3].timeout`.
    pub field: String,
    pub code: Cow<'static, str>,
    pub message: String,
    /// In the source of a script that does not compile, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

impl Detail {
    pub fn new(
        field: impl Into<String>,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), code: code.into(), message: message.into(), line: None, column: None }
    }
}
