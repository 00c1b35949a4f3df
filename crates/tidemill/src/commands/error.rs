//! Why a command did not do what it was asked to, and what the process says with its exit code.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use tidemill_api::{Detail, ProblemDocument};
use tidemill_embedded::OpenError;
use tidemill_embedded::data_lock::LockError;
use tidemill_embedded::store::export::ExportError;
use tidemill_embedded::store::import::ImportError;
use tidemill_engine::backend::Fault;
use tidemill_source_file::FileProblems;

use crate::client::{ClientError, local_problem};
use crate::config::ConfigError;
use crate::node::NodeError;

/// What a shell says of a program that SIGPIPE ended.
const PIPE_CLOSED: u8 = 141;
/// What helps when the log is damaged.
pub(super) const SALVAGE: &str = "`tidemill salvage --to DIR` copies what is whole";
/// The code of what is wrong with a file or with settings.
const INVALID_FILE: &str = "INVALID_FILE";

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// There is nothing to work on: exit code 2.
    #[error("{0}")]
    Unusable(String),
    /// It was tried and did not work: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// A server said no, or nothing: exit code 1.
    #[error(transparent)]
    Answer(ClientError),
    /// The command line is wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// What the user wrote is wrong, one line each that editors can follow: exit code 2.
    #[error("{0}")]
    Written(String),
    /// The user stopped it: exit code 130.
    #[error("interrupted")]
    Interrupted,
    /// The reader of the output has seen enough: the exit code of a program that a closed pipe ended, in silence.
    #[error("the output was closed")]
    Closed,
}

impl CommandError {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unusable(_) | Self::Usage(_) | Self::Written(_) => ExitCode::from(2),
            Self::Interrupted => ExitCode::from(130),
            Self::Closed => ExitCode::from(PIPE_CLOSED),
            Self::Failed(_) | Self::Answer(_) => ExitCode::FAILURE,
        }
    }

    /// What to say of it, a line for each thing that is wrong.
    pub(crate) fn words(&self) -> Vec<String> {
        match self {
            // What follows on further lines explains the first.
            Self::Unusable(text) | Self::Usage(text) | Self::Failed(text) => {
                format!("tidemill: {text}").lines().map(str::to_owned).collect()
            }
            Self::Answer(error) => answered(error).lines().map(|line| format!("tidemill: {line}")).collect(),
            Self::Written(lines) => lines.lines().map(str::to_owned).collect(),
            Self::Interrupted | Self::Closed => Vec::new(),
        }
    }

    /// The same for programs: what a server would answer; `None` for nothing.
    pub(crate) fn document(&self) -> Option<ProblemDocument> {
        Some(match self {
            Self::Unusable(text) => local_problem(400, "UNUSABLE", text.clone()),
            Self::Usage(text) => local_problem(400, "USAGE", text.clone()),
            Self::Failed(text) => local_problem(500, "FAILED", text.clone()),
            Self::Answer(error) => error.document(),
            Self::Written(lines) => {
                let details: Vec<_> = lines.lines().map(detail_of).collect();
                let more = match details.len() {
                    0 | 1 => String::new(),
                    several => format!(" (the first of {several} problems)"),
                };
                let first = lines.lines().next().unwrap_or_default();
                let whole = local_problem(400, INVALID_FILE, format!("{first}{more}"));
                ProblemDocument { details, ..whole }
            }
            Self::Interrupted | Self::Closed => return None,
        })
    }

    /// An error with what it was about.
    pub(crate) fn failed(what: impl std::fmt::Display, error: &dyn std::error::Error) -> Self {
        Self::Failed(format!("{what}: {}", chain(error)))
    }
}

/// What a server said, and what is to be done about it on a command line, which has neither headers nor routes.
fn answered(error: &ClientError) -> String {
    let ClientError::Problem(problem) = error else { return error.to_string() };
    match &*problem.code {
        "UNAUTHENTICATED" if problem.detail.starts_with("send ") => {
            "the server wants an API key: set TIDEMILL_API_KEY or give --key (UNAUTHENTICATED)".to_owned()
        }
        "UNAUTHENTICATED" => format!("{error}; TIDEMILL_API_KEY or --key gives another one"),
        "EXISTS" if problem.detail.starts_with("task definition ") => {
            format!("{error}; replace it with `tidemill definitions update FILE`")
        }
        _ => error.to_string(),
    }
}

/// A line such as `job.yaml:12:5: tasks[2].timeout: must be …`, in its parts.
fn detail_of(line: &str) -> Detail {
    let parts = line.split_once(": ").and_then(|(place, rest)| {
        let mut numbers = place.rsplitn(3, ':');
        let (column, line) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        numbers.next()?;
        Some((line, column, rest))
    });
    let (line, column, rest) = match parts {
        Some((line, column, rest)) => (Some(line), Some(column), rest),
        None => (None, None, line.strip_prefix("tidemill: ").unwrap_or(line)),
    };
    let (field, message) = match rest.split_once(": ") {
        Some((field, message)) if line.is_some() && !field.contains(' ') => (field, message),
        _ => ("", rest),
    };
    let (field, message) = (field.to_owned(), message.to_owned());
    Detail { field, code: INVALID_FILE.into(), message, line, column }
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
        Self::Answer(error)
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
            Fault::Damaged(_) => Self::Failed(format!("{}; {SALVAGE}", chain(&fault))),
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
            error @ ImportError::Line { line: 1, .. } => Self::Failed(format!(
                "nothing was imported: this is no export of Tidemill, which `tidemill export` writes: {}",
                chain(&error)
            )),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_lines_for_people_and_a_document_for_programs() {
        let unreachable = ClientError::Unreachable { url: "http://x".into(), cause: "refused".into() };
        for (error, words, status, code) in [
            (CommandError::Unusable("no data".into()), "tidemill: no data", 400, "UNUSABLE"),
            (CommandError::Usage("what?".into()), "tidemill: what?", 400, "USAGE"),
            (CommandError::Failed("it broke".into()), "tidemill: it broke", 500, "FAILED"),
            (unreachable.into(), "tidemill: cannot reach http://x: refused", 503, "UNREACHABLE"),
            (CommandError::Written("a: b".into()), "a: b", 400, "INVALID_FILE"),
        ] {
            assert_eq!(error.words(), [words]);
            let document = error.document().unwrap();
            assert_eq!((document.status, &*document.code), (status, code));
            assert_eq!(document.r#type, format!("urn:tidemill:problem:{code}"));
        }
        for silent in [CommandError::Interrupted, CommandError::Closed] {
            assert!(silent.words().is_empty() && silent.document().is_none());
        }
    }

    #[test]
    fn what_a_server_said_names_what_the_command_line_has() {
        for (code, detail, words) in [
            (
                "UNAUTHENTICATED",
                "send `Authorization: Bearer` with an API key",
                "the server wants an API key: set TIDEMILL_API_KEY or give --key (UNAUTHENTICATED)",
            ),
            (
                "UNAUTHENTICATED",
                "the API key is unknown or was revoked",
                "the API key is unknown or was revoked (UNAUTHENTICATED); TIDEMILL_API_KEY or --key gives another one",
            ),
            (
                "EXISTS",
                "task definition load exists already",
                "task definition load exists already (EXISTS); replace it with `tidemill definitions update FILE`",
            ),
            ("EXISTS", "script a exists already", "script a exists already (EXISTS)"),
        ] {
            let said = local_problem(400, code, detail.to_owned());
            let error = CommandError::from(ClientError::Problem(Box::new(said)));
            assert_eq!(error.words(), [format!("tidemill: {words}")]);
            assert_eq!(error.document().unwrap().detail, detail, "programs get what the server said");
        }
    }

    #[test]
    fn lines_about_files_are_told_in_their_parts() {
        let lines = "job.yaml:12:5: tasks[2].timeout: must be a: b\njob.yaml:1:1: is not YAML\ntidemill: X (.env:1) is bad";
        let document = CommandError::Written(lines.into()).document().unwrap();
        assert!(document.detail.ends_with("must be a: b (the first of 3 problems)"), "{document:?}");
        let told: Vec<_> = document
            .details
            .iter()
            .map(|d| (d.field.as_str(), d.message.as_str(), d.line, d.column))
            .collect();
        assert_eq!(
            told,
            [
                ("tasks[2].timeout", "must be a: b", Some(12), Some(5)),
                ("", "is not YAML", Some(1), Some(1)),
                ("", "X (.env:1) is bad", None, None),
            ]
        );
    }
}
