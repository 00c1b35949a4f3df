//! Tasks by state, without an index of states.
//!
//! Each state is entered with an event of a certain type, at most once per run. So the newest tasks in a state are found
//! by walking back over those events and asking each task where it stands now. One page looks at a limited number of
//! events; it may come out short, and the next goes on from there.

use axum::http::StatusCode;
use serde::Deserialize;
use tidemill_engine::backend::TaskSnapshot;
use tidemill_engine::commit::TaskKey;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};
use tidemill_model::{Event, EventId, KnownType, Position, PublicState, RequestId, TenantId, Timestamp};

use crate::api::Page;
use crate::app::Engine;
use crate::problem::Problem;
use crate::request::list_cursor;
use crate::route::{Call, Reply, json, page_size};
use crate::views::jobs::task_summary;

/// Events that one page looks at.
const EVENTS_LOOKED_AT_MAX: usize = 4_000;
/// Events that are read at a time.
const EVENTS_READ: usize = 200;

pub(super) async fn list(call: Call) -> Reply {
    let (engine, tenant) = (call.app.engine(), call.tenant()?);
    let (state, types): (Option<PublicState>, &[KnownType]) = match call.inputs.text("state") {
        Some("pending") => (Some(PublicState::Pending), &[KnownType::TaskPending]),
        Some("processing") => (Some(PublicState::Processing), &[KnownType::TaskProcessingStarted]),
        Some("completed") => (Some(PublicState::Completed), &[KnownType::TaskCompleted]),
        Some("failed") => (Some(PublicState::Failed), &[KnownType::TaskFailed, KnownType::TaskTimeout]),
        _ => (None, &[KnownType::TaskPending]),
    };
    let mut after = call.inputs.text("cursor").map(read_cursor).transpose()?;
    let limit = page_size(&call.inputs);
    let name = call.inputs.text("name");
    let without_job = call.inputs.text("withoutJob").map(|flag| flag == "true");
    let is_wanted = |task: &TaskSnapshot| {
        name.is_none_or(|name| task.spec.name.as_str() == name)
            && without_job.is_none_or(|alone| task.job.is_none() == alone)
    };
    let (mut items, mut looked_at, mut more) = (Vec::new(), 0, true);
    while more && looked_at < EVENTS_LOOKED_AT_MAX && items.len() < limit {
        let events = walk_back(engine, &tenant, types, after).await?;
        more = events.len() == EVENTS_READ;
        for event in &events {
            if items.len() == limit {
                more = true;
                break;
            }
            after = Some(event.position());
            looked_at += 1;
            let request = RequestId::trusted(event.entity.id.as_str());
            let Some(task) = engine.task(TaskKey { tenant: tenant.clone(), request }).await? else {
                continue;
            };
            if is_wanted(&task) && stands_for(engine, &tenant, event, &task, state).await? {
                items.push(task_summary(&task));
            }
        }
    }
    let next_cursor = after.filter(|_| more).map(|at| write_cursor(&at));
    json(StatusCode::OK, &Page { items, next_cursor })
}

/// The events of `types` before a place, newest first.
async fn walk_back(
    engine: &Engine,
    tenant: &TenantId,
    types: &[KnownType],
    after: Option<Position>,
) -> Result<Vec<Event>, Problem> {
    let mut events = Vec::new();
    for known in types {
        let all = EventQuery::all(tenant.clone(), AccessPath::Type(known.event_type()));
        let mut query = EventQuery { order: Order::Descending, limit: EVENTS_READ, ..all };
        query.after = after.map(|position| query.cursor_at(position));
        events.extend(engine.events(query, false).await?.events);
    }
    events.sort_by_key(|event| std::cmp::Reverse(event.position()));
    events.truncate(EVENTS_READ);
    Ok(events)
}

/// The properties that tell which life of a task an event is about.
#[derive(Deserialize)]
struct Life {
    #[serde(default = "first_run")]
    run: u32,
}

fn first_run() -> u32 {
    1
}

/// Whether the task is in the wanted state and this event is the one that stands for it in the list.
async fn stands_for(
    engine: &Engine,
    tenant: &TenantId,
    event: &Event,
    task: &TaskSnapshot,
    state: Option<PublicState>,
) -> Result<bool, Problem> {
    let run = event.properties.read::<Life>().map_or(1, |life| life.run);
    let newest_run = task.head.as_ref().map_or(1, |head| head.run);
    match state {
        None => Ok(run == 1),
        Some(state) if task.state != Some(state) || run != newest_run => Ok(false),
        // Every claim of a run may have said that work began; the last one counts.
        Some(PublicState::Processing) => {
            let path = AccessPath::TypeEntity(event.event_type.clone(), event.entity.clone());
            let query =
                EventQuery { order: Order::Descending, limit: 1, ..EventQuery::all(tenant.clone(), path) };
            let last = engine.events(query, false).await?.events;
            Ok(last.first().is_some_and(|last| last.id == event.id))
        }
        Some(_) => Ok(true),
    }
}

fn write_cursor(at: &Position) -> String {
    list_cursor::write("at", &format!("{:x}.{:x}", at.timestamp.millis(), at.id.as_u128()))
}

fn read_cursor(text: &str) -> Result<Position, Problem> {
    let parts = list_cursor::read("at", text)?.split_once('.').and_then(|(millis, id)| {
        let timestamp = Timestamp::new("cursor", u64::from_str_radix(millis, 16).ok()?).ok()?;
        Some(Position { timestamp, id: EventId::from_u128(u128::from_str_radix(id, 16).ok()?) })
    });
    parts.ok_or_else(list_cursor::refuse)
}
