//! Bulks: one wish about many parked executions. The server carries it out, page by page, also after a restart.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_model::workflow::{ErrorCode, ErrorType, WorkflowRunId};
use tidemill_model::{BadId, EventId, IdProblem, Json, Timestamp};

use crate::triage::Parked;

/// One bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BulkId(EventId);

impl BulkId {
    pub fn mint(id: EventId) -> Self {
        Self(id)
    }

    pub fn new(text: impl AsRef<str>) -> Result<Self, BadId> {
        let bad = |_| BadId { field: "bulkId", problem: IdProblem::Form { form: "a UUID" } };
        EventId::new(text).map(Self).map_err(bad)
    }

    pub fn as_event_id(self) -> EventId {
        self.0
    }
}

impl fmt::Display for BulkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is done with a parked execution, alone or in a bulk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BulkAction {
    Resume {
        output: Json,
        /// A task that runs here is run again instead of taking the output for its own.
        rerun: bool,
    },
    Fail {
        error: Arc<str>,
        cause: Arc<str>,
    },
}

/// Which parked executions. Several conditions must all hold; without any, all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BulkFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<ErrorType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub county: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Arc<str>>,
    /// Only these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executions: Option<Vec<WorkflowRunId>>,
    /// Only those without an open error.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
}

impl BulkFilter {
    /// Whether a parked execution fits, as far as its own record tells.
    pub fn wants(&self, parked: &Parked) -> bool {
        let is = |wanted: &Option<Arc<str>>, found: &Arc<str>| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        self.code.as_ref().is_none_or(|code| parked.codes.contains(code))
            && self
                .error_type
                .is_none_or(|wanted| parked.codes.iter().any(|code| code.error_type() == wanted))
            && is(&self.county, &parked.cell.county)
            && is(&self.phase, &parked.cell.phase)
            && is(&self.step, &parked.cell.step)
            && self.executions.as_ref().is_none_or(|ids| ids.contains(&parked.execution))
    }

    fn len(&self) -> usize {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        let ids = self.executions.iter().flatten().map(|id| id.as_str().len() + 2).sum::<usize>();
        self.code.as_ref().map_or(0, |code| code.as_str().len())
            + text(&self.county)
            + text(&self.phase)
            + text(&self.step)
            + ids
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkState {
    Running,
    Done,
    Cancelled,
}

impl BulkState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A bulk as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bulk {
    pub id: BulkId,
    pub action: BulkAction,
    pub filter: BulkFilter,
    /// Only executions that were parked before this moment.
    pub cutoff: Timestamp,
    /// How many a second; `None`: as many as it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<u32>,
    /// How many fitted when it began. Those with an open error do not count where only others are wanted, as far as it is
    /// known; of a bulk that is done it is.
    pub total: u64,
    pub done: u64,
    /// Those that could not be unparked.
    pub failed: u64,
    /// Those that had an open error.
    pub skipped: u64,
    pub state: BulkState,
    /// The last one that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<(Timestamp, WorkflowRunId)>,
    pub created_at: Timestamp,
    /// When its last page was.
    pub stepped_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
}

impl Bulk {
    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        let action = match &self.action {
            BulkAction::Resume { output, .. } => output.len(),
            BulkAction::Fail { error, cause } => error.len() + cause.len(),
        };
        let after = self.after.as_ref().map_or(0, |(_, id)| id.as_str().len());
        action + self.filter.len() + after + text(&self.by) + text(&self.reason) + 200
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}

impl BulkAction {
    /// About how many bytes carrying it out for one execution puts into the log at most.
    pub(crate) fn log_bytes(&self) -> u64 {
        match self {
            Self::Resume { output, .. } => 3 * output.len() as u64,
            Self::Fail { error, cause } => 3 * (error.len() + cause.len()) as u64,
        }
    }
}
