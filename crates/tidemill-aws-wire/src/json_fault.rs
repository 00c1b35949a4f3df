//! Errors of the services that speak JSON only and have no form of their own for them.

use crate::dialect::Dialect;
use crate::error_answer::{ErrorParts, error_answer};
use crate::wire_answer::WireAnswer;

/// An error of EventBridge or Step Functions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct JsonFault {
    pub code: &'static str,
    pub message: String,
}

impl JsonFault {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A member is missing or out of bounds.
    pub fn validation(message: impl Into<String>) -> Self {
        Self::new("ValidationException", message)
    }

    /// The body is not the JSON that the operation takes.
    pub(crate) fn serialization(error: &serde_json::Error) -> Self {
        Self::new("SerializationException", format!("The body cannot be read: {error}."))
    }

    /// The whole answer.
    pub fn answer(&self, dialect: Dialect, request_id: &str) -> WireAnswer {
        let status =
            if self.code == "InternalServerError" || self.code == "InternalException" { 500 } else { 400 };
        let error = ErrorParts { status, code: self.code, query_code: None, message: &self.message };
        error_answer(dialect, error, request_id)
    }
}
