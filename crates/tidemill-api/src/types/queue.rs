//! The raw queue, for users with their own workers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_model::Json;

use crate::object;

/// How full the queue is, over all tenants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Queue")]
pub struct QueueView {
    /// All messages, hidden ones included.
    pub messages: u64,
    /// Messages that could be delivered now.
    pub ready: u64,
    /// How long a receive hides a message when it does not say.
    pub visibility_ms: u64,
    /// How often a message is delivered before it becomes a dead letter.
    pub max_receive_count: u32,
}

/// A message by hand. For a task that is known it is another delivery; else a task begins with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "SendMessageRequest")]
pub struct SendRequest {
    #[serde(deserialize_with = "object::one")]
    pub body: SendBody,
    #[serde(default, deserialize_with = "object::maybe", skip_serializing_if = "Option::is_none")]
    pub attributes: Option<SendAttributes>,
    /// How long it stays hidden, up to 7 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 604_800_000))]
    pub delay_ms: Option<u64>,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "MessageBody")]
pub struct SendBody {
    /// The name of what a new task does.
    #[schemars(length(min = 1, max = 200))]
    pub name: String,
    /// The input of a new task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<std::collections::BTreeMap<String, serde_json::Value>>")]
    pub input: Option<Json>,
    /// The run it is meant for; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub run: Option<u32>,
}

/// The task that a message is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "MessageAttributes")]
pub struct SendAttributes {
    /// Any task of the tenant, or a new id; minted when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,256}$"))]
    pub request_id: Option<String>,
    /// Must be the tenant of the key, if it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// The application of a new task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub app_name: Option<String>,
}

/// A message is in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "MessageSent")]
pub struct Sent {
    pub message_id: String,
}

/// How many messages, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReceiveRequest {
    /// 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub max: Option<u32>,
    /// How long the messages are hidden, up to 12 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 43_200_000))]
    pub visibility_ms: Option<u64>,
    /// How long to wait for the first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 30_000))]
    pub wait_ms: Option<u64>,
}

/// Messages that were delivered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceivedMessages {
    pub messages: Vec<ReceivedMessage>,
}

/// One delivery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceivedMessage {
    pub message_id: String,
    /// Proof of this delivery; a later delivery makes it worthless.
    pub receipt: String,
    /// How often it was delivered, this time included.
    pub deliveries: u32,
    pub attributes: SendAttributes,
    /// The task's name, its input and the outputs of its dependencies.
    #[schemars(with = "serde_json::Value")]
    pub body: Json,
}

/// When a message may be delivered again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VisibilityRequest {
    /// From now on, up to 12 hours; 0 shows it at once.
    #[schemars(range(max = 43_200_000))]
    pub visible_in_ms: u64,
}
