//! One run of a script without any effect.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_model::{EventType, Grant};

use crate::RunErrorView;

/// A script and an event that did not happen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScriptTestRequest {
    /// What stacks call it.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// The body of a function that sees `ctx`; at most 256 KiB.
    pub source: String,
    /// The host functions that it may call.
    #[serde(default)]
    pub grants: Vec<Grant>,
    pub event_type: EventType,
    /// The event's properties.
    #[serde(default)]
    pub properties: serde_json::Map<String, Value>,
}

/// What a script did when it was tried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ScriptTest")]
pub struct ScriptTestView {
    /// What it returned; absent when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunErrorView>,
    /// What it wrote: a list of `{"level", "text"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<Value>,
    /// What it asked for and what was not done: a list of objects with `call`.
    pub calls: Vec<Value>,
    pub duration_ms: u64,
}
