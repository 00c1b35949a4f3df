//! Events for tests: a typical one, and strategies for random ones.

use std::sync::Arc;

use proptest::prelude::*;

use crate::events::access_path::AccessPath;
use crate::events::event::{Beside, Context, Entity, Event};
use crate::values::id::{
    AppName, EntityId, EntityType, EventId, EventType, TaskId, TaskName, TenantId, WorkerId,
};
use crate::values::json::Json;
use crate::values::time::Timestamp;
use crate::work::task_spec::{TaskOptions, TaskSpec};

/// The example event of the event system's document.
pub(crate) fn documented_event() -> Event {
    Event {
        id: EventId::new("ddf71f63-b036-4ac7-ad0f-77a7fdfca352").unwrap(),
        tenant: TenantId::new("gbinnovations").unwrap(),
        app: AppName::new("task-workflow").unwrap(),
        entity: Entity { kind: EntityType::new("TASK").unwrap(), id: EntityId::new("req-123").unwrap() },
        event_type: EventType::new("Task Processing Started").unwrap(),
        timestamp: Timestamp::clamped(1_767_453_739_640),
        received_at: Timestamp::clamped(1_767_453_739_655),
        context: Context {
            environment: "prod".into(),
            origin: "sqs-worker".into(),
            worker_id: Some(WorkerId::new("worker-abc123").unwrap()),
        },
        properties: Json::parse(r#"{"requestId":"req-123","startedAt":1767453739640}"#.to_owned()).unwrap(),
        ttl: None,
        beside: None,
    }
}

/// An event about a task, made in a later millisecond the higher `number` is.
pub(crate) fn task_event(task: &str, number: u64, event_type: &str, properties: &str) -> Event {
    let base = documented_event();
    Event {
        id: EventId::from_u128(u128::from(number)),
        entity: Entity { kind: EntityType::trusted("TASK"), id: EntityId::new(task).unwrap() },
        event_type: EventType::new(event_type).unwrap(),
        timestamp: Timestamp::MIN.plus(number),
        properties: Json::parse(properties.to_owned()).unwrap(),
        ..base
    }
}

/// The eight paths that lead to `event`, in the order of their indexes.
pub(crate) fn paths_of(event: &Event) -> [AccessPath; 8] {
    let Event { app, entity, event_type, .. } = event;
    [
        AccessPath::Tenant,
        AccessPath::Entity(entity.clone()),
        AccessPath::App(app.clone()),
        AccessPath::AppEntity(app.clone(), entity.clone()),
        AccessPath::Type(event_type.clone()),
        AccessPath::TypeEntity(event_type.clone(), entity.clone()),
        AccessPath::TypeApp(event_type.clone(), app.clone()),
        AccessPath::TypeAppEntity(event_type.clone(), app.clone(), entity.clone()),
    ]
}

/// Words of a few letters, so that equal ones and prefixes of one another are common, and long ones now and then.
fn word(limit: usize) -> impl Strategy<Value = String> {
    let any = proptest::string::string_regex(&format!("[A-Za-z0-9_-]{{1,{limit}}}")).unwrap();
    prop_oneof![8 => "[a1_-]{1,2}".boxed(), 1 => any.boxed()]
}

/// As [`word`], with all characters that a text id may hold. The limit is in bytes.
fn text(limit: usize) -> impl Strategy<Value = String> {
    let any = proptest::string::string_regex(&format!("[^#\\p{{Cc}}]{{1,{}}}", limit / 4)).unwrap();
    prop_oneof![8 => "[a1 \"\\\\]{1,2}".boxed(), 1 => any.boxed()]
}

fn entity_type() -> impl Strategy<Value = EntityType> {
    prop_oneof![4 => "TASK|JOB|APP|EVENT|TENANT|TIMESTAMP", 1 => "[A-Z][A-Z_]{0,31}"]
        .prop_map(|text| EntityType::new(text).unwrap())
}

fn moment() -> impl Strategy<Value = Timestamp> {
    let edges = [
        Timestamp::MIN.millis()..=Timestamp::MIN.millis() + 3,
        Timestamp::MIN.millis()..=Timestamp::MAX.millis(),
    ];
    let [near, far] = edges;
    prop_oneof![4 => near, 1 => far].prop_map(Timestamp::clamped)
}

fn event_id() -> impl Strategy<Value = EventId> {
    prop_oneof![0..4_u128, any::<u128>()].prop_map(EventId::from_u128)
}

fn context() -> impl Strategy<Value = Context> {
    let part = ".{0,6}".prop_map(Arc::<str>::from);
    let worker = proptest::option::of(text(128).prop_map(|text| WorkerId::new(text).unwrap()));
    (part.clone(), part, worker).prop_map(|(environment, origin, worker_id)| Context {
        environment,
        origin,
        worker_id,
    })
}

/// A JSON value of a few levels.
pub(crate) fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        ".{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(2, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
            proptest::collection::btree_map(".{0,4}", inner, 0..3)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A JSON object.
pub(crate) fn object() -> impl Strategy<Value = Json> {
    proptest::collection::btree_map(".{0,6}", value(), 0..5).prop_map(|map| Json::of(&map))
}

/// Any event at all.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    let names = (word(64), text(64), entity_type(), text(512), text(128));
    let times = (event_id(), moment(), moment(), proptest::option::of(any::<u32>().prop_map(u64::from)));
    let further =
        proptest::collection::btree_map("x[a-z]{0,3}", value(), 1..3).prop_map(|map| Json::of(&map));
    let beside = proptest::option::weighted(0.2, further)
        .prop_map(|fields| fields.map(|fields| Box::new(Beside { context: None, fields: Some(fields) })));
    (names, times, context(), object(), beside).prop_map(
        |(
            (tenant, app, kind, entity, event_type),
            (id, timestamp, received_at, ttl),
            context,
            properties,
            beside,
        )| Event {
            id,
            tenant: TenantId::new(tenant).unwrap(),
            app: AppName::new(app).unwrap(),
            entity: Entity { kind, id: EntityId::new(entity).unwrap() },
            event_type: EventType::new(event_type).unwrap(),
            timestamp,
            received_at,
            context,
            properties,
            ttl,
            beside,
        },
    )
}

/// A task called `name` that waits for `parents`.
pub(crate) fn task(name: &str, parents: &[&str]) -> TaskSpec {
    TaskSpec {
        task_id: TaskId::new(name).unwrap(),
        name: TaskName::new("work").unwrap(),
        depends_on: parents.iter().map(|parent| TaskId::new(parent).unwrap()).collect(),
        input: Json::empty_object(),
        options: TaskOptions::default(),
    }
}

/// Tasks without cycles; each waits for some of those before it.
pub(crate) fn tasks() -> impl Strategy<Value = Vec<TaskSpec>> {
    let density = prop_oneof![Just(0.05), Just(0.3), Just(0.9)];
    (1..24_usize, density)
        .prop_flat_map(|(count, density)| {
            let edges = proptest::collection::vec(proptest::bool::weighted(density), count * count);
            (Just(count), edges)
        })
        .prop_map(|(count, edges)| {
            (0..count)
                .map(|child| {
                    let parents = (0..child).filter(|parent| edges[child * count + parent]);
                    let names: Vec<String> = parents.map(|parent| format!("t{parent}")).collect();
                    task(&format!("t{child}"), &names.iter().map(String::as_str).collect::<Vec<_>>())
                })
                .collect()
        })
}
