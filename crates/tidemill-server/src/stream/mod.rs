//! Answers that go on: events and logs as they come.
//!
//! A stream is a task that fills a short queue and a body that empties it. A reader that is too slow for the queue is
//! told so and dropped; nothing grows without bound.

mod channel_body;
mod events;
mod herald;
mod limits;
mod logs;

pub(crate) use channel_body::{Outlet, channel};
pub(crate) use events::{EventFilter, follow_events};
pub(crate) use herald::{Herald, News};
pub(crate) use limits::{StreamLimits, StreamPermit};
pub(crate) use logs::follow_log;
