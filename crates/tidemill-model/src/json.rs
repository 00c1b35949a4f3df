//! Raw JSON: a value that was checked once and is carried as text.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A valid JSON value as text. Cheap to clone, never parsed on the way through.
#[derive(Clone)]
pub struct Json(Source);

#[derive(Clone)]
enum Source {
    /// Parsed by us.
    Parsed(Arc<RawValue>),
    /// Parsed before it was stored; parsed again only if it has to go into another value.
    Stored(Arc<str>),
}

impl Json {
    /// Checks that `text` is one JSON value.
    pub fn parse(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self::from)
    }

    /// Takes a text that was checked before it was stored, without looking at it.
    pub fn trusted(text: &str) -> Self {
        Self(Source::Stored(Arc::from(text)))
    }

    /// The JSON form of `value`.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        Self::from(serde_json::value::to_raw_value(value).expect("our values have string keys only"))
    }

    /// A part of a JSON text that was parsed already.
    pub(crate) fn from_raw(raw: &RawValue) -> Self {
        Self::from(raw.to_owned())
    }

    /// `{}`
    pub fn empty_object() -> Self {
        Self::of(&serde_json::Map::new())
    }

    pub fn as_str(&self) -> &str {
        match &self.0 {
            Source::Parsed(raw) => raw.get(),
            Source::Stored(text) => text,
        }
    }

    pub fn len(&self) -> usize {
        self.as_str().len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn is_object(&self) -> bool {
        self.as_str().starts_with('{')
    }

    /// How many lists and objects stand within each other at most; 0 for a plain value.
    pub fn depth(&self) -> usize {
        let (mut depth, mut deepest) = (0_usize, 0);
        let mut bytes = self.as_str().bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'[' | b'{' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                b'"' => {
                    // To the end of the string. What follows a backslash ends nothing.
                    while let Some(byte) = bytes.next() {
                        match byte {
                            b'"' => break,
                            b'\\' => drop(bytes.next()),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        deepest
    }

    /// The value as typed data.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_str())
    }
}

/// The top level of a JSON object in the order of its text; the values stay raw, so that their numbers, their escapes
/// and their depth do not matter.
pub(crate) struct Fields<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

/// A string of a JSON text, borrowed from it unless it holds escapes.
#[derive(Debug, Deserialize)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

impl From<Box<RawValue>> for Json {
    fn from(raw: Box<RawValue>) -> Self {
        Self(Source::Parsed(raw.into()))
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::empty_object()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Source::Parsed(raw) => raw.serialize(serializer),
            Source::Stored(text) => {
                let raw: &RawValue = serde_json::from_str(text).map_err(serde::ser::Error::custom)?;
                raw.serialize(serializer)
            }
        }
    }
}

impl JsonSchema for Json {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }

    /// Any value.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        true.into()
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_lists_and_objects_and_no_text() {
        for (text, depth) in [
            ("1", 0),
            (r#""[[[""#, 0),
            ("{}", 1),
            ("[[],[]]", 2),
            (r#"{"a":[{"b":1}],"c":[]}"#, 3),
            (r#"["\\","[{","\"[[["]"#, 1),
            (r#"{"[[\\\"[[":[1]}"#, 2),
        ] {
            assert_eq!(Json::parse(text.to_owned()).unwrap().depth(), depth, "{text}");
        }
        let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
        assert_eq!(Json::parse(deep).unwrap().depth(), 50_000);
    }
}
