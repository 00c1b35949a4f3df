//! Errors of workflows and tasks: by code, and by execution and code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_model::workflow::{ErrorCode, ErrorType, NO_COUNTY, OTHER_PLACES, WorkflowRunId};
use tidemill_model::{EventId, Json, Timestamp};

use crate::Page;

/// All errors of a code. Counts are those of the places that fit the query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ErrorGroup")]
pub struct ErrorGroupView {
    pub code: ErrorCode,
    /// Its first two digits.
    #[serde(rename = "type")]
    pub error_type: ErrorType,
    pub kind: ErrorKindName,
    /// What an error of a task says that has no code of its own, without what differs from one occurrence to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// From the catalogue, like the next two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(flatten)]
    pub counts: ErrorCountsView,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    /// The last time that all of them were resolved or reopened at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<MarkView>,
    /// Set while the code counts as one that cannot be mended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecoverable_since: Option<MarkView>,
    /// Set while the code is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored_since: Option<MarkView>,
}

/// How often, and in how many executions, by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ErrorCounts")]
pub struct ErrorCountsView {
    pub occurrences: u64,
    /// All executions that had it: the sum of the four below.
    pub executions: u64,
    pub open: u64,
    pub resolved: u64,
    pub unrecoverable: u64,
    pub ignored: u64,
}

/// A mark on a whole code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ErrorMark")]
pub struct MarkView {
    pub since: Timestamp,
    /// What the errors were set to.
    pub state: ErrorStateName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Ignored until this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Ignored until it occurred this often in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_occurrences: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ErrorState")]
pub enum ErrorStateName {
    Open,
    /// It was mended. It opens again when it comes again.
    Resolved,
    /// It cannot be mended, and stays so whatever comes.
    Unrecoverable,
    Ignored,
}

impl ErrorStateName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Resolved => "resolved",
            Self::Unrecoverable => "unrecoverable",
            Self::Ignored => "ignored",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ErrorKind")]
pub enum ErrorKindName {
    /// Of workflows elsewhere, under codes of their own.
    Workflow,
    /// Of tasks that run here.
    Task,
}

impl ErrorKindName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Task => "task",
        }
    }
}

/// A code with all that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ErrorGroupDetail")]
pub struct ErrorGroupDetailView {
    pub group: ErrorGroupView,
    /// Occurrences in each of the last 48 hours that had any, oldest first.
    pub trend: Vec<HourView>,
    /// Where it was seen.
    pub places: Vec<PlaceView>,
    /// The newest occurrences, newest first.
    pub samples: Vec<OccurrenceView>,
    /// The executions that have it.
    pub errors: Page<ErrorView>,
}

/// What was counted in an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ErrorHour")]
pub struct HourView {
    /// When it began.
    pub at: Timestamp,
    pub occurrences: u64,
}

/// A place in which a code was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ErrorPlace")]
pub struct PlaceView {
    pub county: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_group_label: Option<String>,
    pub phase: String,
    pub step: String,
    #[serde(flatten)]
    pub counts: ErrorCountsView,
}

impl PlaceView {
    /// The county, if somebody named one.
    pub fn named_county(&self) -> Option<&str> {
        named_county(&self.county)
    }
}

/// A county, unless it stands for none or for those of all further places.
pub(crate) fn named_county(county: &str) -> Option<&str> {
    Some(county).filter(|county| ![NO_COUNTY, OTHER_PLACES].contains(county))
}

/// One time that an error occurred.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ErrorOccurrence")]
pub struct OccurrenceView {
    pub execution_id: WorkflowRunId,
    pub event_id: EventId,
    /// Which of the event's errors, from 0.
    pub index: u32,
    pub at: Timestamp,
    /// What the event says of it; null when the event has expired.
    pub details: Option<Json>,
}

/// A code in one execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ExecutionError")]
pub struct ErrorView {
    pub execution_id: WorkflowRunId,
    pub code: ErrorCode,
    #[serde(rename = "type")]
    pub error_type: ErrorType,
    pub state: ErrorStateName,
    pub count: u64,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    /// Whether the step that had it has succeeded since. That alone does not resolve it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// The author of the last change of its state, if it was set by itself and not with its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The newest ones with their details, at most 20. Only where one execution and one code are asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub occurrences: Vec<OccurrenceView>,
}
