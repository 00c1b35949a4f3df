//! Executions of scripts, and the alerts about them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_engine::engine::{ShownExecution, ShownStatus};
use tidemill_engine::execution::RunError;
use tidemill_engine::scripts::{AlertKind, StandingAlert};
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
    /// What the last check of health told of tasks and of what else stood for too long.
    TaskHealth,
    /// Jobs failed, and people have not been told yet.
    JobFailed,
}

impl ExecutionView {
    pub(crate) fn of(tenant: &TenantId, shown: ShownExecution) -> Self {
        let ShownExecution { status, execution } = shown;
        let is_pending = execution.status.is_pending();
        Self {
            id: execution.id.to_string(),
            tenant_id: tenant.clone(),
            retry_count: execution.retry_count(),
            script_id: execution.script_id,
            subscription_id: execution.subscription_id,
            event_id: execution.event.id,
            event_type: execution.event.event_type,
            event_timestamp: execution.event.timestamp,
            status: status.into(),
            attempts: execution.attempts,
            hop: execution.event.hop,
            created_at: execution.created_at,
            next_run_at: Some(execution.next_run_at).filter(|_| is_pending),
            ended_at: execution.ended_at,
            duration_ms: execution.duration_ms,
            error: execution.error.as_ref().map(RunErrorView::from),
            result: execution.result,
            logs: execution.logs,
            replay_of: execution.replay_of.map(|id| id.to_string()),
        }
    }

    /// The same without what may be long.
    pub(crate) fn listed(tenant: &TenantId, shown: ShownExecution) -> Self {
        let mut view = Self { result: None, logs: None, ..Self::of(tenant, shown) };
        if let Some(error) = &mut view.error {
            error.stack.clear();
        }
        view
    }
}

impl From<ShownStatus> for ExecutionStatusName {
    fn from(status: ShownStatus) -> Self {
        match status {
            ShownStatus::Queued => Self::Queued,
            ShownStatus::Processing => Self::Processing,
            ShownStatus::Retrying => Self::Retrying,
            ShownStatus::Success => Self::Success,
            ShownStatus::DeadLetter => Self::DeadLetter,
        }
    }
}

impl From<&RunError> for RunErrorView {
    fn from(error: &RunError) -> Self {
        Self {
            class: error.class.to_string(),
            message: error.message.to_string(),
            stack: error.stack.to_string(),
        }
    }
}

impl From<StandingAlert> for AlertView {
    fn from(alert: StandingAlert) -> Self {
        Self {
            kind: match alert.kind {
                AlertKind::ScriptFailureRate => AlertKindName::ScriptFailureRate,
                AlertKind::ScriptQueueDepth => AlertKindName::ScriptQueueDepth,
                AlertKind::ParkedExpiring => AlertKindName::ParkedExpiring,
                AlertKind::TaskHealth => AlertKindName::TaskHealth,
                AlertKind::JobFailed => AlertKindName::JobFailed,
            },
            tenant_id: alert.tenant_id,
            raised_at: alert.raised_at,
            message: alert.message,
        }
    }
}
