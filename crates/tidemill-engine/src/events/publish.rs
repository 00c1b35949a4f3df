//! Publish: events from outside, stored as they are but for keys, ids and times, which are ours.

use std::collections::HashMap;

use tidemill_model::events::known_type;
use tidemill_model::events::overflow::{self, OVERFLOW_FIELD};
use tidemill_model::{AppName, Context, Entity, Event, EventId, EventType, Json, TenantId, Timestamp};

use crate::engine::limits::{EVENT_BYTES_MAX, PUBLISH_BYTES_MAX};
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::events::overflow::Packed;
use crate::kernel::backend::Backend;
use crate::kernel::command::{Command, Prepared};
use crate::kernel::decision::Decision;
use crate::kernel::draft::Draft;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::parking::unpark;
use crate::triage::changes::cut_tokens;
use crate::triage::{TokenTaken, WorkflowItem, ingest};

/// Events of one application.
#[derive(Debug, Clone)]
pub struct EventBatch {
    pub tenant: TenantId,
    pub app: AppName,
    /// The component that publishes, such as `producer-api`.
    pub origin: String,
    pub events: Vec<NewEvent>,
}

/// An event from outside.
#[derive(Debug, Clone)]
pub struct NewEvent {
    pub entity: Entity,
    pub event_type: EventType,
    /// The sender's own time; now when absent.
    pub timestamp: Option<Timestamp>,
    /// A JSON object.
    pub properties: Json,
    /// When it may be dropped, in epoch seconds.
    pub ttl: Option<u64>,
}

/// What became of events that were stored.
#[derive(Debug)]
pub(crate) struct StoredEvents {
    /// Each with whether it was there before.
    pub(crate) events: Vec<(EventId, Timestamp, bool)>,
    /// How many errors changed their state because of marks.
    pub(crate) changed: u64,
    /// What became of tokens, by the place of the event that brought each.
    pub(crate) tokens: Vec<(usize, TokenTaken)>,
}

#[derive(Debug, Clone)]
pub struct Publish {
    pub tenant: TenantId,
    pub app: AppName,
    pub context: Context,
    pub events: Vec<PublishedEvent>,
}

impl Decision for Publish {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        entity_rows(state, self)
    }

    fn log_bytes(&self) -> u64 {
        self.events.iter().map(PublishedEvent::log_bytes).sum()
    }

    fn large_field(&self) -> &'static str {
        "events"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

#[derive(Debug, Clone)]
pub struct PublishedEvent {
    pub entity: Entity,
    pub event_type: EventType,
    /// The sender's own time, if it gave one.
    pub timestamp: Option<Timestamp>,
    pub properties: Prepared,
    /// Epoch seconds.
    pub ttl: Option<u64>,
    /// What it says of errors and executions.
    pub workflow: Option<WorkflowItem>,
}

pub(crate) fn decide(state: &State, command: &Publish, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let limit = draft.policy().publish_max;
    if command.events.len() > limit {
        return Err(Refusal::TooMany { field: "events", count: command.events.len(), limit });
    }
    let now = draft.now();
    let mut published = Vec::with_capacity(command.events.len());
    let (mut is_noted, mut changed, mut tokens) = (false, 0, Vec::new());
    // When the last event of an entity was stamped whose id was made elsewhere: ids say nothing of their order then.
    let mut stamped: HashMap<&Entity, (Timestamp, EventId)> = HashMap::new();
    for (at, event) in command.events.iter().enumerate() {
        if !event.properties.properties.is_object() {
            return Err(Refusal::NotAnObject { field: format!("events[{at}].properties") });
        }
        // Those of triage are made by the engine.
        if event.workflow.is_none() && known_type::is_reserved(event.event_type.as_str()) {
            return Err(Refusal::Reserved { what: "eventType", id: event.event_type.to_string() });
        }
        if event.entity.kind.is_reserved() {
            return Err(Refusal::Reserved { what: "entityType", id: event.entity.kind.to_string() });
        }
        if let Some(item) = &event.workflow
            && let Some(earlier) = ingest::repeated(state, &command.tenant, item, draft)
        {
            published.push((earlier, event.timestamp.unwrap_or(now), true));
            continue;
        }
        let limit_millis = draft.policy().ahead_millis_max;
        let mut timestamp = match event.timestamp {
            Some(given) if given.since(now) > limit_millis => {
                return Err(Refusal::TooFarAhead { ahead_millis: given.since(now), limit_millis });
            }
            Some(given) => given,
            None => {
                let last =
                    state.stream(&command.tenant, &event.entity).and_then(|stream| stream.last_timestamp());
                // An id that was made elsewhere may sort before those of the same millisecond.
                let step = u64::from(event.properties.id.is_some());
                last.map_or(now, |last| last.plus(step).max(now))
            }
        };
        let id = match event.properties.id {
            Some(id) => {
                if event.timestamp.is_none() {
                    if let Some((last, last_id)) = stamped.get(&event.entity) {
                        timestamp = timestamp.max(last.plus(u64::from(*last_id > id)));
                    }
                    stamped.insert(&event.entity, (timestamp, id));
                }
                draft.take_id(id)
            }
            None => draft.event_id(),
        };
        published.push((id, timestamp, false));
        draft.push_event(Event {
            id,
            tenant: command.tenant.clone(),
            app: command.app.clone(),
            entity: event.entity.clone(),
            event_type: event.event_type.clone(),
            timestamp,
            received_at: now,
            context: command.context.clone(),
            properties: event.properties.properties.clone(),
            ttl: event.ttl,
            beside: None,
        });
        if let Some(item) = &event.workflow {
            is_noted = true;
            let done = ingest::take_in(state, &command.tenant, item, id, timestamp, draft)?;
            changed += done.changed;
            tokens.extend(done.token.map(|token| (at, token)));
        }
    }
    is_noted |= published.iter().any(|(.., repeated)| *repeated);
    if is_noted {
        return Ok(Reply::Noted { events: published, changed, tokens });
    }
    let events = published.into_iter().map(|(id, timestamp, _)| (id, timestamp)).collect();
    Ok(Reply::Published { events })
}

/// The entities of published events, and what those of workflows need.
fn entity_rows(state: &State, command: &Publish) -> Vec<RowKey> {
    let entity = |event: &PublishedEvent| RowKey::Entity(command.tenant.clone(), event.entity.clone());
    // An execution and an error each, mostly.
    let mut rows = Vec::with_capacity(3 * command.events.len());
    rows.extend(command.events.iter().map(entity));
    for item in command.events.iter().filter_map(|event| event.workflow.as_ref()) {
        ingest::item_rows(state, &command.tenant, item, &mut rows);
        if let Some(execution) = item.execution().filter(|_| matches!(item, WorkflowItem::Mark(_))) {
            // It may go on because of it.
            rows.extend(unpark::rows(state, &command.tenant, execution));
        }
    }
    rows
}

impl PublishedEvent {
    /// An event of a workflow writes its group, its execution and its errors again, each at most once per command.
    fn log_bytes(&self) -> u64 {
        let noted = match &self.workflow {
            Some(WorkflowItem::Status(item)) => 4_000 + 4_000 * item.errors.len() as u64,
            Some(WorkflowItem::Mark(_)) => 100_000,
            None => 0,
        };
        self.properties.properties.len() as u64 + 1_000 + noted
    }
}

impl<B: Backend> Engine<B> {
    /// Stores events, all or none, and tells their ids and times in the order they came.
    pub async fn publish(&self, request: EventBatch) -> Result<Vec<(EventId, Timestamp)>, EngineError> {
        self.check_publish(&request)?;
        let EventBatch { tenant, app, origin, events } = request;
        let context = self.context_of(&origin);
        let mut all = Vec::with_capacity(events.len());
        let mut tokens = Vec::new();
        for (at, event) in events.into_iter().enumerate() {
            all.push(match self.as_workflow(&tenant, &format!("events[{at}]"), &event, &mut tokens)? {
                Some((event, item)) => (event, Some(item)),
                None => (event, None),
            });
        }
        let found = all.iter_mut().map(|(event, item)| (event, item.as_mut()));
        cut_tokens(&tokens, "events", ".properties", found)?;
        let stored = self.publish_all(tenant, app, context, all).await?;
        Ok(stored.events.into_iter().map(|(id, timestamp, _)| (id, timestamp)).collect())
    }

    /// Stores events that are checked, with what those of workflows say.
    pub(crate) async fn publish_all(
        &self,
        tenant: TenantId,
        app: AppName,
        context: Context,
        all: Vec<(NewEvent, Option<WorkflowItem>)>,
    ) -> Result<StoredEvents, EngineError> {
        let mut packed = Vec::with_capacity(all.len());
        for (event, _) in &all {
            let id = self.mint_event_id();
            let provisional = Event {
                id,
                tenant: tenant.clone(),
                app: app.clone(),
                entity: event.entity.clone(),
                event_type: event.event_type.clone(),
                timestamp: Timestamp::MIN,
                received_at: Timestamp::MIN,
                context: context.clone(),
                properties: event.properties.clone(),
                ttl: event.ttl,
                beside: None,
            };
            packed.push((id, self.pack(provisional)?));
        }
        let prepared = self.ship_all(&tenant, packed).await?;
        let events = all.into_iter().zip(prepared).map(|((event, workflow), properties)| PublishedEvent {
            entity: event.entity,
            event_type: event.event_type,
            timestamp: event.timestamp,
            properties,
            ttl: event.ttl,
            workflow,
        });
        let events = events.collect();
        let reply = self.execute(Command::Publish(Publish { tenant, app, context, events })).await?;
        match reply {
            Reply::Noted { events, changed, tokens } => Ok(StoredEvents { events, changed, tokens }),
            reply => {
                let events = take_reply!(reply, Reply::Published { events } => events)?;
                let events = events.into_iter().map(|(id, timestamp)| (id, timestamp, false)).collect();
                Ok(StoredEvents { events, changed: 0, tokens: Vec::new() })
            }
        }
    }

    /// Stores what has to be stored. Events of equal time are ordered by their ids, so either all get theirs here or
    /// all from the writer.
    async fn ship_all(
        &self,
        tenant: &TenantId,
        packed: Vec<(EventId, Packed)>,
    ) -> Result<Vec<Prepared>, EngineError> {
        let any_large = packed.iter().any(|(_, packed)| packed.payload.is_some());
        let mut prepared = Vec::with_capacity(packed.len());
        for (id, packed) in packed {
            let shipped = self.ship(tenant, id, packed).await?;
            prepared.push(Prepared { id: any_large.then_some(id), ..shipped });
        }
        Ok(prepared)
    }

    pub(crate) fn check_publish(&self, request: &EventBatch) -> Result<(), EngineError> {
        check::name("origin", &request.origin)?;
        check::count("events", request.events.len(), self.policy().publish_max)?;
        let now = self.inner.clock.now();
        let limit_millis = self.policy().ahead_millis_max;
        let mut total = 0;
        for (at, event) in request.events.iter().enumerate() {
            if known_type::is_reserved(event.event_type.as_str()) {
                return Err(Refusal::Reserved { what: "eventType", id: event.event_type.to_string() }.into());
            }
            if event.entity.kind.is_reserved() {
                return Err(
                    Refusal::Reserved { what: "entityType", id: event.entity.kind.to_string() }.into()
                );
            }
            let ahead_millis = event.timestamp.map_or(0, |given| given.since(now));
            if ahead_millis > limit_millis {
                return Err(Refusal::TooFarAhead { ahead_millis, limit_millis }.into());
            }
            let field = format!("events[{at}].properties");
            if !event.properties.is_object() {
                return Err(EngineError::invalid(field, "is not a JSON object"));
            }
            check::size(field.clone(), event.properties.len(), EVENT_BYTES_MAX)?;
            check::value(field.clone(), &event.properties)?;
            if !matches!(overflow::reference(&event.properties), Ok(None)) {
                return Err(EngineError::invalid(field, format!("has the reserved key {OVERFLOW_FIELD}")));
            }
            total += event.properties.len();
        }
        check::size("events", total, PUBLISH_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidemill_model::{
        AppName, Context, Entity, EntityId, EntityType, EventId, EventType, Json, Timestamp,
    };

    use super::*;
    use crate::kernel::command::{Command, Prepared, PublishedEvent};
    use crate::kernel::fixture::{Fixture, tenant};

    fn event(kind: &str, event_type: &str) -> PublishedEvent {
        PublishedEvent {
            entity: Entity { kind: EntityType::trusted(kind), id: EntityId::trusted("s-1") },
            event_type: EventType::trusted(event_type),
            timestamp: None,
            properties: Prepared { id: None, properties: Json::empty_object() },
            ttl: None,
            workflow: None,
        }
    }

    fn publish(events: Vec<PublishedEvent>) -> Command {
        let context = Context { environment: Arc::from("dev"), origin: Arc::from("test"), worker_id: None };
        Command::Publish(Publish { tenant: tenant(), app: AppName::trusted("orders"), context, events })
    }

    #[test]
    fn what_only_the_engine_may_write_is_refused_whole() {
        let limit = Timestamp::clamped(1_800_000_000_000).plus(300_000);
        let at = |timestamp| PublishedEvent { timestamp: Some(timestamp), ..event("STORE", "stock.counted") };
        let with = |properties: &str| PublishedEvent {
            properties: Prepared { id: None, properties: Json::trusted(properties) },
            ..event("STORE", "stock.counted")
        };
        for (bad, expected) in [
            (event("STORE", "Task Completed"), Some("eventType Task Completed is reserved to the engine")),
            (event("STORE", "Job anything"), Some("eventType Job anything is reserved to the engine")),
            (event("STORE", "Tasks counted"), None),
            (event("TASK", "stock.counted"), Some("entityType TASK is reserved to the engine")),
            (event("EXECUTION", "stock.counted"), Some("entityType EXECUTION is reserved to the engine")),
            (event("TASKS", "stock.counted"), None),
            (at(limit), None),
            (at(limit.plus(1)), Some("timestamp lies 300001 ms ahead; the limit is 300000")),
            (at(Timestamp::MIN), None),
            (with("[1]"), Some("events[1].properties is not a JSON object")),
            (with("null"), Some("events[1].properties is not a JSON object")),
            (with(r#""{}""#), Some("events[1].properties is not a JSON object")),
            (with("{}"), None),
        ] {
            let mut fixture = Fixture::new();
            let events = vec![event("STORE", "stock.counted"), bad.clone()];
            let answer = fixture.run(&publish(events)).map(|_| ()).map_err(|refusal| refusal.to_string());
            assert_eq!(answer, expected.map_or(Ok(()), |text| Err(text.to_owned())), "{bad:?}");
        }
        let many = vec![event("STORE", "a"); 1_001];
        let refusal = Fixture::new().run(&publish(many)).unwrap_err();
        assert_eq!(refusal, Refusal::TooMany { field: "events", count: 1_001, limit: 1_000 });
    }

    #[test]
    fn events_of_one_entity_sort_in_the_order_they_came() {
        let mut fixture = Fixture::new();
        let own = || event("STORE", "a");
        // Ids that were made elsewhere at the same time: one below and one above any that is made here.
        let foreign = |bits: u128| {
            let id = Some(EventId::from_u128((1_800_000_000_000 << 80) | (7 << 76) | (0b10 << 62) | bits));
            PublishedEvent {
                properties: Prepared { id, properties: Json::empty_object() },
                ..event("STORE", "b")
            }
        };
        let mut last = None;
        for step in [own(), foreign(0), own(), foreign((1 << 76) - 1), own(), foreign(1)] {
            let (commit, _) = fixture.run(&publish(vec![step])).unwrap();
            let position = Some(commit.events[0].position());
            assert!(position > last, "{position:?} after {last:?}");
            last = position;
        }
    }
}
