//! What an invocation ends with.

use serde::Serialize;
use tidemill_engine::backend::Fault;
use tidemill_engine::engine::EngineError;

/// Why an invocation failed. The caller tries again, and in the end keeps the event as a dead letter.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    /// Whether this process can do nothing more.
    pub(crate) is_final: bool,
}

impl Failure {
    pub(crate) fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), is_final: false }
    }

    /// What was handed over is not what the function is for.
    pub(crate) fn bad_event(message: impl Into<String>) -> Self {
        Self::new("BadEvent", message)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let is_final = matches!(fault, Fault::Stopped(_));
        Self { kind: "StoreFault", message: fault.to_string(), is_final }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Fault(fault) => fault.into(),
            other => Self::new("Refused", other.to_string()),
        }
    }
}

/// An answer as the runtime wants it.
pub(crate) fn json(answer: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(answer).map_err(|error| Failure::new("BadAnswer", error.to_string()))
}
