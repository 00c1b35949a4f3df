//! Plain JSON and items: an event is a JSON object for us, and an item for whoever asks the table.
//!
//! Numbers keep every digit on the way out, which is why plain JSON is written as text. Types that JSON does not have
//! become the nearest that it has: a set is a list, a binary is a text in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::number::NumberError;
use super::value::{AttributeValue, Item, NESTING_MAX};

/// Why plain JSON cannot be an attribute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlainError {
    #[error("number {number} cannot be stored: {cause}")]
    Number { number: String, cause: NumberError },
    #[error("nested deeper than {NESTING_MAX} levels")]
    TooDeep,
    #[error("a field of a map has no name")]
    NoName,
}

/// An item of the fields of a JSON object.
pub fn item_from_plain(fields: &Map<String, Value>) -> Result<Item, PlainError> {
    read_fields(fields, 0)
}

/// An item as the text of a JSON object.
pub fn item_to_plain(item: &Item) -> String {
    let mut text = String::new();
    write_fields(item, &mut text);
    text
}

impl AttributeValue {
    pub fn from_plain(json: &Value) -> Result<Self, PlainError> {
        read(json, 0)
    }

    /// The value as JSON text.
    pub fn to_plain(&self) -> String {
        let mut text = String::new();
        write(self, &mut text);
        text
    }
}

fn read(json: &Value, levels: usize) -> Result<AttributeValue, PlainError> {
    if levels >= NESTING_MAX {
        return Err(PlainError::TooDeep);
    }
    Ok(match json {
        Value::Null => AttributeValue::Null,
        Value::Bool(is) => AttributeValue::Bool(*is),
        Value::Number(number) => {
            let number = number.to_string();
            AttributeValue::N(number.parse().map_err(|cause| PlainError::Number { number, cause })?)
        }
        Value::String(text) => AttributeValue::text(text),
        Value::Array(values) => {
            AttributeValue::L(values.iter().map(|value| read(value, levels + 1)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => AttributeValue::M(read_fields(fields, levels + 1)?),
    })
}

fn read_fields(fields: &Map<String, Value>, levels: usize) -> Result<Item, PlainError> {
    let field = |(name, value): (&String, &Value)| {
        if name.is_empty() { Err(PlainError::NoName) } else { Ok((name.clone(), read(value, levels)?)) }
    };
    fields.iter().map(field).collect()
}

fn write(value: &AttributeValue, out: &mut String) {
    match value {
        AttributeValue::S(text) => write_text(text, out),
        AttributeValue::N(number) => out.push_str(&number.to_string()),
        AttributeValue::B(bytes) => write_text(&STANDARD.encode(bytes), out),
        AttributeValue::Bool(is) => out.push_str(if *is { "true" } else { "false" }),
        AttributeValue::Null => out.push_str("null"),
        AttributeValue::L(values) => write_list(values, out, write),
        AttributeValue::M(fields) => write_fields(fields, out),
        AttributeValue::Ss(texts) => write_list(texts, out, |text, out| write_text(text, out)),
        AttributeValue::Ns(numbers) => {
            write_list(numbers, out, |number, out| out.push_str(&number.to_string()));
        }
        AttributeValue::Bs(binaries) => {
            write_list(binaries, out, |bytes, out| write_text(&STANDARD.encode(bytes), out));
        }
    }
}

fn write_list<'v, T: 'v>(
    values: impl IntoIterator<Item = &'v T>,
    out: &mut String,
    write: impl Fn(&'v T, &mut String),
) {
    out.push('[');
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write(value, out);
    }
    out.push(']');
}

fn write_fields(fields: &Item, out: &mut String) {
    out.push('{');
    for (at, (name, value)) in fields.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_text(name, out);
        out.push(':');
        write(value, out);
    }
    out.push('}');
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&Value::from(text).to_string());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_json_is_an_item_and_back() {
        for json in [
            json!({}),
            json!({"PK": "TENANT#a", "timestamp": 1_767_453_739_640_u64, "ok": true, "none": null}),
            json!({"properties": {"tasks": [{"dependsOn": []}, 1.5, -3], "quote\"": "line\n"}}),
        ] {
            let item = item_from_plain(json.as_object().unwrap()).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&item_to_plain(&item)).unwrap(), json);
        }
    }

    #[test]
    fn types_that_json_lacks_become_the_nearest_it_has() {
        let digits = "12345678901234567890.123456789012345678";
        for (value, expected) in [
            (json!({"N": digits}), digits),
            (json!({"N": "1e20"}), "100000000000000000000"),
            (json!({"B": "AAEC"}), r#""AAEC""#),
            (json!({"SS": ["a", "b"]}), r#"["a","b"]"#),
            (json!({"NS": ["1", "2"]}), "[1,2]"),
            (json!({"BS": ["AA=="]}), r#"["AA=="]"#),
        ] {
            assert_eq!(AttributeValue::from_json(&value).unwrap().to_plain(), expected, "{value}");
        }
    }

    #[test]
    fn what_no_attribute_can_be_is_refused() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |within, _| json!([within]));
        for (json, expected) in [
            (json!(1e300), PlainError::Number { number: "1e300".into(), cause: NumberError::TooLarge }),
            (json!({"a": {"": 1}}), PlainError::NoName),
            (nested(NESTING_MAX), PlainError::TooDeep),
        ] {
            let found = AttributeValue::from_plain(&json).unwrap_err();
            let is_same = match (&found, &expected) {
                // How a float of that size is written is not ours to say.
                (PlainError::Number { cause: left, .. }, PlainError::Number { cause: right, .. }) => {
                    left == right
                }
                (left, right) => left == right,
            };
            assert!(is_same, "{json}: {found}");
        }
        assert!(AttributeValue::from_plain(&nested(NESTING_MAX - 1)).is_ok());
    }
}
