//! Errors: one code in one execution.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_model::workflow::{ErrorCode, WorkflowRunId};
use tidemill_model::{EventId, Timestamp};

use crate::triage::ErrorState;

/// How many of the newest occurrences an error names.
pub const OCCURRENCES_MAX: usize = 20;

/// One occurrence, by which its details are found in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Occurrence {
    pub event: EventId,
    /// Which of the event's errors, from 0.
    pub index: u32,
    pub at: Timestamp,
}

/// A code in an execution, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriageError {
    pub code: ErrorCode,
    pub execution: WorkflowRunId,
    pub count: u64,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    /// Where it stood at `clock`; see `ErrorGroup::state_of` for where it stands now.
    pub state: ErrorState,
    /// The group's clock when this was written.
    pub clock: u64,
    /// The place of the group that it is counted in.
    pub cell: u32,
    /// Newest last.
    pub occurrences: Vec<Occurrence>,
    /// The author of the last change of its state, and why, if it was changed by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
}

impl TriageError {
    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        self.code.as_str().len()
            + self.execution.as_str().len()
            + self.occurrences.len() * 30
            + text(&self.by)
            + text(&self.reason)
            + 64
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}
