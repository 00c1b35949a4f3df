//! Blobs that no event names: what a crash, a refused command or an interrupted expiry left behind.

use tidemill_engine::backend::Fault;
use tidemill_model::events::overflow;
use tidemill_model::{Event, EventId, TenantId, Timestamp};

use super::rows::row_store::io_fault;
use crate::blob::Blobs;
use crate::log::{LogReader, Order, TimelineQuery, Window};

/// A command follows its blob within this time, or not at all.
const COMMAND_MILLIS_MAX: u64 = 15 * 60_000;
/// Event ids are minted a little before or after the event is stamped.
const STAMP_MILLIS_MAX: u64 = 60_000;

/// Removes blobs whose event never came, or is gone. Says how many.
pub(crate) fn sweep(blobs: &Blobs, reader: &LogReader, now: Timestamp) -> Result<u32, Fault> {
    let mut removed = 0;
    for (note, tenant, key) in blobs.notes().map_err(|error| io_fault(&error))? {
        let minted = event_of(&key).map(|id| (id, minted_at(id)));
        if minted.is_some_and(|(_, at)| now.since(at) < COMMAND_MILLIS_MAX) {
            continue;
        }
        let named = match minted {
            Some((id, at)) => is_named(reader, &tenant, &key, id, at)?,
            None => true,
        };
        if !named {
            blobs.remove(&tenant, &key).map_err(|error| io_fault(&error))?;
            removed += 1;
        }
        blobs.remove_note(&note).map_err(|error| io_fault(&error))?;
    }
    Ok(removed)
}

/// The event that a key of the form `events/{entity}/{event}-payload.json` belongs to.
fn event_of(key: &str) -> Option<EventId> {
    let name = key.rsplit('/').next()?;
    EventId::new(name.strip_suffix("-payload.json")?).ok()
}

/// The moment in an event's id.
fn minted_at(id: EventId) -> Timestamp {
    Timestamp::clamped(u64::try_from(id.as_u128() >> 80).unwrap_or(u64::MAX))
}

/// Whether the event is there and names the blob: near the moment in its id, where nearly all are, or anywhere, because a
/// client may have given it a time of its own. What is removed here cannot be had again, so the long way is worth it.
fn is_named(
    reader: &LogReader,
    tenant: &TenantId,
    key: &str,
    id: EventId,
    at: Timestamp,
) -> Result<bool, Fault> {
    let anywhere = Window::all(Order::Ascending, 1_000);
    let near = Window {
        from: at.minus(STAMP_MILLIS_MAX),
        to: at.plus(COMMAND_MILLIS_MAX + STAMP_MILLIS_MAX),
        ..anywhere
    };
    let event = match find(reader, tenant, id, near)? {
        None => find(reader, tenant, id, anywhere)?,
        found => found,
    };
    // One that was emptied when it had outlived its time names nothing any more.
    let names = |event: Event| {
        overflow::reference(&event.properties).ok().flatten().is_some_and(|reference| reference.key == key)
    };
    Ok(event.is_some_and(names))
}

fn find(reader: &LogReader, tenant: &TenantId, id: EventId, window: Window) -> Result<Option<Event>, Fault> {
    let mut query = TimelineQuery { tenant: tenant.clone(), app: None, event_type: None, window };
    loop {
        let page = reader.timeline(&query)?;
        if let Some(found) = page.events.into_iter().find(|stored| stored.event.id == id) {
            return Ok(Some(found.event));
        }
        if page.next.is_none() {
            return Ok(None);
        }
        query.window.after = page.next;
    }
}
