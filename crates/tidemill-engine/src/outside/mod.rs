//! What comes from outside: events that other systems send, with their own ids, times and keys.
//!
//! Such an event is a command. It is stored once, as it was sent, and what it means happens in the same commit.

pub(crate) mod lenient;
pub(crate) mod meaning;
pub(crate) mod take_in;
