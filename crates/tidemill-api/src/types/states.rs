//! The closed sets of words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_model::{JobStatus, PublicState};

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "JobStatus")]
pub enum JobStatusName {
    /// Nothing has failed and something is left to do.
    Running,
    /// Something has failed and something is still active.
    Failing,
    /// Something has failed and nothing is active.
    Failed,
    Completed,
    Cancelled,
}

impl From<JobStatus> for JobStatusName {
    fn from(status: JobStatus) -> Self {
        match status {
            JobStatus::Running => Self::Running,
            JobStatus::Failing => Self::Failing,
            JobStatus::Failed => Self::Failed,
            JobStatus::Completed => Self::Completed,
            JobStatus::Cancelled => Self::Cancelled,
        }
    }
}

impl From<JobStatusName> for JobStatus {
    fn from(status: JobStatusName) -> Self {
        match status {
            JobStatusName::Running => Self::Running,
            JobStatusName::Failing => Self::Failing,
            JobStatusName::Failed => Self::Failed,
            JobStatusName::Completed => Self::Completed,
            JobStatusName::Cancelled => Self::Cancelled,
        }
    }
}

impl JobStatusName {
    pub fn as_str(self) -> &'static str {
        JobStatus::from(self).as_str()
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Running, Self::Failing, Self::Failed, Self::Completed, Self::Cancelled]
            .into_iter()
            .find(|status| status.as_str() == name)
    }
}

/// Where a dispatched task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "TaskState")]
pub enum TaskStateName {
    Pending,
    Processing,
    Completed,
    Failed,
}

impl From<PublicState> for TaskStateName {
    fn from(state: PublicState) -> Self {
        match state {
            PublicState::Pending => Self::Pending,
            PublicState::Processing => Self::Processing,
            PublicState::Completed => Self::Completed,
            PublicState::Failed => Self::Failed,
        }
    }
}

impl TaskStateName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}
