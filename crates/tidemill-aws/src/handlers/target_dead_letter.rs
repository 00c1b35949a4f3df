//! eventbridge-dlq-alert: events that the bus could not deliver to one of its targets.
//!
//! The handler keeps the event as a dead letter that can be replayed, and then alerts people. The message leaves its
//! queue only when both is done. People are alerted again only if an alert failed; an event that cannot be kept now
//! raises no alert yet.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::{Engine, EngineError};
use tidemill_engine::execution::SourceEvent;
use tidemill_engine::reply::Refusal;
use tidemill_engine::warn_seldom;
use tidemill_model::{AppName, EntityId, EntityType, Event, EventId, EventType, TenantId, Timestamp};

use super::bus_event::BusEvent;
use super::queue_event::{BatchAnswer, QueueEvent, QueueRecord};
use crate::backend::Aws;
use crate::bus::dead_letter::{bus_letter, put_letter};

const UNKNOWN: &str = "unknown";
/// How often the bus tries a target, and a function that failed is called.
const ATTEMPTS: u32 = 4;

/// What a function that failed leaves for its destination.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Failure<'a> {
    request_context: Value,
    #[serde(borrow)]
    request_payload: &'a RawValue,
}

/// `post` tells people the text, and succeeds only if they got it. Letters of events that name no tenant are `own`'s.
pub async fn target_dead_letter<F>(
    engine: &Engine<Aws>,
    own: &TenantId,
    event: &QueueEvent,
    post: F,
) -> BatchAnswer
where
    F: AsyncFn(String) -> Result<(), String>,
{
    let mut answer = BatchAnswer::default();
    for record in &event.records {
        let failed = unwrapped(&record.body);
        let done = match keep(engine, own, record, &failed).await {
            Ok(()) => post(alert(&failed, &record.message_id)).await,
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = done {
            warn_seldom!(error, "a dead letter of the bus could not be kept and told; it comes again");
            answer.again(record);
        }
    }
    engine.backend().own_sent().await;
    answer
}

/// The event itself: as the bus left it, or within the record of a function that failed. What is no event at all is kept as its text.
fn unwrapped(body: &str) -> BusEvent {
    let found = match serde_json::from_str::<Failure<'_>>(body) {
        Ok(failure) if failure.request_context.is_object() => BusEvent::read(failure.request_payload.get()),
        _ => BusEvent::read(body),
    };
    found.unwrap_or_else(|| BusEvent::of(&json!({ "detail": body })))
}

/// The text of the alert.
fn alert(event: &BusEvent, message_id: &str) -> String {
    let (envelope, fields) = (event.envelope(), event.fields());
    let or_unknown = |value: &Value| match value.as_str() {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ => UNKNOWN.to_owned(),
    };
    [
        ":rotating_light: *EventBridge delivery failure*".to_owned(),
        format!("*Event type:* {}", or_unknown(&fields.event_type)),
        format!("*Detail type:* {}", or_unknown(&envelope.detail_type)),
        format!("*Task:* {}", or_unknown(&fields.entity)),
        format!("*Time:* {}", or_unknown(&envelope.time)),
        format!("*Message ID:* {message_id}"),
    ]
    .join("\n")
}

/// Keeps an event as a dead letter. Its id is the message's, so that a message that comes again leaves one letter.
async fn keep(
    engine: &Engine<Aws>,
    own: &TenantId,
    record: &QueueRecord,
    event: &BusEvent,
) -> Result<(), EngineError> {
    let tenant = event.fields().tenant_id.as_str().and_then(|tenant| TenantId::new(tenant).ok());
    let tenant = tenant.unwrap_or_else(|| own.clone());
    let now = engine.backend().now();
    let id = letter_id(&record.message_id);
    let (source, error) = (source_of(event, id, now), "a target of the bus did not take it");
    let letter = bus_letter(source, id, event.json().clone(), error, ATTEMPTS, now);
    let mut answers = engine.backend().execute(vec![put_letter(&tenant, letter)]).await?;
    match answers.pop() {
        // It was kept before.
        Some(Ok(_) | Err(Refusal::RecordConflict { .. })) | None => Ok(()),
        Some(Err(refusal)) => Err(refusal.into()),
    }
}

/// The event that a letter is about.
fn source_of(event: &BusEvent, id: EventId, now: Timestamp) -> SourceEvent {
    if let Ok(event) = Event::from_detail(event.detail(), now) {
        return SourceEvent::of(&event);
    }
    // An event of others, which is known by its kind only.
    let kind = event.envelope().detail_type;
    let kind = kind.as_str().and_then(|kind| EventType::new(kind).ok());
    SourceEvent {
        id,
        event_type: kind.unwrap_or_else(|| EventType::trusted(UNKNOWN)),
        timestamp: now,
        app_name: AppName::trusted(UNKNOWN),
        entity_type: EntityType::trusted("BUS"),
        entity_id: EntityId::trusted(UNKNOWN),
        data: None,
        hop: 0,
    }
}

/// The queue's name of a message is a UUID. Any other gets a number that depends on it alone.
fn letter_id(message_id: &str) -> EventId {
    EventId::new(message_id).unwrap_or_else(|_| {
        // FNV-1a, which stays the same for ever.
        let hash = message_id.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        });
        EventId::from_u128(hash)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"detail-type":"log-event","time":"2027-01-15T08:01:01Z","detail":{"eventType":"Task Failed","GSI1PK":"TASK#r-1"}}"#;

    #[test]
    fn people_are_told_in_six_lines() {
        let full = BusEvent::read(EVENT).unwrap();
        assert_eq!(
            alert(&full, "m-1"),
            ":rotating_light: *EventBridge delivery failure*\n\
             *Event type:* Task Failed\n\
             *Detail type:* log-event\n\
             *Task:* TASK#r-1\n\
             *Time:* 2027-01-15T08:01:01Z\n\
             *Message ID:* m-1"
        );
        for bare in [BusEvent::read("{}").unwrap(), unwrapped("garbage {")] {
            let bare = alert(&bare, "m-2");
            assert_eq!(bare.matches(UNKNOWN).count(), 4, "{bare}");
        }
    }

    #[test]
    fn a_function_that_failed_leaves_the_event_within_its_record() {
        let record = format!(
            r#"{{"version":"1.0","requestContext":{{"condition":"RetriesExhausted"}},"requestPayload":{EVENT},"responsePayload":null}}"#
        );
        assert_eq!(unwrapped(&record).text(), EVENT);
        assert_eq!(unwrapped(EVENT).text(), EVENT);
        assert_eq!(unwrapped("garbage {").text(), r#"{"detail":"garbage {"}"#);
    }

    #[test]
    fn a_letter_has_the_id_of_its_message() {
        let id = "0190a0b0-0000-7000-8000-000000000001";
        assert_eq!(letter_id(id).to_string(), id);
        assert_eq!(letter_id("other"), letter_id("other"));
    }
}
