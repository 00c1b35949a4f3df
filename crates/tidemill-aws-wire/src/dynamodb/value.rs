//! Values of attributes: their ten types, how they are compared, and how much of an item they are.
//!
//! How they are written as JSON is in `value_json`; a value that exists can be stored.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::number::DecimalNumber;

/// The level of the deepest value: an attribute of an item is the first level, what its list or map holds the second.
pub const NESTING_MAX: usize = 32;

/// An item: its attributes by name.
pub type Item = BTreeMap<String, AttributeValue>;

/// The value of an attribute, by the names that AWS gave the types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    S(String),
    N(DecimalNumber),
    B(Vec<u8>),
    Bool(bool),
    Null,
    L(Vec<AttributeValue>),
    M(Item),
    Ss(BTreeSet<String>),
    Ns(BTreeSet<DecimalNumber>),
    Bs(BTreeSet<Vec<u8>>),
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeType {
    S,
    N,
    B,
    Bool,
    Null,
    L,
    M,
    Ss,
    Ns,
    Bs,
}

impl AttributeType {
    pub const ALL: [Self; 10] =
        [Self::S, Self::N, Self::B, Self::Bool, Self::Null, Self::L, Self::M, Self::Ss, Self::Ns, Self::Bs];

    /// The tag of the type in JSON and in `attribute_type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S => "S",
            Self::N => "N",
            Self::B => "B",
            Self::Bool => "BOOL",
            Self::Null => "NULL",
            Self::L => "L",
            Self::M => "M",
            Self::Ss => "SS",
            Self::Ns => "NS",
            Self::Bs => "BS",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether values of the type have an order. Only they may be keys.
    pub const fn is_ordered(self) -> bool {
        matches!(self, Self::S | Self::N | Self::B)
    }
}

impl AttributeValue {
    pub fn text(text: impl Into<String>) -> Self {
        Self::S(text.into())
    }

    pub const fn kind(&self) -> AttributeType {
        match self {
            Self::S(_) => AttributeType::S,
            Self::N(_) => AttributeType::N,
            Self::B(_) => AttributeType::B,
            Self::Bool(_) => AttributeType::Bool,
            Self::Null => AttributeType::Null,
            Self::L(_) => AttributeType::L,
            Self::M(_) => AttributeType::M,
            Self::Ss(_) => AttributeType::Ss,
            Self::Ns(_) => AttributeType::Ns,
            Self::Bs(_) => AttributeType::Bs,
        }
    }

    /// The order of two values of one type that has an order: numbers by what they are worth, texts and binaries by bytes.
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::S(left), Self::S(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
            (Self::N(left), Self::N(right)) => Some(left.cmp(right)),
            (Self::B(left), Self::B(right)) => Some(left.cmp(right)),
            _ => None,
        }
    }

    /// The bytes that DynamoDB counts for the value, without its name.
    pub fn bytes(&self) -> usize {
        match self {
            Self::S(text) => text.len(),
            Self::N(number) => number.bytes(),
            Self::B(bytes) => bytes.len(),
            Self::Bool(_) | Self::Null => 1,
            Self::L(values) => 3 + values.iter().map(|value| 1 + value.bytes()).sum::<usize>(),
            Self::M(fields) => 3 + fields.len() + item_bytes(fields),
            Self::Ss(texts) => texts.iter().map(String::len).sum(),
            Self::Ns(numbers) => numbers.iter().map(DecimalNumber::bytes).sum(),
            Self::Bs(binaries) => binaries.iter().map(Vec::len).sum(),
        }
    }
}

/// The bytes that DynamoDB counts for an item: names and values. Its limit of 400 KB is the caller's to hold.
pub fn item_bytes(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value.bytes()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(json: &serde_json::Value) -> AttributeValue {
        AttributeValue::from_json(json).unwrap()
    }

    #[test]
    fn values_of_one_ordered_type_have_an_order() {
        for (left, right, expected) in [
            (json!({"N": "10"}), json!({"N": "9"}), Some(Ordering::Greater)),
            (json!({"N": "1.0"}), json!({"N": "1"}), Some(Ordering::Equal)),
            (json!({"S": "10"}), json!({"S": "9"}), Some(Ordering::Less)),
            (json!({"S": "Z"}), json!({"S": "a"}), Some(Ordering::Less)),
            // By bytes of UTF-8: by units of UTF-16 the first would be the larger.
            (json!({"S": "\u{ff5e}"}), json!({"S": "\u{1f600}"}), Some(Ordering::Less)),
            (json!({"B": "/w=="}), json!({"B": "AA=="}), Some(Ordering::Greater)),
            (json!({"N": "1"}), json!({"S": "1"}), None),
            (json!({"BOOL": true}), json!({"BOOL": false}), None),
            (json!({"L": []}), json!({"L": []}), None),
        ] {
            assert_eq!(value(&left).order(&value(&right)), expected, "{left} and {right}");
        }
    }

    #[test]
    fn sets_and_numbers_are_equal_by_what_they_hold() {
        for (left, right, expected) in [
            (json!({"NS": ["1", "2"]}), json!({"NS": ["2.0", "1"]}), true),
            (json!({"SS": ["a", "b"]}), json!({"SS": ["b", "a"]}), true),
            (json!({"L": [{"N": "1"}]}), json!({"L": [{"N": "1e0"}]}), true),
            (json!({"L": [{"S": "a"}, {"S": "b"}]}), json!({"L": [{"S": "b"}, {"S": "a"}]}), false),
            (json!({"N": "1"}), json!({"S": "1"}), false),
            (json!({"N": "9007199254740993"}), json!({"N": "9007199254740992"}), false),
        ] {
            assert_eq!(value(&left) == value(&right), expected, "{left} and {right}");
        }
    }

    #[test]
    fn names_and_values_are_counted() {
        for (fields, expected) in [
            (json!({}), 0),
            (json!({"name": {"S": "abc"}}), 7),
            (json!({"é": {"S": "é"}}), 4),
            (json!({"a": {"BOOL": true}, "b": {"NULL": true}}), 4),
            (json!({"a": {"B": "AAEC"}}), 4),
            (json!({"a": {"L": []}}), 4),
            (json!({"a": {"L": [{"S": "xy"}]}}), 7),
            (json!({"a": {"M": {"b": {"S": "xy"}}}}), 8),
            (json!({"a": {"SS": ["x", "yz"]}}), 4),
            (json!({"a": {"NS": ["1", "1234"]}}), 6),
        ] {
            let AttributeValue::M(item) = value(&json!({"M": fields})) else { unreachable!() };
            assert_eq!(item_bytes(&item), expected, "{fields}");
        }
    }
}
