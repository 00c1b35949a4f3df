//! An event as the bus hands it to its targets.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidemill_model::Json;

/// The envelope with its detail, exactly as they were written: values of an event must not change on their way.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct BusEvent(Json);

/// What the functions look at. All of it may be missing or something else.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(rename = "detail-type", default)]
    pub(super) detail_type: serde_json::Value,
    #[serde(default)]
    pub(super) time: serde_json::Value,
    #[serde(borrow, default)]
    pub(super) detail: Option<&'a RawValue>,
}

/// What functions look at in the detail of an event.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Detail {
    pub(super) tenant_id: serde_json::Value,
    pub(super) event_type: serde_json::Value,
    #[serde(rename = "GSI1PK")]
    pub(super) entity: serde_json::Value,
    pub(super) properties: Properties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Properties {
    pub(super) job_id: serde_json::Value,
}

impl BusEvent {
    /// Reads an event from its JSON.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// What is JSON already.
    pub(super) fn of(value: &serde_json::Value) -> Self {
        Self(Json::of(value))
    }

    /// The whole event.
    pub fn json(&self) -> &Json {
        &self.0
    }

    /// The whole event as JSON.
    pub fn text(&self) -> &str {
        self.0.as_str()
    }

    /// The detail as JSON; `null` when there is none.
    pub fn detail(&self) -> &str {
        self.envelope().detail.map_or("null", RawValue::get)
    }

    pub(super) fn envelope(&self) -> Envelope<'_> {
        serde_json::from_str(self.text()).unwrap_or_default()
    }

    pub(super) fn fields(&self) -> Detail {
        serde_json::from_str(self.detail()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_its_exact_detail() {
        let text = r#"{"version":"0","detail-type":"log-event","time":"2027-01-15T08:01:01Z",
            "detail":{"tenantId":"t","eventType":"Task Completed","GSI1PK":"TASK#r","properties":{"z":1.0,"jobId":"j","a":2}}}"#;
        let event = BusEvent::read(text).unwrap();
        assert!(event.detail().contains(r#""properties":{"z":1.0,"jobId":"j","a":2}"#));
        assert_eq!(event.envelope().detail_type, "log-event");
        let fields = event.fields();
        assert_eq!((&fields.tenant_id, &fields.properties.job_id), (&"t".into(), &"j".into()));
    }

    #[test]
    fn what_is_missing_or_wrong_is_nothing() {
        for text in ["{}", "[]", r#"{"detail":7}"#, r#"{"detail":{"properties":null,"tenantId":5}}"#] {
            let event = BusEvent::read(text).unwrap();
            assert!(event.envelope().detail_type.is_null(), "{text}");
            assert!(event.fields().properties.job_id.is_null(), "{text}");
        }
        assert!(BusEvent::read("{").is_none());
    }
}
