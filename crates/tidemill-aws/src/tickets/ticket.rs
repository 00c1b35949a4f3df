//! Tickets: what the queue holds for each message of the store.
//!
//! A ticket is only a reason to look. Whether there is something to claim, and when, the state says; so a ticket may come
//! twice, late, or for something that is long done.

use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tidemill_engine::backend::Fault;
use tidemill_engine::commit::{Message, MessageId};
use tidemill_engine::state::queue::Queue;
use tidemill_model::{TenantId, Timestamp};

use crate::fault::unavailable;
use crate::service_pause::ServicePause;

/// What one call takes.
pub(crate) const BATCH: usize = 10;
/// A queue holds a message back for 15 minutes at most. The receiver of an early ticket hides it for the rest.
const DELAY_SECONDS_MAX: u64 = 900;
/// A received message may be hidden for 12 hours in all.
const HIDE_SECONDS_MAX: u64 = 43_200;

/// What is in the queue for one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ticket {
    pub(crate) tenant_id: String,
    pub(crate) request_id: String,
    pub(crate) run: u32,
    message_id: String,
    /// How often a new ticket had to be sent because the receiver may not claim for its tenant.
    #[serde(default, skip_serializing_if = "tidemill_model::is_default")]
    pub(crate) passed: u32,
}

impl Ticket {
    pub(crate) fn of(message: &Message) -> Self {
        Self {
            tenant_id: message.task.tenant.as_str().to_owned(),
            request_id: message.task.request.as_str().to_owned(),
            run: message.run,
            message_id: format!("{:032x}", message.id.0),
            passed: 0,
        }
    }

    /// Reads the body of a queue's message; `None` if it is no ticket.
    pub(crate) fn read(body: &str) -> Option<(Self, MessageId)> {
        let ticket: Self = serde_json::from_str(body).ok()?;
        let message = u128::from_str_radix(&ticket.message_id, 16).ok()?;
        Some((ticket, MessageId(message)))
    }

    pub(crate) fn body(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How the message of a ticket stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is settled: nothing is left to do.
    Over,
    /// Somebody is at it, or it is not due yet.
    Later(Timestamp),
    /// A process that serves the tenant may claim it.
    Now(TenantId),
}

impl Standing {
    pub(crate) fn of(queue: &Queue, message: MessageId, now: Timestamp) -> Self {
        match queue.get(message) {
            None => Self::Over,
            Some(queued) if queued.visible_at > now => Self::Later(queued.visible_at),
            Some(queued) => Self::Now(queued.message.task.tenant.clone()),
        }
    }
}

/// How many whole seconds a ticket is held back when it is sent.
fn delay_seconds(at: Timestamp, now: Timestamp) -> i32 {
    i32::try_from(at.since(now).div_ceil(1_000).min(DELAY_SECONDS_MAX)).unwrap_or(0)
}

/// How many whole seconds a received ticket is hidden.
pub(crate) fn hide_seconds(at: Timestamp, now: Timestamp) -> i32 {
    i32::try_from(at.since(now).div_ceil(1_000).min(HIDE_SECONDS_MAX)).unwrap_or(0)
}

/// Sends tickets, each not to be seen before its moment. Those that the queue did not take are sent again.
pub(crate) async fn send(
    sqs: &aws_sdk_sqs::Client,
    queue: &str,
    tickets: Vec<(Ticket, Timestamp)>,
    now: Timestamp,
) -> Result<(), Fault> {
    for tickets in tickets.chunks(BATCH) {
        let mut entries = Vec::new();
        for (index, (ticket, at)) in tickets.iter().enumerate() {
            let entry = SendMessageBatchRequestEntry::builder()
                .id(index.to_string())
                .message_body(ticket.body())
                .delay_seconds(delay_seconds(*at, now))
                .build();
            entries.push(entry.map_err(|error| unavailable("SendMessageBatch", error))?);
        }
        let mut backoff = ServicePause::default();
        while !entries.is_empty() {
            let batch = sqs.send_message_batch().queue_url(queue).set_entries(Some(entries.clone()));
            let answer = batch.send().await.map_err(|error| unavailable("SendMessageBatch", error))?;
            let failed: BTreeSet<&str> = answer.failed.iter().map(|failed| failed.id.as_str()).collect();
            entries.retain(|entry| failed.contains(entry.id.as_str()));
            if !entries.is_empty() {
                backoff.wait().await;
            }
        }
    }
    Ok(())
}

/// How many tickets the queue has, about: those that can be seen, are hidden, or are held back.
pub(crate) async fn count(sqs: &aws_sdk_sqs::Client, queue: &str) -> Result<usize, Fault> {
    let names = [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        QueueAttributeName::ApproximateNumberOfMessagesDelayed,
    ];
    let asked = sqs.get_queue_attributes().queue_url(queue).set_attribute_names(Some(names.to_vec()));
    let found = asked.send().await.map_err(|error| unavailable("GetQueueAttributes", error))?;
    let found = found.attributes.unwrap_or_default();
    Ok(names.iter().filter_map(|name| found.get(name)?.parse::<usize>().ok()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_wait_no_longer_than_a_queue_lets_them() {
        let now = Timestamp::clamped(1_800_000_000_000);
        for (millis, delay, hide) in
            [(0, 0, 0), (1, 1, 1), (1_001, 2, 2), (900_001, 900, 901), (86_400_000, 900, 43_200)]
        {
            let at = now.plus(millis);
            assert_eq!((delay_seconds(at, now), hide_seconds(at, now)), (delay, hide), "{millis}");
        }
        assert_eq!(hide_seconds(now, now.plus(5)), 0, "what is past is shown at once");
    }

    #[test]
    fn what_is_no_ticket_is_not_taken_for_one() {
        for body in ["", "{}", r#"{"tenantId":"t","requestId":"r","run":1,"messageId":"x"}"#] {
            assert_eq!(Ticket::read(body), None, "{body}");
        }
        let body = r#"{"tenantId":"t","requestId":"r","run":1,"messageId":"ff"}"#;
        assert_eq!(Ticket::read(body).map(|(_, message)| message), Some(MessageId(255)));
    }
}
