//! Events: publish, query, follow.

use axum::http::header::{CACHE_CONTROL, HeaderValue};
use axum::http::{Method, StatusCode};
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::{EventBatch, NewEvent};
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::{AppName, Entity, EntityId, EntityType, EventType, JobId, Json, RequestId, Timestamp};

use super::jobs::ORDERS;
use crate::admission::caller::Welcome;
use crate::api::{EVENTS_MAX, EventAccepted, EventDraft, EventJson, EventsAccepted, Page, PublishRequest};
use crate::problem::Problem;
use crate::request::json_body;
use crate::request::param::Kind;
use crate::route::{Call, READ, Reply, Route, SUBMIT, json, raw};
use crate::stream::{EventFilter, channel, follow_events};
use crate::views::jobs::{event_page, event_query};

const GROUP: &str = "Events";
/// The component that events from outside are recorded with.
const ORIGIN: &str = "producer-api";
/// What an event without an entity is about.
const APP_ENTITY: &str = "APP";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/v1/events", SUBMIT, [GROUP, "publishEvents", "Publish events"], publish)
            .about(
                "One event, or up to 1,000 under `events`: all are stored or none. The types and entities of the \
                 engine's own events are reserved.",
            )
            .reads::<PublishRequest>()
            .sample(serde_json::json!({"eventType": "example", "properties": {"role": "admin"}}))
            .reads_much()
            .gives::<EventsAccepted>(202, "They are stored."),
        Route::new(Method::GET, "/v1/events", READ, [GROUP, "listEvents", "Query events"], list)
            .about("Any of the filters; each combination is answered by an index of its own.")
            .query("entity", Kind::Entity, "What it is about: type, slash, id, such as `TASK/req-1`.")
            .query("app", Kind::Text { most: 64 }, "The application.")
            .query("type", Kind::Text { most: 128 }, "The event type.")
            .query("from", Kind::Moment, "At this time or later.")
            .query("to", Kind::Moment, "At this time or before.")
            .query("order", ORDERS, "By time; `asc` when absent.")
            .paged()
            .gives::<Page<EventJson>>(200, "A page of events."),
        Route::new(Method::GET, "/v1/stream", READ, [GROUP, "streamEvents", "Follow events as they happen"], stream)
            .about(
                "Server-sent events: `data` is the event, `id` its number. A client that comes back with \
                 `Last-Event-ID` misses nothing. A comment comes every 15 seconds. Slow readers are disconnected \
                 and may come back.",
            )
            .query("job", Kind::JobId, "Only events of this job and its tasks.")
            .query("task", Kind::Word { most: 256 }, "Only events of this task.")
            .query("type", Kind::Text { most: 128 }, "Only events of this type.")
            .query("after", NUMBER, "Begin after this number; with what comes next when absent.")
            .header("Last-Event-ID", NUMBER, "Like `after`, and before it.")
            .gives_raw(200, "The stream.", "text/event-stream"),
    ]
}

const NUMBER: Kind = Kind::Integer { least: 0, most: u64::MAX };

async fn publish(call: Call) -> Reply {
    let request: PublishRequest = json_body::read(&call.body)?;
    let app = call.app.config().app.clone();
    let (drafts, is_batch) = drafts(request)?;
    let mut events = Vec::with_capacity(drafts.len());
    for (at, draft) in drafts.into_iter().enumerate() {
        let path = if is_batch { format!("events[{at}].") } else { String::new() };
        events.push(new_event(draft, &app, &path)?);
    }
    let origin = ORIGIN.to_owned();
    let publish = EventBatch { tenant: call.tenant()?, app, origin, events };
    let mut problem = match call.app.engine().publish(publish).await {
        Ok(stored) => {
            let events: Vec<_> = stored
                .into_iter()
                .map(|(id, at)| EventAccepted { event_id: id.to_string(), timestamp: at.millis() })
                .collect();
            let single = events.first().filter(|_| !is_batch).cloned();
            let (event_id, timestamp) = single.map(|one| (one.event_id, one.timestamp)).unzip();
            return json(StatusCode::ACCEPTED, &EventsAccepted { events, event_id, timestamp });
        }
        Err(error) => Problem::from(error),
    };
    if !is_batch {
        for detail in &mut problem.details {
            detail.field = detail.field.replacen("events[0].", "", 1);
        }
    }
    Err(problem)
}

/// The events of a request, and whether they came as a list.
fn drafts(request: PublishRequest) -> Result<(Vec<EventDraft>, bool), Problem> {
    let PublishRequest { events, event_type, entity_type, entity_id, properties, timestamp, ttl } = request;
    let Some(events) = events else {
        let Some(event_type) = event_type else {
            return Err(Problem::field("MISSING_FIELD", "eventType", "is missing"));
        };
        let one = EventDraft { event_type, entity_type, entity_id, properties, timestamp, ttl };
        return Ok((vec![one], false));
    };
    let beside = [
        ("eventType", event_type.is_some()),
        ("entityType", entity_type.is_some()),
        ("entityId", entity_id.is_some()),
        ("properties", properties.is_some()),
        ("timestamp", timestamp.is_some()),
        ("ttl", ttl.is_some()),
    ];
    match beside.iter().find(|(_, is_set)| *is_set) {
        Some((field, _)) => Err(Problem::invalid_field(*field, "cannot stand beside events")),
        None if events.len() > EVENTS_MAX => {
            Err(Problem::field("TOO_MANY", "events", format!("has more than {EVENTS_MAX} events")))
        }
        None => Ok((events, true)),
    }
}

fn new_event(draft: EventDraft, app: &AppName, path: &str) -> Result<NewEvent, Problem> {
    let bad = |field: &str, problem: String| Problem::invalid_field(format!("{path}{field}"), problem);
    let event_type =
        EventType::new(&draft.event_type).map_err(|error| bad("eventType", error.problem.to_string()))?;
    let kind = draft.entity_type.as_deref().unwrap_or(APP_ENTITY);
    let kind = EntityType::new(kind).map_err(|error| bad("entityType", error.problem.to_string()))?;
    let id = draft.entity_id.as_deref().unwrap_or(app.as_str());
    let id = EntityId::new(id).map_err(|error| bad("entityId", error.problem.to_string()))?;
    let timestamp = draft.timestamp.map(|millis| Timestamp::new("timestamp", millis)).transpose();
    let timestamp =
        timestamp.map_err(|error| bad("timestamp", error.to_string().replacen("timestamp ", "", 1)))?;
    let properties = draft.properties.unwrap_or_else(Json::empty_object);
    if !properties.is_object() {
        return Err(bad("properties", "is not a JSON object".to_owned()));
    }
    Ok(NewEvent { entity: Entity { kind, id }, event_type, timestamp, properties, ttl: draft.ttl })
}

async fn list(call: Call) -> Reply {
    let inputs = &call.inputs;
    // The parameters were checked when they came in.
    let entity = inputs.text("entity").and_then(|text| text.split_once('/'));
    let entity =
        entity.map(|(kind, id)| Entity { kind: EntityType::trusted(kind), id: EntityId::trusted(id) });
    let path = AccessPath::narrowest(
        inputs.text("type").map(EventType::trusted),
        inputs.text("app").map(AppName::trusted),
        entity,
    );
    let query = event_query(call.tenant()?, path, inputs)?;
    let page = call.app.engine().events(query, false).await?;
    json(StatusCode::OK, &event_page(&page))
}

async fn stream(call: Call) -> Reply {
    let inputs = &call.inputs;
    let filter = EventFilter {
        tenant: call.tenant()?,
        job: inputs.text("job").and_then(|job| JobId::new(job).ok()),
        task: inputs.text("task").map(RequestId::trusted),
        event_type: inputs.text("type").map(EventType::trusted),
    };
    let newest = call.app.engine().backend().newest();
    let after = inputs.number("Last-Event-ID").or_else(|| inputs.number("after"));
    let after = after.map_or(newest, |after| after.min(newest));
    let permit = call.app.streams().take(&call.caller)?;
    let (outlet, body) = channel(call.app.config().write_timeout);
    let welcome = Welcome::of(&call.app, &call.caller);
    tokio::spawn(follow_events(call.app.clone(), filter, after, outlet, (call.peer, welcome), permit));
    let mut response = raw(StatusCode::OK, "text/event-stream", body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    Ok(response)
}
