//! What goes through `tracing` on its way to the lines of a log: fields as values, and how often the same is told.
//!
//! Who shows lines is the binary's matter. Libraries tell a cause once, where it is dealt with: `error` wants somebody, `warn` may.

mod fields;
mod pace;

pub use fields::{Fields, MESSAGE};
pub use pace::{Pace, Told};
