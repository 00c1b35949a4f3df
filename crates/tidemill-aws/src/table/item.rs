//! Items: reading and making attributes.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use tidemill_engine::backend::Fault;

use crate::fault::damaged;

pub(crate) type Item = HashMap<String, AttributeValue>;

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(crate) fn binary(value: impl Into<Vec<u8>>) -> AttributeValue {
    AttributeValue::B(Blob::new(value))
}

/// The two attributes of a key.
pub(crate) fn key_of(pk: &str, sk: &str) -> Item {
    Item::from([("PK".to_owned(), text(pk)), ("SK".to_owned(), text(sk))])
}

pub(crate) fn read_text<'a>(item: &'a Item, name: &str) -> Result<&'a str, Fault> {
    match item.get(name) {
        Some(AttributeValue::S(text)) => Ok(text),
        _ => Err(damaged(format!("an item of the table has no {name}"))),
    }
}

pub(crate) fn read_number(item: &Item, name: &str) -> Result<u64, Fault> {
    match item.get(name) {
        Some(AttributeValue::N(digits)) => digits.parse().ok(),
        _ => None,
    }
    .ok_or_else(|| damaged(format!("an item of the table has no number {name}")))
}

pub(crate) fn read_bytes<'a>(item: &'a Item, name: &str) -> Option<&'a [u8]> {
    match item.get(name) {
        Some(AttributeValue::B(bytes)) => Some(bytes.as_ref()),
        _ => None,
    }
}
