//! Events that come over EventBridge: entries as they were put, each good or refused on its own.
//!
//! Whether a bus exists and what an event means is the business of the engine. What is decided here is the form.

use serde::Deserialize;
use serde_json::{Map, Number, Value, json};

use crate::json_fault::JsonFault;
use crate::wire_answer::{JSON_1_1, WireAnswer};
use crate::wire_date::read_iso_date;

/// The entries of one request.
pub const ENTRIES_MAX: usize = 10;
/// The bytes of all entries of one request, by the rule of [`PutEvents::read`].
pub const ENTRIES_BYTES_MAX: usize = 1_048_576;
/// What a time counts for, whatever its form.
const TIME_BYTES: usize = 14;
/// The bus of an entry that names none.
const DEFAULT_BUS: &str = "default";
/// The buses of one page of a list.
const BUSES_MAX: u32 = 100;

/// A request to take in events, in the order in which they were put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutEvents {
    pub entries: Vec<Result<EventEntry, RefusedEntry>>,
}

/// One event as it was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventEntry {
    /// The name of the bus, also if it was given as an ARN.
    pub bus: String,
    pub source: String,
    pub detail_type: String,
    /// A JSON object, byte for byte.
    pub detail: String,
    /// Milliseconds since 1970.
    pub time_millis: Option<i64>,
    pub resources: Vec<String>,
    pub trace_header: Option<String>,
}

/// Why an entry is not taken. The other entries of its request stand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct RefusedEntry {
    pub code: &'static str,
    pub message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutEventsBody {
    #[serde(default)]
    entries: Vec<EntryBody>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EntryBody {
    event_bus_name: Option<String>,
    source: Option<String>,
    detail_type: Option<String>,
    detail: Option<String>,
    time: Option<TimeBody>,
    resources: Option<Vec<String>>,
    trace_header: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TimeBody {
    Seconds(Number),
    Text(String),
}

impl PutEvents {
    /// Reads the body of `PutEvents`. All entries together have at most [`ENTRIES_BYTES_MAX`] bytes: source, detail type, detail
    /// and resources, and 14 for a time.
    pub fn read(body: &[u8]) -> Result<Self, JsonFault> {
        let body: PutEventsBody =
            serde_json::from_slice(body).map_err(|error| JsonFault::serialization(&error))?;
        if !(1..=ENTRIES_MAX).contains(&body.entries.len()) {
            return Err(JsonFault::validation(format!(
                "1 validation error detected: Value at 'entries' failed to satisfy constraint: Member must have length between 1 and {ENTRIES_MAX}"
            )));
        }
        let size_bytes: usize = body.entries.iter().map(EntryBody::size_bytes).sum();
        if size_bytes > ENTRIES_BYTES_MAX {
            return Err(JsonFault::validation(format!(
                "Total size of the entries in the request is {size_bytes} bytes, over the limit of {ENTRIES_BYTES_MAX}."
            )));
        }
        let entries = body.entries.into_iter().map(EntryBody::check);
        Ok(Self { entries: entries.collect() })
    }
}

impl EntryBody {
    fn size_bytes(&self) -> usize {
        let texts = [&self.source, &self.detail_type, &self.detail].into_iter().flatten();
        let resources = self.resources.iter().flatten();
        let time = self.time.as_ref().map_or(0, |_| TIME_BYTES);
        texts.chain(resources).map(String::len).sum::<usize>() + time
    }

    fn check(self) -> Result<EventEntry, RefusedEntry> {
        let required = |name: &str, value: Option<String>| {
            let value = value.filter(|value| !value.is_empty());
            value.ok_or_else(|| {
                invalid(format!("Parameter {name} is not valid. Reason: {name} is a required argument."))
            })
        };
        let source = required("Source", self.source)?;
        let detail_type = required("DetailType", self.detail_type)?;
        let detail = required("Detail", self.detail)?;
        if serde_json::from_str::<Map<String, Value>>(&detail).is_err() {
            return Err(RefusedEntry { code: "MalformedDetail", message: "Detail is malformed.".to_owned() });
        }
        let time_millis = self.time.as_ref().map(|time| {
            time.millis()
                .ok_or_else(|| invalid("Parameter Time is not valid. Reason: it is no date.".to_owned()))
        });
        Ok(EventEntry {
            bus: bus_name(self.event_bus_name.as_deref()).to_owned(),
            source,
            detail_type,
            detail,
            time_millis: time_millis.transpose()?,
            resources: self.resources.unwrap_or_default(),
            trace_header: self.trace_header,
        })
    }
}

impl TimeBody {
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
    fn millis(&self) -> Option<i64> {
        match self {
            Self::Text(text) => read_iso_date(text),
            Self::Seconds(number) => {
                if let Some(seconds) = number.as_i64() {
                    return seconds.checked_mul(1_000);
                }
                let millis = (number.as_f64()? * 1_000.0).round();
                (millis.abs() < 9e15).then_some(millis as i64)
            }
        }
    }
}

/// The name behind `…:event-bus/`, or the whole text if it is no ARN.
fn bus_name(given: Option<&str>) -> &str {
    let given = given.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_BUS);
    if given.starts_with("arn:") {
        given.split_once(":event-bus/").map_or(given, |(_, name)| name)
    } else {
        given
    }
}

fn invalid(message: String) -> RefusedEntry {
    RefusedEntry { code: "InvalidArgument", message }
}

impl RefusedEntry {
    /// An entry that the engine refuses.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The answer to `PutEvents`: the id of each event, or why it is refused, in the order of the request.
pub fn put_events_answer(outcomes: &[Result<String, RefusedEntry>]) -> WireAnswer {
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    let entries: Vec<Value> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Ok(event_id) => json!({"EventId": event_id}),
            Err(refused) => json!({"ErrorCode": refused.code, "ErrorMessage": refused.message}),
        })
        .collect();
    WireAnswer::json(200, JSON_1_1, &json!({"FailedEntryCount": failed, "Entries": entries}))
}

/// A request for the list of buses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListEventBuses {
    pub name_prefix: Option<String>,
    pub limit: Option<u32>,
    pub next_token: Option<String>,
}

impl ListEventBuses {
    pub fn read(body: &[u8]) -> Result<Self, JsonFault> {
        let request: Self = serde_json::from_slice(body).map_err(|error| JsonFault::serialization(&error))?;
        if request.limit.is_some_and(|limit| !(1..=BUSES_MAX).contains(&limit)) {
            return Err(JsonFault::validation(format!(
                "Value at 'limit' must be between 1 and {BUSES_MAX}."
            )));
        }
        Ok(request)
    }
}

/// The name of the bus that `DescribeEventBus` asks for.
pub fn read_describe_event_bus(body: &[u8]) -> Result<String, JsonFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Body {
        name: Option<String>,
    }
    let body: Body = serde_json::from_slice(body).map_err(|error| JsonFault::serialization(&error))?;
    Ok(bus_name(body.name.as_deref()).to_owned())
}

/// A bus as lists and descriptions show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBusShown {
    pub name: String,
    pub arn: String,
}

impl EventBusShown {
    fn json(&self) -> Value {
        json!({"Name": self.name, "Arn": self.arn})
    }
}

/// The answer to `ListEventBuses`.
pub fn list_event_buses_answer(buses: &[EventBusShown]) -> WireAnswer {
    let buses: Vec<Value> = buses.iter().map(EventBusShown::json).collect();
    WireAnswer::json(200, JSON_1_1, &json!({"EventBuses": buses}))
}

/// The answer to `DescribeEventBus`.
pub fn describe_event_bus_answer(bus: &EventBusShown) -> WireAnswer {
    WireAnswer::json(200, JSON_1_1, &bus.json())
}

/// The bus of a request does not exist.
pub fn bus_not_found(name: &str) -> JsonFault {
    JsonFault::new("ResourceNotFoundException", format!("Event bus {name} does not exist."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &Value) -> Result<PutEvents, JsonFault> {
        PutEvents::read(json!({"Entries": entries}).to_string().as_bytes())
    }

    fn entry() -> Value {
        json!({"Source": "s", "DetailType": "t", "Detail": "{}"})
    }

    #[test]
    fn entries_are_good_or_refused_each_on_its_own() {
        for (member, value, expected) in [
            ("Source", json!("s"), None),
            ("Source", json!(null), Some("InvalidArgument")),
            ("Source", json!(""), Some("InvalidArgument")),
            ("DetailType", json!(null), Some("InvalidArgument")),
            ("Detail", json!(null), Some("InvalidArgument")),
            ("Detail", json!("[]"), Some("MalformedDetail")),
            ("Detail", json!("{"), Some("MalformedDetail")),
            ("Detail", json!("{} x"), Some("MalformedDetail")),
            ("Time", json!("yesterday"), Some("InvalidArgument")),
            ("Time", json!(1e300), Some("InvalidArgument")),
        ] {
            let mut changed = entry();
            changed[member] = value.clone();
            let read = read(&json!([changed, entry()])).unwrap();
            assert_eq!(
                read.entries[0].as_ref().err().map(|refused| refused.code),
                expected,
                "{member}: {value}"
            );
            assert!(read.entries[1].is_ok());
        }
    }

    #[test]
    fn times_are_seconds_or_dates_and_buses_names_or_arns() {
        for (time, expected) in [
            (json!(null), None),
            (json!(1_707_300_540), Some(1_707_300_540_000)),
            (json!(1_707_300_540.5), Some(1_707_300_540_500)),
            (json!("2024-02-07T10:09:00Z"), Some(1_707_300_540_000)),
        ] {
            let mut entry = entry();
            entry["Time"] = time;
            assert_eq!(read(&json!([entry])).unwrap().entries[0].as_ref().unwrap().time_millis, expected);
        }
        for (bus, expected) in [
            (json!(null), "default"),
            (json!("bus"), "bus"),
            (json!("arn:aws:events:eu-west-1:000000000000:event-bus/bus"), "bus"),
            (json!("arn:aws:sqs:x"), "arn:aws:sqs:x"),
        ] {
            let mut entry = entry();
            entry["EventBusName"] = bus;
            assert_eq!(read(&json!([entry])).unwrap().entries[0].as_ref().unwrap().bus, expected);
        }
    }

    #[test]
    fn a_request_has_one_to_ten_entries_and_a_mebibyte() {
        assert!(read(&json!(vec![entry(); 10])).is_ok());
        for entries in [json!([]), json!(vec![entry(); 11])] {
            assert_eq!(read(&entries).unwrap_err().code, "ValidationException");
        }
        // The source, the type and the two quotes and braces count too; a time counts 14.
        let sized = |detail_bytes: usize| {
            let detail = format!("{{\"a\":\"{}\"}}", "x".repeat(detail_bytes - 8));
            json!([{"Source": "s", "DetailType": "t", "Detail": detail, "Time": 0}])
        };
        assert!(read(&sized(ENTRIES_BYTES_MAX - 16)).is_ok());
        assert_eq!(read(&sized(ENTRIES_BYTES_MAX - 15)).unwrap_err().code, "ValidationException");
        assert_eq!(PutEvents::read(b"[").unwrap_err().code, "SerializationException");
    }
}
