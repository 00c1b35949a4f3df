//! What calls answer when they fail, as faults of the store.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use tidemill_engine::backend::Fault;

/// The call got no answer, or one that another try may better.
pub(crate) fn unavailable(what: &str, error: impl std::error::Error) -> Fault {
    let error = causes(&error);
    // Most callers try again, and log the fault themselves if that does not help.
    tracing::debug!(call = what, error, "a call of AWS failed");
    Fault::Unavailable(format!("{what}: {error}"))
}

/// An error and its causes, for people.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        // Many say what their cause says.
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = next.source();
    }
    text
}

/// Whether the condition of a write did not hold.
pub(crate) fn is_refused<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> bool {
    error.as_service_error().and_then(ProvideErrorMetadata::code) == Some("ConditionalCheckFailedException")
}

pub(crate) fn damaged(what: impl std::fmt::Display) -> Fault {
    Fault::Damaged(what.to_string())
}

/// What a call says of its failure, for people: the service's own words, or why there are none.
#[cfg(feature = "deploy")]
#[expect(clippy::needless_pass_by_value, reason = "whoever asks for the words is done with the error")]
pub(crate) fn words<E: ProvideErrorMetadata + std::error::Error + 'static, R: std::fmt::Debug + 'static>(
    what: &str,
    error: SdkError<E, R>,
) -> String {
    match error.as_service_error().map(|error| (error.code(), error.message())) {
        Some((Some(code), Some(message))) => format!("{what}: {code}: {message}"),
        Some((Some(code), None)) => format!("{what}: {code}"),
        _ => format!("{what}: {}", causes(&error)),
    }
}
