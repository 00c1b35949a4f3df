//! Placeholders for the tests of expressions.

use serde_json::{Value, json};

use super::{ExpressionError, ItemCondition, Placeholders};
use crate::dynamodb::value::AttributeValue;

pub(super) fn placeholders_of(names: &Value, values: &Value) -> Placeholders {
    let names = names.as_object().unwrap().iter();
    let names = names.map(|(key, name)| (key.clone(), name.as_str().unwrap().to_owned())).collect();
    let values = values.as_object().unwrap().iter();
    let values = values.map(|(key, json)| (key.clone(), AttributeValue::from_json(json).unwrap())).collect();
    Placeholders::new(Some(names), Some(values)).unwrap()
}

pub(super) fn placeholders() -> Placeholders {
    placeholders_of(
        &json!({"#a": "a", "#b": "b", "#view": "view"}),
        &json!({
            ":1": {"N": "1"},
            ":2": {"N": "2"},
            ":s": {"S": "a"},
            ":t": {"S": "b"},
            ":l": {"L": []},
            ":yes": {"BOOL": true},
        }),
    )
}

pub(super) fn parsed(text: &str) -> ItemCondition {
    ItemCondition::parse(text, &mut placeholders()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(super) fn error_of(text: &str) -> ExpressionError {
    ItemCondition::parse(text, &mut placeholders()).expect_err(text)
}
