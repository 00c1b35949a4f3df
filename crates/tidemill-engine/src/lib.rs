//! What happens next: commands in, commits out.
//!
//! A command is decided by a pure function on the state, its product is a `Commit`, and a backend makes the commit
//! durable and true. Everything else in Tidemill turns events into further commands.
//!
//! A folder is a capability, and a command is a file in it; `kernel` is what all of them rest on.

pub(crate) mod alerts;
pub(crate) mod definitions;
pub mod engine;
pub(crate) mod events;
pub mod export;
pub mod health;
mod kernel;
pub(crate) mod keys;
pub mod log_lines;
pub mod metrics;
pub mod outbound;
pub(crate) mod outside;
pub(crate) mod parking;
pub(crate) mod queue;
pub mod scripts;
pub mod triage;
pub(crate) mod usage;
pub(crate) mod work;

pub use engine::Engine;
pub use kernel::any_backend::AnyBackend;
#[cfg(feature = "faults")]
pub use kernel::faults;
pub use kernel::{
    backend, clock, codec, command, commit, decision, id_source, memory, notice, piece, policy, reads,
    record, reply, site, state,
};
pub use scripts::execution;
pub use work::running::live_log;
