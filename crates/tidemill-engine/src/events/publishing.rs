//! Publishing events from outside. Keys are ours to compute; what a client says of them is never read.

use tidemill_model::overflow::{self, OVERFLOW_FIELD};
use tidemill_model::{
    AppName, Context, Entity, Event, EventId, EventType, Json, TenantId, Timestamp, known_type,
};

use crate::engine::limits::{EVENT_BYTES_MAX, PUBLISH_BYTES_MAX};
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::events::overflow::Packed;
use crate::kernel::backend::Backend;
use crate::kernel::command::{Command, Prepared, Publish, PublishedEvent};
use crate::kernel::reply::{Refusal, Reply};
use crate::triage::changes::cut_tokens;
use crate::triage::{TokenTaken, WorkflowItem};

/// Events of one application.
#[derive(Debug, Clone)]
pub struct PublishRequest {
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

impl<B: Backend> Engine<B> {
    /// Stores events, all or none, and tells their ids and times in the order they came.
    pub async fn publish(&self, request: PublishRequest) -> Result<Vec<(EventId, Timestamp)>, EngineError> {
        self.check_publish(&request)?;
        let PublishRequest { tenant, app, origin, events } = request;
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

    pub(crate) fn check_publish(&self, request: &PublishRequest) -> Result<(), EngineError> {
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
