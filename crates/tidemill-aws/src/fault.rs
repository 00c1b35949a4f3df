//! What calls answer when they fail, as faults of the store.

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use tidemill_engine::backend::Fault;

/// The call got no answer, or one that another try may better.
pub(crate) fn unavailable(what: &str, error: impl std::error::Error) -> Fault {
    Fault::Unavailable(format!("{what}: {}", DisplayErrorContext(error)))
}

/// Whether the condition of a write did not hold.
pub(crate) fn is_refused<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> bool {
    error.as_service_error().and_then(ProvideErrorMetadata::code) == Some("ConditionalCheckFailedException")
}

pub(crate) fn damaged(what: impl std::fmt::Display) -> Fault {
    Fault::Damaged(what.to_string())
}
