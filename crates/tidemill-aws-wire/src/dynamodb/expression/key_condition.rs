//! Key conditions: one partition, and a range of its sort keys.
//!
//! Only what an index can answer by looking in one place is taken; everything else is a filter, and refused here.

use std::collections::BTreeMap;

use super::condition::{Comparator, ItemCondition, Operand};
use crate::dynamodb::key_schema::{KeyError, KeySchema};
use crate::dynamodb::value::AttributeValue;

/// What a query asks of the keys of a table or an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyCondition {
    pub partition: String,
    pub sort: Option<SortCondition>,
}

/// What a query asks of the sort key. Texts are compared by bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SortCondition {
    Equal(String),
    Less(String),
    LessOrEqual(String),
    Greater(String),
    GreaterOrEqual(String),
    /// Both ends count.
    Between {
        lower: String,
        upper: String,
    },
    BeginsWith(String),
}

impl SortCondition {
    pub fn holds(&self, key: &str) -> bool {
        match self {
            Self::Equal(bound) => key == bound,
            Self::Less(bound) => key < bound.as_str(),
            Self::LessOrEqual(bound) => key <= bound.as_str(),
            Self::Greater(bound) => key > bound.as_str(),
            Self::GreaterOrEqual(bound) => key >= bound.as_str(),
            Self::Between { lower, upper } => (lower.as_str()..=upper.as_str()).contains(&key),
            Self::BeginsWith(prefix) => key.starts_with(prefix.as_str()),
        }
    }
}

/// Why a condition is no key condition. The texts are AWS's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyConditionError {
    #[error("Invalid operator used in KeyConditionExpression: {0}")]
    Operator(&'static str),
    #[error("KeyConditionExpressions cannot contain nested operations")]
    NestedOperation,
    #[error("KeyConditionExpressions cannot have conditions on nested attributes")]
    NestedAttribute,
    #[error(
        "Invalid condition in KeyConditionExpression: {0} operator must have the key attribute as its first operand"
    )]
    KeyNotFirst(&'static str),
    #[error("Invalid condition in KeyConditionExpression: Multiple attribute names used in one condition")]
    ManyAttributes,
    #[error("Invalid condition in KeyConditionExpression: No key attribute specified")]
    NoAttribute,
    #[error("KeyConditionExpressions must only contain one condition per key")]
    KeyTwice,
    #[error("Conditions can be of length 1 or 2 only")]
    TooMany,
    #[error("Query condition missed key schema element: {0}")]
    Missed(String),
    #[error("Query key condition not supported")]
    NotSupported,
    #[error("One or more parameter values were invalid: Condition parameter type does not match schema type")]
    Type,
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// A test of one attribute with the values it is compared with.
enum KeyTest<'c> {
    Compare(Comparator, &'c AttributeValue),
    Between(&'c AttributeValue, &'c AttributeValue),
    BeginsWith(&'c AttributeValue),
}

impl KeyCondition {
    /// The key condition that a condition is for a table or an index with these keys.
    pub fn of(condition: &ItemCondition, schema: &KeySchema) -> Result<Self, KeyConditionError> {
        let mut tests = BTreeMap::new();
        let parts = match condition {
            ItemCondition::And(parts) => parts.as_slice(),
            other => std::slice::from_ref(other),
        };
        for part in parts {
            let (name, test) = key_test(part)?;
            if tests.insert(name, test).is_some() {
                return Err(KeyConditionError::KeyTwice);
            }
        }
        let count = tests.len();
        if count > 2 {
            return Err(KeyConditionError::TooMany);
        }
        let missed = |name: &String| KeyConditionError::Missed(name.clone());
        let partition = tests.remove(schema.partition.as_str()).ok_or_else(|| missed(&schema.partition))?;
        let sort = tests.remove(schema.sort.as_str());
        if count == 2 && sort.is_none() {
            return Err(missed(&schema.sort));
        }
        let KeyTest::Compare(Comparator::Equal, value) = partition else {
            return Err(KeyConditionError::NotSupported);
        };
        let partition = text(schema, &schema.partition, value)?;
        let sort = sort.map(|test| sort_condition(schema, &test)).transpose()?;
        Ok(Self { partition, sort })
    }
}

fn sort_condition(schema: &KeySchema, test: &KeyTest<'_>) -> Result<SortCondition, KeyConditionError> {
    let bound = |value| text(schema, &schema.sort, value);
    Ok(match test {
        KeyTest::Compare(comparator, value) => match comparator {
            Comparator::Equal => SortCondition::Equal(bound(value)?),
            Comparator::Less => SortCondition::Less(bound(value)?),
            Comparator::LessOrEqual => SortCondition::LessOrEqual(bound(value)?),
            Comparator::Greater => SortCondition::Greater(bound(value)?),
            Comparator::GreaterOrEqual => SortCondition::GreaterOrEqual(bound(value)?),
            Comparator::NotEqual => return Err(KeyConditionError::Operator("<>")),
        },
        KeyTest::Between(lower, upper) => {
            SortCondition::Between { lower: bound(lower)?, upper: bound(upper)? }
        }
        KeyTest::BeginsWith(prefix) => SortCondition::BeginsWith(bound(prefix)?),
    })
}

fn text(schema: &KeySchema, name: &str, value: &AttributeValue) -> Result<String, KeyConditionError> {
    match schema.checked(name, value) {
        Ok(text) => Ok(text.to_owned()),
        Err(KeyError::Type { .. }) => Err(KeyConditionError::Type),
        Err(error) => Err(error.into()),
    }
}

/// The attribute that a part of the condition tests, and how.
fn key_test(part: &ItemCondition) -> Result<(&str, KeyTest<'_>), KeyConditionError> {
    match part {
        ItemCondition::And(_) => Err(KeyConditionError::NotSupported),
        ItemCondition::Or(_) => Err(KeyConditionError::Operator("OR")),
        ItemCondition::Not(_) => Err(KeyConditionError::Operator("NOT")),
        ItemCondition::In { .. } => Err(KeyConditionError::Operator("IN")),
        ItemCondition::Compare { comparator: Comparator::NotEqual, .. } => {
            Err(KeyConditionError::Operator("<>"))
        }
        ItemCondition::Constant(_) => Err(KeyConditionError::NoAttribute),
        ItemCondition::Exists(_) => Err(KeyConditionError::Operator("attribute_exists")),
        ItemCondition::NotExists(_) => Err(KeyConditionError::Operator("attribute_not_exists")),
        ItemCondition::IsOfType { .. } => Err(KeyConditionError::Operator("attribute_type")),
        ItemCondition::Contains { .. } => Err(KeyConditionError::Operator("contains")),
        ItemCondition::Compare { left, comparator, right } => match (left, right) {
            (Operand::Path(_), Operand::Path(_)) => Err(KeyConditionError::ManyAttributes),
            (Operand::Path(_), _) => Ok((attribute(left, "")?, KeyTest::Compare(*comparator, value(right)?))),
            (_, Operand::Path(_)) => {
                Ok((attribute(right, "")?, KeyTest::Compare(comparator.flipped(), value(left)?)))
            }
            (Operand::Value(_), Operand::Value(_)) => Err(KeyConditionError::NoAttribute),
            _ => Err(KeyConditionError::NestedOperation),
        },
        ItemCondition::Between { operand, lower, upper } => {
            Ok((attribute(operand, "BETWEEN")?, KeyTest::Between(value(lower)?, value(upper)?)))
        }
        ItemCondition::BeginsWith { operand, prefix } => {
            Ok((attribute(operand, "begins_with")?, KeyTest::BeginsWith(value(prefix)?)))
        }
    }
}

fn attribute<'c>(operand: &'c Operand, operator: &'static str) -> Result<&'c str, KeyConditionError> {
    match operand {
        Operand::Path(path) if path.steps.is_empty() => Ok(&path.attribute),
        Operand::Path(_) => Err(KeyConditionError::NestedAttribute),
        Operand::Value(_) => Err(KeyConditionError::KeyNotFirst(operator)),
        Operand::Size(_) | Operand::SizeOfValue(_) => Err(KeyConditionError::NestedOperation),
    }
}

fn value(operand: &Operand) -> Result<&AttributeValue, KeyConditionError> {
    match operand {
        Operand::Value(value) => Ok(value),
        Operand::Path(_) => Err(KeyConditionError::ManyAttributes),
        Operand::Size(_) | Operand::SizeOfValue(_) => Err(KeyConditionError::NestedOperation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamodb::expression::fixture::parsed;

    fn key_condition(text: &str) -> Result<KeyCondition, KeyConditionError> {
        KeyCondition::of(&parsed(text), &KeySchema::new("PK", "SK"))
    }

    /// `:s` is `a`, `:t` is `b`.
    #[test]
    fn a_query_asks_for_one_partition_and_a_range_of_it() {
        let (a, b) = ("a".to_owned(), "b".to_owned());
        for (text, sort) in [
            ("PK = :s", None),
            (":s = PK", None),
            ("(PK = :s) AND (SK = :t)", Some(SortCondition::Equal(b.clone()))),
            ("SK < :t AND PK = :s", Some(SortCondition::Less(b.clone()))),
            ("PK = :s AND SK <= :t", Some(SortCondition::LessOrEqual(b.clone()))),
            ("PK = :s AND SK > :t", Some(SortCondition::Greater(b.clone()))),
            ("PK = :s AND SK >= :t", Some(SortCondition::GreaterOrEqual(b.clone()))),
            ("PK = :s AND :t > SK", Some(SortCondition::Less(b.clone()))),
            ("PK = :s AND begins_with(SK, :t)", Some(SortCondition::BeginsWith(b.clone()))),
            (
                "PK = :s AND SK BETWEEN :s AND :t",
                Some(SortCondition::Between { lower: a.clone(), upper: b.clone() }),
            ),
        ] {
            assert_eq!(key_condition(text), Ok(KeyCondition { partition: a.clone(), sort }), "{text}");
        }
    }

    #[test]
    fn what_no_index_answers_is_refused() {
        for (text, expected) in [
            ("SK = :s", KeyConditionError::Missed("PK".into())),
            ("PK = :s AND extra = :t", KeyConditionError::Missed("SK".into())),
            ("PK > :s", KeyConditionError::NotSupported),
            ("begins_with(PK, :s) AND SK = :s", KeyConditionError::NotSupported),
            ("PK = :s AND SK = :s AND extra = :t", KeyConditionError::TooMany),
            ("PK = :s AND PK = :t", KeyConditionError::KeyTwice),
            ("PK = :s OR SK = :t", KeyConditionError::Operator("OR")),
            ("NOT PK = :s", KeyConditionError::Operator("NOT")),
            ("PK <> :s", KeyConditionError::Operator("<>")),
            ("PK IN (:s)", KeyConditionError::Operator("IN")),
            ("contains(PK, :s)", KeyConditionError::Operator("contains")),
            ("PK = :s AND attribute_exists(SK)", KeyConditionError::Operator("attribute_exists")),
            ("size(PK) = :1", KeyConditionError::NestedOperation),
            ("PK = :s AND SK.x = :s", KeyConditionError::NestedAttribute),
            ("PK = SK", KeyConditionError::ManyAttributes),
            (":s = :t", KeyConditionError::NoAttribute),
            (":s BETWEEN PK AND :t", KeyConditionError::KeyNotFirst("BETWEEN")),
            ("begins_with(:s, PK)", KeyConditionError::KeyNotFirst("begins_with")),
            ("PK = :1", KeyConditionError::Type),
            ("PK = :s AND SK > :1", KeyConditionError::Type),
        ] {
            assert_eq!(key_condition(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn sort_keys_are_compared_by_bytes() {
        let between = SortCondition::Between { lower: "b".into(), upper: "d".into() };
        for (condition, holds, fails) in [
            (SortCondition::Less("b".into()), "az", "b"),
            (SortCondition::LessOrEqual("b".into()), "b", "ba"),
            (SortCondition::Greater("b".into()), "ba", "b"),
            (SortCondition::GreaterOrEqual("b".into()), "b", "B"),
            (between, "d", "da"),
            (SortCondition::BeginsWith("ab".into()), "abc", "a"),
            (SortCondition::Equal("b".into()), "b", "b "),
        ] {
            assert!(condition.holds(holds) && !condition.holds(fails), "{condition:?}");
        }
    }
}
