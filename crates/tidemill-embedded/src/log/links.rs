//! An event with its place in the log, and its pointers into its entity's history.
//!
//! The arithmetic of the pointers is the engine's (`state::trail`), because heads keep what it needs.

use tidemill_model::Event;

pub use tidemill_engine::state::trail::{History, Links, Seq, Trail, jump_ordinal};

/// An event with its place in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    pub seq: Seq,
    pub event: Event,
    pub links: Links,
}
