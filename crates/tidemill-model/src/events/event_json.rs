//! Events as JSON: one object with all keys, metadata, context and properties.
//!
//! The detail is what a sender puts on the bus; the stored form has `receivedAt` besides. Keys are rendered and never
//! stored; properties are copied as they are.

use std::borrow::Cow;

use crate::events::event::{Context, Event};
use crate::events::event_fields::{BadEvent, read_fields};
use crate::events::key::{Index, KeyFields, KeyNames, ascii};
use crate::values::id::AppName;
use crate::values::sink::{ByteCount, Sink};
use crate::values::time::Timestamp;

const RECEIVED_AT_BYTES: usize = ",\"receivedAt\":1234567890123".len();

impl Event {
    /// The stored form: the detail and `receivedAt`.
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(self.detail_len() + RECEIVED_AT_BYTES);
        self.write_json(&mut out);
        out
    }

    /// Appends the stored form to `out`.
    pub fn write_json(&self, out: &mut String) {
        self.write_open(out);
        out.put(",\"receivedAt\":");
        out.put(ascii(&self.received_at.digits()));
        out.put("}");
    }

    /// The form that senders put on the bus.
    pub fn to_detail(&self) -> String {
        let mut out = String::with_capacity(self.detail_len());
        self.write_detail(&mut out);
        out
    }

    /// Appends the detail to `out`.
    pub fn write_detail(&self, out: &mut String) {
        self.write_open(out);
        out.put("}");
    }

    /// How long the detail is, in bytes.
    pub fn detail_len(&self) -> usize {
        let mut count = ByteCount::default();
        self.write_open(&mut count);
        count.0 + "}".len()
    }

    /// How long the detail is without its properties.
    pub fn envelope_len(&self) -> usize {
        self.detail_len() - self.properties.len()
    }

    /// Reads the stored form.
    pub fn from_json(text: &str) -> Result<Self, BadEvent> {
        let fields = read_fields(text)?;
        let received_at = fields.received_at()?;
        fields.event(received_at, None)
    }

    /// Reads a detail that the store took at `received_at`. A `receivedAt` that the sender wrote does not count.
    pub fn from_detail(text: &str, received_at: Timestamp) -> Result<Self, BadEvent> {
        read_fields(text)?.event(received_at, None)
    }

    /// The same of a sender that may leave out all keys but those of the table. `app` is whose event it is then.
    pub fn from_sender(text: &str, received_at: Timestamp, app: &AppName) -> Result<Self, BadEvent> {
        read_fields(text)?.event(received_at, Some(app))
    }

    /// Writes the object up to its closing brace.
    fn write_open(&self, out: &mut impl Sink) {
        let digits = self.timestamp.digits();
        let mut id = [0; 36];
        let plain = KeyFields::of(self, &digits, &mut id);
        // The literal parts of keys need no escapes, so a key of escaped names is the escaped key.
        let [tenant, app, entity_type, entity_id, event_type] = [
            plain.names.tenant,
            plain.names.app,
            plain.names.entity_type,
            plain.names.entity_id,
            plain.names.event_type,
        ]
        .map(escaped);
        let names = KeyNames {
            tenant: &tenant,
            app: &app,
            entity_type: &entity_type,
            entity_id: &entity_id,
            event_type: &event_type,
        };
        let keys = KeyFields { names, ..plain };
        let mut quote = "{\"";
        for index in Index::ALL {
            let [pk, sk] = index.attributes();
            for piece in [quote, pk, "\":\""] {
                out.put(piece);
            }
            keys.write_pk(index, out);
            for piece in ["\",\"", sk, "\":\""] {
                out.put(piece);
            }
            keys.write_sk(index, out);
            quote = "\",\"";
        }
        for piece in [
            "\",\"entityId\":\"",
            &entity_id,
            "\",\"entityType\":\"",
            &entity_type,
            "\",\"tenantId\":\"",
            &tenant,
            "\",\"eventType\":\"",
            &event_type,
            "\",\"timestamp\":",
            plain.millis,
        ] {
            out.put(piece);
        }
        match self.beside.as_ref().and_then(|beside| beside.context.as_ref()) {
            None => write_context(&self.context, out),
            Some(none) if none.as_str() == "null" => {}
            Some(sent) => {
                out.put(",\"context\":");
                out.put(sent.as_str());
            }
        }
        out.put(",\"properties\":");
        out.put(self.properties.as_str());
        if let Some(ttl) = self.ttl {
            out.put(",\"ttl\":");
            out.put(&ttl.to_string());
        }
        let further = self.beside.as_ref().and_then(|beside| beside.fields.as_ref());
        let inner = further.and_then(|fields| fields.as_str().strip_prefix('{')?.strip_suffix('}'));
        if let Some(inner) = inner.filter(|inner| !inner.trim().is_empty()) {
            out.put(",");
            out.put(inner);
        }
    }
}

fn write_context(context: &Context, out: &mut impl Sink) {
    out.put(",\"context\":{\"source\":\"system\",\"environment\":\"");
    out.put(&escaped(&context.environment));
    out.put("\",\"origin\":\"");
    out.put(&escaped(&context.origin));
    if let Some(worker) = &context.worker_id {
        out.put("\",\"workerId\":\"");
        out.put(&escaped(worker.as_str()));
    }
    out.put("\"}");
}

/// `text` as it stands between the quotes of a JSON string.
fn escaped(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        return Cow::Borrowed(text);
    }
    let mut quoted = serde_json::Value::from(text).to_string();
    quoted.pop();
    quoted.remove(0);
    Cow::Owned(quoted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::events::key::Keys;
    use crate::sample;

    #[test]
    fn an_event_is_rendered_whole() {
        let event = Event { ttl: Some(1_800_000_000), ..sample::documented_event() };
        assert_eq!(
            event.to_json(),
            concat!(
                r#"{"PK":"TENANT#gbinnovations","#,
                r#""SK":"TIMESTAMP#1767453739640#EVENT#ddf71f63-b036-4ac7-ad0f-77a7fdfca352","#,
                r#""GSI1PK":"TASK#req-123","GSI1SK":"TASK#TIMESTAMP#1767453739640","#,
                r#""GSI2PK":"APP#task-workflow","GSI2SK":"TIMESTAMP#1767453739640","#,
                r#""GSI3PK":"APP#task-workflow","GSI3SK":"TASK#req-123#TIMESTAMP#1767453739640","#,
                r#""GSI4PK":"EVENT#Task Processing Started","#,
                r#""GSI4SK":"TENANT#gbinnovations#TIMESTAMP#1767453739640","#,
                r#""GSI5PK":"EVENT#Task Processing Started","#,
                r#""GSI5SK":"TENANT#gbinnovations#TASK#req-123#TIMESTAMP#1767453739640","#,
                r#""GSI6PK":"EVENT#Task Processing Started","#,
                r#""GSI6SK":"TENANT#gbinnovations#APP#task-workflow#TIMESTAMP#1767453739640","#,
                r#""GSI7PK":"EVENT#Task Processing Started","#,
                r#""GSI7SK":"TENANT#gbinnovations#APP#task-workflow#TASK#req-123#TIMESTAMP#1767453739640","#,
                r#""entityId":"req-123","entityType":"TASK","tenantId":"gbinnovations","#,
                r#""eventType":"Task Processing Started","timestamp":1767453739640,"#,
                r#""context":{"source":"system","environment":"prod","origin":"sqs-worker","#,
                r#""workerId":"worker-abc123"},"#,
                r#""properties":{"requestId":"req-123","startedAt":1767453739640},"#,
                r#""ttl":1800000000,"receivedAt":1767453739655}"#,
            )
        );
    }

    #[test]
    fn a_detail_has_no_received_at_of_its_own() {
        let event = sample::documented_event();
        let later = Event { received_at: event.received_at.plus(5), ..event.clone() };
        assert!(!event.to_detail().contains("receivedAt"));
        assert_eq!(Event::from_detail(&event.to_detail(), later.received_at), Ok(later.clone()));
        assert_eq!(Event::from_detail(&event.to_json(), later.received_at), Ok(later));
    }

    proptest! {
        #[test]
        fn events_survive_the_way_through_json(event in sample::event()) {
            let text = event.to_json();
            prop_assert_eq!(Event::from_json(&text), Ok(event.clone()), "{}", text);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            for (name, key) in Keys::of(&event).attributes() {
                prop_assert_eq!(value[name].as_str(), Some(key), "{}", name);
            }
            let detail = event.to_detail();
            prop_assert_eq!(detail.len(), event.detail_len());
            prop_assert_eq!(detail.len(), event.envelope_len() + event.properties.len());
        }
    }
}
