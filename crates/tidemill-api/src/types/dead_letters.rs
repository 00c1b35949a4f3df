//! Dead letters: of tasks, of scripts and of deliveries to others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_model::{
    EntityId, EntityType, EventId, EventType, ScriptId, SubscriptionId, TenantId, Timestamp,
};

use crate::LastErrorView;

/// Work that was given up, by its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[schemars(rename = "DeadLetter")]
pub enum DeadLetterView {
    Task(TaskLetterView),
    Script(Box<ScriptLetterView>),
    Event(Box<DeliveryLetterView>),
}

/// A message that is not delivered again unless somebody replays it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TaskDeadLetter")]
pub struct TaskLetterView {
    pub id: String,
    pub request_id: String,
    pub run: u32,
    /// Why it is here; `lastError` says why its task failed.
    pub reason: String,
    /// What the last attempt of the task said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastErrorView>,
    /// Epoch milliseconds.
    pub since: u64,
    pub state: LetterState,
}

impl TaskLetterView {
    /// Why its task failed, as far as it is known.
    pub fn why(&self) -> &str {
        self.last_error.as_ref().map_or(&self.reason, |error| &error.message)
    }
}

/// A script's failure for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ScriptDeadLetter")]
pub struct ScriptLetterView {
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    pub tenant_id: TenantId,
    pub script_id: ScriptId,
    pub event_type: EventType,
    /// The event's properties; null in lists when they are larger than 16 KiB, and when the event has expired.
    pub event_data: Option<Value>,
    pub error_message: String,
    /// One line per frame with the script's name, line and column.
    pub stack_trace: String,
    pub retry_count: u32,
    pub failed_at: Timestamp,
    pub created_at: Timestamp,
    /// The execution that failed.
    pub execution_id: String,
    pub subscription_id: SubscriptionId,
    pub event_id: EventId,
    pub error_class: String,
    pub state: LetterState,
    /// The execution that runs it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed_by: Option<String>,
}

/// A delivery that never arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "EventDeadLetter")]
pub struct DeliveryLetterView {
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    pub tenant_id: TenantId,
    /// `workflow-webhook` or `callback`.
    pub target: String,
    /// Of a callback: the address that came with the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    pub event_id: EventId,
    pub event_type: EventType,
    pub entity_type: EntityType,
    pub entity_id: EntityId,
    /// The body of the delivery.
    pub body: Option<Value>,
    /// Why the last try failed.
    pub error_message: String,
    pub attempts: u32,
    pub failed_at: Timestamp,
    pub created_at: Timestamp,
    pub state: LetterState,
    /// The delivery that does it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed_by: Option<String>,
}

/// What became of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "DeadLetterState")]
pub enum LetterState {
    Open,
    Replayed,
    Discarded,
}

/// A dead letter's work is done again: `requestId` of a task, `executionId` of a script, `deliveryId` of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
}

/// Which open dead letters of a kind: at least one condition, or `all`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LettersFilter {
    pub kind: LetterKind,
    /// Every open one of the kind. It stands in place of conditions; the kind `task` has none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Only of this script. Only for the kind `script`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_id: Option<ScriptId>,
    /// Only of events of this type. Not for the kind `task`, like both below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<EventType>,
    /// Failed at this moment or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Failed at this moment or before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// Only tell which ones it would be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "DeadLetterKind")]
pub enum LetterKind {
    Task,
    Script,
    /// Of deliveries to others.
    Event,
}

/// What one call did with many dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ManyDeadLetters")]
pub struct ManyLettersView {
    /// At most 1,000.
    pub ids: Vec<String>,
    /// Whether others fit too: the same call goes on with them.
    pub more: bool,
}
