//! Values as DynamoDB's JSON has them: an object with one member, whose name is the type.
//!
//! What AWS refuses is refused here, with its words: what was read can be stored and compared without further checks. A
//! member that is null or unknown counts as absent, as everywhere in AWS's JSON.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::number::{DecimalNumber, NumberError};
use super::value::{AttributeType, AttributeValue, Item, NESTING_MAX};

/// Why JSON is no value. The texts are AWS's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")]
    NoType,
    #[error(
        "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes"
    )]
    ManyTypes,
    #[error(transparent)]
    Number(#[from] NumberError),
    #[error(
        "One or more parameter values were invalid: Null attribute value types must have the value of true"
    )]
    FalseNull,
    // Both spaces are AWS's.
    #[error("One or more parameter values were invalid: An string set  may not be empty")]
    EmptyTextSet,
    #[error("One or more parameter values were invalid: An number set  may not be empty")]
    EmptyNumberSet,
    #[error("One or more parameter values were invalid: Binary sets should not be empty")]
    EmptyBinarySet,
    #[error("One or more parameter values were invalid: Input collection [{0}] contains duplicates.")]
    TextTwice(String),
    #[error("Input collection contains duplicates")]
    NumberTwice,
    #[error(
        "One or more parameter values were invalid: Input collection [{0}]of type BS contains duplicates."
    )]
    BinaryTwice(String),
    #[error(
        "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit"
    )]
    TooDeep,
    // AWS's words for it are not documented.
    #[error("One or more parameter values were invalid: An attribute name may not be empty")]
    NoName,
    /// JSON of another kind where the type wants a text, a list or an object: a `SerializationException`.
    #[error("{0}")]
    WrongJson(String),
}

impl ValueError {
    /// AWS tells JSON that does not fit its model apart from values that break a rule.
    pub const fn is_serialization(&self) -> bool {
        matches!(self, Self::WrongJson(_))
    }
}

impl AttributeValue {
    pub fn from_json(json: &Value) -> Result<Self, ValueError> {
        read(json, 0)
    }

    pub fn to_json(&self) -> Value {
        let value = match self {
            Self::S(text) => json!(text),
            Self::N(number) => json!(number.to_string()),
            Self::B(bytes) => json!(STANDARD.encode(bytes)),
            Self::Bool(is) => json!(is),
            Self::Null => json!(true),
            Self::L(values) => values.iter().map(Self::to_json).collect(),
            Self::M(fields) => item_to_json(fields),
            Self::Ss(texts) => json!(texts),
            Self::Ns(numbers) => numbers.iter().map(ToString::to_string).collect(),
            Self::Bs(binaries) => binaries.iter().map(|bytes| STANDARD.encode(bytes)).collect(),
        };
        Value::Object(Map::from_iter([(self.kind().name().to_owned(), value)]))
    }
}

/// Reads an item or a key: an object whose members are values.
pub fn item_from_json(json: &Value) -> Result<Item, ValueError> {
    read_fields(json, 0)
}

pub fn item_to_json(item: &Item) -> Value {
    item.iter().map(|(name, value)| (name.clone(), value.to_json())).collect()
}

/// `levels` of lists and maps stand around the value.
fn read(json: &Value, levels: usize) -> Result<AttributeValue, ValueError> {
    if levels >= NESTING_MAX {
        return Err(ValueError::TooDeep);
    }
    let members = object(json)?;
    let mut found = None;
    for (name, member) in members {
        let Some(kind) = AttributeType::from_name(name).filter(|_| !member.is_null()) else { continue };
        if found.is_some() {
            return Err(ValueError::ManyTypes);
        }
        found = Some((kind, member));
    }
    let (kind, member) = found.ok_or(ValueError::NoType)?;
    Ok(match kind {
        AttributeType::S => AttributeValue::S(text(member)?.to_owned()),
        AttributeType::N => AttributeValue::N(text(member)?.parse()?),
        AttributeType::B => AttributeValue::B(binary(member)?),
        AttributeType::Bool => AttributeValue::Bool(boolean(member)?),
        AttributeType::Null => {
            if !boolean(member)? {
                return Err(ValueError::FalseNull);
            }
            AttributeValue::Null
        }
        AttributeType::L => {
            let within = levels + 1;
            AttributeValue::L(
                list(member)?.iter().map(|value| read(value, within)).collect::<Result<_, _>>()?,
            )
        }
        AttributeType::M => AttributeValue::M(read_fields(member, levels + 1)?),
        AttributeType::Ss => {
            let texts = list(member)?.iter().map(text).collect::<Result<Vec<_>, _>>()?;
            let twice = || ValueError::TextTwice(texts.join(", "));
            let set = texts.iter().map(|text| (*text).to_owned()).collect();
            AttributeValue::Ss(whole_set(set, texts.len(), ValueError::EmptyTextSet, twice)?)
        }
        AttributeType::Ns => {
            let numbers = list(member)?
                .iter()
                .map(|number| Ok(text(number)?.parse::<DecimalNumber>()?))
                .collect::<Result<Vec<_>, ValueError>>()?;
            let count = numbers.len();
            let set = numbers.into_iter().collect();
            AttributeValue::Ns(whole_set(set, count, ValueError::EmptyNumberSet, || ValueError::NumberTwice)?)
        }
        AttributeType::Bs => {
            let members = list(member)?;
            let set = members.iter().map(binary).collect::<Result<_, _>>()?;
            let twice = || {
                ValueError::BinaryTwice(
                    members.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
                )
            };
            AttributeValue::Bs(whole_set(set, members.len(), ValueError::EmptyBinarySet, twice)?)
        }
    })
}

fn read_fields(json: &Value, levels: usize) -> Result<Item, ValueError> {
    let field = |(name, value): (&String, &Value)| {
        if name.is_empty() { Err(ValueError::NoName) } else { Ok((name.clone(), read(value, levels)?)) }
    };
    object(json)?.iter().map(field).collect()
}

/// A set that is not empty and has as many members as were written.
fn whole_set<T>(
    set: BTreeSet<T>,
    written: usize,
    empty: ValueError,
    twice: impl FnOnce() -> ValueError,
) -> Result<BTreeSet<T>, ValueError> {
    match set.len() {
        0 => Err(empty),
        members if members < written => Err(twice()),
        _ => Ok(set),
    }
}

fn object(json: &Value) -> Result<&Map<String, Value>, ValueError> {
    json.as_object().ok_or_else(|| match json {
        Value::Array(_) => {
            ValueError::WrongJson("Unrecognized collection type class java.util.ArrayList".to_owned())
        }
        _ => ValueError::WrongJson("Unexpected value type in payload".to_owned()),
    })
}

fn list(json: &Value) -> Result<&Vec<Value>, ValueError> {
    json.as_array().ok_or_else(|| match json {
        Value::Object(_) => {
            ValueError::WrongJson("Start of structure or map found where not expected".to_owned())
        }
        _ => ValueError::WrongJson("Unexpected field type".to_owned()),
    })
}

fn text(json: &Value) -> Result<&str, ValueError> {
    json.as_str().ok_or_else(|| wrong_scalar(json, "String"))
}

fn boolean(json: &Value) -> Result<bool, ValueError> {
    json.as_bool().ok_or_else(|| wrong_scalar(json, "Boolean"))
}

fn binary(json: &Value) -> Result<Vec<u8>, ValueError> {
    let text = json.as_str().ok_or_else(|| wrong_scalar(json, "Blob"))?;
    STANDARD.decode(text).map_err(|_| {
        ValueError::WrongJson(format!("'{text}' can not be converted to a Blob: Invalid Base64 character"))
    })
}

/// What AWS says of a JSON value where one of another kind is wanted.
pub(super) fn wrong_scalar(json: &Value, wanted: &str) -> ValueError {
    ValueError::WrongJson(match json {
        Value::Null => format!("NULL_VALUE cannot be converted to {wanted}"),
        Value::Bool(true) => format!("TRUE_VALUE cannot be converted to {wanted}"),
        Value::Bool(false) => format!("FALSE_VALUE cannot be converted to {wanted}"),
        Value::Number(number) if number.is_f64() => format!("DECIMAL_VALUE cannot be converted to {wanted}"),
        Value::Number(_) => format!("NUMBER_VALUE cannot be converted to {wanted}"),
        Value::String(_) => format!("STRING_VALUE cannot be converted to {wanted}"),
        Value::Array(_) => "Start of list found where not expected".to_owned(),
        Value::Object(_) => "Start of structure or map found where not expected".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_and_write_as_the_same_json() {
        for json in [
            json!({"S": ""}),
            json!({"S": "é"}),
            json!({"N": "-1.5"}),
            json!({"B": "AAEC"}),
            json!({"B": ""}),
            json!({"BOOL": false}),
            json!({"NULL": true}),
            json!({"L": [{"S": "a"}, {"L": []}]}),
            json!({"M": {"a": {"N": "1"}, "b": {"M": {}}}}),
            json!({"SS": ["a", "b"]}),
            json!({"NS": ["1", "2"]}),
            json!({"BS": ["AA==", "AQ=="]}),
        ] {
            assert_eq!(AttributeValue::from_json(&json).unwrap().to_json(), json);
        }
        let loose = json!({"S": "a", "N": null, "unknown": 1});
        assert_eq!(AttributeValue::from_json(&loose).unwrap(), AttributeValue::text("a"));
    }

    #[test]
    fn what_the_table_does_not_take_is_refused() {
        for (json, expected) in [
            (json!({}), ValueError::NoType),
            (json!({"s": "a"}), ValueError::NoType),
            (json!({"S": "a", "N": "1"}), ValueError::ManyTypes),
            (json!({"N": "x"}), ValueError::Number(NumberError::NoNumber("x".into()))),
            (json!({"NULL": false}), ValueError::FalseNull),
            (json!({"M": {"": {"S": "a"}}}), ValueError::NoName),
            (json!({"L": [{"M": {"a": {"M": {"": {"S": "a"}}}}}]}), ValueError::NoName),
            (json!({"SS": []}), ValueError::EmptyTextSet),
            (json!({"NS": []}), ValueError::EmptyNumberSet),
            (json!({"BS": []}), ValueError::EmptyBinarySet),
            (json!({"SS": ["a", "a"]}), ValueError::TextTwice("a, a".into())),
            (json!({"NS": ["1", "1.0"]}), ValueError::NumberTwice),
            (json!({"BS": ["AA==", "AA=="]}), ValueError::BinaryTwice("AA==, AA==".into())),
            (json!({"S": 1}), ValueError::WrongJson("NUMBER_VALUE cannot be converted to String".into())),
            (json!({"N": 1}), ValueError::WrongJson("NUMBER_VALUE cannot be converted to String".into())),
            (
                json!({"BOOL": "true"}),
                ValueError::WrongJson("STRING_VALUE cannot be converted to Boolean".into()),
            ),
            (json!({"M": {"a": {"N": ""}}}), ValueError::Number(NumberError::Empty)),
        ] {
            assert_eq!(AttributeValue::from_json(&json), Err(expected), "{json}");
        }
        for json in
            [json!("a"), json!([]), json!({"L": {}}), json!({"M": []}), json!({"B": "a"}), json!({"S": []})]
        {
            let error = AttributeValue::from_json(&json).unwrap_err();
            assert!(error.is_serialization(), "{json}: {error}");
        }
    }

    #[test]
    fn values_nest_to_a_limit() {
        let nested = |levels: usize| (0..levels).fold(json!({"S": ""}), |within, _| json!({"L": [within]}));
        assert!(AttributeValue::from_json(&nested(NESTING_MAX - 1)).is_ok());
        assert_eq!(AttributeValue::from_json(&nested(NESTING_MAX)), Err(ValueError::TooDeep));
    }
}
