//! Why the engine did not do what it was asked.

use std::borrow::Cow;

use tidemill_model::authored::field_problem::FieldProblems;
use tidemill_model::events::event_query::BadQuery;
use tidemill_model::events::fold::BadHistory;
use tidemill_model::events::overflow::BadPayload;
use tidemill_model::{BadId, TaskName};

use crate::kernel::backend::Fault;
use crate::kernel::reply::Refusal;
use crate::triage::TokenFault;

#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The state does not allow it. Nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store could not do its part; see the fault for what may have happened.
    #[error(transparent)]
    Fault(Fault),
    /// The input is wrong. Nothing was changed.
    #[error("{field} {problem}")]
    Invalid { field: Cow<'static, str>, problem: String },
    /// A document is wrong in one or more places. Nothing was changed.
    #[error(transparent)]
    Fields(#[from] FieldProblems),
    /// Only clients with the right to write definitions may do this. Nothing was changed.
    #[error("{field} needs the right to bring commands and agents along")]
    InlineNotAllowed { field: String },
    /// Only clients with the right to write definitions may set a variable that a definition does not open. Nothing
    /// was changed.
    #[error("{field} {}", not_open(definition, *opens_any))]
    VariableNotOpen { field: String, definition: TaskName, opens_any: bool },
    /// The input is too large. Nothing was changed.
    #[error("{field} is {size_bytes} bytes; the limit is {limit_bytes}")]
    TooLarge { field: Cow<'static, str>, size_bytes: usize, limit_bytes: usize },
    /// A large value is not where its event says. It may turn up: try again.
    #[error("blob {key} is missing")]
    BlobMissing { key: String },
    /// A token could not be sealed. Nothing was changed.
    #[error(transparent)]
    Token(#[from] TokenFault),
    /// Stored events contradict each other or the engine.
    #[error("a stored history cannot be understood")]
    History(#[from] BadHistory),
}

impl EngineError {
    pub(crate) fn invalid(field: impl Into<Cow<'static, str>>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }

    /// Whether the same request may succeed later, unchanged.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::BlobMissing { .. }
            | Self::Token(_)
            | Self::Fault(Fault::Full(_) | Fault::Stopped(_) | Fault::Unavailable(_)) => true,
            Self::Refused(_)
            | Self::Fault(_)
            | Self::Invalid { .. }
            | Self::Fields(_)
            | Self::InlineNotAllowed { .. }
            | Self::VariableNotOpen { .. }
            | Self::TooLarge { .. }
            | Self::History(_) => false,
        }
    }
}

/// Why a variable of a task of `definition` cannot be set by everybody.
pub fn not_open(definition: &TaskName, opens_any: bool) -> String {
    let opened = if opens_any {
        "does not name it in its openEnv"
    } else {
        "has no openEnv: it runs, but with its own variables only"
    };
    format!("is not open: the definition {definition} {opened}; an admin may set it or open it")
}

impl From<Fault> for EngineError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Query(query) => query.into(),
            Fault::TooLarge { field, size_bytes, limit_bytes } => {
                Self::TooLarge { field: field.into(), size_bytes, limit_bytes }
            }
            fault => Self::Fault(fault),
        }
    }
}

impl From<BadId> for EngineError {
    fn from(bad: BadId) -> Self {
        Self::invalid(bad.field, bad.problem.to_string())
    }
}

impl From<BadQuery> for EngineError {
    fn from(bad: BadQuery) -> Self {
        let field = match bad {
            BadQuery::Limit { .. } => "limit",
            BadQuery::Span { .. } => "from",
            BadQuery::Cursor(_) => "cursor",
        };
        // The query's own message begins with the field.
        let text = bad.to_string();
        let problem = text.strip_prefix(field).map_or(text.as_str(), str::trim_start);
        Self::invalid(field, problem)
    }
}

impl From<BadPayload> for EngineError {
    fn from(bad: BadPayload) -> Self {
        Self::Fault(Fault::Damaged(bad.to_string()))
    }
}
