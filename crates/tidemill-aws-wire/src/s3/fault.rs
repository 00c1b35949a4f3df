//! What S3 says when it refuses.

use crate::dialect::Dialect;
use crate::error_answer::{ErrorParts, error_answer};
use crate::wire_answer::WireAnswer;

/// The errors of S3 that the gateway gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum S3FaultCode {
    NoSuchBucket,
    NoSuchKey,
    NoSuchUpload,
    InvalidUri,
    InvalidArgument,
    InvalidDigest,
    BadDigest,
    InvalidRange,
    InvalidPart,
    InvalidPartOrder,
    MalformedXml,
    KeyTooLong,
    EntityTooLarge,
    PreconditionFailed,
    MethodNotAllowed,
    AccessDenied,
    NotImplemented,
    InternalError,
}

impl S3FaultCode {
    pub fn name(self) -> &'static str {
        self.status_and_name().1
    }

    fn status_and_name(self) -> (u16, &'static str) {
        match self {
            Self::NoSuchBucket => (404, "NoSuchBucket"),
            Self::NoSuchKey => (404, "NoSuchKey"),
            Self::NoSuchUpload => (404, "NoSuchUpload"),
            Self::InvalidUri => (400, "InvalidURI"),
            Self::InvalidArgument => (400, "InvalidArgument"),
            Self::InvalidDigest => (400, "InvalidDigest"),
            Self::BadDigest => (400, "BadDigest"),
            Self::InvalidRange => (416, "InvalidRange"),
            Self::InvalidPart => (400, "InvalidPart"),
            Self::InvalidPartOrder => (400, "InvalidPartOrder"),
            Self::MalformedXml => (400, "MalformedXML"),
            Self::KeyTooLong => (400, "KeyTooLongError"),
            Self::EntityTooLarge => (400, "EntityTooLarge"),
            Self::PreconditionFailed => (412, "PreconditionFailed"),
            Self::MethodNotAllowed => (405, "MethodNotAllowed"),
            Self::AccessDenied => (403, "AccessDenied"),
            Self::NotImplemented => (501, "NotImplemented"),
            Self::InternalError => (500, "InternalError"),
        }
    }
}

/// An error of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct S3Fault {
    pub code: S3FaultCode,
    pub message: String,
}

impl S3Fault {
    pub fn new(code: S3FaultCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn not_implemented(what: &str) -> Self {
        Self::new(S3FaultCode::NotImplemented, format!("{what} is not implemented."))
    }

    /// The whole answer. To a `HEAD` the shell sends its head alone.
    pub fn answer(&self, request_id: &str) -> WireAnswer {
        let (status, code) = self.code.status_and_name();
        let error = ErrorParts { status, code, query_code: None, message: &self.message };
        error_answer(Dialect::S3, error, request_id)
    }
}
