//! What alerts say.

use tidemill_model::{Day, Timestamp};

use super::delivery::DeliveryId;
use crate::execution::SourceEvent;

/// The kind of all events on a bus.
const DETAIL_TYPE: &str = "log-event";
const UNKNOWN: &str = "unknown";

/// Tells that an event could not be delivered. Whoever reads these knows the words of EventBridge.
pub fn delivery_failure(event: &SourceEvent, id: DeliveryId) -> String {
    let or_unknown = |text: &str| if text.is_empty() { UNKNOWN.to_owned() } else { one_line(text) };
    let task = match (event.entity_type.as_str(), event.entity_id.as_str()) {
        ("", _) | (_, "") => UNKNOWN.to_owned(),
        (kind, id) => one_line(&format!("{kind}#{id}")),
    };
    let time = if event.timestamp == Timestamp::MIN { UNKNOWN.to_owned() } else { iso(event.timestamp) };
    [
        ":rotating_light: *EventBridge delivery failure*".to_owned(),
        format!("*Event type:* {}", or_unknown(event.event_type.as_str())),
        format!("*Detail type:* {DETAIL_TYPE}"),
        format!("*Task:* {task}"),
        format!("*Time:* {time}"),
        format!("*Message ID:* {id}"),
    ]
    .join("\n")
}

/// Tells that something needs attention, or no longer does.
pub fn standing(name: &str, stage: &str, tenant: &str, message: &str, is_raised: bool) -> String {
    let (sign, word) = if is_raised { (":warning:", "Alert") } else { (":white_check_mark:", "Recovered") };
    format!("{sign} *{word}: {name}* ({}, tenant {tenant})\n{}", one_line(stage), one_line(message))
}

/// A text that cannot pass for further lines of an alert.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
}

/// The kind of the alert that ends a row of alerts.
pub const TOO_MANY_ALERTS: &str = "too_many_alerts";

/// Tells that further alerts are not sent while so many wait.
pub fn too_many_alerts(stage: &str, tenant: &str, limit: usize) -> String {
    let message = format!(
        "{limit} alerts wait to be sent. Further ones are not sent until some have arrived; \
         what they would tell of is on record as dead letters and events."
    );
    standing(TOO_MANY_ALERTS, stage, tenant, &message, true)
}

/// A moment as ISO 8601 has it, in whole seconds.
pub fn iso(at: Timestamp) -> String {
    let seconds = at.millis() / 1_000 % 86_400;
    format!("{}T{:02}:{:02}:{:02}Z", Day::of(at), seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use tidemill_model::{AppName, EntityId, EntityType, EventId, EventType};

    use super::*;

    fn event(event_type: &str, kind: &str, id: &str, timestamp: Timestamp) -> SourceEvent {
        SourceEvent {
            id: EventId::from_u128(7),
            event_type: EventType::trusted(event_type),
            timestamp,
            app_name: AppName::trusted("shop"),
            entity_type: EntityType::trusted(kind),
            entity_id: EntityId::trusted(id),
            data: None,
            hop: 0,
        }
    }

    #[test]
    fn a_failed_delivery_is_told_line_by_line() {
        let id = DeliveryId(EventId::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001));
        let full = event("Job Completed", "JOB", "job-456", Timestamp::clamped(1_800_000_061_999));
        assert_eq!(
            delivery_failure(&full, id),
            ":rotating_light: *EventBridge delivery failure*\n\
             *Event type:* Job Completed\n\
             *Detail type:* log-event\n\
             *Task:* JOB#job-456\n\
             *Time:* 2027-01-15T08:01:01Z\n\
             *Message ID:* 01900000-0000-7000-8000-000000000001"
        );
        let forged = event("Job Completed\n*Task:* x", "JOB", "a\r\n*Time:* never", Timestamp::MIN);
        assert_eq!(delivery_failure(&forged, id).lines().count(), 6, "nobody adds a line");
        assert_eq!(standing("x", "prod\nb", "acme", "a\nb\u{2028}c", true).lines().count(), 2);
        let bare = delivery_failure(&event("", "", "", Timestamp::MIN), id);
        let lines: Vec<_> = bare.lines().collect();
        assert_eq!(lines[1], "*Event type:* unknown");
        assert_eq!(lines[3..5], ["*Task:* unknown", "*Time:* unknown"]);
    }
}
