//! Why a command did not do what it was asked to, and what the process says with its exit code.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use tidemill::document::FileProblems;
use tidemill_embedded::OpenError;
use tidemill_embedded::data_lock::LockError;
use tidemill_embedded::store::export::ExportError;
use tidemill_embedded::store::import::ImportError;
use tidemill_engine::backend::Fault;

use crate::client::ClientError;
use crate::config::ConfigError;
use crate::node::NodeError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// There is nothing to work on: exit code 2.
    #[error("{0}")]
    Unusable(String),
    /// It was tried and did not work: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// What the user wrote is wrong, one line each that editors can follow: exit code 2.
    #[error("{0}")]
    Written(String),
    /// The user stopped it: exit code 130.
    #[error("interrupted")]
    Interrupted,
    /// Standard output was closed: exit code 1, in silence.
    #[error("the output was closed")]
    Closed,
}

impl CommandError {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unusable(_) | Self::Written(_) => ExitCode::from(2),
            Self::Interrupted => ExitCode::from(130),
            Self::Failed(_) | Self::Closed => ExitCode::FAILURE,
        }
    }

    /// What to say of it; `None` for nothing.
    pub(crate) fn words(&self) -> Option<String> {
        match self {
            Self::Unusable(_) | Self::Failed(_) => Some(format!("tidemill: {self}")),
            Self::Written(lines) => Some(lines.clone()),
            Self::Interrupted | Self::Closed => None,
        }
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

impl From<OpenError> for CommandError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Lock(error) => Self::Unusable(chain(&error)),
            OpenError::Store(fault) => fault.into(),
            error @ OpenError::Directory { .. } => Self::Unusable(chain(&error)),
        }
    }
}

impl From<NodeError> for CommandError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Open(error) => error.into(),
            error @ (NodeError::TokenKey(_) | NodeError::Foreign(_)) => Self::Unusable(chain(&error)),
            error => Self::Failed(chain(&error)),
        }
    }
}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<FileProblems> for CommandError {
    fn from(problems: FileProblems) -> Self {
        Self::Written(problems.to_string())
    }
}

impl From<ConfigError> for CommandError {
    fn from(error: ConfigError) -> Self {
        let lines: Vec<_> = error.0.iter().map(|line| format!("tidemill: {line}")).collect();
        Self::Written(lines.join("\n"))
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

#[cfg(feature = "aws")]
impl From<tidemill_aws::deploy::DeployError> for CommandError {
    fn from(error: tidemill_aws::deploy::DeployError) -> Self {
        use tidemill_aws::deploy::DeployError;
        match &error {
            DeployError::Missing { names, .. } => {
                let code = if names.iter().any(|name| name == "CodeKey") {
                    "give the zip of tidemill-lambda with --code FILE, which stands for CodeBucket and CodeKey, and others"
                } else {
                    "give them"
                };
                Self::Unusable(format!("{error}; {code} with --parameter NAME=VALUE"))
            }
            DeployError::Wrong { .. } => Self::Unusable(error.to_string()),
            DeployError::Refused(_) | DeployError::Failed { .. } => Self::Failed(error.to_string()),
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
