//! Checks of health.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_model::events::properties;
use tidemill_model::{EventId, Timestamp};

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "HealthCheck")]
pub struct HealthCheckView {
    pub checked_at: Timestamp,
    /// The event `Task Health Check` that says so.
    pub event_id: EventId,
    /// Whether nobody has to look: nothing is critical, nothing is out of time and nothing else was found.
    pub is_healthy: bool,
    pub summary: HealthSummaryView,
    /// Tasks that are processing, the worst first, at most 500.
    pub tasks: Vec<TaskHealthView>,
    /// What else has stood for too long.
    pub findings: Vec<FindingView>,
}

/// How many tasks are processing, and how they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "HealthSummary")]
pub struct HealthSummaryView {
    /// All others together. Parked tasks are not counted.
    pub total_processing: u32,
    pub healthy: u32,
    pub warning: u32,
    pub critical: u32,
    pub overtime: u32,
}

/// A task that is processing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TaskHealth")]
pub struct TaskHealthView {
    pub request_id: String,
    pub health: HealthName,
    /// For how long the attempt has been running, in milliseconds; 0 while the task waits for its next one.
    pub elapsed: u64,
    /// How long it has been silent, in milliseconds; while it waits for its next attempt, since that may begin.
    pub time_since_last_event: u64,
    pub last_event_type: String,
    /// The worker that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "TaskHealthState")]
pub enum HealthName {
    /// It was silent for four times the length of a lease.
    Critical,
    /// It has been running for too long.
    Overtime,
    /// It was silent for the length of a lease.
    Warning,
    Healthy,
}

impl HealthName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Overtime => "overtime",
            Self::Warning => "warning",
            Self::Healthy => "healthy",
        }
    }
}

/// Something that has stood for too long, beside tasks that are processing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "HealthFinding")]
pub struct FindingView {
    pub kind: FindingKindName,
    pub count: u64,
    /// In words.
    pub message: String,
    /// Ids of the first or oldest of them, at most 20.
    pub examples: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "HealthFindingKind")]
pub enum FindingKindName {
    /// Tasks that wait for their start.
    Pending,
    /// Executions that wait for somebody.
    Parked,
    /// Jobs that are open although nothing is left that could bring them further.
    StalledJobs,
    /// Deliveries that have not arrived.
    Outbound,
}

impl FindingKindName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Parked => "parked",
            Self::StalledJobs => "stalled_jobs",
            Self::Outbound => "outbound",
        }
    }
}

impl From<properties::HealthLevel> for HealthName {
    fn from(health: properties::HealthLevel) -> Self {
        match health {
            properties::HealthLevel::Critical => Self::Critical,
            properties::HealthLevel::Overtime => Self::Overtime,
            properties::HealthLevel::Warning => Self::Warning,
            properties::HealthLevel::Healthy => Self::Healthy,
        }
    }
}
