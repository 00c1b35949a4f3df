//! What goes through `tracing` on its way to the lines of a log: fields as values, and how often the same cause is
//! logged.
//!
//! The binary decides which lines are shown. Libraries log a cause once, where they handle it: `error` needs a
//! person, `warn` may.

mod fields;
mod pace;

pub use fields::{Fields, MESSAGE};
pub use pace::{Pace, Told};
