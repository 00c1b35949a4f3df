//! Jobs and the tasks in them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_model::{ErrorCategory, JobCounts, Json, UsageSum};

use crate::{BudgetView, JobStatusName, LastErrorView, TaskStateName};

/// A job was created by this request, or by an earlier one with the same content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobAccepted {
    pub job_id: String,
    pub request_id: String,
    /// The status of every new job.
    pub status: JobStatusName,
    pub total_tasks: u32,
    /// The tasks that wait for no other.
    pub root_tasks: Vec<String>,
    /// Epoch milliseconds.
    pub created_at: u64,
}

/// A job file could be submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobChecked {
    pub total_tasks: u32,
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobSummary {
    pub job_id: String,
    pub request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub app: String,
    pub status: JobStatusName,
    pub total_tasks: u32,
    pub counts: Counts,
    /// Epoch milliseconds.
    pub created_at: u64,
    /// Epoch milliseconds; null until all tasks are completed.
    pub completed_at: Option<u64>,
}

/// A job with its tasks, the first thousand of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    pub job_id: String,
    pub request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub app: String,
    pub status: JobStatusName,
    pub total_tasks: u32,
    pub counts: Counts,
    /// What its agents used, once one of them said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageSum>,
    /// What its agents may use, if it is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetView>,
    /// The URL that is called once it is at rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    pub tasks: Vec<TaskRow>,
    /// Continue with it at `/v1/jobs/{jobId}/tasks`; null when all tasks are here.
    pub next_cursor: Option<String>,
    /// Epoch milliseconds.
    pub created_at: u64,
    /// Epoch milliseconds; null until all tasks are completed.
    pub completed_at: Option<u64>,
}

/// How many tasks are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "JobCounts")]
pub struct Counts {
    /// Not dispatched: some task it depends on is not completed.
    pub waiting: u32,
    pub pending: u32,
    pub processing: u32,
    pub completed: u32,
    pub failed: u32,
    /// Those of `processing` that wait for somebody to resume or fail them.
    #[serde(default, skip_serializing_if = "tidemill_model::is_default")]
    pub parked: u32,
}

impl From<JobCounts> for Counts {
    fn from(counts: JobCounts) -> Self {
        let JobCounts { waiting, pending, processing, completed, failed, parked } = counts;
        Self { waiting, pending, processing, completed, failed, parked }
    }
}

/// A task as part of its job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "JobTask")]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of its own in the answer")]
pub struct TaskRow {
    pub task_id: String,
    pub request_id: String,
    pub name: String,
    pub depends_on: Vec<String>,
    /// Null until it is dispatched.
    pub status: Option<TaskStateName>,
    /// Ended by a cancel, not by a failure of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    pub run: u32,
    /// The attempt that runs or ran last; 0 before the first.
    pub attempt: u32,
    /// When the last attempt started, in epoch milliseconds.
    pub started_at: Option<u64>,
    /// When the run ended, in epoch milliseconds.
    pub finished_at: Option<u64>,
    /// What it gave. A large output is left out here; see `outputOmitted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub output: Option<Json>,
    /// The output is too large for this answer: read the task itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub output_omitted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_category: Option<ErrorCategory>,
    /// What the last attempt of this run said; `error` may only say that no attempt was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastErrorView>,
    /// The dependencies it waits for, the first hundred of them.
    pub blocked_by: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// A failed attempt will be made again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retrying: bool,
    /// It failed for good and waits for somebody to resume or fail it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
}

impl TaskRow {
    /// Why it failed: what the last attempt said, or what ended it.
    pub fn why(&self) -> Option<&str> {
        self.last_error.as_ref().map(|last| &last.message).or(self.error.as_ref()).map(String::as_str)
    }
}

/// Tasks were added to a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TasksAdded {
    pub job_id: String,
    pub new_tasks: Vec<String>,
    pub previous_total_tasks: u32,
    pub total_tasks_now: u32,
    /// Those that could start at once.
    pub dispatched: Vec<String>,
}

/// Which failed tasks run again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeRequest {
    /// All failed tasks when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100_000))]
    pub task_ids: Option<Vec<String>>,
    /// Whether tasks that name a definition have its newest version from now on: those that are named, else all that did
    /// not complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newest: bool,
}

/// What a changed file did to a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TasksChanged {
    pub job_id: String,
    /// Task ids: they did not complete and have other work now.
    pub changed: Vec<String>,
    /// Task ids: the job did not have them.
    pub added: Vec<String>,
    /// Task ids: they differ in the file, and are completed, so they stay as they are.
    pub kept: Vec<String>,
}

/// How a failed task runs again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryRequest {
    /// Whether it has the newest version of its definition from now on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newest: bool,
}

/// Tasks run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resumed {
    pub job_id: String,
    /// Task ids.
    pub resumed: Vec<String>,
}

/// Why something is cancelled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRequest {
    /// Kept with the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2_000))]
    pub reason: Option<String>,
}

/// A job was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    pub job_id: String,
    /// Ids of the tasks that this ended.
    pub cancelled: Vec<String>,
}

/// A task without a job was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelledTask {
    pub request_id: String,
    /// False when it had ended before.
    pub cancelled: bool,
}

/// A task runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetriedTask {
    pub request_id: String,
    pub status: TaskStateName,
}

/// Which jobs are meant: at least one condition of status, name and time, or `all`. All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobsFilter {
    /// Every job that the call can change. It stands in place of conditions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatusName>,
    /// The job's name, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub name: Option<String>,
    /// Created at or after this moment, in epoch milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_after: Option<u64>,
    /// Created before this moment, in epoch milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<u64>,
    /// How many jobs at most, newest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000))]
    pub limit: Option<u32>,
    /// Kept with each job that is cancelled; a retry needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2_000))]
    pub reason: Option<String>,
}

/// Jobs whose failed tasks run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobsResumed {
    /// Newest first.
    pub job_ids: Vec<String>,
    /// Others fit too: the limit was reached, or the tenant had no room for more of them.
    pub more: bool,
}

/// Jobs that were cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobsCancelled {
    /// Newest first.
    pub job_ids: Vec<String>,
    /// The limit was reached: repeating the call may change more.
    pub more: bool,
}
