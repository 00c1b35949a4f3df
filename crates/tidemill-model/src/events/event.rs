//! The event: the one record everything else is derived from.
//!
//! An event never changes once it is written. Its keys are functions of its fields (see `key`) and are rendered when
//! it leaves the system.

use std::sync::Arc;

use serde::Deserialize;

use crate::values::id::{
    AppName, EntityId, EntityType, EventId, EventType, JobId, RequestId, TenantId, WorkerId,
};
use crate::values::json::Json;
use crate::values::time::Timestamp;

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: EventId,
    pub tenant: TenantId,
    pub app: AppName,
    pub entity: Entity,
    pub event_type: EventType,
    /// When it happened, as the writer stamped it. With `id` a total order.
    pub timestamp: Timestamp,
    /// When the store took it. Retention counts from here.
    pub received_at: Timestamp,
    pub context: Context,
    /// A JSON object; its shape depends on `event_type`.
    pub properties: Json,
    /// When it may be dropped, in epoch seconds, if it has a limit of its own.
    pub ttl: Option<u64>,
    /// What its sender wrote that the other fields cannot say. Events of the engine have nothing beside.
    pub beside: Option<Box<Beside>>,
}

/// What the sender of an event wrote beside its fields: it comes back as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Beside {
    /// The whole context, if [`Context`] cannot say it; `null` if there was none.
    pub context: Option<Json>,
    /// An object of fields that no event of the engine has.
    pub fields: Option<Json>,
}

impl Event {
    /// Whether its own time to live is over: readers no longer see it, and it may be dropped.
    pub fn is_outlived(&self, now: Timestamp) -> bool {
        self.ttl.is_some_and(|seconds| seconds.saturating_mul(1_000) <= now.millis())
    }

    /// The place of this event in every access path.
    pub fn position(&self) -> Position {
        Position { timestamp: self.timestamp, id: self.id }
    }
}

/// The order of events: by time, then by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub timestamp: Timestamp,
    pub id: EventId,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entity {
    pub kind: EntityType,
    pub id: EntityId,
}

impl Entity {
    pub fn task(request: &RequestId) -> Self {
        Self { kind: EntityType::trusted("TASK"), id: request.entity_id() }
    }

    pub fn job(job: JobId) -> Self {
        Self { kind: EntityType::trusted("JOB"), id: EntityId::trusted(&job.to_string()) }
    }

    pub fn system(name: &str) -> Self {
        Self { kind: EntityType::trusted("SYSTEM"), id: EntityId::trusted(name) }
    }
}

/// The author of an event. Its JSON form has a `source` too, which is always `system`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Context {
    /// The stage, such as `prod` or `dev`.
    pub environment: Arc<str>,
    /// The component: `producer-api`, `dispatcher`, `sqs-worker` and so on.
    pub origin: Arc<str>,
    /// Only for events that a worker reports.
    pub worker_id: Option<WorkerId>,
}

impl Context {
    /// That of an event whose sender did not say who it is.
    pub(crate) fn of_nobody() -> Self {
        Self { environment: Arc::from("-"), origin: Arc::from("-"), worker_id: None }
    }
}

/// The JSON form of a context.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ContextJson<'a> {
    #[serde(borrow)]
    pub(crate) source: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) environment: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) origin: std::borrow::Cow<'a, str>,
    #[serde(default)]
    pub(crate) worker_id: Option<WorkerId>,
}
