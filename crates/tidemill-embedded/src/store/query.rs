//! Questions for events: the eight access paths, answered from timelines and from entities' own chains.

use tidemill_engine::backend::Fault;
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_engine::state::stream::Stream;
use tidemill_model::events::event_query::{EventPage, EventQuery};
use tidemill_model::{AppName, Entity, Event, EventType, TenantId, Timestamp};

use super::decider::Decider;
use crate::log::{ChainQuery, LogReader, Order, Seq, TimelineQuery, Window};

/// Where an entity's events stand, in memory or stored.
pub(crate) fn stream(decider: &Decider, tenant: &TenantId, entity: &Entity) -> Result<Option<Stream>, Fault> {
    if let Some(stream) = decider.state.stream(tenant, entity) {
        return Ok(Some(stream));
    }
    Ok(decider.row(&RowKey::of_entity(tenant, entity))?.and_then(Row::into_stream))
}

/// Answers a query as of `now`.
pub(crate) fn events(
    reader: &LogReader,
    decider: &Decider,
    query: &EventQuery,
    now: Timestamp,
) -> Result<EventPage, Fault> {
    query.check()?;
    let stream = match query.path.entity() {
        None => None,
        Some(entity) => match stream(decider, &query.tenant, entity)? {
            None => return Ok(EventPage { events: Vec::new(), next: None }),
            found => found,
        },
    };
    answer(reader, stream.as_ref(), query, now)
}

/// Answers a checked query; `stream` is that of its entity, if it names one.
///
/// One event more than asked for is looked at, so that `next` is there exactly when something follows.
pub(crate) fn answer(
    reader: &LogReader,
    stream: Option<&Stream>,
    query: &EventQuery,
    now: Timestamp,
) -> Result<EventPage, Fault> {
    let mut window = Window {
        from: query.from.unwrap_or(Timestamp::MIN),
        to: query.to.unwrap_or(Timestamp::MAX),
        order: query.order,
        after: query.after.map(|cursor| cursor.position),
        limit: query.limit + 1,
    };
    let (app, event_type) = (query.path.app(), query.path.event_type());
    let mut events = Vec::new();
    loop {
        let page = match stream {
            Some(stream) => reader.chain(&chain(stream, app.cloned(), event_type.cloned(), window))?,
            None => reader.timeline(&TimelineQuery {
                tenant: query.tenant.clone(),
                app: app.cloned(),
                event_type: event_type.cloned(),
                window,
            })?,
        };
        let seen = page.events.into_iter().map(|stored| stored.event);
        events.extend(seen.filter(|event| !event.is_outlived(now)));
        if events.len() > query.limit || page.next.is_none() {
            break;
        }
        window.after = page.next;
        window.limit = query.limit + 1 - events.len();
    }
    let more = events.len() > query.limit;
    events.truncate(query.limit);
    let next = events.last().filter(|_| more).map(|last| query.cursor_at(last.position()));
    Ok(EventPage { events, next })
}

/// The latest event of a stream as of `now`.
pub(crate) fn latest(reader: &LogReader, stream: &Stream, now: Timestamp) -> Result<Option<Event>, Fault> {
    // The main chain is in order, and what hangs aside is late or, if it is a heartbeat, in order too.
    let tip = |seq: Option<Seq>| -> Result<Option<Event>, Fault> {
        let Some(seq) = seq else { return Ok(None) };
        Ok(reader.read(seq)?.map(|stored| stored.event).filter(|event| !event.is_outlived(now)))
    };
    let main = tip(stream.history.main.tip())?;
    if main.is_some() {
        let aside = tip(stream.history.aside.tip())?;
        return Ok(main.into_iter().chain(aside).max_by_key(Event::position));
    }
    let mut window = Window::all(Order::Descending, 1);
    loop {
        let page = reader.chain(&chain(stream, None, None, window))?;
        let found = page.events.into_iter().map(|stored| stored.event).find(|event| !event.is_outlived(now));
        if found.is_some() || page.next.is_none() {
            return Ok(found);
        }
        window.after = page.next;
    }
}

fn chain(stream: &Stream, app: Option<AppName>, event_type: Option<EventType>, window: Window) -> ChainQuery {
    ChainQuery {
        main: stream.history.main.tip(),
        aside: stream.history.aside.tip(),
        app,
        event_type,
        lag_millis: stream.lag_millis(),
        window,
    }
}
