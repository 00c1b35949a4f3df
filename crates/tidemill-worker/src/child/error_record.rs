//! What a child says of its own failure.

use tidemill_model::{Exit, Failure, Usage};

/// An error line of the child protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ErrorRecord {
    pub(crate) name: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) status: Option<u16>,
    pub(crate) message: Option<String>,
    pub(crate) retry_after_millis: Option<u64>,
    pub(crate) usage: Option<Usage>,
}

impl ErrorRecord {
    pub(crate) fn failure<'a>(&'a self, exit: Option<Exit>, stderr: &'a str) -> Failure<'a> {
        Failure {
            status: self.status,
            code: self.code.as_deref(),
            name: self.name.as_deref(),
            message: self.message.as_deref(),
            exit,
            stderr,
        }
    }

    /// The error in one line, if the record says anything.
    pub(crate) fn text(&self) -> Option<String> {
        let name = self.name.as_deref().or(self.code.as_deref()).filter(|name| !name.is_empty());
        let message = self.message.as_deref().filter(|message| !message.is_empty());
        match (name, message, self.status) {
            (Some(name), Some(message), _) if message.starts_with(name) => Some(message.to_owned()),
            (Some(name), Some(message), _) => Some(format!("{name}: {message}")),
            (Some(said), None, _) | (None, Some(said), _) => Some(said.to_owned()),
            (None, None, Some(status)) => Some(format!("status {status}")),
            (None, None, None) => None,
        }
    }
}
