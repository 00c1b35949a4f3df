//! Reading an event back from its JSON object.
//!
//! No event changes on its way through: a field that is of another kind or at odds with the others is refused by name, and
//! what no field of an event can say is kept beside them. A sender may leave out fields that keys tell; a store may not.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::events::event::{Beside, Context, ContextJson, Entity, Event};
use crate::events::key::{BadSortKey, Index, KeyFields, parse_sk};
use crate::values::id::{AppName, BadId, EntityId, EntityType, EventType, IdProblem, TenantId, WorkerId};
use crate::values::json::{Json, Text};
use crate::values::time::{BadTimestamp, Timestamp};

/// Why a text is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEvent {
    #[error("the event is not a JSON object: {problem}")]
    NotAnObject { problem: String },
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("{field} is a name that stores use themselves")]
    Reserved { field: String },
    #[error("the event has more than {FURTHER_MAX} fields that no event of the engine has")]
    TooMany,
    #[error("{field} is given twice")]
    Twice { field: String },
    #[error("{field} is not {expected}")]
    Kind { field: &'static str, expected: &'static str },
    #[error("{field} {problem}")]
    Id { field: &'static str, problem: IdProblem },
    #[error(transparent)]
    Timestamp(#[from] BadTimestamp),
    #[error(transparent)]
    SortKey(#[from] BadSortKey),
    #[error("{field} is {found:?}; the other fields give {expected:?}")]
    Differs { field: &'static str, found: String, expected: String },
}

impl BadEvent {
    /// The field that is wrong, unless it is the whole.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::NotAnObject { .. } | Self::TooMany => None,
            Self::Reserved { field } | Self::Twice { field } => Some(field),
            Self::Missing { field }
            | Self::Kind { field, .. }
            | Self::Id { field, .. }
            | Self::Differs { field, .. } => Some(field),
            Self::Timestamp(bad) => Some(bad.field),
            Self::SortKey(_) => Some("SK"),
        }
    }
}

impl From<BadId> for BadEvent {
    fn from(bad: BadId) -> Self {
        Self::Id { field: bad.field, problem: bad.problem }
    }
}

/// How many fields a sender may add to those of an event.
pub const FURTHER_MAX: usize = 100;
/// What stores write beside an event for themselves.
const STORES_OWN: [&str; 2] = ["propertiesJson", "ttlByKind"];

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
const PK: usize = 0;
const SK: usize = 1;
const GSI1PK: usize = 2;
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
    /// Fields that no event of the engine has.
    further: Vec<(Cow<'a, str>, &'a RawValue)>,
    problem: Option<BadEvent>,
}

pub(crate) fn read_fields(text: &str) -> Result<EventFields<'_>, BadEvent> {
    let fields: EventFields<'_> =
        serde_json::from_str(text).map_err(|error| BadEvent::NotAnObject { problem: error.to_string() })?;
    match &fields.problem {
        Some(problem) => Err(problem.clone()),
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
                let mut fields =
                    EventFields { values: [None; FIELD_COUNT], further: Vec::new(), problem: None };
                // Events that we rendered have their fields in this order, so the next one is the likely one.
                let mut likely = 0;
                while let Some(Text(name)) = map.next_key()? {
                    let slot = match FIELDS.get(likely) {
                        Some(next) if *next == name => Some(likely),
                        _ => FIELDS.iter().position(|field| *field == name),
                    };
                    let Some(slot) = slot else {
                        let value = map.next_value()?;
                        fields.take_further(name, value);
                        continue;
                    };
                    if fields.values[slot].replace(map.next_value()?).is_some() {
                        fields.problem.get_or_insert(BadEvent::Twice { field: FIELDS[slot].to_owned() });
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
    fn take_further(&mut self, name: Cow<'a, str>, value: &'a RawValue) {
        let problem = if STORES_OWN.contains(&name.as_ref()) {
            BadEvent::Reserved { field: name.into_owned() }
        } else if self.further.iter().any(|(known, _)| *known == name) {
            BadEvent::Twice { field: name.into_owned() }
        } else if self.further.len() == FURTHER_MAX {
            BadEvent::TooMany
        } else {
            self.further.push((name, value));
            return;
        };
        self.problem.get_or_insert(problem);
    }

    /// The event. `app` is given for those of a sender: whose it is when no key says so.
    pub(crate) fn event(&self, received_at: Timestamp, app: Option<&AppName>) -> Result<Event, BadEvent> {
        let position = parse_sk(&self.text(SK)?)?;
        let is_sent = app.is_some();
        let app = self.app(app)?;
        let properties = match self.values[PROPERTIES] {
            None if is_sent => Json::empty_object(),
            None => return Err(BadEvent::Missing { field: "properties" }),
            Some(sent) if sent.get().starts_with('{') => Json::from_raw(sent),
            Some(_) => return Err(BadEvent::Kind { field: "properties", expected: "a JSON object" }),
        };
        let (context, context_beside) = self.context();
        let event = Event {
            id: position.id,
            tenant: self.tenant(is_sent)?,
            entity: self.entity(is_sent.then_some(&app))?,
            app,
            event_type: EventType::new(self.text(EVENT_TYPE)?)?,
            timestamp: self.moment(TIMESTAMP)?,
            received_at,
            context,
            properties,
            ttl: self.values[TTL].map(|_| self.number(TTL)).transpose()?,
            beside: self.beside(context_beside),
        };
        self.check_keys(&event)?;
        Ok(event)
    }

    fn app(&self, otherwise: Option<&AppName>) -> Result<AppName, BadEvent> {
        if let (None, Some(app)) = (self.values[GSI2PK], otherwise) {
            return Ok(app.clone());
        }
        let app = self.text(GSI2PK)?;
        let app = app
            .strip_prefix("APP#")
            .ok_or(BadEvent::Kind { field: "GSI2PK", expected: "APP# and the name of an app" })?;
        AppName::new(app).map_err(|bad| BadEvent::Id { field: "GSI2PK", problem: bad.problem })
    }

    fn tenant(&self, is_sent: bool) -> Result<TenantId, BadEvent> {
        if self.values[TENANT_ID].is_some() || !is_sent {
            return Ok(TenantId::new(self.text(TENANT_ID)?)?);
        }
        let key = self.text(PK)?;
        let expected = "TENANT# and the name of a tenant";
        let tenant = key.strip_prefix("TENANT#").ok_or(BadEvent::Kind { field: "PK", expected })?;
        TenantId::new(tenant).map_err(|bad| BadEvent::Id { field: "PK", problem: bad.problem })
    }

    /// What the event is about: as its fields say, or, of a sender's, its key or its app.
    fn entity(&self, app: Option<&AppName>) -> Result<Entity, BadEvent> {
        let fields = || {
            let kind = EntityType::new(self.text(ENTITY_TYPE)?)?;
            Ok(Entity { kind, id: EntityId::new(self.text(ENTITY_ID)?)? })
        };
        let Some(app) =
            app.filter(|_| self.values[ENTITY_ID].is_none() && self.values[ENTITY_TYPE].is_none())
        else {
            return fields();
        };
        if self.values[GSI1PK].is_none() {
            return Ok(Entity { kind: EntityType::trusted("APP"), id: EntityId::trusted(app.as_str()) });
        }
        let key = self.text(GSI1PK)?;
        let expected = "the type of an entity, # and its id";
        let (kind, id) = key.split_once('#').ok_or(BadEvent::Kind { field: "GSI1PK", expected })?;
        let named = |bad: BadId| BadEvent::Id { field: "GSI1PK", problem: bad.problem };
        Ok(Entity { kind: EntityType::new(kind).map_err(named)?, id: EntityId::new(id).map_err(named)? })
    }

    fn beside(&self, context: Option<Json>) -> Option<Box<Beside>> {
        let fields = (!self.further.is_empty()).then(|| {
            let mut text = String::from("{");
            for (name, value) in &self.further {
                if text.len() > 1 {
                    text.push(',');
                }
                text.push_str(&serde_json::Value::from(name.as_ref()).to_string());
                text.push(':');
                text.push_str(value.get());
            }
            text.push('}');
            Json::trusted(&text)
        });
        (context.is_some() || fields.is_some()).then(|| Box::new(Beside { context, fields }))
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

    /// The context as far as events of the engine have one, and the whole of it if that is not all.
    fn context(&self) -> (Context, Option<Json>) {
        let Some(sent) = self.values[CONTEXT] else {
            return (Context::of_nobody(), Some(Json::trusted("null")));
        };
        if let Ok(read) = serde_json::from_str::<ContextJson<'_>>(sent.get())
            && read.source == "system"
        {
            let ContextJson { environment, origin, worker_id, .. } = read;
            let context = Context { environment: environment.into(), origin: origin.into(), worker_id };
            return (context, None);
        }
        let loose: serde_json::Value = serde_json::from_str(sent.get()).unwrap_or_default();
        let text = |name: &str| loose.get(name).and_then(|value| value.as_str());
        let mut context = Context::of_nobody();
        if let Some(environment) = text("environment") {
            context.environment = environment.into();
        }
        if let Some(origin) = text("origin").or(text("source")) {
            context.origin = origin.into();
        }
        context.worker_id = text("workerId").and_then(|worker| WorkerId::new(worker).ok());
        (context, Some(Json::from_raw(sent)))
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
            (
                r#""SK":"TIMESTAMP#1767453739640#EVENT#ddf71f63-b036-4ac7-ad0f-77a7fdfca352","#,
                "",
                "SK is missing",
            ),
            (r#""entityType":"TASK","#, "", "entityType is missing"),
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
            (r#""properties":{"#, r#""properties":[{"#, "the event is not a JSON object: "),
            (
                r#""properties":{"requestId":"req-123","startedAt":1767453739640}"#,
                r#""properties":[]"#,
                "properties is not a JSON object",
            ),
            (r#""receivedAt":1767453739655"#, r#""receivedAt":1"#, "receivedAt is 1; it must be"),
            (r#","receivedAt":1767453739655"#, "", "receivedAt is missing"),
            (r#""receivedAt":"#, r#""ttl":-1,"receivedAt":"#, "ttl is not a whole number"),
            (
                r#""receivedAt":"#,
                r#""ttlByKind":true,"receivedAt":"#,
                "ttlByKind is a name that stores use themselves",
            ),
            (r#""receivedAt":"#, r#""colour":1,"colour":1,"receivedAt":"#, "colour is given twice"),
            (r#""receivedAt":"#, r#""entityId":"req-123","receivedAt":"#, "entityId is given twice"),
        ] {
            assert!(good.contains(from), "{from}");
            let error = Event::from_json(&good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error:?} instead of {expected:?}");
        }
        assert!(Event::from_json("[]").is_err());
        assert!(Event::from_json("").is_err());
        let many: Vec<String> = (0..=FURTHER_MAX).map(|number| format!(r#""f{number}":1,"#)).collect();
        let many = many.concat();
        let error = Event::from_json(&good.replacen(r#""receivedAt""#, &format!("{many}\"receivedAt\""), 1));
        assert_eq!(error, Err(BadEvent::TooMany));
    }

    #[test]
    fn what_no_field_can_say_comes_back_as_it_was_sent() {
        let event = sample::documented_event();
        let good = event.to_json();
        for (from, to) in [
            (r#""source":"system""#, r#""source":"me""#),
            (r#""origin":"sqs-worker","#, ""),
            (r#""origin":"#, r#""more":[1, 2.50],"origin":"#),
            (r#""context":{"source":"system","#, r#""context":{"source":7,"#),
            (r#""receivedAt":"#, r#""colour":{"a": 1e3},"size":"\u00e9","receivedAt":"#),
        ] {
            assert!(good.contains(from), "{from}");
            let sent = good.replacen(from, to, 1);
            let read = Event::from_json(&sent).unwrap();
            assert!(read.beside.is_some());
            let [again, sent] =
                [read.to_json(), sent].map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap());
            assert_eq!(again, sent);
            assert_eq!(Event::from_json(&read.to_json()), Ok(read));
        }
        let bare = r#"{"PK":"TENANT#acme","SK":"TIMESTAMP#1767453739640#EVENT#ddf71f63-b036-4ac7-ad0f-77a7fdfca352",
            "eventType":"stock.counted","timestamp":1767453739640}"#;
        assert_eq!(
            Event::from_detail(bare, event.received_at),
            Err(BadEvent::Missing { field: "GSI2PK" }),
            "nobody says whose app it is"
        );
        let app = AppName::trusted("orders");
        let read = Event::from_sender(bare, event.received_at, &app).unwrap();
        assert_eq!(read.entity, Entity { kind: EntityType::trusted("APP"), id: EntityId::trusted("orders") });
        let again: serde_json::Value = serde_json::from_str(&read.to_detail()).unwrap();
        assert_eq!(again.get("context"), None);
        assert_eq!(again["GSI6SK"], "TENANT#acme#APP#orders#TIMESTAMP#1767453739640");
        assert_eq!(Event::from_detail(&read.to_detail(), event.received_at), Ok(read));
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
