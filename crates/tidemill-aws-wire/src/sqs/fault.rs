//! What SQS says when it refuses, in both of its protocols.

use crate::dialect::{Dialect, SqsProtocol};
use crate::error_answer::{ErrorParts, error_answer};
use crate::wire_answer::WireAnswer;

/// The errors of SQS that the gateway gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SqsFaultCode {
    QueueDoesNotExist,
    QueueNameExists,
    ReceiptHandleIsInvalid,
    MessageNotInflight,
    InvalidParameterValue,
    MissingParameter,
    InvalidMessageContents,
    InvalidAttributeName,
    EmptyBatchRequest,
    TooManyEntriesInBatchRequest,
    BatchEntryIdsNotDistinct,
    InvalidBatchEntryId,
    BatchRequestTooLong,
    UnsupportedOperation,
    AccessDenied,
    /// The body is not what its protocol says it is.
    Serialization,
    InternalFailure,
}

impl SqsFaultCode {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueDoesNotExist => "QueueDoesNotExist",
            Self::QueueNameExists => "QueueNameExists",
            Self::ReceiptHandleIsInvalid => "ReceiptHandleIsInvalid",
            Self::MessageNotInflight => "MessageNotInflight",
            Self::InvalidParameterValue => "InvalidParameterValue",
            Self::MissingParameter => "MissingParameter",
            Self::InvalidMessageContents => "InvalidMessageContents",
            Self::InvalidAttributeName => "InvalidAttributeName",
            Self::EmptyBatchRequest => "EmptyBatchRequest",
            Self::TooManyEntriesInBatchRequest => "TooManyEntriesInBatchRequest",
            Self::BatchEntryIdsNotDistinct => "BatchEntryIdsNotDistinct",
            Self::InvalidBatchEntryId => "InvalidBatchEntryId",
            Self::BatchRequestTooLong => "BatchRequestTooLong",
            Self::UnsupportedOperation => "UnsupportedOperation",
            Self::AccessDenied => "AccessDenied",
            Self::Serialization => "SerializationException",
            Self::InternalFailure => "InternalFailure",
        }
    }

    /// The name in the query protocol, which many callers still match on.
    pub fn query_name(self) -> &'static str {
        match self {
            Self::QueueDoesNotExist => "AWS.SimpleQueueService.NonExistentQueue",
            Self::QueueNameExists => "QueueAlreadyExists",
            Self::MessageNotInflight => "AWS.SimpleQueueService.MessageNotInflight",
            Self::EmptyBatchRequest => "AWS.SimpleQueueService.EmptyBatchRequest",
            Self::TooManyEntriesInBatchRequest => "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
            Self::BatchEntryIdsNotDistinct => "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
            Self::InvalidBatchEntryId => "AWS.SimpleQueueService.InvalidBatchEntryId",
            Self::BatchRequestTooLong => "AWS.SimpleQueueService.BatchRequestTooLong",
            Self::UnsupportedOperation => "AWS.SimpleQueueService.UnsupportedOperation",
            Self::Serialization => "MalformedInput",
            same => same.name(),
        }
    }

    fn status(self) -> u16 {
        match self {
            Self::AccessDenied => 403,
            Self::InternalFailure => 500,
            _ => 400,
        }
    }
}

/// An error of a request, or of one entry of a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqsFault {
    pub code: SqsFaultCode,
    pub message: String,
}

impl SqsFault {
    pub fn new(code: SqsFaultCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub fn queue_does_not_exist() -> Self {
        Self::new(SqsFaultCode::QueueDoesNotExist, "The specified queue does not exist.")
    }

    pub(super) fn missing(name: &str) -> Self {
        Self::new(SqsFaultCode::MissingParameter, format!("The request must contain the parameter {name}."))
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(SqsFaultCode::InvalidParameterValue, message)
    }

    /// The whole answer.
    pub fn answer(&self, protocol: SqsProtocol, request_id: &str) -> WireAnswer {
        let error = ErrorParts {
            status: self.code.status(),
            code: self.code.name(),
            query_code: Some(self.code.query_name()),
            message: &self.message,
        };
        error_answer(Dialect::Sqs(protocol), error, request_id)
    }
}
