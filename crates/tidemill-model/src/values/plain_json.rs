//! JSON text in its plain form: no spaces, keys in order, numbers and escapes as this program writes them.
//!
//! It is what a value turns into when it is read and written again, made without the value: two texts that mean the same
//! are the same, and memory is a small multiple of the text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::authored::bounded_value::Key;

/// Reads one value and writes its plain form behind what is there. Nothing is written of `null`.
pub(crate) struct Plain<'o>(pub(crate) &'o mut Vec<u8>);

impl Plain<'_> {
    fn write<T: serde::Serialize + ?Sized, E: Error>(self, value: &T) -> Result<bool, E> {
        serde_json::to_writer(self.0, value).map_err(E::custom)?;
        Ok(true)
    }
}

impl<'de> DeserializeSeed<'de> for Plain<'_> {
    /// False for `null`.
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// The same for a value within another, where `null` is written as such.
struct Inner<'o>(&'o mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Inner<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if !Plain(self.0).deserialize(deserializer)? {
            self.0.extend_from_slice(b"null");
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Plain<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        self.write(&value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<bool, E> {
        self.write(&value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<bool, E> {
        self.write(&value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<bool, E> {
        self.write(&value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<bool, E> {
        self.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        self.0.push(b'[');
        let start = self.0.len();
        while list.next_element_seed(Inner(self.0))?.is_some() {
            self.0.push(b',');
        }
        self.0.truncate(self.0.len() - usize::from(self.0.len() > start));
        self.0.push(b']');
        Ok(true)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<bool, A::Error> {
        self.0.push(b'{');
        let start = self.0.len();
        // Every key with the place where its entry ends, its comma included.
        let mut entries: Vec<(Cow<'de, str>, usize)> = Vec::new();
        while let Some(key) = object.next_key_seed(Key)? {
            serde_json::to_writer(&mut *self.0, &*key).map_err(A::Error::custom)?;
            self.0.push(b':');
            object.next_value_seed(Inner(self.0))?;
            self.0.push(b',');
            entries.push((key, self.0.len()));
        }
        if !entries.is_sorted_by(|one, other| one.0 < other.0) {
            let ordered = in_order(&self.0[start..], start, &entries);
            self.0.truncate(start);
            self.0.extend_from_slice(&ordered);
        }
        self.0.truncate(self.0.len() - usize::from(self.0.len() > start));
        self.0.push(b'}');
        Ok(true)
    }
}

/// The entries of an object by their keys. Of a key that is there twice the last counts.
fn in_order(written: &[u8], start: usize, entries: &[(Cow<'_, str>, usize)]) -> Vec<u8> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|one, other| entries[*one].0.cmp(&entries[*other].0));
    let mut ordered = Vec::with_capacity(written.len());
    for (place, &entry) in order.iter().enumerate() {
        let is_last = order.get(place + 1).is_none_or(|next| entries[*next].0 != entries[entry].0);
        if is_last {
            let from = if entry == 0 { 0 } else { entries[entry - 1].1 - start };
            ordered.extend_from_slice(&written[from..entries[entry].1 - start]);
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn plain(text: &str) -> String {
        let mut out = Vec::new();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        Inner(&mut out).deserialize(&mut deserializer).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_plain_form_is_that_of_the_value() {
        for text in [
            "null",
            "[]",
            "{}",
            " [ 1 , null , 2.50 , 1E3 , -0 , -0.0 , 123456789012345678901234567890 ] ",
            r#"{"b":{"z":1,"y":[{}]},"a":null,"":0,"é":"\u00e9\/\u001f","B":[]}"#,
            r#"{"a\"":1,"a!":2,"\u0061":3}"#,
            r#"{"a":1,"b":2,"a":3}"#,
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(plain(text), value.to_string(), "{text}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 48, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(".{0,4}", inner, 0..8)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_has_the_plain_form_of_its_text(value in any_json()) {
            let text = serde_json::to_string_pretty(&value).unwrap();
            // Numbers are read with a small mistake, so the value is what its text is read as.
            let read: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(plain(&text), read.to_string());
        }
    }
}
