//! Executions of scripts: one for each event and subscription that met, and the dead letters of those that failed for
//! good.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidemill_model::{
    AppName, BadId, Entity, EntityId, EntityType, Event, EventId, EventType, IdProblem, Json, ScriptId,
    SubscriptionId, TenantId, Timestamp,
};

use crate::engine::digest;
use crate::kernel::record::DeadLetterState;

/// One execution, and the dead letter it may leave. A UUID with the moment of its event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionId(u128);

impl ExecutionId {
    /// The execution of a subscription's script for an event: the same whenever they are matched.
    pub fn of(event: EventId, subscription: &SubscriptionId) -> Self {
        let digest = digest::of(&[&event.as_u128().to_be_bytes(), subscription.as_str().as_bytes()]);
        let mut bits = [0; 16];
        bits.copy_from_slice(&digest[..16]);
        let moment = !0_u128 << 80;
        let id = event.as_u128() & moment | u128::from_be_bytes(bits) & !moment;
        // Version and variant of a UUID.
        let id = id & !(0xf << 76) | 0x7 << 76;
        Self(id & !(0b11 << 62) | 0b10 << 62)
    }

    pub fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    pub fn as_u128(self) -> u128 {
        self.0
    }

    pub fn new(text: impl AsRef<str>) -> Result<Self, BadId> {
        let bad = || BadId { field: "executionId", problem: IdProblem::Form { form: "a UUID" } };
        EventId::new(text).map(|id| Self(id.as_u128())).map_err(|_| bad())
    }

    /// What the sandbox makes ids and random numbers from.
    pub fn seed(self) -> EventId {
        EventId::from_u128(self.0)
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seed().fmt(f)
    }
}

impl fmt::Debug for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for ExecutionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ExecutionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(text.as_ref()).map_err(serde::de::Error::custom)
    }
}

/// Which execution, within its tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionKey {
    pub tenant: TenantId,
    pub id: ExecutionId,
}

/// The event that a script runs for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceEvent {
    pub id: EventId,
    pub event_type: EventType,
    pub timestamp: Timestamp,
    pub app_name: AppName,
    pub entity_type: EntityType,
    pub entity_id: EntityId,
    /// Its properties as they are stored; `None` when they are large: they are looked up when the script runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
    /// How many scripts stand between it and what came from outside.
    #[serde(default, skip_serializing_if = "tidemill_model::is_default")]
    pub hop: u32,
}

impl SourceEvent {
    /// An event as deliveries name it, without its properties.
    pub fn of(event: &Event) -> Self {
        Self {
            id: event.id,
            event_type: event.event_type.clone(),
            timestamp: event.timestamp,
            app_name: event.app.clone(),
            entity_type: event.entity.kind.clone(),
            entity_id: event.entity.id.clone(),
            data: None,
            hop: 0,
        }
    }

    pub fn entity(&self) -> Entity {
        Entity { kind: self.entity_type.clone(), id: self.entity_id.clone() }
    }

    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        let texts = self.event_type.as_str().len()
            + self.app_name.as_str().len()
            + self.entity_type.as_str().len()
            + self.entity_id.as_str().len();
        texts + self.data.as_ref().map_or(0, Json::len) + 64
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Where an execution stands. That one is being run is known to the process that runs it, and to nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionStatus {
    Queued,
    /// It failed and is tried again.
    Retrying,
    Success,
    /// It failed for good and left a dead letter.
    DeadLetter,
}

impl ExecutionStatus {
    pub const ALL: [Self; 4] = [Self::Queued, Self::Retrying, Self::Success, Self::DeadLetter];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Retrying => "retrying",
            Self::Success => "success",
            Self::DeadLetter => "dead_letter",
        }
    }

    /// Whether it is still to run.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Queued | Self::Retrying)
    }
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunError {
    /// `timeout`, `memory`, `output`, `script`, `internal`, `rate_limit`, `permission`, `validation` or `syntax`.
    pub class: Arc<str>,
    pub message: Arc<str>,
    /// One line per frame with the script's name, line and column; empty when unknown.
    pub stack: Arc<str>,
}

impl RunError {
    pub fn len(&self) -> usize {
        self.class.len() + self.message.len() + self.stack.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An execution as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptExecution {
    pub id: ExecutionId,
    pub script_id: ScriptId,
    pub subscription_id: SubscriptionId,
    pub event: SourceEvent,
    pub status: ExecutionStatus,
    /// How many runs have ended.
    pub attempts: u32,
    /// When it is to run, while it is pending.
    pub next_run_at: Timestamp,
    pub created_at: Timestamp,
    /// When its last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How long its last run took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Why its last run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// What the script returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// What its last run wrote: a list of `{"level", "text"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<Json>,
    /// The dead letter that it runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<ExecutionId>,
}

impl ScriptExecution {
    /// How often it was tried again.
    pub fn retry_count(&self) -> u32 {
        let is_last = !self.status.is_pending();
        self.attempts.saturating_sub(u32::from(is_last))
    }

    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        let json = |json: &Option<Json>| json.as_ref().map_or(0, Json::len);
        self.event.len()
            + self.script_id.as_str().len()
            + self.subscription_id.as_str().len()
            + self.error.as_ref().map_or(0, RunError::len)
            + json(&self.result)
            + json(&self.logs)
            + 96
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}

/// A script's failure for good. It is never removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptLetter {
    /// The execution that failed.
    pub id: ExecutionId,
    pub script_id: ScriptId,
    pub subscription_id: SubscriptionId,
    pub event: SourceEvent,
    pub error: RunError,
    /// How often it was tried again before it was given up.
    pub retry_count: u32,
    pub failed_at: Timestamp,
    /// When the execution began to wait.
    pub created_at: Timestamp,
    pub state: DeadLetterState,
    /// The execution that runs it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed_by: Option<ExecutionId>,
}

impl ScriptLetter {
    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        let names = self.script_id.as_str().len() + self.subscription_id.as_str().len();
        self.event.len() + self.error.len() + names + 96
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_has_one_id_and_no_other_has_it() {
        let event = |bits: u128| EventId::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 | bits);
        let sub = SubscriptionId::trusted;
        let id = ExecutionId::of(event(1), &sub("a"));
        assert_eq!(id, ExecutionId::of(event(1), &sub("a")));
        assert_ne!(id, ExecutionId::of(event(2), &sub("a")));
        assert_ne!(id, ExecutionId::of(event(1), &sub("b")));
        assert_eq!(id.as_u128() >> 80, event(1).as_u128() >> 80, "it has the moment of its event");
        assert_eq!(ExecutionId::new(id.to_string()), Ok(id));
        assert!(ExecutionId::new("no").is_err());
        assert_eq!((id.as_u128() >> 76 & 0xf, id.as_u128() >> 62 & 0b11), (7, 0b10));
    }
}
