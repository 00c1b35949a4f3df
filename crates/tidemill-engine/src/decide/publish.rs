//! Publish: events from outside, stored as they are but for keys, ids and times, which are ours.

use tidemill_model::{Event, known_type};

use super::draft::Draft;
use crate::command::Publish;
use crate::reply::{Refusal, Reply};
use crate::state::State;

pub(super) fn decide(state: &State, command: &Publish, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let limit = draft.policy().publish_max;
    if command.events.len() > limit {
        return Err(Refusal::TooMany { field: "events", count: command.events.len(), limit });
    }
    let now = draft.now();
    let mut published = Vec::with_capacity(command.events.len());
    for event in &command.events {
        if known_type::is_reserved(event.event_type.as_str()) {
            return Err(Refusal::Reserved { what: "eventType", id: event.event_type.to_string() });
        }
        if event.entity.kind.is_reserved() {
            return Err(Refusal::Reserved { what: "entityType", id: event.entity.kind.to_string() });
        }
        let limit_millis = draft.policy().ahead_millis_max;
        let timestamp = match event.timestamp {
            Some(given) if given.since(now) > limit_millis => {
                return Err(Refusal::TooFarAhead { ahead_millis: given.since(now), limit_millis });
            }
            Some(given) => given,
            None => {
                let last =
                    state.stream(&command.tenant, &event.entity).and_then(|stream| stream.last_timestamp);
                // An id that was made elsewhere may sort before those of the same millisecond.
                let step = u64::from(event.properties.id.is_some());
                last.map_or(now, |last| last.plus(step).max(now))
            }
        };
        let id = match event.properties.id {
            Some(id) => draft.take_id(id),
            None => draft.event_id(),
        };
        published.push((id, timestamp));
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
        });
    }
    Ok(Reply::Published { events: published })
}
