//! Workflow events, marks on errors, and tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidemill_model::workflow::{ErrorCode, WorkflowRunId};
use tidemill_model::{EventId, Json, Timestamp};

/// A workflow event as buses carry it. It is read more closely than this can say: each mistake is reported with its field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowEnvelope {
    /// Where it comes from: one of the installation's `WORKFLOW_SOURCES`, or the source of one of its families.
    pub source: String,
    /// What it says: where an execution stands, that errors are resolved, or that they cannot be. The names are those of its
    /// family; an unknown one is answered with those that are known.
    #[serde(rename = "detail-type")]
    pub detail_type: String,
    /// The sender's own id: what comes again under it counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When it happened, as RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// `executionId`, `county`, `dataGroupLabel`, `status`, `phase`, `step`, `taskToken` and `errors` of a status;
    /// `executionId`, `errorCode` or both otherwise.
    pub detail: Map<String, Value>,
}

/// The workflow events are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowEventsAccepted {
    /// In the order of the request.
    pub events: Vec<WorkflowEventAccepted>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowEventAccepted {
    pub event_id: EventId,
    pub timestamp: Timestamp,
    /// Whether it had come before. Then nothing was counted.
    pub repeated: bool,
    /// What became of its task token. Absent if it brought none to wait with, or had come before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenTakenName>,
}

/// What became of a task token that came with an event. With all but the first nobody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TokenTaken")]
pub enum TokenTakenName {
    /// The execution is parked with it.
    Parked,
    /// The wait with it has ended before.
    Used,
    /// The wait with it was given up before.
    Expired,
    /// A newer token took its place before.
    Replaced,
    /// Another execution came with it first.
    Foreign,
    /// A later status is known, or the execution is a task that runs here.
    Late,
}

impl TokenTakenName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Used => "used",
            Self::Expired => "expired",
            Self::Replaced => "replaced",
            Self::Foreign => "foreign",
            Self::Late => "late",
        }
    }
}

/// Which errors: all of an execution, a code in all executions, or a code in one. One of both must be there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ErrorMarkRequest")]
pub struct MarkRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<WorkflowRunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ErrorCode>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_000))]
    pub reason: Option<String>,
}

/// Which code, and how long: until a time, until it occurred this often, or until somebody says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "IgnoreErrorRequest")]
pub struct IgnoreRequest {
    pub error_code: ErrorCode,
    /// Until this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Until it occurred this many more times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub occurrences: Option<u64>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_000))]
    pub reason: Option<String>,
}

/// Errors were marked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ErrorsMarked")]
pub struct MarkedView {
    /// The event that tells it.
    pub event_id: EventId,
    /// How many errors are in another state now.
    pub changed: u64,
}

/// Asks what became of a token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenRequest {
    /// The task token. It is a secret and shows up nowhere.
    #[schemars(length(min = 1, max = 2_048))]
    pub token: String,
    /// How long to wait until its execution goes on; at most 60,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 60_000))]
    pub wait_ms: Option<u64>,
}

impl std::fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenRequest").field("wait_ms", &self.wait_ms).finish_non_exhaustive()
    }
}

/// What became of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TokenOutcome")]
pub struct TokenOutcomeView {
    pub state: TokenOutcomeName,
    /// How the wait ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TokenOutcomeState")]
pub enum TokenOutcomeName {
    /// The execution still waits.
    Waiting,
    /// It waits no more.
    Ended,
    /// A newer token took its place.
    Replaced,
}

/// How the wait of a parked execution ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ParkedOutcome")]
pub struct OutcomeView {
    pub kind: OutcomeName,
    pub at: Timestamp,
    /// What it was resumed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// What it was failed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The author of the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ParkedOutcomeKind")]
pub enum OutcomeName {
    Resumed,
    Failed,
    /// Nobody came in time.
    Expired,
    /// It went on by itself.
    WentOn,
}

impl OutcomeName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resumed => "resumed",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::WentOn => "went_on",
        }
    }
}
