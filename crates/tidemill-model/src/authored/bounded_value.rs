//! JSON values from text, within a bound of memory.
//!
//! A value takes far more memory than its text: `{"a":0}` is some hundred times as large once it is a map. Code that
//! reads a stranger's text reads it here, where the memory of a value is counted while it is made.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The memory that the values of one document may take, by the reckoning below.
pub const VALUE_MEMORY_MAX: usize = 64 * 1024 * 1024;

/// What a place in a list or a plain value takes, with room to grow.
const VALUE_BYTES: usize = 64;
/// What a map takes with its first entries, and what an entry adds.
const MAP_BYTES: usize = 640;
const ENTRY_BYTES: usize = 128;

/// Why a text did not become a value.
#[derive(Debug, thiserror::Error)]
pub enum BadValue {
    #[error("is not JSON")]
    Syntax(#[source] serde_json::Error),
    #[error("holds so many values that they would take more than {VALUE_MEMORY_MAX} bytes of memory")]
    TooHeavy,
}

/// Reads a text as one value.
pub fn read_value(text: &str) -> Result<Value, BadValue> {
    let mut room = Room::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = BoundedValue(&mut room).deserialize(&mut deserializer);
    match read.and_then(|value| deserializer.end().map(|()| value)) {
        Err(_) if room.is_exceeded => Err(BadValue::TooHeavy),
        read => read.map_err(BadValue::Syntax),
    }
}

/// The memory that is left for values.
#[derive(Debug)]
pub(crate) struct Room {
    left: usize,
    /// Whether it was not enough. Reading ended with an error then.
    pub(crate) is_exceeded: bool,
}

impl Default for Room {
    fn default() -> Self {
        Self { left: VALUE_MEMORY_MAX, is_exceeded: false }
    }
}

impl Room {
    pub(crate) fn take<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        let Some(left) = self.left.checked_sub(bytes) else {
            self.is_exceeded = true;
            return Err(E::custom("too many values"));
        };
        self.left = left;
        Ok(())
    }
}

/// Makes one value out of `room`.
pub(crate) struct BoundedValue<'r>(pub(crate) &'r mut Room);

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.0.take(VALUE_BYTES).map(|()| Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.0.take(VALUE_BYTES).map(|()| Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.0.take(VALUE_BYTES).map(|()| Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.0.take(VALUE_BYTES).map(|()| Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.0.take(VALUE_BYTES).map(|()| Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.0.take(VALUE_BYTES + value.len()).map(|()| Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        self.0.take(2 * VALUE_BYTES)?;
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(BoundedValue(self.0))? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        self.0.take(VALUE_BYTES + MAP_BYTES)?;
        let mut fields = Map::new();
        while let Some(key) = object.next_key_seed(Key)? {
            self.0.take(ENTRY_BYTES + key.len())?;
            fields.insert(key.into_owned(), object.next_value_seed(BoundedValue(self.0))?);
        }
        Ok(Value::Object(fields))
    }
}

/// The key of an object, borrowed from the text unless it holds escapes.
pub(crate) struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_they_are_elsewhere() {
        for text in [
            "null",
            "[]",
            r#"{"b":[1,-2,3.5,1e3,18446744073709551615,1e20,true,null,"a\"\n\u00e9",{}],"a":{"x":{}}}"#,
        ] {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read_value(text).unwrap(), expected, "{text}");
        }
        for text in ["", "[1", "{\"a\":}", "1 2", "1e999"] {
            assert!(matches!(read_value(text), Err(BadValue::Syntax(_))), "{text}");
        }
    }

    #[test]
    fn a_text_that_would_take_too_much_memory_is_refused() {
        let many = |item: &str| format!("[{}]", vec![item; 2 * 1024 * 1024].join(","));
        for item in ["0", "[]", r#"{"a":0}"#, r#""""#] {
            assert!(matches!(read_value(&many(item)), Err(BadValue::TooHeavy)), "{item}");
        }
        let text = format!("\"{}\"", "x".repeat(16 * 1024 * 1024));
        assert!(read_value(&text).is_ok(), "a long text is as large as it looks");
    }
}
