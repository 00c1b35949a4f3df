//! What a check found.

use serde::{Deserialize, Serialize};
use tidemill_model::events::properties::{HealthSummary, TaskHealth};
use tidemill_model::{EventId, Timestamp};

use crate::health::alarm::Alarms;
use crate::kernel::backend::Fault;
use crate::kernel::record::{Record, RecordValue};

/// How many tasks are listed, the worst first.
pub const TASKS_MAX: usize = 500;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthReport {
    pub checked_at: Timestamp,
    /// The event that says so.
    pub event_id: EventId,
    pub summary: HealthSummary,
    /// The worst first, at most [`TASKS_MAX`].
    pub tasks: Vec<TaskHealth>,
    pub findings: Vec<Finding>,
}

impl HealthReport {
    /// Whether nobody has to look.
    pub fn is_healthy(&self) -> bool {
        self.summary.critical + self.summary.overtime == 0 && self.findings.is_empty()
    }
}

/// Something that has stood for too long, beside tasks that are processing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub kind: FindingKind,
    pub count: u64,
    /// In words.
    pub message: String,
    /// The first of them, or the oldest.
    pub examples: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Tasks that wait for their start.
    Pending,
    /// Executions that wait for somebody.
    Parked,
    /// Jobs that are open although nothing is left that could bring them further.
    StalledJobs,
    /// Deliveries that have not arrived.
    Outbound,
}

impl FindingKind {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Parked, Self::StalledJobs, Self::Outbound];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Parked => "parked",
            Self::StalledJobs => "stalled_jobs",
            Self::Outbound => "outbound",
        }
    }
}

/// What is kept of the last check of a tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) report: HealthReport,
    pub(crate) alarms: Alarms,
}

impl Kept {
    pub(crate) fn read(record: &Record) -> Result<Self, Fault> {
        let RecordValue::Bytes(bytes) = &record.value else {
            return Err(Fault::Damaged("what is kept of a check of health is something else".to_owned()));
        };
        let unreadable = |error| Fault::Damaged(format!("what is kept of a check of health: {error}"));
        serde_json::from_slice(bytes).map_err(unreadable)
    }
}
