//! Parked executions: those that wait for somebody. There is a record only while one waits.

use serde::{Deserialize, Serialize};
use tidemill_model::workflow::{ErrorCode, WorkflowRunId};
use tidemill_model::{RequestId, TenantId, Timestamp};

use crate::triage::Cell;

/// Which parked execution.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParkedKey {
    pub tenant: TenantId,
    pub execution: WorkflowRunId,
}

/// An execution that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parked {
    pub execution: WorkflowRunId,
    pub since: Timestamp,
    /// When it is given up.
    pub deadline: Timestamp,
    /// When an alarm tells that it will be.
    pub alarm_at: Timestamp,
    /// Whether an alarm reported it.
    pub is_told: bool,
    /// The codes that it was parked with.
    pub codes: Vec<ErrorCode>,
    pub cell: Cell,
    /// The task that it is, if it runs here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<RequestId>,
}

impl Parked {
    /// When something is to be done about it.
    pub fn due_at(&self) -> Timestamp {
        if self.is_told { self.deadline } else { self.alarm_at.min(self.deadline) }
    }

    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        let codes: usize = self.codes.iter().map(|code| code.as_str().len() + 2).sum();
        self.execution.as_str().len()
            + codes
            + self.cell.len()
            + self.task.as_ref().map_or(0, |task| task.as_str().len())
            + 64
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}
