//! Fields of events and spans as values.

use std::error::Error;
use std::fmt::Debug;

use serde_json::Value;
use tracing::field::{Field, Visit};

/// The field that holds an event's sentence.
pub const MESSAGE: &str = "message";

/// Fields in the order in which they came; the later value of a name stays in the place of the earlier.
#[derive(Debug, Clone, Default)]
pub struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    pub fn put(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes over all of another's.
    pub fn extend(&mut self, others: &Self) {
        for (name, value) in &others.0 {
            self.put(name, value.clone());
        }
    }

    /// Takes a text out.
    pub fn take_text(&mut self, name: &str) -> Option<String> {
        let place = self.0.iter().position(|(known, _)| *known == name)?;
        match self.0.remove(place).1 {
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        }
    }

    /// Passes every text through `change`.
    pub fn change_texts(&mut self, change: impl Fn(&str) -> String) {
        for (_, value) in &mut self.0 {
            if let Value::String(text) = value {
                *text = change(text);
            }
        }
    }

    pub fn as_slice(&self) -> &[(&'static str, Value)] {
        &self.0
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field.name(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    /// The error with all that is behind it.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut text = value.to_string();
        let mut next = value.source();
        while let Some(source) = next {
            text.push_str(": ");
            text.push_str(&source.to_string());
            next = source.source();
        }
        self.put(field.name(), text.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_value_of_a_name_stays_in_the_place_of_the_earlier() {
        let mut fields = Fields::default();
        for (name, value) in [("job", "a"), ("task", "b"), ("job", "c")] {
            fields.put(name, value.into());
        }
        assert_eq!(fields.as_slice(), [("job", "c".into()), ("task", "b".into())]);
        assert_eq!(fields.take_text("task").as_deref(), Some("b"));
        assert_eq!(fields.take_text("task"), None);
    }
}
