//! What can be asked of the log.

pub use tidemill_model::events::event_query::Order;
use tidemill_model::{AppName, Event, EventType, Position, TenantId, Timestamp};

use crate::log::{Seq, StoredEvent};

/// Which part of a timeline or history, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first moment, inclusive.
    pub from: Timestamp,
    /// The last moment, inclusive.
    pub to: Timestamp,
    pub order: Order,
    /// Where the last page ended: only what comes after it in `order`.
    pub after: Option<Position>,
    /// The most events of a page.
    pub limit: usize,
}

impl Window {
    /// The first `limit` events of all times.
    pub fn all(order: Order, limit: usize) -> Self {
        Self { from: Timestamp::MIN, to: Timestamp::MAX, order, after: None, limit }
    }

    /// Whether a position lies before the window, in time.
    pub(in crate::log) fn is_below(&self, position: &Position) -> bool {
        let taken = self.order == Order::Ascending && self.after.is_some_and(|after| *position <= after);
        taken || position.timestamp < self.from
    }

    /// Whether a position lies behind the window, in time.
    pub(in crate::log) fn is_above(&self, position: &Position) -> bool {
        let taken = self.order == Order::Descending && self.after.is_some_and(|after| *position >= after);
        taken || position.timestamp > self.to
    }

    /// The first moment that can hold an event of the window.
    pub(in crate::log) fn first_moment(&self) -> Timestamp {
        match (self.order, self.after) {
            (Order::Ascending, Some(after)) => self.from.max(after.timestamp),
            _ => self.from,
        }
    }

    /// The last moment that can hold an event of the window.
    pub(in crate::log) fn last_moment(&self) -> Timestamp {
        match (self.order, self.after) {
            (Order::Descending, Some(after)) => self.to.min(after.timestamp),
            _ => self.to,
        }
    }
}

/// A tenant's events, or those of one app, one type, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineQuery {
    pub tenant: TenantId,
    pub app: Option<AppName>,
    pub event_type: Option<EventType>,
    pub window: Window,
}

impl TimelineQuery {
    pub(in crate::log) fn key(&self) -> PostingKey<'_> {
        PostingKey {
            tenant: self.tenant.as_str(),
            app: self.app.as_ref().map(AppName::as_str),
            event_type: self.event_type.as_ref().map(EventType::as_str),
        }
    }
}

/// The history of one entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainQuery {
    /// The newest event of the main chain, as the entity's head knows it.
    pub main: Option<Seq>,
    /// The newest event aside (heartbeats, late ones), as the entity's head knows it; `None` leaves them all out.
    pub aside: Option<Seq>,
    pub app: Option<AppName>,
    pub event_type: Option<EventType>,
    /// How many milliseconds an event aside may lie before one that came earlier there; `None` when they are in order.
    /// The main chain always is.
    pub lag_millis: Option<u64>,
    pub window: Window,
}

impl ChainQuery {
    pub(in crate::log) fn accepts(&self, stored: &StoredEvent) -> bool {
        self.app.as_ref().is_none_or(|app| *app == stored.event.app)
            && self.event_type.as_ref().is_none_or(|event_type| *event_type == stored.event.event_type)
    }
}

/// Some events in the order that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredPage {
    pub events: Vec<StoredEvent>,
    /// What to give as `after` for the next page, which may turn out empty; `None` when nothing follows.
    pub next: Option<Position>,
}

/// What a posting list is about: a tenant, and perhaps an app, a type or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct PostingKey<'a> {
    pub(in crate::log) tenant: &'a str,
    pub(in crate::log) app: Option<&'a str>,
    pub(in crate::log) event_type: Option<&'a str>,
}

impl PostingKey<'_> {
    /// Whether an event belongs on the list.
    pub(in crate::log) fn fits(&self, event: &Event) -> bool {
        self.tenant == event.tenant.as_str()
            && self.app.is_none_or(|app| app == event.app.as_str())
            && self.event_type.is_none_or(|event_type| event_type == event.event_type.as_str())
    }

    /// The key as bytes.
    pub(in crate::log) fn put(&self, out: &mut Vec<u8>) {
        for name in [Some(self.tenant), self.app, self.event_type] {
            let Some(name) = name else {
                out.push(0);
                continue;
            };
            out.push(1);
            let len = u32::try_from(name.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(name.as_bytes());
        }
    }
}
