//! Events in the table: how they are stored, and how questions for them are answered.

pub(crate) mod event_item;
pub(crate) mod event_page;
mod latest_event;
pub(crate) mod recent_events;
pub(crate) mod save_event;
