//! The outbox: what follows from a commit outside of the log.
//!
//! The log itself says what is to be sent. After the commit its events go to the bus and its messages become tickets in
//! the queue; then the cursor moves. Who dies in between leaves the cursor behind, and the next process to open the store,
//! or one that sees it lag, sends again from there. Nothing is harmed by that: an event is stored once by its key, and
//! a ticket only tells that there may be something to claim.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use tidemill_engine::backend::Fault;
use tidemill_engine::clock::Clock;
use tidemill_engine::commit::Message;
use tidemill_model::Event;

use crate::connection::Connection;
use crate::fault::{is_refused, unavailable};
use crate::item::{key_of, number, read_number};
use crate::save_event::put_event;

/// What one call of `PutEvents` takes.
const ENTRIES_MAX: usize = 10;
const ENTRIES_BYTES_MAX: usize = 256_000;
/// What an entry takes beside its detail, at most.
const ENTRY_BYTES: usize = 512;
/// A queue hides a message for at most 15 minutes. What is due later is told when it is.
const DELAY_SECONDS_MAX: u64 = 900;
const CURSOR: &str = "OUTBOX";
/// Between two tries to send what could not be sent.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Where committed events go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bus {
    /// An event bus, one of whose rules leads to `save_event`.
    Named(String),
    /// Straight to `save_event` in this process: for tools and tests that have no bus.
    Loopback,
}

/// What is to be sent of one group.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) number: u64,
    pub(crate) events: Arc<Vec<(u64, Event)>>,
    pub(crate) enqueue: Vec<Message>,
    /// Whether a message that was there before may be deliverable now.
    pub(crate) stirred: bool,
}

impl Sending {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, events: Arc::default(), enqueue: Vec::new(), stirred: true }
    }
}

#[derive(Clone)]
pub(crate) struct Outbox {
    pub(crate) connection: Connection,
    pub(crate) table: String,
    pub(crate) shard: String,
    pub(crate) bus: Bus,
    pub(crate) queue_url: Option<String>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// How far everything is sent, and what is sent beyond it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) sent: u64,
    beyond: BTreeSet<u64>,
}

impl Progress {
    pub(crate) fn from(sent: u64) -> Self {
        Self { sent, beyond: BTreeSet::new() }
    }

    /// Notes that a group is sent, and tells whether all before it are too.
    pub(crate) fn note(&mut self, number: u64) -> bool {
        self.beyond.insert(number);
        self.advance()
    }

    /// Notes that others got so far.
    pub(crate) fn rise_to(&mut self, sent: u64) -> bool {
        let has_risen = sent > self.sent;
        self.sent = self.sent.max(sent);
        self.advance() || has_risen
    }

    fn advance(&mut self) -> bool {
        let before = self.sent;
        self.beyond = self.beyond.split_off(&(self.sent + 1));
        while self.beyond.remove(&(self.sent + 1)) {
            self.sent += 1;
        }
        self.sent > before
    }

    /// Whether something is sent that others have to close the gap to.
    pub(crate) fn has_gap(&self) -> bool {
        !self.beyond.is_empty()
    }
}

impl Outbox {
    /// Sends a group, however long it takes.
    pub(crate) async fn send(&self, sending: &Sending) {
        let mut pause = PAUSE_FIRST;
        while self.try_send(sending).await.is_err() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn try_send(&self, sending: &Sending) -> Result<(), Fault> {
        let events = sending.events.iter().map(|(_, event)| event);
        match &self.bus {
            Bus::Named(bus) => self.put_events(bus, events).await?,
            Bus::Loopback => {
                for event in events {
                    put_event(&self.connection, &self.table, event).await?;
                }
            }
        }
        match &self.queue_url {
            Some(queue) => self.send_tickets(queue, &sending.enqueue).await,
            None => Ok(()),
        }
    }

    /// Puts events on the bus, in calls as large as they may be. Entries that the bus did not take are put again.
    async fn put_events(&self, bus: &str, events: impl Iterator<Item = &Event>) -> Result<(), Fault> {
        let mut batch: Vec<PutEventsRequestEntry> = Vec::new();
        let mut bytes = 0;
        for event in events {
            let detail = event.to_detail();
            let size = detail.len() + ENTRY_BYTES;
            if batch.len() == ENTRIES_MAX || (!batch.is_empty() && bytes + size > ENTRIES_BYTES_MAX) {
                self.put_batch(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
            bytes += size;
            let time = i64::try_from(event.timestamp.millis()).unwrap_or(i64::MAX);
            batch.push(
                PutEventsRequestEntry::builder()
                    .event_bus_name(bus)
                    .source(format!("task-workflow.{}", event.app))
                    .detail_type("log-event")
                    .detail(detail)
                    .time(aws_sdk_eventbridge::primitives::DateTime::from_millis(time))
                    .build(),
            );
        }
        self.put_batch(batch).await
    }

    async fn put_batch(&self, mut batch: Vec<PutEventsRequestEntry>) -> Result<(), Fault> {
        let mut pause = PAUSE_FIRST;
        while !batch.is_empty() {
            let put = self.connection.bus.put_events().set_entries(Some(batch.clone())).send().await;
            let put = put.map_err(|error| unavailable("PutEvents", error))?;
            if put.failed_entry_count == 0 {
                break;
            }
            let failed = put.entries.unwrap_or_default().into_iter().map(|entry| entry.error_code.is_some());
            batch =
                batch.into_iter().zip(failed).filter(|(_, failed)| *failed).map(|(entry, _)| entry).collect();
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Ok(())
    }

    /// Sends a ticket for each message.
    async fn send_tickets(&self, queue: &str, messages: &[Message]) -> Result<(), Fault> {
        let now = self.clock.now();
        for chunk in messages.chunks(10) {
            let mut entries = Vec::new();
            for (index, message) in chunk.iter().enumerate() {
                let delay = message.not_before.since(now).div_ceil(1_000).min(DELAY_SECONDS_MAX);
                let entry = SendMessageBatchRequestEntry::builder()
                    .id(index.to_string())
                    .message_body(ticket(message))
                    .delay_seconds(i32::try_from(delay).unwrap_or(0))
                    .build();
                entries.push(entry.map_err(|error| unavailable("SendMessageBatch", error))?);
            }
            while !entries.is_empty() {
                let batch = self.connection.sqs.send_message_batch().queue_url(queue);
                let answer = batch.set_entries(Some(entries.clone())).send().await;
                let answer = answer.map_err(|error| unavailable("SendMessageBatch", error))?;
                let failed: BTreeSet<&str> = answer.failed.iter().map(|failed| failed.id.as_str()).collect();
                entries.retain(|entry| failed.contains(entry.id.as_str()));
                if !entries.is_empty() {
                    tokio::time::sleep(PAUSE_FIRST).await;
                }
            }
        }
        Ok(())
    }

    /// The number of the group up to which everything is sent.
    pub(crate) async fn cursor(&self) -> Result<u64, Fault> {
        let key = key_of(&format!("CURSOR#{}", self.shard), CURSOR);
        let get = self.connection.dynamo.get_item().table_name(&self.table).set_key(Some(key));
        let found = get.consistent_read(true).send().await.map_err(|error| unavailable("GetItem", error))?;
        found.item.map_or(Ok(0), |item| read_number(&item, "sentUpTo"))
    }

    /// Moves the cursor forward. That it is further already is fine.
    pub(crate) async fn move_cursor(&self, sent: u64) -> Result<(), Fault> {
        let key = key_of(&format!("CURSOR#{}", self.shard), CURSOR);
        let update = self.connection.dynamo.update_item().table_name(&self.table).set_key(Some(key));
        let update = update.update_expression("SET sentUpTo = :sent");
        let update = update.condition_expression("attribute_not_exists(sentUpTo) OR sentUpTo < :sent");
        match update.expression_attribute_values(":sent", number(sent)).send().await {
            Ok(_) => Ok(()),
            Err(error) if is_refused(&error) => Ok(()),
            Err(error) => Err(unavailable("UpdateItem", error)),
        }
    }
}

/// What a worker finds in the queue: enough to claim, and nothing else.
fn ticket(message: &Message) -> String {
    serde_json::json!({
        "tenantId": message.task.tenant.as_str(),
        "requestId": message.task.request.as_str(),
        "run": message.run,
        "messageId": format!("{:032x}", message.id.0),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_waits_for_what_others_send() {
        let mut progress = Progress::from(3);
        assert!(!progress.note(5) && progress.has_gap());
        assert!(progress.note(4));
        assert_eq!((progress.sent, progress.has_gap()), (5, false));
        assert!(!progress.note(7) && !progress.note(5));
        assert!(progress.rise_to(6));
        assert_eq!(progress.sent, 7);
        assert!(progress.rise_to(9) && !progress.rise_to(9), "others alone got further");
    }
}
