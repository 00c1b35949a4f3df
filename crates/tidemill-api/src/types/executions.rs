//! Executions of scripts, and the alerts about them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_model::{EventId, EventType, Json, ScriptId, SubscriptionId, TenantId, Timestamp};

/// One script that ran, or is to run, for one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Execution")]
pub struct ExecutionView {
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    pub tenant_id: TenantId,
    pub script_id: ScriptId,
    pub subscription_id: SubscriptionId,
    pub event_id: EventId,
    pub event_type: EventType,
    /// When the event happened.
    pub event_timestamp: Timestamp,
    pub status: ExecutionStatusName,
    /// How many runs have ended.
    pub attempts: u32,
    /// How many of them were retries.
    pub retry_count: u32,
    /// How many scripts stand between the event and what came from outside.
    pub hop: u32,
    pub created_at: Timestamp,
    /// When it runs next, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_at: Option<Timestamp>,
    /// When its last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How long its last run took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Why its last run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunErrorView>,
    /// What the script returned. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// What its last run wrote: a list of `{"level", "text"}`. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<Json>,
    /// The dead letter that it runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<String>,
}

/// Where an execution stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ExecutionStatus")]
pub enum ExecutionStatusName {
    Queued,
    Processing,
    /// It failed and is tried again.
    Retrying,
    Success,
    /// It failed for good and left a dead letter.
    DeadLetter,
}

impl ExecutionStatusName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Retrying => "retrying",
            Self::Success => "success",
            Self::DeadLetter => "dead_letter",
        }
    }
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "RunError")]
pub struct RunErrorView {
    /// `timeout`, `memory`, `output`, `script`, `internal`, `rate_limit`, `permission`, `validation` or `syntax`.
    pub class: String,
    pub message: String,
    /// One line per frame with the script's name, line and column. Not in lists.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack: String,
}

/// Something that needs a look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Alert")]
pub struct AlertView {
    pub kind: AlertKindName,
    pub tenant_id: TenantId,
    pub raised_at: Timestamp,
    /// In words.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "AlertKind")]
pub enum AlertKindName {
    /// More than 10 % of the tenant's runs failed in 5 minutes.
    ScriptFailureRate,
    /// More than 90 % of the buffer's executions wait, most of them the tenant's.
    ScriptQueueDepth,
    /// Parked executions will be given up soon, because nobody came.
    ParkedExpiring,
    /// What the last health check reported about tasks and other work that stood still.
    TaskHealth,
    /// Jobs failed, and the alert has not been sent yet.
    JobFailed,
}
