//! Tasks on their own, and any task looked at closely.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_model::{ErrorCategory, Json, LastError, MicroUsd, Usage};

use crate::{RanView, TaskStateName};

/// A task was taken by this request, or by an earlier one with the same content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskAccepted {
    pub request_id: String,
    /// The state of every new task.
    pub status: TaskStateName,
}

/// A task in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSummary {
    pub request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    pub name: String,
    pub app: String,
    /// Null until it is dispatched.
    pub status: Option<TaskStateName>,
    pub run: u32,
    /// The attempt that runs or ran last; 0 before the first.
    pub attempt: u32,
    /// It failed for good and waits for somebody to resume or fail it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
    /// Of the last failed attempt of this run. What it said is in the task itself and in its job, as `lastError`: a list reads no
    /// events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_category: Option<ErrorCategory>,
}

/// A task, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Task")]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of its own in the answer")]
pub struct TaskView {
    pub request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    pub name: String,
    pub app: String,
    /// Null until it is dispatched.
    pub status: Option<TaskStateName>,
    /// Ended by a cancel, not by a failure of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// Ended because its time was over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    pub depends_on: Vec<String>,
    /// Its own input, without the outputs of its dependencies.
    #[schemars(with = "serde_json::Value")]
    pub input: Json,
    /// Counts from 1; every retry or resume opens the next one.
    pub run: u32,
    /// The attempt that runs or ran last; 0 before the first.
    pub attempt: u32,
    /// The newest right to run it; grows with every claim.
    pub fence: u64,
    /// The lease of the worker that runs it, while one does.
    pub lease: Option<LeaseView>,
    /// When the last attempt started, in epoch milliseconds.
    pub started_at: Option<u64>,
    /// When the run ended, in epoch milliseconds.
    pub finished_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub output: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
    /// A failed attempt will be made again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retrying: bool,
    /// It failed for good and waits for somebody to resume or fail it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
    /// The dependencies it waits for, the first hundred of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
    /// Of the last failed attempt of this run, or of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_category: Option<ErrorCategory>,
    /// What the last attempt of this run said; `error` may only say that no attempt was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastErrorView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryView>,
    /// The definition it was pinned to when it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<PinnedView>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What ran in the last attempt that began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<RanView>,
}

impl TaskView {
    /// Why it failed: what the last attempt said, or what ended it.
    pub fn why(&self) -> Option<&str> {
        self.last_error.as_ref().map(|last| &last.message).or(self.error.as_ref()).map(String::as_str)
    }

    /// The error of its end, if it is another one.
    pub fn other_error(&self) -> Option<&str> {
        self.error.as_deref().filter(|error| Some(*error) != self.why())
    }
}

/// Why a task failed, in the words of the worker that ran it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LastError")]
pub struct LastErrorView {
    /// It may have several lines, as a traceback has.
    pub message: String,
    pub category: ErrorCategory,
    /// For programs, where there is one, such as `BUDGET_EXCEEDED` or `AGENT_NO_OUTPUT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl From<LastError> for LastErrorView {
    fn from(error: LastError) -> Self {
        Self { message: error.message, category: error.category, code: error.code }
    }
}

/// A definition as it was at some version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PinnedDefinition")]
pub struct PinnedView {
    pub name: String,
    pub version: u64,
}

/// A worker's right to a task until a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Lease")]
pub struct LeaseView {
    pub worker_id: String,
    /// Epoch milliseconds.
    pub until: u64,
    /// Epoch milliseconds.
    pub claimed_at: u64,
    pub heartbeats: u32,
}

/// How failed attempts are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "RetryPolicy")]
pub struct RetryView {
    pub max_attempts: u32,
    pub first_delay_ms: u64,
    pub max_delay_ms: u64,
    /// Whether an attempt that took too long is repeated too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_timeout: bool,
}

/// What an agent used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Usage")]
pub struct UsageView {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    #[serde(skip_serializing_if = "tidemill_model::is_default")]
    pub cache_write_tokens: u64,
    #[serde(skip_serializing_if = "tidemill_model::is_default")]
    pub turns: u32,
    #[serde(skip_serializing_if = "tidemill_model::is_default")]
    pub cost_usd: MicroUsd,
}

impl From<Usage> for UsageView {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            turns: usage.turns,
            cost_usd: MicroUsd(usage.cost_micros),
        }
    }
}

impl From<UsageView> for Usage {
    fn from(usage: UsageView) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            turns: usage.turns,
            cost_micros: usage.cost_usd.0,
        }
    }
}

/// A file that a task left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Below the task's folder, such as `r1-a1/artifacts/report.txt`.
    pub path: String,
    pub size_bytes: u64,
}
