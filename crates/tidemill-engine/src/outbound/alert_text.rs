//! What alerts say.

use serde::Serialize;
use tidemill_model::{Day, EventId, JobId, Json, TaskId, TenantId, Timestamp};

use crate::outbound::delivery::{DeliveryId, Target};
use crate::outbound::failed_jobs::FailedJobs;
use crate::scripts::execution::SourceEvent;

/// The kind of all events on a bus.
const DETAIL_TYPE: &str = "log-event";
const UNKNOWN: &str = "unknown";

/// Reports that an event could not be delivered. Readers of these alerts know the words of EventBridge.
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

/// What is known of a failed job when people are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownFailure {
    /// What the failed task said.
    pub error: Option<String>,
    /// Where the job is shown.
    pub link: Option<String>,
    /// What became of the job after it failed: `resumed`, `completed` or `cancelled`.
    pub since: Option<&'static str>,
}

/// Tells of jobs that failed. `known` gives what is known of each, by its place among those that are named.
pub fn jobs_failed(
    stage: &str,
    tenant: &str,
    failed: &FailedJobs,
    known: impl Fn(usize) -> KnownFailure,
) -> String {
    let what =
        if failed.count == 1 { "Job failed".to_owned() } else { format!("{} jobs failed", failed.count) };
    let mut lines = vec![format!(":x: *{what}* ({}, tenant {tenant})", one_line(stage))];
    for (place, job) in failed.named.iter().enumerate() {
        let KnownFailure { error, link, since } = known(place);
        let name = job.name.as_ref().map(|name| format!("{} ", one_line(name))).unwrap_or_default();
        let error = error.map(|error| format!(": {}", one_line(&error))).unwrap_or_default();
        let others = match job.tasks.saturating_sub(1) {
            0 => String::new(),
            1 => ", and 1 other task".to_owned(),
            others => format!(", and {others} other tasks"),
        };
        let since = since.map(|since| format!(" ({since} since)")).unwrap_or_default();
        lines.push(format!("• {name}{}{since}: task {} failed{others}{error}", job.job, job.task));
        lines.extend(link);
    }
    let left = usize::try_from(failed.count).unwrap_or(usize::MAX).saturating_sub(failed.named.len());
    if left > 0 {
        lines.push(format!("and {left} more job{}", if left == 1 { "" } else { "s" }));
    }
    lines.join("\n")
}

/// A failed job as a webhook has it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToldJob {
    pub job_id: JobId,
    pub name: Option<String>,
    pub task_id: TaskId,
    pub failed_tasks: u32,
    pub last_error: Option<String>,
    pub url: Option<String>,
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AlertBody<'a> {
    kind: &'a str,
    tenant_id: &'a TenantId,
    environment: &'a str,
    is_raised: bool,
    text: &'a str,
    event_id: EventId,
    event_type: &'a str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    failed: Option<ToldJobs<'a>>,
}

/// The failed jobs that an alert names, and how many there are.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToldJobs<'a> {
    pub job_count: u32,
    pub jobs: &'a [ToldJob],
}

/// What people are sent.
pub fn people(text: &str) -> Json {
    Json::of(&Text { text })
}

/// What a webhook is sent.
pub fn webhook(
    kind: &str,
    tenant: &TenantId,
    environment: &str,
    is_raised: bool,
    text: &str,
    event: &SourceEvent,
    failed: Option<ToldJobs<'_>>,
) -> Json {
    let (event_id, event_type) = (event.id, event.event_type.as_str());
    Json::of(&AlertBody {
        kind,
        tenant_id: tenant,
        environment,
        is_raised,
        text,
        event_id,
        event_type,
        failed,
    })
}

/// What is sent of something that has gone wrong, by where it goes.
pub fn body(
    target: &Target,
    kind: &str,
    tenant: &TenantId,
    environment: &str,
    text: &str,
    event: &SourceEvent,
    failed: Option<ToldJobs<'_>>,
) -> Json {
    match target {
        Target::AlertWebhook => webhook(kind, tenant, environment, true, text, event, failed),
        _ => people(text),
    }
}

/// A text that cannot pass for further lines of an alert.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
}

/// The kind of the alert that ends a row of alerts.
pub const TOO_MANY_ALERTS: &str = "too_many_alerts";

/// Reports that further alerts are not sent while this many wait.
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
    use crate::outbound::failed_jobs::FailedJob;

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
    fn failed_jobs_are_told_with_what_is_known_of_them() {
        let job = |n: u128, name: Option<&str>, tasks| FailedJob {
            job: JobId::from_u128(n),
            name: name.map(std::sync::Arc::from),
            task: TaskId::trusted("load"),
            tasks,
            run: Some(1),
        };
        let mut failed = FailedJobs::default();
        failed.add(job(1, Some("nightly\n*x*"), 1));
        let id = JobId::from_u128(1);
        let known = |since| {
            let (error, link) =
                (Some("exit status 1\nno route".to_owned()), Some(format!("http://t/jobs/{id}")));
            move |_| KnownFailure { error: error.clone(), link: link.clone(), since }
        };
        assert_eq!(
            jobs_failed("prod", "acme", &failed, known(None)),
            format!(
                ":x: *Job failed* (prod, tenant acme)\n\
                 • nightly *x* {id}: task load failed: exit status 1 no route\n\
                 http://t/jobs/{id}"
            )
        );
        let since = jobs_failed("prod", "acme", &failed, known(Some("completed")));
        assert!(since.contains(&format!(" {id} (completed since): task load failed: exit")), "{since}");
        failed.add(job(2, None, 3));
        (3..=1_000).for_each(|n| failed.add(job(n, None, 2)));
        let text = jobs_failed("prod", "acme", &failed, |_| KnownFailure::default());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], ":x: *1000 jobs failed* (prod, tenant acme)");
        assert_eq!(lines[2], format!("• {}: task load failed, and 2 other tasks", JobId::from_u128(2)));
        assert_eq!(lines[11..], ["and 990 more jobs"]);
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
