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

    /// What keeps readers of JSON from reading this value. It is found in one pass over the text.
    pub fn problem(&self) -> Option<ValueProblem> {
        let text = self.as_str();
        let bytes = text.as_bytes();
        let (mut at, mut depth, mut deepest) = (0, 0_usize, 0);
        let mut found = None;
        while let Some(byte) = bytes.get(at) {
            at += 1;
            match byte {
                b'[' | b'{' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                b'"' => {
                    let (end, is_text) = string_end(bytes, at);
                    at = end;
                    if !is_text {
                        found = found.or(Some(ValueProblem::Surrogate));
                    }
                }
                b'-' | b'0'..=b'9' => {
                    let start = at - 1;
                    let is_number =
                        |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                    at += bytes[at..].iter().take_while(|byte| is_number(byte)).count();
                    let number = &text[start..at];
                    // Only with an exponent or very many digits can a number be too large.
                    let may_be = number.len() > DIGITS_SAFE || number.contains(['e', 'E']);
                    if may_be && serde_json::from_str::<f64>(number).is_err() {
                        found = found.or(Some(ValueProblem::Number));
                    }
                }
                _ => {}
            }
        }
        if deepest > VALUE_DEPTH_MAX { Some(ValueProblem::Depth { depth: deepest }) } else { found }
    }

    /// The value as typed data.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_str())
    }
}

/// The lists and objects within each other in a value from outside: readers of JSON give up on deep ones.
pub const VALUE_DEPTH_MAX: usize = 100;
/// A number of so few characters without an exponent is within the range of a double.
const DIGITS_SAFE: usize = 300;

/// Why a value that is JSON cannot be read by everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueProblem {
    #[error("is nested {depth} levels deep; the limit is {VALUE_DEPTH_MAX}")]
    Depth { depth: usize },
    #[error("holds a number beyond the range of a double")]
    Number,
    #[error("holds a text with half of a surrogate pair")]
    Surrogate,
}

/// Where the string that begins at `at`, after its quote, has ended, and whether its escapes make text.
fn string_end(bytes: &[u8], mut at: usize) -> (usize, bool) {
    let unit = |at: usize| {
        let digits = bytes.get(at..at + 6).filter(|escape| escape.starts_with(b"\\u"))?;
        u32::from_str_radix(std::str::from_utf8(&digits[2..]).ok()?, 16).ok()
    };
    let mut is_text = true;
    loop {
        match bytes.get(at) {
            None => return (at, is_text),
            Some(b'"') => return (at + 1, is_text),
            Some(b'\\') => match unit(at) {
                Some(0xd800..0xdc00) if matches!(unit(at + 6), Some(0xdc00..0xe000)) => at += 12,
                Some(0xd800..0xe000) => {
                    is_text = false;
                    at += 6;
                }
                Some(_) => at += 6,
                None => at += 2,
            },
            Some(_) => at += 1,
        }
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
    fn what_readers_cannot_read_is_found() {
        let many = "9".repeat(400);
        let fraction = format!("0.{}", "9".repeat(400));
        for (text, problem) in [
            ("1", None),
            ("[-1.5e308,1e-999,0e999,123456789012345678901234567890]", None),
            (r#""1e999 [[[ \\ud800 \ud83d\ude00 \" 1e999""#, None),
            ("1e999", Some(ValueProblem::Number)),
            ("[0,-1E+400]", Some(ValueProblem::Number)),
            (r#"{"a":{"b":1e309}}"#, Some(ValueProblem::Number)),
            (&*many, Some(ValueProblem::Number)),
            (&*fraction, None),
            (r#""\ud800""#, Some(ValueProblem::Surrogate)),
            (r#"["\uDC00"]"#, Some(ValueProblem::Surrogate)),
            (r#"["\ud800\ud800"]"#, Some(ValueProblem::Surrogate)),
            (r#"["\ud800\n"]"#, Some(ValueProblem::Surrogate)),
            (r#"["\ud800","\udc00"]"#, Some(ValueProblem::Surrogate)),
            (r#"{"\ud800":1}"#, Some(ValueProblem::Surrogate)),
        ] {
            let value = Json::parse(text.to_owned()).unwrap();
            assert_eq!(value.problem(), problem, "{text}");
            assert_eq!(value.read::<serde_json::Value>().is_err(), problem.is_some(), "{text}");
        }
        let nested = |levels: usize| Json::parse("[".repeat(levels) + &"]".repeat(levels)).unwrap();
        assert_eq!(nested(100).problem(), None);
        assert_eq!(nested(101).problem(), Some(ValueProblem::Depth { depth: 101 }));
    }

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
