//! Who runs tasks: claim, run, heartbeat, finish.
//!
//! `native` runs async Rust functions inside an embedding program. A worker claims only when it has a free slot, renews
//! its leases while it works, and drops what it no longer holds: outcomes are taken by fence, so a late one harms
//! nothing.

pub mod handler;
pub mod native;
mod slot;

pub use handler::{Handlers, TaskContext, TaskError};
pub use native::{NativeWorker, WorkerConfig, WorkerHandle};
