//! What one process decides with: the core, which is the state and how far it got, and the writer, the one task that changes it.

pub(crate) mod contention;
pub(crate) mod core;
mod rebuild;
pub(crate) mod shared_core;
pub(crate) mod writer;
pub(crate) mod writer_handle;
