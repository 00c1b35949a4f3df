//! Finds a key that an object has twice.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Up to this many keys are compared one by one.
const FEW: usize = 16;

/// The place of the first key that is there a second time in its object, as `tasks[3].input.a`. The text must be JSON.
pub(super) fn key_given_twice(text: &str) -> Option<String> {
    let mut walk = Walk { parts: None };
    // Its only error is the find.
    let _ = serde_json::Deserializer::from_str(text).deserialize_any(&mut walk);
    let place: String = walk.parts?.into_iter().rev().collect();
    Some(place.strip_prefix('.').unwrap_or(&place).to_owned())
}

/// A way through all values of a text.
struct Walk {
    /// Where the key was found, the innermost part first.
    parts: Option<Vec<String>>,
}

impl Walk {
    /// Adds where a value lies, if the key was found in it.
    fn pass<T, E>(&mut self, walked: Result<T, E>, part: impl FnOnce() -> String) -> Result<T, E> {
        if walked.is_err()
            && let Some(parts) = &mut self.parts
        {
            parts.push(part());
        }
        walked
    }
}

impl<'de> DeserializeSeed<'de> for &mut Walk {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! passed_over {
    ($($visit:ident: $kind:ty),*) => {
        $(fn $visit<E: Error>(self, _: $kind) -> Result<(), E> {
            Ok(())
        })*
    };
}

impl<'de> Visitor<'de> for &mut Walk {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    passed_over!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        for index in 0_usize.. {
            let walked = list.next_element_seed(&mut *self);
            if self.pass(walked, || format!("[{index}]"))?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let mut seen = Seen::Few(Vec::new());
        while let Some(key) = object.next_key_seed(KeySeed)? {
            let is_new = seen.insert(key.clone());
            let walked = if is_new {
                object.next_value_seed(&mut *self)
            } else {
                self.parts = Some(Vec::new());
                object.next_value::<IgnoredAny>().and(Err(A::Error::custom("given twice")))
            };
            self.pass(walked, || format!(".{key}"))?;
        }
        Ok(())
    }
}

/// The keys of an object so far.
enum Seen<'de> {
    Few(Vec<Cow<'de, str>>),
    Many(HashSet<Cow<'de, str>>),
}

impl<'de> Seen<'de> {
    /// False when it was there before.
    fn insert(&mut self, key: Cow<'de, str>) -> bool {
        match self {
            Self::Few(keys) if keys.contains(&key) => false,
            Self::Few(keys) if keys.len() < FEW => {
                keys.push(key);
                true
            }
            Self::Few(keys) => {
                let mut many: HashSet<_> = std::mem::take(keys).into_iter().collect();
                many.insert(key);
                *self = Self::Many(many);
                true
            }
            Self::Many(keys) => keys.insert(key),
        }
    }
}

/// Reads a key without copying it where that can be.
struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
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
