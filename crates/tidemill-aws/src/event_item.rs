//! Events as items: every field of the event's JSON is an attribute of the same name.

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Map, Number, Value};
use tidemill_engine::backend::Fault;
use tidemill_model::{Event, Json};

use crate::fault::damaged;
use crate::item::{Item, text};

/// The properties as they were written, when the attribute cannot say them exactly: the table keeps neither the order of
/// fields nor the spelling of numbers.
const EXACT: &str = "propertiesJson";

/// An item may have 400 KB. Of events so large that two copies might not fit the table's own form is all there is.
const EXACT_BYTES_MAX: usize = 150_000;

pub(crate) fn event_item(event: &Event) -> Result<Item, Fault> {
    let json: Value = serde_json::from_str(&event.to_json())
        .map_err(|error| damaged(format!("event {} is no JSON: {error}", event.id)))?;
    let Value::Object(fields) = json else { return Err(damaged(format!("event {} is no object", event.id))) };
    let mut item: Item = fields.into_iter().map(|(name, value)| (name, attribute(value))).collect();
    let again = item.get("properties").map(value).map(|value| value.to_string());
    if event.properties.len() <= EXACT_BYTES_MAX && again.as_deref() != Some(event.properties.as_str()) {
        item.insert(EXACT.to_owned(), text(event.properties.as_str()));
    }
    Ok(item)
}

pub(crate) fn read_event(mut item: Item) -> Result<Event, Fault> {
    let exact = item.remove(EXACT);
    let fields: Map<String, Value> =
        item.iter().map(|(name, attribute)| (name.clone(), value(attribute))).collect();
    let json = Value::Object(fields).to_string();
    let mut event =
        Event::from_json(&json).map_err(|error| damaged(format!("an event of the table: {error}")))?;
    if let Some(AttributeValue::S(exact)) = exact {
        event.properties = Json::parse(exact)
            .map_err(|error| damaged(format!("the properties of event {}: {error}", event.id)))?;
    }
    Ok(event)
}

fn attribute(value: Value) -> AttributeValue {
    match value {
        Value::Null => AttributeValue::Null(true),
        Value::Bool(is) => AttributeValue::Bool(is),
        Value::Number(number) => match plain_digits(&number) {
            Some(digits) => AttributeValue::N(digits),
            None => AttributeValue::S(number.to_string()),
        },
        Value::String(text) => AttributeValue::S(text),
        Value::Array(values) => AttributeValue::L(values.into_iter().map(attribute).collect()),
        Value::Object(fields) => {
            AttributeValue::M(fields.into_iter().map(|(name, value)| (name, attribute(value))).collect())
        }
    }
}

/// A number as the table takes it: 38 digits, and exponents from -130 to 125.
fn plain_digits(number: &Number) -> Option<String> {
    if let Some(float) = number.as_f64().filter(|_| number.is_f64())
        && float != 0.0
        && !(1e-120..1e120).contains(&float.abs())
    {
        return None;
    }
    Some(number.to_string())
}

fn value(attribute: &AttributeValue) -> Value {
    match attribute {
        AttributeValue::Bool(is) => Value::Bool(*is),
        AttributeValue::N(digits) => {
            serde_json::from_str(digits).unwrap_or_else(|_| Value::String(digits.clone()))
        }
        AttributeValue::S(text) => Value::String(text.clone()),
        AttributeValue::L(values) => values.iter().map(value).collect(),
        AttributeValue::M(fields) => {
            fields.iter().map(|(name, attribute)| (name.clone(), value(attribute))).collect()
        }
        _ => Value::Null,
    }
}
