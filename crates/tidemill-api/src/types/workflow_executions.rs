//! Executions of workflows, those that are parked among them, and what is done with many of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_model::workflow::{ErrorCode, ErrorType, WorkflowRunId, WorkflowStatus};
use tidemill_model::{Json, Timestamp};

use super::workflow_errors::named_county;
use crate::{ErrorView, OutcomeView, object};

/// One execution of a workflow, or one of our tasks that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WorkflowExecution")]
pub struct WorkflowExecutionView {
    pub execution_id: WorkflowRunId,
    pub county: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_group_label: Option<String>,
    pub phase: String,
    pub step: String,
    /// Whether its phase or step is none of those that are known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown_place: bool,
    pub status: WorkflowStatus,
    /// Whether it waits for somebody to decide.
    pub parked: bool,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked_at: Option<Timestamp>,
    /// When its wait is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Its codes; of a parked execution, those that it was parked with.
    pub codes: Vec<ErrorCode>,
    pub token: TokenStateName,
    /// The task that it is, if it runs here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// When its status was reached. Not in lists of parked executions, like the next three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_event_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_event_at: Option<Timestamp>,
    /// How its last wait ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeView>,
    /// Not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorView>,
}

impl WorkflowExecutionView {
    /// The county, if somebody named one.
    pub fn named_county(&self) -> Option<&str> {
        named_county(&self.county)
    }
}

/// What became of the newest token. The token itself is shown to nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TokenState")]
pub enum TokenStateName {
    None,
    Unused,
    Used,
    Expired,
    Replaced,
}

/// Lets a parked execution go on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeExecutionRequest {
    /// What it goes on with; `{"resolved": true}` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ResumeMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_000))]
    pub reason: Option<String>,
}

/// How a task that runs here goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResumeMode {
    /// The output is taken for the task's own.
    #[default]
    Output,
    /// The task is run again.
    Rerun,
}

/// Ends a parked execution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailExecutionRequest {
    /// `ResolutionFailed` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub error: Option<String>,
    /// `Unable to resolve errors` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32_768))]
    pub cause: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_000))]
    pub reason: Option<String>,
}

/// Does the same with many parked executions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BulkRequest {
    pub action: BulkActionName,
    /// Which. Without a condition it must say `all`.
    #[serde(deserialize_with = "object::one")]
    pub filter: BulkFilterView,
    /// For `resume`, like `mode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ResumeMode>,
    /// For `fail`, like `cause`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32_768))]
    pub cause: Option<String>,
    /// How many a second; as many as it can when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub rate_per_second: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_000))]
    pub reason: Option<String>,
    /// Only says what it would touch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "BulkAction")]
pub enum BulkActionName {
    Resume,
    Fail,
}

impl BulkActionName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Fail => "fail",
        }
    }
}

/// Which parked executions. All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "BulkFilter")]
pub struct BulkFilterView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub error_type: Option<ErrorType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub county: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Only these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<WorkflowRunId>>", length(max = 1_000))]
    pub execution_ids: Option<Vec<String>>,
    /// Only those without an open error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
    /// All of the tenant's, if nothing else is said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

/// What a bulk would touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BulkPreview")]
pub struct BulkPreviewView {
    pub total: u64,
    /// By the codes that they are parked with; one with several counts under each.
    pub by_code: Vec<CodeCount>,
    /// Since when the first of them waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    /// The first ones.
    pub first: Vec<WorkflowExecutionView>,
    /// Those that were named and are not touched: they are not parked, or do not fit the other conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<WorkflowRunId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CodeCount {
    pub code: ErrorCode,
    pub executions: u64,
}

/// One wish about many parked executions. The server carries it out, also after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Bulk")]
pub struct BulkView {
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    pub action: BulkActionName,
    pub filter: BulkFilterView,
    pub state: BulkStateName,
    /// How many fitted when it began; with `settled`, those without an open error.
    pub total: u64,
    pub done: u64,
    /// Those that could not be unparked.
    pub failed: u64,
    /// Those that had an open error, where only settled ones were wanted.
    pub skipped: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<u32>,
    /// Only executions that were parked before this moment.
    pub cutoff: Timestamp,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "BulkState")]
pub enum BulkStateName {
    Running,
    Done,
    Cancelled,
}

impl BulkStateName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }
}
