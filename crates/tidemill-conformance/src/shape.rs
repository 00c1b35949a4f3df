//! Short ways to write ids, tasks and events.

use std::sync::Arc;

use tidemill_model::{
    AppName, Entity, EntityId, EntityType, Event, EventType, Json, RequestId, TaskId, TaskName, TaskOptions,
    TaskSpec, TenantId, WorkerId,
};

use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::{JobRequest, NewEvent, TaskRequest};
use tidemill_engine::reply::Assignment;

pub(super) const SECOND: u64 = 1_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
/// How long a claim or a heartbeat holds a task.
pub(super) const LEASE: u64 = 45 * SECOND;

pub(super) fn tenant(text: &str) -> TenantId {
    TenantId::new(text).expect("a tenant")
}

pub(super) fn acme() -> TenantId {
    tenant("acme")
}

pub(super) fn other() -> TenantId {
    tenant("other")
}

pub(super) fn tenants(named: &[TenantId]) -> Arc<[TenantId]> {
    Arc::from(named.to_vec())
}

pub(super) fn app(text: &str) -> AppName {
    AppName::new(text).expect("an app")
}

pub(super) fn worker(text: &str) -> WorkerId {
    WorkerId::new(text).expect("a worker")
}

pub(super) fn request(text: &str) -> RequestId {
    RequestId::new(text).expect("a request id")
}

pub(super) fn task_id(text: &str) -> TaskId {
    TaskId::new(text).expect("a task id")
}

pub(super) fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).expect("JSON")
}

/// A JSON string of about this many bytes.
pub(super) fn long_text(bytes: usize) -> Json {
    Json::of(&"x".repeat(bytes))
}

/// A task of the tenant `acme`.
pub(super) fn key(text: &str) -> TaskKey {
    TaskKey { tenant: acme(), request: request(text) }
}

pub(super) fn spec(name: &str, parents: &[&str]) -> TaskSpec {
    TaskSpec {
        task_id: task_id(name),
        name: TaskName::new("work").expect("a name"),
        depends_on: parents.iter().map(|parent| task_id(parent)).collect(),
        input: Json::empty_object(),
        options: TaskOptions::default(),
    }
}

/// Tasks written as `a b c<a d<a+b`: each after what it waits for.
pub(super) fn graph(text: &str) -> Vec<TaskSpec> {
    let task = |word: &str| match word.split_once('<') {
        Some((name, parents)) => spec(name, &parents.split('+').collect::<Vec<_>>()),
        None => spec(word, &[]),
    };
    text.split_whitespace().map(task).collect()
}

pub(super) fn job_of(tasks: Vec<TaskSpec>) -> JobRequest {
    JobRequest {
        tenant: acme(),
        app: app("orders"),
        request: None,
        name: None,
        budget: None,
        callback: None,
        tasks,
        idempotency: None,
    }
}

pub(super) fn alone(id: &str) -> TaskRequest {
    TaskRequest {
        tenant: acme(),
        app: app("orders"),
        request: Some(request(id)),
        name: TaskName::new("work").expect("a name"),
        input: Json::empty_object(),
        options: TaskOptions::default(),
        idempotency: None,
    }
}

pub(super) fn entity(kind: &str, id: &str) -> Entity {
    let kind = EntityType::new(kind).expect("an entity type");
    Entity { kind, id: EntityId::new(id).expect("an entity id") }
}

pub(super) fn event(id: &str, event_type: &str, properties: &str) -> NewEvent {
    NewEvent {
        entity: entity("STORE", id),
        event_type: EventType::new(event_type).expect("an event type"),
        timestamp: None,
        properties: json(properties),
        ttl: None,
    }
}

/// The tasks' names within their jobs.
pub(super) fn names(tasks: &[Assignment]) -> Vec<&str> {
    tasks.iter().map(|task| task.spec.task_id.as_str()).collect()
}

pub(super) fn types(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.event_type.as_str()).collect()
}

/// A property of an event; null when it is not there.
pub(super) fn property(event: &Event, name: &str) -> serde_json::Value {
    let mut properties: serde_json::Value = event.properties.read().expect("properties are JSON");
    properties.get_mut(name).map_or(serde_json::Value::Null, serde_json::Value::take)
}
