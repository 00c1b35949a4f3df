//! The fields of one line, taken out by name, so that whatever is wrong can be named.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The largest fence, version or number of events: no store comes near, and it can be counted on from there.
const NUMBER_MAX: u64 = 1 << 53;
/// The largest number of runs, attempts or deliveries.
const COUNT_MAX: u32 = 1_000_000_000;

/// A field that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub(super) struct BadField {
    pub(super) field: String,
    pub(super) problem: String,
}

impl BadField {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    pub(super) fn wrong(field: impl Into<String>, error: &dyn fmt::Display) -> Self {
        let text = error.to_string();
        // The place within the field's own text helps nobody.
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(before, _)| before);
        Self::new(field, format!("is wrong: {text}"))
    }
}

/// The fields of a JSON object that were not taken yet.
pub(super) struct Fields<'a> {
    /// What the names stand under, with a dot, or nothing.
    path: String,
    values: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Fields<'a> {
    pub(super) fn of_line(text: &'a str) -> Result<Self, BadField> {
        let values = serde_json::from_str(text).map(|Pairs(values)| values);
        Ok(Self { path: String::new(), values: values.map_err(|error| BadField::wrong("the line", &error))? })
    }

    fn name(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    pub(super) fn raw(&mut self, field: &str) -> Option<&'a RawValue> {
        let at = self.values.iter().position(|(name, _)| name == field)?;
        Some(self.values.remove(at).1)
    }

    pub(super) fn required_raw(&mut self, field: &str) -> Result<&'a RawValue, BadField> {
        self.raw(field).ok_or_else(|| BadField::new(self.name(field), "is missing"))
    }

    pub(super) fn optional<T: DeserializeOwned>(&mut self, field: &str) -> Result<Option<T>, BadField> {
        let Some(raw) = self.raw(field) else { return Ok(None) };
        serde_json::from_str(raw.get()).map(Some).map_err(|error| BadField::wrong(self.name(field), &error))
    }

    pub(super) fn required<T: DeserializeOwned>(&mut self, field: &str) -> Result<T, BadField> {
        self.optional(field)?.ok_or_else(|| BadField::new(self.name(field), "is missing"))
    }

    /// A number that can still grow.
    pub(super) fn number(&mut self, field: &str) -> Result<u64, BadField> {
        self.optional_number(field)?.ok_or_else(|| BadField::new(self.name(field), "is missing"))
    }

    pub(super) fn optional_number(&mut self, field: &str) -> Result<Option<u64>, BadField> {
        let number = self.optional::<u64>(field)?;
        self.bounded(field, number, NUMBER_MAX)
    }

    /// A small number that can still grow.
    pub(super) fn count(&mut self, field: &str) -> Result<u32, BadField> {
        self.optional_count(field)?.ok_or_else(|| BadField::new(self.name(field), "is missing"))
    }

    pub(super) fn optional_count(&mut self, field: &str) -> Result<Option<u32>, BadField> {
        let number = self.optional::<u64>(field)?;
        let count = self.bounded(field, number, u64::from(COUNT_MAX))?;
        Ok(count.map(|count| u32::try_from(count).unwrap_or(COUNT_MAX)))
    }

    fn bounded(&self, field: &str, number: Option<u64>, max: u64) -> Result<Option<u64>, BadField> {
        match number {
            Some(number) if number > max => {
                Err(BadField::new(self.name(field), format!("is {number}; the limit is {max}")))
            }
            number => Ok(number),
        }
    }

    /// A text that `read` understands.
    pub(super) fn text<T>(
        &mut self,
        field: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, BadField> {
        let text: String = self.required(field)?;
        read(&text).ok_or_else(|| BadField::new(self.name(field), format!("is {text:?}, which it cannot be")))
    }

    pub(super) fn object(&mut self, field: &str) -> Result<Option<Self>, BadField> {
        let Some(raw) = self.raw(field) else { return Ok(None) };
        let values = serde_json::from_str(raw.get()).map(|Pairs(values)| values);
        let values = values.map_err(|error| BadField::wrong(self.name(field), &error))?;
        Ok(Some(Self { path: format!("{}.", self.name(field)), values }))
    }

    /// Refuses what was not taken.
    pub(super) fn finish(self) -> Result<(), BadField> {
        match self.values.first() {
            None => Ok(()),
            Some((name, _)) => Err(BadField::new(self.name(name), "is not known here, or given twice")),
        }
    }
}

/// A JSON object with its values unread.
struct Pairs<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    pairs.push((name, value));
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}
