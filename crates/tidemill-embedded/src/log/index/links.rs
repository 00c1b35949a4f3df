//! An event with its place in the log, and its pointers into its entity's history.
//!
//! The arithmetic of the pointers is the engine's (`state::trail`), because heads keep what it needs.

pub use tidemill_engine::codec::StoredEvent;
pub use tidemill_engine::state::trail::{History, Links, Seq, Trail, jump_ordinal};
