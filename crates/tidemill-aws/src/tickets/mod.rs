//! Tickets: what the queue holds for each message of the store, and those that this process has taken from it.

pub(crate) mod held_tickets;
mod lost_tickets;
pub(crate) mod ticket;
