//! Why a command did not do what it was asked to, and what the process says with its exit code.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use tidemill_embedded::data_lock::LockError;
use tidemill_embedded::store::export::ExportError;
use tidemill_embedded::store::import::ImportError;
use tidemill_engine::backend::Fault;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// There is nothing to work on: exit code 2.
    #[error("{0}")]
    Unusable(String),
    /// It was tried and did not work: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Standard output was closed: exit code 1, in silence.
    #[error("the output was closed")]
    Closed,
}

impl CommandError {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unusable(_) => ExitCode::from(2),
            Self::Failed(_) | Self::Closed => ExitCode::FAILURE,
        }
    }

    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Closed)
    }

    /// An error with what it was about.
    pub(crate) fn failed(what: impl std::fmt::Display, error: &dyn std::error::Error) -> Self {
        Self::Failed(format!("{what}: {}", chain(error)))
    }
}

/// An error with what it says of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

impl From<LockError> for CommandError {
    fn from(error: LockError) -> Self {
        let hint = match &error {
            LockError::Held { .. } => "; this command works offline only",
            LockError::Unusable { .. } => "",
        };
        Self::Unusable(format!("{}{hint}", chain(&error)))
    }
}

impl From<Fault> for CommandError {
    fn from(fault: Fault) -> Self {
        match &fault {
            Fault::Newer(_) => Self::Unusable(chain(&fault)),
            _ => Self::Failed(chain(&fault)),
        }
    }
}

impl From<ExportError> for CommandError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Store(fault) => fault.into(),
            ExportError::Write(source) if source.kind() == io::ErrorKind::BrokenPipe => Self::Closed,
            error @ ExportError::Write(_) => Self::Failed(chain(&error)),
        }
    }
}

impl From<ImportError> for CommandError {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Store(fault) => fault.into(),
            error @ ImportError::NotEmpty { .. } => Self::Unusable(chain(&error)),
            error => Self::Failed(format!("nothing was imported: {}", chain(&error))),
        }
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(format!("the output cannot be written: {error}")),
        }
    }
}
