//! Which attributes are the keys of a table or an index. All keys here are texts.

use super::value::{AttributeType, AttributeValue, Item};

/// How long the value of a partition key may be.
pub const PARTITION_KEY_BYTES_MAX: usize = 2_048;
/// How long the value of a sort key may be.
pub const SORT_KEY_BYTES_MAX: usize = 1_024;

/// The names of the keys of a table or an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySchema {
    pub partition: String,
    pub sort: String,
}

/// Why an item or a key does not fit the keys of a table. The texts are AWS's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("The provided key element does not match the schema")]
    NotTheKey,
    #[error("One or more parameter values were invalid: Missing the key {0} in the item")]
    Missing(String),
    #[error(
        "One or more parameter values were invalid: Type mismatch for key {name} expected: S actual: {found}"
    )]
    Type { name: String, found: &'static str },
    #[error(
        "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string value. Key: {0}"
    )]
    Empty(String),
    // The missing space is AWS's.
    #[error(
        "One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of2048 bytes"
    )]
    PartitionTooLong,
    #[error(
        "One or more parameter values were invalid: Aggregated size of all range keys has exceeded the size limit of 1024 bytes"
    )]
    SortTooLong,
}

impl KeySchema {
    pub fn new(partition: impl Into<String>, sort: impl Into<String>) -> Self {
        Self { partition: partition.into(), sort: sort.into() }
    }

    /// The partition key and the sort key of an item that is put.
    pub fn of_item<'i>(&self, item: &'i Item) -> Result<(&'i str, &'i str), KeyError> {
        let text = |name: &String| {
            let value = item.get(name).ok_or_else(|| KeyError::Missing(name.clone()))?;
            self.checked(name, value)
        };
        Ok((text(&self.partition)?, text(&self.sort)?))
    }

    /// The partition key and the sort key of a key that is asked for, which has nothing else.
    pub fn of_key<'i>(&self, key: &'i Item) -> Result<(&'i str, &'i str), KeyError> {
        let text = |name: &String| match key.get(name) {
            Some(value @ AttributeValue::S(_)) => self.checked(name, value),
            _ => Err(KeyError::NotTheKey),
        };
        if key.len() != 2 {
            return Err(KeyError::NotTheKey);
        }
        Ok((text(&self.partition)?, text(&self.sort)?))
    }

    /// The value of a key, if it may be one.
    pub(super) fn checked<'v>(&self, name: &str, value: &'v AttributeValue) -> Result<&'v str, KeyError> {
        let AttributeValue::S(text) = value else {
            return Err(KeyError::Type { name: name.to_owned(), found: AttributeType::name(value.kind()) });
        };
        if text.is_empty() {
            Err(KeyError::Empty(name.to_owned()))
        } else if name == self.partition && text.len() > PARTITION_KEY_BYTES_MAX {
            Err(KeyError::PartitionTooLong)
        } else if name == self.sort && text.len() > SORT_KEY_BYTES_MAX {
            Err(KeyError::SortTooLong)
        } else {
            Ok(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dynamodb::item_from_json;

    #[test]
    fn keys_are_two_texts_of_bounded_length() {
        let schema = KeySchema::new("PK", "SK");
        let long = |bytes: usize| json!({"S": "x".repeat(bytes)});
        for (item, expected) in [
            (json!({"PK": {"S": "a"}, "SK": {"S": "b"}}), Ok(("a", "b"))),
            (json!({"PK": {"S": "a"}}), Err(KeyError::Missing("SK".into()))),
            (
                json!({"PK": {"N": "1"}, "SK": {"S": "b"}}),
                Err(KeyError::Type { name: "PK".into(), found: "N" }),
            ),
            (json!({"PK": {"S": "a"}, "SK": {"S": ""}}), Err(KeyError::Empty("SK".into()))),
            (json!({"PK": long(2_049), "SK": {"S": "b"}}), Err(KeyError::PartitionTooLong)),
            (json!({"PK": {"S": "a"}, "SK": long(1_025)}), Err(KeyError::SortTooLong)),
        ] {
            assert_eq!(schema.of_item(&item_from_json(&item).unwrap()), expected);
        }
        for (key, expected) in [
            (json!({"PK": {"S": "a"}, "SK": {"S": "b"}}), Ok(("a", "b"))),
            (json!({"PK": {"S": "a"}}), Err(KeyError::NotTheKey)),
            (json!({"PK": {"S": "a"}, "SK": {"N": "1"}}), Err(KeyError::NotTheKey)),
            (json!({"PK": {"S": "a"}, "SK": {"S": "b"}, "more": {"S": "c"}}), Err(KeyError::NotTheKey)),
        ] {
            assert_eq!(schema.of_key(&item_from_json(&key).unwrap()), expected);
        }
    }
}
