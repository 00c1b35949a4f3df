//! What a task is asked to do, as its job or its submitter wrote it.

use serde::{Deserialize, Serialize};

use crate::id::{TaskId, TaskName};
use crate::json::Json;
use crate::retry::RetryPolicy;

/// One task of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    pub task_id: TaskId,
    pub name: TaskName,
    #[serde(default)]
    pub depends_on: Vec<TaskId>,
    /// Static input; a JSON object without the reserved key `dependencyOutputs`.
    #[serde(default)]
    pub input: Json,
    #[serde(default, skip_serializing_if = "TaskOptions::is_default")]
    pub options: TaskOptions,
}

/// What may be set per task and is left out when it is not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// Wall time for one attempt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What the executor needs and the engine does not read: command, environment, labels, definition version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Json>,
    /// Whether an agent carries it out, so that budgets stop it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub agent: bool,
}

impl TaskOptions {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
