//! The static input of a task: a JSON object, of which the engine reads no more than its keys.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::values::json::{Json, ValueProblem};

/// The key of a task's input under which the outputs of its parents are put. No input may bring it along.
pub const DEPENDENCY_OUTPUTS: &str = "dependencyOutputs";

/// The key under which the files are named that its parents left. No input may bring it along either.
pub const DEPENDENCY_ARTIFACTS: &str = "dependencyArtifacts";

const RESERVED: [&str; 2] = [DEPENDENCY_OUTPUTS, DEPENDENCY_ARTIFACTS];

/// What can be wrong with a task's static input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InputProblem {
    #[error("is not a JSON object")]
    NotAnObject,
    /// It has a key under which something of its parents is put.
    #[error("has the reserved key {0}")]
    ReservedKey(&'static str),
    /// A key is not text: it holds half of a surrogate pair.
    #[error("has a key that is not text")]
    UnreadableKey,
    /// Readers of JSON cannot read it.
    #[error(transparent)]
    Value(#[from] ValueProblem),
}

/// What is wrong with a static input that comes from outside.
pub fn new_input_problem(input: &Json) -> Option<InputProblem> {
    input_problem(input).or_else(|| input.problem().map(InputProblem::Value))
}

/// What is wrong with a static input, looking no deeper than its keys, as for one that was stored by an older version.
pub fn input_problem(input: &Json) -> Option<InputProblem> {
    if !input.is_object() {
        return Some(InputProblem::NotAnObject);
    }
    match input.read::<ReservedKey>() {
        Ok(ReservedKey(found)) => found.map(InputProblem::ReservedKey),
        Err(_) => Some(InputProblem::UnreadableKey),
    }
}

/// The first reserved key of an object, if it has one.
struct ReservedKey(Option<&'static str>);

impl<'de> Deserialize<'de> for ReservedKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = ReservedKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ReservedKey, A::Error> {
                let mut found = None;
                while let Some(Key(reserved)) = map.next_key()? {
                    found = found.or(reserved);
                    map.next_value::<IgnoredAny>()?;
                }
                Ok(ReservedKey(found))
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

/// A key, compared and not kept.
struct Key(Option<&'static str>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                Ok(Key(RESERVED.into_iter().find(|reserved| *reserved == key)))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_an_object_without_the_reserved_keys() {
        let reserved = |key| Some(InputProblem::ReservedKey(key));
        for (input, problem) in [
            ("{}", None),
            (r#"{"a":{"dependencyOutputs":1}}"#, None),
            (r#"{"DependencyOutputs":1,"n":1e999999,"deep":"\ud800"}"#, None),
            ("[]", Some(InputProblem::NotAnObject)),
            ("null", Some(InputProblem::NotAnObject)),
            (r#"{"a":1,"dependencyOutputs":{}}"#, reserved(DEPENDENCY_OUTPUTS)),
            (r#"{"dependencyOutput\u0073":{}}"#, reserved(DEPENDENCY_OUTPUTS)),
            (r#"{"a":1,"dependencyArtifacts":{}}"#, reserved(DEPENDENCY_ARTIFACTS)),
            (r#"{"\ud800":{}}"#, Some(InputProblem::UnreadableKey)),
        ] {
            assert_eq!(input_problem(&Json::parse(input.to_owned()).unwrap()), problem, "{input}");
        }
        let bad = Json::parse(r#"{"n":1e999}"#.to_owned()).unwrap();
        assert_eq!(new_input_problem(&bad), Some(InputProblem::Value(ValueProblem::Number)));
        // Depth is no danger: values are skipped, not built.
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(input_problem(&Json::parse(deep).unwrap()), None);
    }
}
