//! Executions that had workflow events, or whose task failed here.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_model::workflow::{ErrorCode, WorkflowRunId, WorkflowStatus};
use tidemill_model::{EventId, Json, RequestId, Timestamp};

use crate::triage::Cell;

/// How many distinct codes of an execution are listed.
pub const CODES_MAX: usize = 1_000;
/// How many of an execution's events are known by their ids. Older ones have records of their own for a time.
pub const SEEN_MAX: usize = 32;

/// What became of an execution's newest token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// It never had one.
    None,
    Unused,
    Used,
    Expired,
    /// The execution went on, or another token took its place.
    Replaced,
}

impl TokenState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Unused => "unused",
            Self::Used => "used",
            Self::Expired => "expired",
            Self::Replaced => "replaced",
        }
    }
}

/// How the wait of a parked execution ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Unparked {
    Resumed {
        output: Json,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Arc<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<str>>,
    },
    Failed {
        error: Arc<str>,
        cause: Arc<str>,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Arc<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<str>>,
    },
    /// Nobody came.
    Expired { at: Timestamp },
    /// It went on by itself.
    WentOn { at: Timestamp },
}

impl Unparked {
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Resumed { at, .. }
            | Self::Failed { at, .. }
            | Self::Expired { at }
            | Self::WentOn { at } => *at,
        }
    }

    pub(super) fn len(&self) -> usize {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        match self {
            Self::Resumed { output, by, reason, .. } => output.len() + text(by) + text(reason),
            Self::Failed { error, cause, by, reason, .. } => {
                error.len() + cause.len() + text(by) + text(reason)
            }
            Self::Expired { .. } | Self::WentOn { .. } => 0,
        }
    }
}

/// A workflow event that was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// The beginning of the digest by which a repetition is known.
    pub once: u64,
    pub event: EventId,
}

/// An execution as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriageExecution {
    pub id: WorkflowRunId,
    /// Where it was last seen.
    pub cell: Cell,
    pub status: WorkflowStatus,
    /// When the event happened that tells the status.
    pub status_at: Timestamp,
    /// Whether that is known to the second only.
    pub whole_second: bool,
    pub last_event_at: Timestamp,
    pub first_event_at: Timestamp,
    pub parked: bool,
    /// Its distinct codes, the first [`CODES_MAX`] of them.
    pub codes: Vec<ErrorCode>,
    pub token: TokenState,
    /// The digest by which its newest token is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_digest: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Unparked>,
    /// The task that it is, if it runs here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<RequestId>,
    /// Its newest workflow events, so that none counts twice.
    pub seen: Vec<Seen>,
    /// Whether older ones have records of their own.
    pub has_spilled: bool,
}

impl TriageExecution {
    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        let codes: usize = self.codes.iter().map(|code| code.as_str().len() + 2).sum();
        self.id.as_str().len()
            + self.cell.len()
            + codes
            + self.outcome.as_ref().map_or(0, Unparked::len)
            + self.task.as_ref().map_or(0, |task| task.as_str().len())
            + self.seen.len() * 28
            + 160
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}
