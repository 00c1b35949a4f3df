//! Reading an event back from its JSON object.
//!
//! Reading is strict: a field that is unknown, missing, of another kind or at odds with the others is refused by name,
//! so that no event changes on its way through.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::events::event::{Context, ContextJson, Entity, Event};
use crate::events::key::{BadSortKey, Index, KeyFields, parse_sk};
use crate::values::id::{AppName, BadId, EntityId, EntityType, EventType, IdProblem, TenantId};
use crate::values::json::{Json, Text};
use crate::values::time::{BadTimestamp, Timestamp};

/// Why a text is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEvent {
    #[error("the event is not a JSON object: {problem}")]
    NotAnObject { problem: String },
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("{field} is not a field of an event")]
    Unknown { field: String },
    #[error("{field} is given twice")]
    Twice { field: &'static str },
    #[error("{field} is not {expected}")]
    Kind { field: &'static str, expected: &'static str },
    #[error("{field} {problem}")]
    Id { field: &'static str, problem: IdProblem },
    #[error(transparent)]
    Timestamp(#[from] BadTimestamp),
    #[error(transparent)]
    SortKey(#[from] BadSortKey),
    #[error("context is not right: {problem}")]
    Context { problem: String },
    #[error("{field} is {found:?}; the other fields give {expected:?}")]
    Differs { field: &'static str, found: String, expected: String },
}

impl BadEvent {
    /// The field that is wrong, unless it is the whole.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::NotAnObject { .. } => None,
            Self::Unknown { field } => Some(field),
            Self::Missing { field }
            | Self::Twice { field }
            | Self::Kind { field, .. }
            | Self::Id { field, .. }
            | Self::Differs { field, .. } => Some(field),
            Self::Timestamp(bad) => Some(bad.field),
            Self::SortKey(_) => Some("SK"),
            Self::Context { .. } => Some("context"),
        }
    }
}

impl From<BadId> for BadEvent {
    fn from(bad: BadId) -> Self {
        Self::Id { field: bad.field, problem: bad.problem }
    }
}

const FIELD_COUNT: usize = 25;

/// Every field of an event, the sixteen keys first; the order is that of the rendered form.
pub(crate) const FIELDS: [&str; FIELD_COUNT] = [
    "PK",
    "SK",
    "GSI1PK",
    "GSI1SK",
    "GSI2PK",
    "GSI2SK",
    "GSI3PK",
    "GSI3SK",
    "GSI4PK",
    "GSI4SK",
    "GSI5PK",
    "GSI5SK",
    "GSI6PK",
    "GSI6SK",
    "GSI7PK",
    "GSI7SK",
    "entityId",
    "entityType",
    "tenantId",
    "eventType",
    "timestamp",
    "context",
    "properties",
    "ttl",
    "receivedAt",
];
const SK: usize = 1;
const GSI1SK: usize = 3;
const GSI2PK: usize = 4;
const ENTITY_ID: usize = 16;
const ENTITY_TYPE: usize = 17;
const TENANT_ID: usize = 18;
const EVENT_TYPE: usize = 19;
const TIMESTAMP: usize = 20;
const CONTEXT: usize = 21;
const PROPERTIES: usize = 22;
const TTL: usize = 23;
const RECEIVED_AT: usize = 24;

/// The values of an event's fields, not looked at yet.
pub(crate) struct EventFields<'a> {
    values: [Option<&'a RawValue>; FIELD_COUNT],
    problem: Option<BadEvent>,
}

pub(crate) fn read_fields(text: &str) -> Result<EventFields<'_>, BadEvent> {
    let fields: EventFields<'_> =
        serde_json::from_str(text).map_err(|error| BadEvent::NotAnObject { problem: error.to_string() })?;
    match fields.problem {
        Some(problem) => Err(problem),
        None => Ok(fields),
    }
}

impl<'de> Deserialize<'de> for EventFields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = EventFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EventFields<'de>, A::Error> {
                let mut fields = EventFields { values: [None; FIELD_COUNT], problem: None };
                // Events that we rendered have their fields in this order, so the next one is the likely one.
                let mut likely = 0;
                while let Some(Text(name)) = map.next_key()? {
                    let slot = match FIELDS.get(likely) {
                        Some(next) if *next == name => Some(likely),
                        _ => FIELDS.iter().position(|field| *field == name),
                    };
                    let Some(slot) = slot else {
                        map.next_value::<IgnoredAny>()?;
                        fields.problem.get_or_insert(BadEvent::Unknown { field: name.into_owned() });
                        continue;
                    };
                    if fields.values[slot].replace(map.next_value()?).is_some() {
                        fields.problem.get_or_insert(BadEvent::Twice { field: FIELDS[slot] });
                    }
                    likely = slot + 1;
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

impl<'a> EventFields<'a> {
    pub(crate) fn event(&self, received_at: Timestamp) -> Result<Event, BadEvent> {
        let position = parse_sk(&self.text(SK)?)?;
        let app = self.text(GSI2PK)?;
        let app = app
            .strip_prefix("APP#")
            .ok_or(BadEvent::Kind { field: "GSI2PK", expected: "APP# and the name of an app" })?;
        let app = AppName::new(app).map_err(|bad| BadEvent::Id { field: "GSI2PK", problem: bad.problem })?;
        let properties = self.required(PROPERTIES)?;
        if !properties.get().starts_with('{') {
            return Err(BadEvent::Kind { field: "properties", expected: "a JSON object" });
        }
        let event = Event {
            id: position.id,
            tenant: TenantId::new(self.text(TENANT_ID)?)?,
            app,
            entity: Entity {
                kind: EntityType::new(self.text(ENTITY_TYPE)?)?,
                id: EntityId::new(self.text(ENTITY_ID)?)?,
            },
            event_type: EventType::new(self.text(EVENT_TYPE)?)?,
            timestamp: self.moment(TIMESTAMP)?,
            received_at,
            context: self.context()?,
            properties: Json::from_raw(properties),
            ttl: self.values[TTL].map(|_| self.number(TTL)).transpose()?,
        };
        self.check_keys(&event)?;
        Ok(event)
    }

    /// Refuses keys that say something else than the fields they are made of. Keys that were left out are no harm.
    fn check_keys(&self, event: &Event) -> Result<(), BadEvent> {
        let digits = event.timestamp.digits();
        let mut id = [0; 36];
        let keys = KeyFields::of(event, &digits, &mut id);
        let mut expected = String::with_capacity(128);
        for (slot, index) in (0..16).zip(Index::ALL.iter().flat_map(|index| [index, index])) {
            if self.values[slot].is_none() {
                continue;
            }
            let found = self.text(slot)?;
            expected.clear();
            if slot % 2 == 0 {
                keys.write_pk(*index, &mut expected);
            } else {
                keys.write_sk(*index, &mut expected);
            }
            // Older writers left the entity type out of this key.
            let older = slot == GSI1SK && found.strip_prefix("TIMESTAMP#") == Some(keys.millis);
            if found != expected && !older {
                return Err(BadEvent::Differs { field: FIELDS[slot], found: found.into_owned(), expected });
            }
        }
        Ok(())
    }

    fn context(&self) -> Result<Context, BadEvent> {
        let read: ContextJson<'_> = serde_json::from_str(self.required(CONTEXT)?.get())
            .map_err(|error| BadEvent::Context { problem: error.to_string() })?;
        if read.source != "system" {
            let problem = format!("source is {:?}; it is always \"system\"", read.source);
            return Err(BadEvent::Context { problem });
        }
        let ContextJson { environment, origin, worker_id, .. } = read;
        Ok(Context { environment: environment.into(), origin: origin.into(), worker_id })
    }

    fn required(&self, slot: usize) -> Result<&'a RawValue, BadEvent> {
        self.values[slot].ok_or(BadEvent::Missing { field: FIELDS[slot] })
    }

    fn text(&self, slot: usize) -> Result<Cow<'a, str>, BadEvent> {
        serde_json::from_str(self.required(slot)?.get())
            .map(|Text(text)| text)
            .map_err(|_| BadEvent::Kind { field: FIELDS[slot], expected: "a string" })
    }

    fn number<T: DeserializeOwned>(&self, slot: usize) -> Result<T, BadEvent> {
        serde_json::from_str(self.required(slot)?.get())
            .map_err(|_| BadEvent::Kind { field: FIELDS[slot], expected: "a whole number" })
    }

    pub(crate) fn received_at(&self) -> Result<Timestamp, BadEvent> {
        self.moment(RECEIVED_AT)
    }

    fn moment(&self, slot: usize) -> Result<Timestamp, BadEvent> {
        Ok(Timestamp::new(FIELDS[slot], self.number(slot)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn what_is_wrong_is_named() {
        let good = sample::documented_event().to_json();
        for (from, to, expected) in [
            (r#""tenantId":"gbinnovations","#, "", "tenantId is missing"),
            (
                r#""tenantId":"gb"#,
                r#""tenantId":"x#"#,
                "tenantId holds '#'; allowed are letters, digits, `_` and `-`",
            ),
            (r#""entityType":"TASK""#, r#""entityType":7"#, "entityType is not a string"),
            (r#""timestamp":17"#, r#""timestamp":"17"#, "the event is not a JSON object: "),
            (r#""timestamp":1767453739640"#, r#""timestamp":"soon""#, "timestamp is not a whole number"),
            (
                r#""timestamp":1767453739640"#,
                r#""timestamp":5"#,
                "timestamp is 5; it must be epoch milliseconds",
            ),
            (
                r#""timestamp":1767453739640"#,
                r#""timestamp":1767453739641"#,
                "SK is \"TIMESTAMP#1767453739640#",
            ),
            (r#""SK":"TIMESTAMP#"#, r#""SK":"TIME#"#, "SK is \"TIME#"),
            (
                r#""PK":"TENANT#gb"#,
                r#""PK":"TENANT#x"#,
                "PK is \"TENANT#xinnovations\"; the other fields give \"TENANT#gb",
            ),
            (r#""GSI2PK":"APP#"#, r#""GSI2PK":"APP"#, "GSI2PK is not APP# and the name of an app"),
            (r#""GSI2PK":"APP#"#, r#""GSI2PK":"APP##"#, "GSI2PK holds '#'"),
            (r#""GSI7SK":"TENANT#"#, r#""GSI7SK":"X"#, "GSI7SK is \"X"),
            (r#""source":"system""#, r#""source":"me""#, "context is not right: source is \"me\""),
            (r#""origin":"sqs-worker","#, "", "context is not right: missing field `origin`"),
            (r#""origin":"#, r#""more":1,"origin":"#, "context is not right: unknown field `more`"),
            (r#""properties":{"#, r#""properties":[{"#, "the event is not a JSON object: "),
            (
                r#""properties":{"requestId":"req-123","startedAt":1767453739640}"#,
                r#""properties":[]"#,
                "properties is not a JSON object",
            ),
            (r#""receivedAt":1767453739655"#, r#""receivedAt":1"#, "receivedAt is 1; it must be"),
            (r#","receivedAt":1767453739655"#, "", "receivedAt is missing"),
            (r#""receivedAt":"#, r#""ttl":-1,"receivedAt":"#, "ttl is not a whole number"),
            (r#""receivedAt":"#, r#""colour":1,"receivedAt":"#, "colour is not a field of an event"),
            (r#""receivedAt":"#, r#""entityId":"req-123","receivedAt":"#, "entityId is given twice"),
        ] {
            assert!(good.contains(from), "{from}");
            let error = Event::from_json(&good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error:?} instead of {expected:?}");
        }
        assert!(Event::from_json("[]").is_err());
        assert!(Event::from_json("").is_err());
    }

    #[test]
    fn missing_index_keys_and_the_older_job_key_are_taken() {
        let event = sample::documented_event();
        let good = event.to_json();
        for (from, to) in [
            (r#""GSI1SK":"TASK#TIMESTAMP#"#, r#""GSI1SK":"TIMESTAMP#"#),
            (r#""GSI3PK":"APP#task-workflow","#, ""),
        ] {
            assert!(good.contains(from), "{from}");
            assert_eq!(Event::from_json(&good.replacen(from, to, 1)), Ok(event.clone()));
        }
    }
}
