//! Events, in and out.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use tidemill_model::{Event, Json};

use crate::object;

/// One event, or a batch of them under `events`: all are stored or none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PublishRequest {
    /// Publishes all of them. Then no other field may be set.
    #[serde(default, deserialize_with = "object::maybe_events", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_000))]
    pub events: Option<Vec<EventDraft>>,
    /// What happened, such as `user.created`. Names of the engine's own events are reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub event_type: Option<String>,
    /// Capital letters and `_`; `APP` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Z][A-Z_]{0,31}$"))]
    pub entity_type: Option<String>,
    /// The name of the application when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub entity_id: Option<String>,
    /// An object of up to 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<std::collections::BTreeMap<String, serde_json::Value>>")]
    pub properties: Option<Json>,
    /// When it happened, in epoch milliseconds; now when absent, at most 5 minutes ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<u64>,
    /// When it may be dropped, in epoch seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
}

/// An event from outside. Its keys are made by the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventDraft {
    /// What happened, such as `user.created`. Names of the engine's own events are reserved.
    #[schemars(length(min = 1, max = 128))]
    pub event_type: String,
    /// Capital letters and `_`; `APP` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Z][A-Z_]{0,31}$"))]
    pub entity_type: Option<String>,
    /// The name of the application when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub entity_id: Option<String>,
    /// An object of up to 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<std::collections::BTreeMap<String, serde_json::Value>>")]
    pub properties: Option<Json>,
    /// When it happened, in epoch milliseconds; now when absent, at most 5 minutes ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<u64>,
    /// When it may be dropped, in epoch seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
}

/// Events are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventsAccepted {
    /// In the order they came.
    pub events: Vec<EventAccepted>,
    /// Of a single event, once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// Of a single event, once more: epoch milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<u64>,
}

/// An event is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventAccepted {
    pub event_id: String,
    /// Epoch milliseconds.
    pub timestamp: u64,
}

/// An event as it leaves the system: one object with all keys, as text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventJson(pub Json);

impl From<&Event> for EventJson {
    fn from(event: &Event) -> Self {
        Self(Json::trusted(&event.to_json()))
    }
}

impl JsonSchema for EventJson {
    fn schema_name() -> Cow<'static, str> {
        "Event".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        EventEnvelope::json_schema(generator)
    }
}

/// One fact, with the keys under which it can be found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventEnvelope {
    #[serde(rename = "PK")]
    pub pk: String,
    #[serde(rename = "SK")]
    pub sk: String,
    #[serde(rename = "GSI1PK")]
    pub gsi1pk: String,
    #[serde(rename = "GSI1SK")]
    pub gsi1sk: String,
    #[serde(rename = "GSI2PK")]
    pub gsi2pk: String,
    #[serde(rename = "GSI2SK")]
    pub gsi2sk: String,
    #[serde(rename = "GSI3PK")]
    pub gsi3pk: String,
    #[serde(rename = "GSI3SK")]
    pub gsi3sk: String,
    #[serde(rename = "GSI4PK")]
    pub gsi4pk: String,
    #[serde(rename = "GSI4SK")]
    pub gsi4sk: String,
    #[serde(rename = "GSI5PK")]
    pub gsi5pk: String,
    #[serde(rename = "GSI5SK")]
    pub gsi5sk: String,
    #[serde(rename = "GSI6PK")]
    pub gsi6pk: String,
    #[serde(rename = "GSI6SK")]
    pub gsi6sk: String,
    #[serde(rename = "GSI7PK")]
    pub gsi7pk: String,
    #[serde(rename = "GSI7SK")]
    pub gsi7sk: String,
    pub entity_id: String,
    pub entity_type: String,
    pub tenant_id: String,
    pub event_type: String,
    /// When it happened, in epoch milliseconds.
    pub timestamp: u64,
    /// Its author.
    pub context: std::collections::BTreeMap<String, String>,
    /// Its shape depends on the type. Large fields may be replaced by `_s3Overflow`, which says where they are.
    pub properties: std::collections::BTreeMap<String, serde_json::Value>,
    /// Epoch seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// When the store took it, in epoch milliseconds.
    pub received_at: u64,
}
