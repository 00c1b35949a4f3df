//! The way from the log to the bus and the queue, and what is done for events that did not make it.

pub(crate) mod dead_letter;
mod missing_events;
pub(crate) mod outbox;
pub(crate) mod outbox_sender;
mod unsent;
