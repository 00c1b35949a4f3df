//! Every way in which an agent fails: its code, its class, whether it is tried again here.
//!
//! The classes are those of the model's table, told by the name or the status that an error record carries. So the
//! worker, which reads only that record, comes to the same class.

use tidemill_model::ErrorCategory::{
    self, Auth, Network, NotFound, Parse, ServerError, Timeout, Unknown, Validation,
};

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// The task, its input or its template cannot be used.
    BadTask,
    /// The input is not there.
    NoInput,
    /// The input or the task is not JSON.
    BrokenInput,
    /// A file could not be written or read.
    Files,
    /// There is no `claude` program.
    NoCli,
    /// The program is there and could not be started.
    CliNotStarted,
    /// It ended with an error and told no result.
    CliFailed,
    /// It was called in a way it does not know.
    CliMisused,
    /// It was killed by a signal that was not ours.
    CliKilled,
    /// It ended well and told no result.
    NoResult,
    /// It told no result, and lines that are no JSON.
    BrokenStream,
    /// It printed a line without end.
    LineTooLong,
    /// The API answered with an error status.
    ApiStatus,
    /// The API could not be reached.
    ApiUnreachable,
    /// A request to the API took too long.
    ApiTimeout,
    /// The API failed and gave no status.
    ApiFailed,
    /// There are no credentials.
    NotLoggedIn,
    /// An answer was longer than the model may give.
    AnswerTooLong,
    /// The model refused.
    Refused,
    /// The model used up its turns.
    MaxTurns,
    /// The model used up its money.
    MaxCost,
    /// The model answered nothing.
    EmptyResult,
    /// The prompt was taken for a command of the CLI.
    NotAsked,
    /// The model gave no output of the wanted form.
    NoOutput,
    /// The model gave several outputs, none of the wanted form.
    OutputRetries,
    /// The output does not satisfy the schema.
    BadOutput,
    /// The model was interrupted or the CLI failed within.
    Interrupted,
    /// The CLI was silent for too long.
    Idle,
    /// The step took too long.
    StepTimeout,
    /// There is no time left for a try.
    NoTimeLeft,
    /// A signal asked us to stop.
    Stopped,
    /// The session to go on with is not there. Never reported: a new one is begun.
    SessionLost,
}

/// How a kind of failure is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureRow {
    pub kind: FailureKind,
    /// Stable, for people and programs.
    pub code: &'static str,
    /// By this name the model's table tells the class. Empty: the status or the message tells it.
    pub name: &'static str,
    /// The class; `None` when the status or the message decides.
    pub category: Option<ErrorCategory>,
    /// Whether a further try within the same attempt may help, if its class is one of those that may pass.
    pub tries_again: bool,
}

const fn row(
    kind: FailureKind,
    code: &'static str,
    name: &'static str,
    category: Option<ErrorCategory>,
    tries_again: bool,
) -> FailureRow {
    FailureRow { kind, code, name, category, tries_again }
}

/// All failures.
pub const TABLE: &[FailureRow] = &[
    row(FailureKind::BadTask, "AGENT_BAD_TASK", "ValidationError", Some(Validation), false),
    row(FailureKind::NoInput, "AGENT_NO_INPUT", "NotFoundError", Some(NotFound), false),
    row(FailureKind::BrokenInput, "AGENT_BROKEN_INPUT", "ParseError", Some(Parse), false),
    row(FailureKind::Files, "AGENT_FILES", "InternalServerError", Some(ServerError), false),
    row(FailureKind::NoCli, "AGENT_CLI_MISSING", "NotFoundError", Some(NotFound), false),
    row(FailureKind::CliNotStarted, "AGENT_CLI_NOT_STARTED", "InternalServerError", Some(ServerError), true),
    row(FailureKind::CliFailed, "AGENT_CLI_FAILED", "", None, true),
    row(FailureKind::CliMisused, "AGENT_CLI_MISUSED", "ValidationError", Some(Validation), false),
    row(FailureKind::CliKilled, "AGENT_CLI_KILLED", "InternalServerError", Some(ServerError), true),
    row(FailureKind::NoResult, "AGENT_NO_RESULT", "InternalServerError", Some(ServerError), true),
    row(FailureKind::BrokenStream, "AGENT_BROKEN_STREAM", "ParseError", Some(Parse), false),
    row(FailureKind::LineTooLong, "AGENT_LINE_TOO_LONG", "ParseError", Some(Parse), false),
    row(FailureKind::ApiStatus, "AGENT_API_STATUS", "", None, true),
    row(FailureKind::ApiUnreachable, "AGENT_API_UNREACHABLE", "APIConnectionError", Some(Network), true),
    row(FailureKind::ApiTimeout, "AGENT_API_TIMEOUT", "APIConnectionTimeoutError", Some(Timeout), true),
    row(FailureKind::ApiFailed, "AGENT_API_FAILED", "InternalServerError", Some(ServerError), true),
    row(FailureKind::NotLoggedIn, "AGENT_NOT_LOGGED_IN", "AuthenticationError", Some(Auth), false),
    row(FailureKind::AnswerTooLong, "AGENT_ANSWER_TOO_LONG", "ValidationError", Some(Validation), false),
    row(FailureKind::Refused, "AGENT_REFUSED", "ValidationError", Some(Validation), false),
    row(FailureKind::MaxTurns, "AGENT_MAX_TURNS", "ValidationError", Some(Validation), false),
    row(FailureKind::MaxCost, "AGENT_MAX_COST", "ValidationError", Some(Validation), false),
    row(FailureKind::EmptyResult, "AGENT_EMPTY_RESULT", "InternalServerError", Some(ServerError), true),
    row(FailureKind::NotAsked, "AGENT_NOT_ASKED", "ValidationError", Some(Validation), false),
    row(FailureKind::NoOutput, "AGENT_NO_OUTPUT", "ValidationError", Some(Validation), false),
    row(FailureKind::OutputRetries, "AGENT_OUTPUT_RETRIES", "ValidationError", Some(Validation), false),
    row(FailureKind::BadOutput, "AGENT_BAD_OUTPUT", "ValidationError", Some(Validation), false),
    row(FailureKind::Interrupted, "AGENT_INTERRUPTED", "InternalServerError", Some(ServerError), true),
    row(FailureKind::Idle, "AGENT_IDLE", "TimeoutError", Some(Timeout), true),
    row(FailureKind::StepTimeout, "AGENT_TIMEOUT", "TimeoutError", Some(Timeout), true),
    row(FailureKind::NoTimeLeft, "AGENT_NO_TIME_LEFT", "TimeoutError", Some(Timeout), false),
    row(FailureKind::Stopped, "AGENT_STOPPED", "AbortError", Some(Timeout), false),
    row(FailureKind::SessionLost, "AGENT_SESSION_LOST", "", Some(Unknown), false),
];

impl FailureKind {
    pub fn row(self) -> FailureRow {
        *TABLE.iter().find(|row| row.kind == self).expect("every kind has a row; a test goes through them")
    }
}

/// A failure with its words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentFailure {
    pub kind: FailureKind,
    /// What failed and on what. Not yet free of secrets.
    pub message: String,
    /// The HTTP status of the API.
    pub status: Option<u16>,
    /// How long the API asked to be left alone.
    pub retry_after_millis: Option<u64>,
}

impl AgentFailure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, retry_after_millis: None }
    }

    pub fn category(&self) -> ErrorCategory {
        let row = self.kind.row();
        let told = tidemill_model::Failure {
            status: self.status,
            code: Some(row.code),
            name: Some(row.name).filter(|name| !name.is_empty()),
            message: Some(&self.message),
            ..tidemill_model::Failure::default()
        };
        told.category()
    }

    /// Whether another try within this attempt may help: only for what passes by itself.
    pub fn may_be_tried_again(&self) -> bool {
        self.kind.row().tries_again
            && matches!(
                self.category(),
                ErrorCategory::Timeout
                    | ErrorCategory::Network
                    | ErrorCategory::RateLimit
                    | ErrorCategory::ServerError
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_table_gives_every_row_its_class() {
        for row in TABLE {
            let failure = AgentFailure::new(row.kind, "nothing that tells");
            assert_eq!(failure.category(), row.category.unwrap_or(Unknown), "{row:?}");
            assert_eq!(row.kind.row(), *row, "one row per kind");
            assert!(row.code.starts_with("AGENT_"));
            if failure.may_be_tried_again() {
                assert!(failure.category().is_retryable(), "{row:?}");
            }
        }
        let mut codes: Vec<_> = TABLE.iter().map(|row| row.code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), TABLE.len(), "codes are told apart");
    }

    #[test]
    fn a_status_tells_the_class_and_whether_it_is_tried_again() {
        use ErrorCategory::RateLimit;
        for (status, category, again) in [
            (400, Validation, false),
            (401, Auth, false),
            (403, Auth, false),
            (404, NotFound, false),
            (413, Validation, false),
            (408, Timeout, true),
            (429, RateLimit, true),
            (500, ServerError, true),
            (503, ServerError, true),
            (529, ServerError, true),
        ] {
            let failure =
                AgentFailure { status: Some(status), ..AgentFailure::new(FailureKind::ApiStatus, "x") };
            assert_eq!((failure.category(), failure.may_be_tried_again()), (category, again), "{status}");
        }
    }

    #[test]
    fn what_the_message_says_counts_only_where_nothing_else_does() {
        let silent = AgentFailure::new(FailureKind::CliFailed, "exit code 1");
        assert_eq!((silent.category(), silent.may_be_tried_again()), (Unknown, false));
        let told =
            AgentFailure::new(FailureKind::CliFailed, "exit code 1: connect ECONNREFUSED 127.0.0.1:80");
        assert_eq!((told.category(), told.may_be_tried_again()), (Network, true));
        let refused = AgentFailure::new(FailureKind::Refused, "refused: see our timeout policy, status 503");
        assert_eq!(refused.category(), Validation);
    }
}
