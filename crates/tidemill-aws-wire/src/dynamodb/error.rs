//! What a request is answered with when it is not served: AWS's code, its words, and the JSON that clients read them from.

use serde_json::{Value, json};

use super::expression::{ExpressionError, ExpressionKind, KeyConditionError, PlaceholderError};
use super::key_schema::KeyError;
use super::value::Item;
use super::value_json::{ValueError, item_to_json};

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DynamoDbError {
    /// A parameter breaks a rule.
    #[error("{0}")]
    Validation(String),
    /// The body is no JSON, or JSON of another shape than the operation has.
    #[error("{0}")]
    Serialization(String),
    /// The condition of a put did not hold. The item that is stored comes along if the client asked for it.
    #[error("The conditional request failed")]
    ConditionalCheckFailed { item: Option<Item> },
    #[error("Requested resource not found")]
    ResourceNotFound,
    #[error("{0}")]
    AccessDenied(String),
    #[error("{0}")]
    UnrecognizedClient(String),
    #[error("{0}")]
    InvalidSignature(String),
    #[error("Request is missing Authentication Token")]
    MissingAuthenticationToken,
    #[error("{0}")]
    Throttling(String),
    /// The operation does not exist here.
    #[error("")]
    UnknownOperation,
    /// The fault is ours; clients try again.
    #[error("Internal server error")]
    InternalServerError,
}

/// Errors of the service itself, of the frame that AWS puts around every service, and of its check of parameters.
const SERVICE: &str = "com.amazonaws.dynamodb.v20120810";
const FRAME: &str = "com.amazon.coral.service";
const VALIDATE: &str = "com.amazon.coral.validate";

impl DynamoDbError {
    pub fn validation(message: impl Into<String>) -> Self {
        Self::Validation(message.into())
    }

    /// What is wrong with an expression, with the name of its parameter.
    pub fn expression(kind: ExpressionKind, error: &ExpressionError) -> Self {
        Self::Validation(format!("Invalid {}: {error}", kind.parameter()))
    }

    /// The code by which clients tell errors apart.
    pub const fn code(&self) -> &'static str {
        self.names().1
    }

    pub const fn status(&self) -> u16 {
        if matches!(self, Self::InternalServerError) { 500 } else { 400 }
    }

    /// The body of the answer.
    pub fn body(&self) -> Value {
        let (namespace, code) = self.names();
        let mut body = json!({ "__type": format!("{namespace}#{code}") });
        let message = self.to_string();
        if !message.is_empty() {
            // Clients take either; the two errors of the frame that are about the body and the caller have the capital.
            let is_capital = matches!(self, Self::Serialization(_) | Self::AccessDenied(_));
            body[if is_capital { "Message" } else { "message" }] = message.into();
        }
        if let Self::ConditionalCheckFailed { item: Some(item) } = self {
            body["Item"] = item_to_json(item);
        }
        body
    }

    const fn names(&self) -> (&'static str, &'static str) {
        match self {
            Self::Validation(_) => (VALIDATE, "ValidationException"),
            Self::Serialization(_) => (FRAME, "SerializationException"),
            Self::ConditionalCheckFailed { .. } => (SERVICE, "ConditionalCheckFailedException"),
            Self::ResourceNotFound => (SERVICE, "ResourceNotFoundException"),
            Self::AccessDenied(_) => (FRAME, "AccessDeniedException"),
            Self::UnrecognizedClient(_) => (FRAME, "UnrecognizedClientException"),
            Self::InvalidSignature(_) => (FRAME, "InvalidSignatureException"),
            Self::MissingAuthenticationToken => (FRAME, "MissingAuthenticationTokenException"),
            Self::Throttling(_) => (SERVICE, "ThrottlingException"),
            Self::UnknownOperation => (FRAME, "UnknownOperationException"),
            Self::InternalServerError => (SERVICE, "InternalServerError"),
        }
    }
}

impl From<ValueError> for DynamoDbError {
    fn from(error: ValueError) -> Self {
        if error.is_serialization() {
            Self::Serialization(error.to_string())
        } else {
            Self::Validation(error.to_string())
        }
    }
}

impl From<PlaceholderError> for DynamoDbError {
    fn from(error: PlaceholderError) -> Self {
        Self::Validation(error.to_string())
    }
}

impl From<KeyConditionError> for DynamoDbError {
    fn from(error: KeyConditionError) -> Self {
        Self::Validation(error.to_string())
    }
}

impl From<KeyError> for DynamoDbError {
    fn from(error: KeyError) -> Self {
        Self::Validation(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamodb::AttributeValue;

    #[test]
    fn errors_are_answered_as_aws_does() {
        let item = Item::from([("PK".to_owned(), AttributeValue::text("a"))]);
        for (error, status, body) in [
            (
                DynamoDbError::validation("no"),
                400,
                json!({"__type": "com.amazon.coral.validate#ValidationException", "message": "no"}),
            ),
            (
                DynamoDbError::ConditionalCheckFailed { item: Some(item) },
                400,
                json!({
                    "__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
                    "message": "The conditional request failed",
                    "Item": {"PK": {"S": "a"}},
                }),
            ),
            (
                DynamoDbError::ResourceNotFound,
                400,
                json!({
                    "__type": "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException",
                    "message": "Requested resource not found",
                }),
            ),
            (
                DynamoDbError::Serialization("no JSON".into()),
                400,
                json!({"__type": "com.amazon.coral.service#SerializationException", "Message": "no JSON"}),
            ),
            (
                DynamoDbError::UnknownOperation,
                400,
                json!({"__type": "com.amazon.coral.service#UnknownOperationException"}),
            ),
            (
                DynamoDbError::InternalServerError,
                500,
                json!({
                    "__type": "com.amazonaws.dynamodb.v20120810#InternalServerError",
                    "message": "Internal server error",
                }),
            ),
        ] {
            assert_eq!((error.status(), error.body()), (status, body), "{error}");
        }
    }
}
