//! A part of a list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of a list and where it goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Hand it back as `cursor` for the next page; null when nothing follows. A page may be short, or even empty, while
    /// more follows.
    pub next_cursor: Option<String>,
}
