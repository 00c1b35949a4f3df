//! Hashes of JSON values: the same for values that [`crate::filter::equal`] calls the same.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use serde_json::Value;

use super::key_map::{join, mix};
use crate::filter::{fraction, whole, whole_fraction};

/// Hashes with a seed, so that nobody can choose values that collide without knowing it.
#[derive(Debug, Clone)]
pub(super) struct ValueHasher {
    texts: FixedState,
    seed: u64,
}

impl ValueHasher {
    pub(super) fn new(seed: u64) -> Self {
        Self { texts: FixedState::with_seed(seed), seed: mix(seed) }
    }

    pub(super) fn hash(&self, value: &Value) -> u64 {
        match value {
            Value::Null => mix(self.seed ^ 1),
            Value::Bool(value) => mix(self.seed ^ (2 + u64::from(*value))),
            Value::Number(number) => {
                let exact = whole(number).or_else(|| whole_fraction(fraction(number)));
                match exact {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "both halves are taken"
                    )]
                    Some(whole) => join(mix(self.seed ^ 4 ^ ((whole >> 64) as u64)), whole as u64),
                    None => join(mix(self.seed ^ 5), fraction(number).to_bits()),
                }
            }
            Value::String(text) => self.texts.hash_one(text.as_str()),
            Value::Array(items) => {
                items.iter().fold(mix(self.seed ^ 6), |hash, item| join(hash, self.hash(item)))
            }
            // A sum, since the order of fields is of no matter.
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| {
                    join(self.texts.hash_one(name.as_str()), self.hash(value))
                };
                join(mix(self.seed ^ 7), fields.iter().map(field).fold(0, u64::wrapping_add))
            }
        }
    }

    /// A number that belongs to this hasher alone.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn same_values_have_the_same_hash() {
        let hasher = ValueHasher::new(7);
        for (left, right) in [
            (json!(1), json!(1.0)),
            (json!(0), json!(-0.0)),
            (json!(-3), json!(-3.0)),
            (json!(9_223_372_036_854_775_808_u64), json!(9_223_372_036_854_775_808.0)),
            (json!({"a": 1, "b": [2, null]}), json!({"b": [2.0, null], "a": 1.0})),
        ] {
            assert!(crate::filter::equal(&left, &right));
            assert_eq!(hasher.hash(&left), hasher.hash(&right), "{left} and {right}");
        }
        assert_ne!(hasher.hash(&json!(1)), hasher.hash(&json!("1")));
        assert_ne!(hasher.hash(&json!("1")), ValueHasher::new(8).hash(&json!("1")));
    }
}
