//! Overflow: what of an event's properties moves to the blob store so that the event fits on the bus.
//!
//! The size that counts is that of the whole rendered detail. What moves becomes one payload object; in its place the
//! properties name where it is. Values are copied as text, so a moved value comes back as it was.
//!
//! The name of the reference is reserved. Code that takes properties from outside must refuse it (see
//! [`fn@reference`]): a forged one would make a reader fetch another's blob.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::events::event::Event;
use crate::events::properties::OverflowRef;
use crate::values::id::{EntityId, EventId};
use crate::values::json::{Fields, Json};

/// The most bytes that a rendered detail may have. One more overflows.
pub const DETAIL_BYTES_MAX: usize = 200 * 1024;

/// The property that says where the moved ones are.
pub const OVERFLOW_FIELD: &str = "_s3Overflow";

/// What moves first, large or not.
const MOVED_FIRST: [&str; 6] = ["outputs", "input", "claudeOutput", "output", "tasks", "newTasks"];

/// What readers need at once and what is never large.
const NEVER_MOVED: [&str; 7] = ["requestId", "jobId", "taskId", "error", "run", "fence", OVERFLOW_FIELD];

/// Properties that were too large, in two parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overflow {
    /// What stays, and the reference.
    pub properties: Json,
    /// What moved: an object of the moved fields.
    pub payload: Json,
    /// The names of the moved fields, in the order of the payload.
    pub moved: Vec<String>,
}

/// Why properties cannot be split.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadOverflow {
    #[error("properties cannot be read: {problem}")]
    Unreadable { problem: String },
    #[error("properties.{OVERFLOW_FIELD} is reserved")]
    Reserved,
    /// What may not move is too large by itself.
    #[error("the event has {bytes} bytes without all that can be moved; the limit is {DETAIL_BYTES_MAX}")]
    TooLarge { bytes: usize },
}

/// Why a payload cannot be put back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPayload {
    #[error("{part} cannot be read: {problem}")]
    Unreadable { part: &'static str, problem: String },
    #[error("properties have no {OVERFLOW_FIELD}; nothing was moved")]
    NothingMoved,
    #[error("both properties and payload have a field {field}")]
    Both { field: String },
}

/// Where the payload of an event goes, below the bucket and the tenant's own prefix if it has one.
///
/// An entity id of a domain event is any text, `..` and `/` included. A store that keeps blobs as files must not use
/// the key as a path.
pub fn payload_key(entity: &EntityId, event: EventId) -> String {
    format!("events/{entity}/{event}-payload.json")
}

impl Event {
    /// Splits the properties if the detail is too large; `None` when it fits as it is.
    pub fn overflow(&self, bucket: &str) -> Result<Option<Overflow>, BadOverflow> {
        let place = OverflowRef { bucket: bucket.to_owned(), key: payload_key(&self.entity.id, self.id) };
        overflow(&self.properties, self.envelope_len(), &place)
    }
}

/// Splits `properties` if a detail with them and `envelope_bytes` besides is too large; `None` when it fits.
pub fn overflow(
    properties: &Json,
    envelope_bytes: usize,
    place: &OverflowRef,
) -> Result<Option<Overflow>, BadOverflow> {
    if envelope_bytes + properties.len() <= DETAIL_BYTES_MAX {
        return Ok(None);
    }
    let Fields(fields) =
        properties.read().map_err(|error| BadOverflow::Unreadable { problem: error.to_string() })?;
    if fields.iter().any(|(name, _)| name == OVERFLOW_FIELD) {
        return Err(BadOverflow::Reserved);
    }
    let fields: Vec<Field<'_>> = fields.iter().map(|(name, value)| Field::new(name, value.get())).collect();
    let place = Json::of(place);
    let reference = Field::new(OVERFLOW_FIELD, place.as_str());
    let mut bytes = envelope_bytes + object_len(fields.iter().chain([&reference]));

    // A name that is given twice counts as one field, so that the order of the two stays.
    let mut lengths: HashMap<&str, usize> = HashMap::new();
    let mut names = Vec::new();
    for field in &fields {
        let length = lengths.entry(field.name).or_insert_with(|| {
            names.push(field.name);
            0
        });
        *length += field.len_in_object();
    }
    let (listed, mut others): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| MOVED_FIRST.contains(name));
    others.retain(|name| !NEVER_MOVED.contains(name));
    others.sort_by_key(|name| std::cmp::Reverse(lengths[name]));
    let mut moved: HashSet<&str> = HashSet::new();
    for name in &listed {
        moved.insert(name);
        bytes -= lengths[name];
    }
    for name in others {
        if bytes <= DETAIL_BYTES_MAX && !moved.is_empty() {
            break;
        }
        moved.insert(name);
        bytes -= lengths[name];
    }
    if bytes > DETAIL_BYTES_MAX || moved.is_empty() {
        return Err(BadOverflow::TooLarge { bytes });
    }

    let (gone, mut kept): (Vec<&Field<'_>>, Vec<&Field<'_>>) =
        fields.iter().partition(|field| moved.contains(field.name));
    kept.push(&reference);
    names.retain(|name| moved.contains(name));
    Ok(Some(Overflow {
        properties: object(&kept),
        payload: object(&gone),
        moved: names.into_iter().map(str::to_owned).collect(),
    }))
}

/// Where the moved fields of these properties are, if any were moved.
pub fn reference(properties: &Json) -> Result<Option<OverflowRef>, BadPayload> {
    // Parsing is for the few properties that could hold the name; a key may be spelled with escapes.
    let text = properties.as_str();
    if !text.contains(OVERFLOW_FIELD) && !text.contains("\\u") {
        return Ok(None);
    }
    let Fields(fields) = read(properties, "properties")?;
    let Some((_, place)) = fields.iter().find(|(name, _)| name == OVERFLOW_FIELD) else { return Ok(None) };
    serde_json::from_str(place.get())
        .map(Some)
        .map_err(|error| BadPayload::Unreadable { part: OVERFLOW_FIELD, problem: error.to_string() })
}

/// Puts the moved fields back in the place of the reference.
pub fn rehydrate(properties: &Json, payload: &Json) -> Result<Json, BadPayload> {
    let Fields(kept) = read(properties, "properties")?;
    let Fields(moved) = read(payload, "payload")?;
    let names: BTreeSet<&str> = kept.iter().map(|(name, _)| name.as_ref()).collect();
    if !names.contains(OVERFLOW_FIELD) {
        return Err(BadPayload::NothingMoved);
    }
    if let Some((field, _)) = moved.iter().find(|(name, _)| names.contains(name.as_ref())) {
        return Err(BadPayload::Both { field: field.to_string() });
    }
    let kept = kept.iter().filter(|(name, _)| name != OVERFLOW_FIELD);
    let fields: Vec<Field<'_>> =
        kept.chain(&moved).map(|(name, value)| Field::new(name, value.get())).collect();
    Ok(object(&fields.iter().collect::<Vec<_>>()))
}

fn read<'a>(json: &'a Json, part: &'static str) -> Result<Fields<'a>, BadPayload> {
    json.read().map_err(|error| BadPayload::Unreadable { part, problem: error.to_string() })
}

/// One field of an object. Its value may be large, so it stays where it is.
#[derive(Debug)]
struct Field<'a> {
    name: &'a str,
    /// The name as a JSON text.
    quoted: Json,
    value: &'a str,
}

impl<'a> Field<'a> {
    fn new(name: &'a str, value: &'a str) -> Self {
        Self { name, quoted: Json::of(name), value }
    }

    /// How much shorter an object gets without it, colon and comma included. Some other field always stays.
    fn len_in_object(&self) -> usize {
        self.quoted.len() + self.value.len() + 2
    }
}

fn object_len<'f>(fields: impl Iterator<Item = &'f Field<'f>>) -> usize {
    // Two braces and a comma after each field but the last.
    fields.map(Field::len_in_object).sum::<usize>() + 1
}

fn object(fields: &[&Field<'_>]) -> Json {
    let mut text = String::with_capacity(object_len(fields.iter().copied()) + 1);
    for (at, Field { quoted, value, .. }) in fields.iter().enumerate() {
        let before = if at == 0 { '{' } else { ',' };
        text.push(before);
        text.push_str(quoted.as_str());
        text.push(':');
        text.push_str(value);
    }
    text.push_str(if fields.is_empty() { "{}" } else { "}" });
    Json::parse(text).expect("names and values were JSON before")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::sample;

    fn place() -> OverflowRef {
        OverflowRef { bucket: "events-prod".to_owned(), key: "events/req-1/x-payload.json".to_owned() }
    }

    fn split(properties: &Value, envelope: usize) -> Result<Option<Overflow>, BadOverflow> {
        overflow(&Json::of(properties), envelope, &place())
    }

    fn value(json: &Json) -> Value {
        json.read().unwrap()
    }

    #[test]
    fn an_event_of_exactly_the_limit_stays_whole() {
        let mut event = sample::documented_event();
        let room = DETAIL_BYTES_MAX - event.envelope_len() - r#"{"requestId":"r","output":""}"#.len();
        for (length, overflows) in [(0, false), (room, false), (room + 1, true), (room * 3, true)] {
            event.properties = Json::of(&json!({ "requestId": "r", "output": "x".repeat(length) }));
            let split = event.overflow("events-prod").unwrap();
            assert_eq!(event.to_detail().len() > DETAIL_BYTES_MAX, overflows);
            assert_eq!(split.is_some(), overflows, "{length}");
            let Some(split) = split else { continue };
            assert_eq!(
                split.properties.as_str(),
                concat!(
                    r#"{"requestId":"r","_s3Overflow":{"bucket":"events-prod","#,
                    r#""key":"events/req-123/ddf71f63-b036-4ac7-ad0f-77a7fdfca352-payload.json"}}"#
                )
            );
            assert_eq!(value(&split.payload), json!({ "output": "x".repeat(length) }));
            assert_eq!(reference(&split.properties).unwrap().unwrap().bucket, "events-prod");
        }
    }

    #[test]
    fn listed_fields_move_first_and_then_the_largest() {
        let big = |kib: usize| Value::from("x".repeat(kib * 1024));
        let rows: [(Value, &[&str]); 6] = [
            (json!({"output": big(300), "durationMs": 1}), &["output"]),
            (json!({"output": 1, "other": big(300), "small": 2}), &["other", "output"]),
            (
                json!({"outputs": 1, "input": 2, "claudeOutput": 3, "output": 4, "tasks": 5, "newTasks": big(201)}),
                &["claudeOutput", "input", "newTasks", "output", "outputs", "tasks"],
            ),
            (json!({"a": big(120), "b": big(130), "c": big(60)}), &["b"]),
            (json!({"a": big(120), "b": big(130), "c": big(90)}), &["a", "b"]),
            (
                json!({"requestId": "r", "jobId": "j", "error": big(150), "run": 2, "fence": 3, "z": big(60)}),
                &["z"],
            ),
        ];
        for (properties, moved) in rows {
            let split = split(&properties, 900).unwrap().unwrap();
            assert_eq!(split.moved, moved);
            assert!(split.properties.len() + 900 <= DETAIL_BYTES_MAX);
            assert_eq!(value(&rehydrate(&split.properties, &split.payload).unwrap()), properties);
        }
    }

    #[test]
    fn a_name_given_twice_moves_twice_and_in_order() {
        let long = "x".repeat(DETAIL_BYTES_MAX);
        let text = format!(r#"{{ "n": 1e999, "a": 1, "output": "{long}", "b": 2, "output": [ 3 ] }}"#);
        let split = overflow(&Json::parse(text).unwrap(), 900, &place()).unwrap().unwrap();
        assert_eq!(split.moved, ["output"]);
        assert_eq!(split.payload.as_str(), format!(r#"{{"output":"{long}","output":[ 3 ]}}"#));
        assert!(split.properties.as_str().starts_with(r#"{"n":1e999,"a":1,"b":2,"_s3Overflow":{"#));
    }

    #[test]
    fn what_cannot_be_split_is_refused() {
        let long = "x".repeat(DETAIL_BYTES_MAX);
        for (properties, expected) in [
            (json!({ "error": long }), "the event has 2057"),
            (json!({ "error": long, "output": 1 }), "the event has 2057"),
            (json!({ "_s3Overflow": 1, "output": long }), "properties._s3Overflow is reserved"),
            (json!(long), "properties cannot be read: "),
        ] {
            let error = split(&properties, 900).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_payload_goes_back_only_where_it_came_from() {
        let parse = |text: &str| Json::parse(text.to_owned()).unwrap();
        for (properties, payload, expected) in [
            (r#"{"a":1}"#, r#"{"b":2}"#, "properties have no _s3Overflow; nothing was moved"),
            (r#"{"a":1,"_s3Overflow":{}}"#, r#"{"a":2}"#, "both properties and payload have a field a"),
            (r#"{"a":1,"_s3Overflow":{}}"#, "[]", "payload cannot be read: "),
            ("7", "{}", "properties cannot be read: "),
        ] {
            let error = rehydrate(&parse(properties), &parse(payload)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_reference_is_found_however_it_is_spelled() {
        let parse = |text: &str| Json::parse(text.to_owned()).unwrap();
        for (properties, found) in [
            (r#"{"a":"_s3Overflow"}"#, false),
            (r#"{"a":{"_s3Overflow":1}}"#, false),
            (r#"{"_s3Overflow":{"bucket":"b","key":"k"}}"#, true),
            (r#"{"\u005fs3Overflow":{"bucket":"b","key":"k"}}"#, true),
        ] {
            assert_eq!(reference(&parse(properties)).unwrap().is_some(), found, "{properties}");
        }
        assert!(reference(&parse(r#"{"_s3Overflow":7}"#)).is_err());
    }

    /// Objects in which some values are long, under listed names, protected names and others.
    fn large() -> impl Strategy<Value = Value> {
        let name =
            prop_oneof!["outputs|input|output|tasks|newTasks|claudeOutput", "requestId|run|fence", ".{0,3}"];
        let long = (0..90_usize).prop_map(|kib| Value::from("\"".repeat(kib * 512)));
        let values = prop_oneof![sample::value(), long];
        proptest::collection::btree_map(name, values, 0..9)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_was_moved_comes_back(properties in large(), envelope in 500..2_000_usize) {
            let before = Json::of(&properties);
            match split(&properties, envelope) {
                Ok(None) => prop_assert!(before.len() + envelope <= DETAIL_BYTES_MAX),
                Ok(Some(split)) => {
                    prop_assert!(before.len() + envelope > DETAIL_BYTES_MAX);
                    prop_assert!(split.properties.len() + envelope <= DETAIL_BYTES_MAX);
                    prop_assert_eq!(value(&rehydrate(&split.properties, &split.payload).unwrap()), properties);
                    let moved = value(&split.payload);
                    prop_assert!(NEVER_MOVED.iter().all(|name| moved.get(name).is_none()));
                    prop_assert!(split.moved.iter().all(|name| moved.get(name).is_some()));
                }
                Err(error) => {
                    let too_large = matches!(error, BadOverflow::TooLarge { .. });
                    prop_assert!(too_large);
                    prop_assert!(NEVER_MOVED.iter().any(|name| properties.get(name).is_some()));
                }
            }
        }
    }
}
