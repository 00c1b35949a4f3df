//! Questions for events: the eight access paths, answered from timelines and from entities' own chains.

use tidemill_engine::backend::Fault;
use tidemill_engine::state::row::{Row, TaskRow};
use tidemill_engine::state::stream::Stream;
use tidemill_model::event_query::{self, EventQuery, Page};
use tidemill_model::{Entity, Event, TenantId, Timestamp};

use super::decider::{Decider, stream_row};
use crate::log::{ChainQuery, LogReader, Order, TimelineQuery, Window};

/// Where an entity's events stand, in memory or stored.
pub(crate) fn stream(decider: &Decider, tenant: &TenantId, entity: &Entity) -> Result<Option<Stream>, Fault> {
    if let Some(stream) = decider.state.stream(tenant, entity) {
        return Ok(Some(stream));
    }
    Ok(match decider.row(&stream_row(tenant, entity))? {
        Some(Row::Task(TaskRow { entry, .. })) => Some(entry.stream),
        Some(Row::Job(head)) => Some(head.stream),
        Some(Row::Entity(stream)) => Some(stream),
        _ => None,
    })
}

/// Answers a query.
pub(crate) fn events(reader: &LogReader, decider: &Decider, query: &EventQuery) -> Result<Page, Fault> {
    query.check()?;
    let stream = match query.path.entity() {
        None => None,
        Some(entity) => match stream(decider, &query.tenant, entity)? {
            None => return Ok(Page { events: Vec::new(), next: None }),
            found => found,
        },
    };
    answer(reader, stream.as_ref(), query)
}

/// Answers a checked query; `stream` is that of its entity, if it names one.
pub(crate) fn answer(reader: &LogReader, stream: Option<&Stream>, query: &EventQuery) -> Result<Page, Fault> {
    let window = Window {
        from: query.from.unwrap_or(Timestamp::MIN),
        to: query.to.unwrap_or(Timestamp::MAX),
        order: match query.order {
            event_query::Order::Ascending => Order::Ascending,
            event_query::Order::Descending => Order::Descending,
        },
        after: query.after.map(|cursor| cursor.position),
        limit: query.limit,
    };
    let (app, event_type) = (query.path.app().cloned(), query.path.event_type().cloned());
    let page = match stream {
        Some(stream) => reader.chain(&ChainQuery {
            main: stream.history.main.tip(),
            aside: stream.history.aside.tip(),
            app,
            event_type,
            ordered: !stream.disordered,
            window,
        }),
        None => reader.timeline(&TimelineQuery { tenant: query.tenant.clone(), app, event_type, window }),
    };
    let page = page?;
    Ok(Page {
        next: page.next.map(|position| query.cursor_at(position)),
        events: page.events.into_iter().map(|stored| stored.event).collect(),
    })
}

/// The latest event of a stream.
pub(crate) fn latest(reader: &LogReader, stream: &Stream) -> Result<Option<Event>, Fault> {
    if !stream.disordered
        && let Some(seq) = stream.newest()
        && let Some(stored) = reader.read(seq)?
    {
        return Ok(Some(stored.event));
    }
    let chain = ChainQuery {
        main: stream.history.main.tip(),
        aside: stream.history.aside.tip(),
        app: None,
        event_type: None,
        ordered: !stream.disordered,
        window: Window::all(Order::Descending, 1),
    };
    let page = reader.chain(&chain)?;
    Ok(page.events.into_iter().next().map(|stored| stored.event))
}
