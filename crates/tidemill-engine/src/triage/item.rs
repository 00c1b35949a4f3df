//! What a workflow event says, as far as decisions need it. The event itself is stored beside it.

use std::sync::Arc;

use tidemill_model::Timestamp;
use tidemill_model::workflow::{ErrorCode, WorkflowRunId, WorkflowStatus};

use crate::triage::Cell;

#[derive(Debug, Clone)]
pub enum WorkflowItem {
    Status(Box<StatusItem>),
    Mark(Box<MarkItem>),
}

impl WorkflowItem {
    pub fn execution(&self) -> Option<&WorkflowRunId> {
        match self {
            Self::Status(item) => Some(&item.execution),
            Self::Mark(item) => item.execution.as_ref(),
        }
    }

    /// By what a repeated delivery is known.
    pub fn once(&self) -> Option<[u8; 32]> {
        match self {
            Self::Status(item) => item.once,
            Self::Mark(item) => item.once,
        }
    }
}

/// Where an execution stands.
#[derive(Debug, Clone)]
pub struct StatusItem {
    /// The same for each delivery of the same event; `None` when nothing tells repetitions apart.
    pub once: Option<[u8; 32]>,
    pub execution: WorkflowRunId,
    pub cell: Cell,
    pub status: WorkflowStatus,
    /// Whether the event's time is known to the second only.
    pub whole_second: bool,
    pub token: Option<NewToken>,
    /// Each counts.
    pub errors: Vec<ErrorCode>,
}

/// A token that came in, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// 64 hexadecimal digits.
    pub digest: Arc<str>,
    pub sealed: Arc<[u8]>,
}

/// A change of errors' state.
#[derive(Debug, Clone)]
pub struct MarkItem {
    pub once: Option<[u8; 32]>,
    /// Both: that code in that execution. One of them is there.
    pub execution: Option<WorkflowRunId>,
    pub code: Option<ErrorCode>,
    pub mark: ErrorMark,
    pub by: Option<Arc<str>>,
    pub reason: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorMark {
    Resolve,
    Unrecoverable,
    /// A code only.
    Ignore(Until),
    Reopen,
}

/// How long a code is ignored; whichever comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Until {
    pub time: Option<Timestamp>,
    /// This many more occurrences.
    pub occurrences: Option<u64>,
}
