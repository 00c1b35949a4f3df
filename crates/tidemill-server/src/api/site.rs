//! Probes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The process answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Always `ok`.
    pub status: String,
}

/// Whether the server can do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// `ready` or `unavailable`.
    pub status: String,
    /// What is in the way; empty when ready.
    pub reasons: Vec<String>,
}
