//! Queries for events: one access path, a span of time, an order and a page.
//!
//! `select` answers a query from plain events. It is the meaning of a query; every backend must give the same pages.

use crate::events::access_path::AccessPath;
use crate::events::cursor::{BadCursor, Cursor, Fingerprint};
use crate::events::event::{Event, Position};
use crate::values::id::{AppName, EventType, TenantId};
use crate::values::time::Timestamp;

/// The most events that one page holds.
pub const PAGE_MAX: usize = 1_000;

/// A question for events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    pub tenant: TenantId,
    pub path: AccessPath,
    /// The first moment of interest.
    pub from: Option<Timestamp>,
    /// The last moment of interest, itself included.
    pub to: Option<Timestamp>,
    pub order: Order,
    /// The size of a page, from 1 to [`PAGE_MAX`].
    pub limit: usize,
    /// Where the page before ended.
    pub after: Option<Cursor>,
}

/// By time and id: oldest first, or newest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Order {
    #[default]
    Ascending,
    Descending,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// Where to go on; `None` exactly when nothing follows.
    pub next: Option<Cursor>,
}

/// Why a query is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadQuery {
    #[error("limit is {limit}; it must be from 1 to {PAGE_MAX}")]
    Limit { limit: usize },
    #[error("from is {from}, which is after to, {to}")]
    Span { from: Timestamp, to: Timestamp },
    #[error(transparent)]
    Cursor(#[from] BadCursor),
}

impl EventQuery {
    /// Everything on `path`, oldest first, in the largest pages.
    pub fn all(tenant: TenantId, path: AccessPath) -> Self {
        Self { tenant, path, from: None, to: None, order: Order::Ascending, limit: PAGE_MAX, after: None }
    }

    /// The same query after the page that ended with this cursor. A cursor of another query is refused.
    pub fn after_cursor(mut self, cursor: &str) -> Result<Self, BadCursor> {
        let cursor = Cursor::parse(cursor)?;
        self.accept(cursor)?;
        self.after = Some(cursor);
        Ok(self)
    }

    /// Whether the query can be answered. Backends ask this first.
    pub fn check(&self) -> Result<(), BadQuery> {
        if !(1..=PAGE_MAX).contains(&self.limit) {
            return Err(BadQuery::Limit { limit: self.limit });
        }
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from > to
        {
            return Err(BadQuery::Span { from, to });
        }
        if let Some(cursor) = self.after {
            self.accept(cursor)?;
        }
        Ok(())
    }

    fn accept(&self, cursor: Cursor) -> Result<(), BadCursor> {
        if cursor.fingerprint == self.fingerprint() { Ok(()) } else { Err(BadCursor::OtherQuery) }
    }

    /// What a cursor of this query carries. Span and limit are left out: they may change from page to page.
    pub fn fingerprint(&self) -> Fingerprint {
        let order = match self.order {
            Order::Ascending => "asc",
            Order::Descending => "desc",
        };
        let entity = self.path.entity();
        Fingerprint::of(&[
            self.tenant.as_str(),
            order,
            self.path.event_type().map_or("", EventType::as_str),
            self.path.app().map_or("", AppName::as_str),
            entity.map_or("", |entity| entity.kind.as_str()),
            entity.map_or("", |entity| entity.id.as_str()),
        ])
    }

    /// The cursor of a page that ends with the event at `position`.
    pub fn cursor_at(&self, position: Position) -> Cursor {
        Cursor { position, fingerprint: self.fingerprint() }
    }

    /// Whether `event` is part of the answer, on whichever page.
    pub fn matches(&self, event: &Event) -> bool {
        event.tenant == self.tenant
            && self.from.is_none_or(|from| from <= event.timestamp)
            && self.to.is_none_or(|to| event.timestamp <= to)
            && self.path.contains(event)
    }

    /// Whether an event at `position` comes on this page or a later one.
    pub fn is_after_cursor(&self, position: Position) -> bool {
        self.after.is_none_or(|cursor| match self.order {
            Order::Ascending => position > cursor.position,
            Order::Descending => position < cursor.position,
        })
    }

    /// The page of this query over `events`, which may come in any order.
    ///
    /// The query must have passed [`check`](Self::check).
    pub fn select<'a>(&self, events: impl Iterator<Item = &'a Event>) -> EventPage {
        let mut found: Vec<&Event> =
            events.filter(|event| self.matches(event) && self.is_after_cursor(event.position())).collect();
        found.sort_by_key(|event| event.position());
        if self.order == Order::Descending {
            found.reverse();
        }
        let more = found.len() > self.limit;
        found.truncate(self.limit);
        let next = found.last().filter(|_| more).map(|last| self.cursor_at(last.position()));
        EventPage { events: found.into_iter().cloned().collect(), next }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample;

    fn query() -> EventQuery {
        let event = sample::documented_event();
        EventQuery::all(event.tenant, AccessPath::Type(event.event_type))
    }

    #[test]
    fn a_query_out_of_bounds_is_refused() {
        let [early, late] = [Timestamp::MIN, Timestamp::MAX];
        for (refused, expected) in [
            (EventQuery { limit: 0, ..query() }, "limit is 0; it must be from 1 to 1000"),
            (EventQuery { limit: 1_001, ..query() }, "limit is 1001; it must be from 1 to 1000"),
            (
                EventQuery { from: Some(late), to: Some(early), ..query() },
                "from is 9999999999999, which is after to, 1000000000000",
            ),
        ] {
            assert_eq!(refused.check().unwrap_err().to_string(), expected);
        }
        assert_eq!(EventQuery { limit: 1_000, from: Some(late), to: Some(late), ..query() }.check(), Ok(()));
    }

    #[test]
    fn a_cursor_continues_only_the_query_it_was_made_for() {
        let event = sample::documented_event();
        let cursor = query().cursor_at(event.position());
        let text = cursor.to_string();
        let again = EventQuery { limit: 7, to: Some(Timestamp::MAX), ..query() }.after_cursor(&text).unwrap();
        assert_eq!(again.after, Some(cursor));
        assert_eq!(again.check(), Ok(()));

        let app = event.app.clone();
        let others = [
            EventQuery { tenant: TenantId::new("another").unwrap(), ..query() },
            EventQuery { path: AccessPath::Tenant, ..query() },
            EventQuery { path: AccessPath::TypeApp(event.event_type.clone(), app.clone()), ..query() },
            EventQuery { path: AccessPath::App(AppName::new(event.event_type.as_str()).unwrap()), ..query() },
            EventQuery { order: Order::Descending, ..query() },
        ];
        for other in others {
            assert_eq!(other.clone().after_cursor(&text), Err(BadCursor::OtherQuery), "{other:?}");
            let forced = EventQuery { after: Some(cursor), ..other };
            assert_eq!(forced.check(), Err(BadQuery::Cursor(BadCursor::OtherQuery)));
        }
        assert_eq!(query().after_cursor("x"), Err(BadCursor::Malformed));
    }

    #[test]
    fn both_ends_of_the_span_are_included() {
        let event = sample::documented_event();
        let now = event.timestamp;
        for (from, to, fits) in [
            (None, None, true),
            (Some(now), Some(now), true),
            (Some(now.plus(1)), None, false),
            (None, Some(now.minus(1)), false),
        ] {
            assert_eq!(EventQuery { from, to, ..query() }.matches(&event), fits, "{from:?} {to:?}");
        }
    }

    proptest! {
        #[test]
        fn pages_give_every_match_once_and_in_order(
            events in proptest::collection::vec(sample::event(), 1..40),
            path in 0..8_usize,
            limit in 1..5_usize,
            newest_first in any::<bool>(),
        ) {
            let mut events = events;
            events.sort_by_key(Event::position);
            events.dedup_by_key(|event| event.position());
            let order = if newest_first { Order::Descending } else { Order::Ascending };
            let asked = &events[0];
            let mut query = EventQuery::all(asked.tenant.clone(), sample::paths_of(asked)[path].clone());
            query.limit = limit;
            query.order = order;
            let mut expected: Vec<Position> =
                events.iter().filter(|event| query.matches(event)).map(Event::position).collect();
            if newest_first {
                expected.reverse();
            }

            let mut found = Vec::new();
            loop {
                prop_assert_eq!(query.check(), Ok(()));
                let page = query.select(events.iter().rev());
                prop_assert!(page.events.len() == limit || page.next.is_none());
                found.extend(page.events.iter().map(Event::position));
                let Some(next) = page.next else { break };
                query = query.after_cursor(&next.to_string()).unwrap();
            }
            prop_assert_eq!(found, expected);
        }
    }
}
