//! What happens next: commands in, commits out.
//!
//! A command is decided by a pure function on the state (`decide`), its product is a `Commit`, and a backend makes the
//! commit durable and true. Everything else in Tidemill turns events into further commands.

pub mod backend;
pub mod clock;
pub mod codec;
pub mod command;
pub mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod decide;
pub mod engine;
pub mod execution;
pub mod export;
#[cfg(feature = "faults")]
pub mod faults;
pub mod health;
pub mod id_source;
pub mod live_log;
pub mod log_lines;
pub mod memory;
pub mod metrics;
pub mod notice;
pub mod outbound;
pub mod piece;
pub mod policy;
pub mod record;
pub mod reply;
pub mod scripts;
pub mod site;
mod snapshot;
pub mod state;
pub mod triage;

pub use engine::Engine;
