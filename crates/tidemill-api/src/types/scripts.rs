//! Scripts and subscriptions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_model::{EventId, EventType, Grant, Script, ScriptId, SubscriptionId, Timestamp};

/// A script in a list: without its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScriptSummary {
    pub id: ScriptId,
    pub name: String,
    pub source_bytes: u64,
    pub grants: Vec<Grant>,
    pub version: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<Script> for ScriptSummary {
    fn from(script: Script) -> Self {
        Self {
            id: script.id,
            name: script.name,
            source_bytes: script.source.len() as u64,
            grants: script.grants,
            version: script.version,
            created_at: script.created_at,
            updated_at: script.updated_at,
        }
    }
}

/// An event to be explained: `eventId` of one that happened, or `event` for one that did not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExplainRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::object::maybe")]
    pub event: Option<ExplainEvent>,
    /// Only the subscriptions of this script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_id: Option<ScriptId>,
}

/// An event that did not happen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExplainEvent {
    pub event_type: EventType,
    /// Its properties.
    #[serde(default)]
    pub properties: serde_json::Map<String, Value>,
}

/// What becomes of an event with each subscription of its type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Explanation")]
pub struct ExplanationView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    pub event_type: EventType,
    /// By id, at most 1,000.
    pub subscriptions: Vec<ExplainedView>,
    /// How many subscriptions are of other event types.
    pub other_types: u64,
    /// Whether there are more of this type.
    pub truncated: bool,
}

/// What becomes of an event with one subscription.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ExplainedSubscription")]
pub struct ExplainedView {
    pub subscription_id: SubscriptionId,
    pub script_id: ScriptId,
    pub verdict: VerdictName,
    /// What was queued for it; absent for an event that never happened, or when it is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// Every condition of the rules, in their order.
    pub conditions: Vec<ConditionView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Verdict")]
pub enum VerdictName {
    Matched,
    /// A condition failed.
    Filtered,
    Disabled,
    /// The subscription was made or enabled after the event.
    Before,
    /// The stored rules cannot be read, so they match nothing.
    BadRules,
}

/// How one condition fared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ConditionResult")]
pub struct ConditionView {
    /// Where it stands in the rules as they are written out, such as `conditions[0]`.
    pub place: String,
    pub field: String,
    pub op: String,
    pub value: Value,
    /// What the event has there; absent when it has nothing, or something longer than 1 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<Value>,
    pub passed: bool,
}
