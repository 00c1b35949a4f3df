//! A span: something that took time, in its trace.

use serde_json::Value;
use tidemill_model::{Timestamp, TraceContext};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub(super) context: TraceContext,
    /// The span it is part of; the first one of a trace has none.
    pub(super) parent: Option<TraceContext>,
    pub(super) name: String,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    /// Texts and whole numbers.
    pub(super) attributes: Vec<(&'static str, Value)>,
    /// What went wrong, if it did.
    pub(super) error: Option<String>,
}

impl Span {
    /// Adds an attribute whose value is known.
    pub(super) fn add_attribute(&mut self, name: &'static str, value: Option<impl Into<Value>>) {
        self.attributes.extend(value.map(|value| (name, value.into())));
    }
}
