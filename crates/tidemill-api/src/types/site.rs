//! Probes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The process answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// `ok`, or `stopped` if the store works again only in a new process.
    pub status: String,
}

/// Whether the server can do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// `ready` or `unavailable`.
    pub status: String,
    /// What is in the way; empty when ready.
    pub reasons: Vec<String>,
    /// What somebody should look at although the server is ready.
    pub warnings: Vec<String>,
    /// Workers, here and elsewhere, that reported in the last 60 seconds.
    pub workers: usize,
    pub slots: SlotsView,
}

/// What may run in the server's own process at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Slots")]
pub struct SlotsView {
    /// How many tasks may; 0 for a server that runs none.
    pub total: usize,
    /// How many do.
    pub busy: usize,
}
