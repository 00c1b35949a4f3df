//! The members of a request or of an entry, with their types checked.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::fault::{SqsFault, SqsFaultCode};
use crate::dialect::SqsProtocol;

/// One object of a request. A member that is null is not there.
#[derive(Clone, Copy)]
pub(super) struct Members<'m> {
    members: &'m Map<String, Value>,
    /// In a form every value is text, numbers too.
    protocol: SqsProtocol,
}

impl<'m> Members<'m> {
    pub(super) fn of(members: &'m Map<String, Value>, protocol: SqsProtocol) -> Self {
        Self { members, protocol }
    }

    fn member(&self, name: &str) -> Option<&'m Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'m str>, SqsFault> {
        let Some(value) = self.member(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| wrong_type(name, "a string"))
    }

    /// A text that must be there and not be empty.
    pub(super) fn required_text(&self, name: &str) -> Result<&'m str, SqsFault> {
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| SqsFault::missing(name))
    }

    /// A whole number within `range`.
    pub(super) fn number(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, SqsFault> {
        let Some(value) = self.member(name) else { return Ok(None) };
        let number = match (value, self.protocol) {
            (Value::Number(number), _) => number.as_i64().ok_or_else(|| wrong_type(name, "an integer"))?,
            (Value::String(text), SqsProtocol::Query) => text
                .parse()
                .map_err(|_| SqsFault::invalid(format!("Value {text} for parameter {name} is invalid.")))?,
            _ => return Err(wrong_type(name, "an integer")),
        };
        let within = u32::try_from(number).ok().filter(|number| range.contains(number));
        within.map(Some).ok_or_else(|| {
            SqsFault::invalid(format!(
                "Value {number} for parameter {name} is invalid. Reason: Must be between {} and {}, if provided.",
                range.start(),
                range.end()
            ))
        })
    }

    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, SqsFault> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let list = self.list(name)?.iter().map(text).collect::<Option<_>>();
        list.ok_or_else(|| wrong_type(name, "a list of strings"))
    }

    pub(super) fn objects(&self, name: &str) -> Result<Vec<Self>, SqsFault> {
        let object = |value: &'m Value| value.as_object().map(|members| Self::of(members, self.protocol));
        let list = self.list(name)?.iter().map(object).collect::<Option<_>>();
        list.ok_or_else(|| wrong_type(name, "a list of structures"))
    }

    /// The members of a map from names to structures.
    pub(super) fn named_objects(&self, name: &str) -> Result<Vec<(&'m str, Self)>, SqsFault> {
        let entries = self.map(name)?.into_iter().flatten();
        let object = |(key, value): (&'m String, &'m Value)| {
            value.as_object().map(|members| (key.as_str(), Self::of(members, self.protocol)))
        };
        entries.map(object).collect::<Option<_>>().ok_or_else(|| wrong_type(name, "a map of structures"))
    }

    /// The members of a map from names to texts.
    pub(super) fn named_texts(&self, name: &str) -> Result<Vec<(String, String)>, SqsFault> {
        let entries = self.map(name)?.into_iter().flatten();
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        entries.map(text).collect::<Option<_>>().ok_or_else(|| wrong_type(name, "a map of strings"))
    }

    fn list(&self, name: &str) -> Result<&'m [Value], SqsFault> {
        let Some(value) = self.member(name) else { return Ok(&[]) };
        value.as_array().map(Vec::as_slice).ok_or_else(|| wrong_type(name, "a list"))
    }

    fn map(&self, name: &str) -> Result<Option<&'m Map<String, Value>>, SqsFault> {
        let Some(value) = self.member(name) else { return Ok(None) };
        value.as_object().map(Some).ok_or_else(|| wrong_type(name, "a map"))
    }
}

fn wrong_type(name: &str, wanted: &str) -> SqsFault {
    SqsFault::new(SqsFaultCode::Serialization, format!("{name} must be {wanted}."))
}
