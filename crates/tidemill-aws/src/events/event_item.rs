//! Events as items: every field of the event's JSON is an attribute of the same name.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Map, Number, Value};
use tidemill_engine::backend::Fault;
use tidemill_model::{Event, Json, KnownType};

use crate::fault::damaged;
use crate::table::item::{Item, number, text};

/// The properties as they were written, when the attribute cannot say them exactly: the table keeps neither the order of
/// fields nor the spelling of numbers.
const EXACT: &str = "propertiesJson";

const PROPERTIES: &str = "properties";
/// The table drops an item when this moment is over, in epoch seconds.
const TTL: &str = "ttl";
/// Says that the event has no time to live of its own: the table drops it because of its kind.
const BY_KIND: &str = "ttlByKind";
/// How long heartbeats are kept from the moment they were received, as a data directory keeps them.
const HEARTBEAT_SECONDS: u64 = 7 * 24 * 3_600;

/// An item may have 400 KB. Of events so large that two copies might not fit the table's own form is all there is.
const EXACT_BYTES_MAX: usize = 150_000;
/// Larger items are not tried: what the table counts is known to a few bytes only.
const ITEM_BYTES_MAX: usize = 390_000;
/// The table takes 32 levels of lists and maps. Two of them are the properties and the field.
const FIELD_DEPTH_MAX: usize = 29;
/// How long the name of a field within a map may be.
const NAME_BYTES_MAX: usize = 65_535;

/// Properties that the table cannot take as attributes are kept as text only: fields of too many levels or with names that it
/// does not allow, and all of them when they would make the item too large.
pub(crate) fn event_item(event: &Event) -> Result<Item, Fault> {
    let json: Value = serde_json::from_str(&event.to_json())
        .map_err(|error| damaged(format!("event {} is no JSON: {error}", event.id)))?;
    let Value::Object(mut fields) = json else {
        return Err(damaged(format!("event {} is no object", event.id)));
    };
    let mut is_whole = true;
    if let Some(Value::Object(properties)) = fields.get_mut(PROPERTIES) {
        properties.retain(|name, value| {
            let fits = is_name(name) && fits(value, FIELD_DEPTH_MAX);
            is_whole &= fits;
            fits
        });
    }
    let mut item: Item = fields.into_iter().map(|(name, value)| (name, attribute(value))).collect();
    let mut bytes = item_bytes(&item);
    let exact = event.properties.as_str();
    if bytes > ITEM_BYTES_MAX || (!is_whole && bytes + exact.len() > ITEM_BYTES_MAX) {
        item.insert(PROPERTIES.to_owned(), AttributeValue::M(HashMap::new()));
        (is_whole, bytes) = (false, item_bytes(&item));
    }
    if event.ttl.is_none() && event.event_type.as_str() == KnownType::TaskHeartbeat.as_str() {
        let seconds = event.received_at.millis() / 1_000 + HEARTBEAT_SECONDS;
        item.insert(TTL.to_owned(), number(seconds));
        item.insert(BY_KIND.to_owned(), AttributeValue::Bool(true));
    }
    let differs = || item.get(PROPERTIES).map(value).map(|value| value.to_string()).as_deref() != Some(exact);
    if !is_whole || (exact.len() <= EXACT_BYTES_MAX && bytes + exact.len() <= ITEM_BYTES_MAX && differs()) {
        item.insert(EXACT.to_owned(), text(exact));
    }
    Ok(item)
}

/// Whether the table accepts a value of this many levels as an attribute.
fn fits(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(values) => levels > 0 && values.iter().all(|value| fits(value, levels - 1)),
        Value::Object(fields) => {
            levels > 0 && fields.iter().all(|(name, value)| is_name(name) && fits(value, levels - 1))
        }
        _ => true,
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX
}

/// What the table counts of an item, a little more rather than less.
fn item_bytes(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + attribute_bytes(value)).sum()
}

fn attribute_bytes(attribute: &AttributeValue) -> usize {
    match attribute {
        AttributeValue::S(text) => text.len(),
        // Two digits to a byte, and what tells sign and exponent.
        AttributeValue::N(digits) => digits.len() / 2 + 3,
        AttributeValue::L(values) => 3 + values.iter().map(|value| 1 + attribute_bytes(value)).sum::<usize>(),
        AttributeValue::M(fields) => {
            3 + fields.iter().map(|(name, value)| 1 + name.len() + attribute_bytes(value)).sum::<usize>()
        }
        _ => 1,
    }
}

pub(crate) fn read_event(mut item: Item) -> Result<Event, Fault> {
    let exact = item.remove(EXACT);
    if item.remove(BY_KIND).is_some() {
        item.remove(TTL);
    }
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

#[cfg(test)]
mod tests {
    use tidemill_model::{
        AppName, Context, Entity, EntityId, EntityType, EventId, EventType, TenantId, Timestamp,
    };

    use super::*;

    fn event(properties: &str) -> Event {
        Event {
            id: EventId::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001),
            tenant: TenantId::trusted("acme"),
            app: AppName::trusted("orders"),
            entity: Entity { kind: EntityType::trusted("ORDER"), id: EntityId::trusted("o-1") },
            event_type: EventType::trusted("Made"),
            timestamp: Timestamp::clamped(1_800_000_000_000),
            received_at: Timestamp::clamped(1_800_000_000_001),
            context: Context { environment: "dev".into(), origin: "test".into(), worker_id: None },
            properties: Json::trusted(properties),
            ttl: None,
            beside: None,
        }
    }

    #[test]
    fn heartbeats_go_after_a_week_and_no_others() {
        let heartbeat = Event { event_type: KnownType::TaskHeartbeat.event_type(), ..event("{}") };
        let own = Event { ttl: Some(1_800_000_060), ..heartbeat.clone() };
        for (event, expected) in
            [(event("{}"), None), (heartbeat, Some(1_800_000_000 + 7 * 86_400)), (own, Some(1_800_000_060))]
        {
            let item = event_item(&event).unwrap();
            assert_eq!(item.get(TTL), expected.map(number).as_ref());
            assert_eq!(read_event(item).unwrap(), event, "whoever reads it sees what was sent");
        }
    }

    fn depth(attribute: &AttributeValue) -> usize {
        match attribute {
            AttributeValue::L(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
            AttributeValue::M(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }

    #[test]
    fn what_the_table_cannot_take_as_an_attribute_is_kept_as_text() {
        let lists = |levels: usize| format!(r#"{{"a":{}{},"b":1}}"#, "[".repeat(levels), "]".repeat(levels));
        let numbers = |count: usize| format!(r#"{{"a":[{}1],"b":1}}"#, "1,".repeat(count));
        for (properties, fields, has_text) in [
            (lists(29), 2, false),
            (lists(30), 1, true),
            (lists(100), 1, true),
            (r#"{"":1,"b":1}"#.to_owned(), 1, true),
            (r#"{"a":{"":1},"b":1}"#.to_owned(), 1, true),
            (r#"{"b":1,"a":1}"#.to_owned(), 2, true),
            (numbers(70_000), 2, false),
            (numbers(99_000), 0, true),
        ] {
            let (event, start) = (event(&properties), &properties[..properties.len().min(40)]);
            let item = event_item(&event).unwrap();
            let AttributeValue::M(kept) = &item[PROPERTIES] else { panic!("{start}") };
            assert_eq!((kept.len(), item.contains_key(EXACT)), (fields, has_text), "{start}");
            assert!(depth(&item[PROPERTIES]) <= 32 && item_bytes(&item) < 400_000, "{start}");
            assert_eq!(read_event(item).unwrap(), event, "{start}");
        }
    }

    #[test]
    fn what_others_wrote_beside_an_event_comes_back_with_it() {
        let event = event(r#"{"a":1}"#);
        let mut item = event_item(&event).unwrap();
        item.insert("note".to_owned(), text("of somebody else"));
        let fields = Some(Json::trusted(r#"{"note":"of somebody else"}"#));
        let beside = Some(Box::new(tidemill_model::Beside { context: None, fields }));
        assert_eq!(read_event(item.clone()).unwrap(), Event { beside, ..event });
        item.remove("eventType");
        assert!(read_event(item).is_err());
    }
}
