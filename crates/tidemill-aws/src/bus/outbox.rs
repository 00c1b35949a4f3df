//! The outbox: what follows from a commit outside of the log.
//!
//! The log itself says what is to be sent. After the commit its events go to the bus and its messages become tickets
//! in the queue; then the cursor moves. A process that dies in between leaves the cursor behind, and the next process
//! that opens the store, or one that sees the cursor lag, sends again from there. That does no harm: an event is
//! stored once by its key, and a ticket only says that there may be something to claim.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_eventbridge::error::ProvideErrorMetadata;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use serde::Serialize;
use tidemill_engine::backend::Fault;
use tidemill_engine::clock::Clock;
use tidemill_engine::command::{Command, KeepLetter};
use tidemill_engine::commit::{Message, MessageId};
use tidemill_engine::execution::SourceEvent;
use tidemill_engine::reply::Refusal;
use tidemill_engine::warn_seldom;
use tidemill_model::{Event, Json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::bus::dead_letter::bus_letter;
use crate::connection::Connection;
use crate::deciding::core::Core;
use crate::deciding::writer::{Ask, Call};
use crate::deciding::writer_handle::ask;
use crate::events::save_event::put_event;
use crate::fault::{damaged, is_refused, unavailable};
use crate::log::commit_log::CommitLog;
use crate::service_pause::ServicePause;
use crate::table::item::{key_of, number, read_number};
use crate::tickets::ticket::{self, Ticket};

/// What one call of `PutEvents` takes.
const ENTRIES_MAX: usize = 10;
const ENTRIES_BYTES_MAX: usize = 256_000;
/// Why an entry is refused for what it is. All other reasons pass.
const POISON: [&str; 3] = ["MalformedDetail", "InvalidArgument", "ValidationException"];
/// What an entry takes beside its detail, at most.
const ENTRY_BYTES: usize = 512;
/// The kind of all events on the bus.
pub(crate) const DETAIL_TYPE: &str = "log-event";
const CURSOR: &str = "OUTBOX";
/// How often it is looked whether the cursor still stands.
const LOOK_EVERY: Duration = Duration::from_millis(250);

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
    /// Messages that were there before and may be delivered at another time now, or never more.
    pub(crate) moved: Vec<MessageId>,
}

impl Sending {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, events: Arc::default(), enqueue: Vec::new(), moved: Vec::new() }
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
    pub(crate) asks: mpsc::UnboundedSender<Ask>,
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

    /// Whether this process sent the group, or everything up to it is sent.
    pub(crate) fn is_sent(&self, number: u64) -> bool {
        number <= self.sent || self.beyond.contains(&number)
    }

    /// Whether something is sent that others have to close the gap to.
    pub(crate) fn has_gap(&self) -> bool {
        !self.beyond.is_empty()
    }
}

impl Outbox {
    /// Sends a group, however long it takes.
    pub(crate) async fn send(&self, sending: &Sending) {
        let mut backoff = ServicePause::default();
        while let Err(fault) = self.try_send(sending).await {
            warn_seldom!(fault, "what follows from a commit could not be sent; it is tried again");
            backoff.wait().await;
        }
    }

    async fn try_send(&self, sending: &Sending) -> Result<(), Fault> {
        let events = sending.events.iter().map(|(_, event)| event);
        match &self.bus {
            Bus::Named(bus) => {
                for (event, code) in self.put_events(bus, events).await? {
                    let mut problem = format!("the bus refused it: {code}");
                    match put_event(&self.connection, &self.table, event).await {
                        Err(Fault::Damaged(words)) => problem = format!("{problem}; {words}"),
                        put => drop(put?),
                    }
                    self.keep_letter(event, &problem).await?;
                }
            }
            Bus::Loopback => {
                for event in events {
                    match put_event(&self.connection, &self.table, event).await {
                        // The table will never take it. What comes behind it must not wait for that.
                        Err(Fault::Damaged(problem)) => self.keep_letter(event, &problem).await?,
                        put => drop(put?),
                    }
                }
            }
        }
        match &self.queue_url {
            Some(queue) => self.send_tickets(queue, &sending.enqueue).await,
            None => Ok(()),
        }
    }

    /// Puts events on the bus, in calls as large as they may be. Tells which it will never take, and why: those go straight
    /// to the table.
    async fn put_events<'e>(
        &self,
        bus: &str,
        events: impl Iterator<Item = &'e Event>,
    ) -> Result<Vec<(&'e Event, String)>, Fault> {
        let mut batch: Vec<(&Event, PutEventsRequestEntry)> = Vec::new();
        let mut refused = Vec::new();
        let mut bytes = 0;
        for event in events {
            let detail = event.to_detail();
            let size = detail.len() + ENTRY_BYTES;
            if batch.len() == ENTRIES_MAX || (!batch.is_empty() && bytes + size > ENTRIES_BYTES_MAX) {
                refused.extend(self.put_batch(std::mem::take(&mut batch)).await?);
                bytes = 0;
            }
            bytes += size;
            let time = i64::try_from(event.timestamp.millis()).unwrap_or(i64::MAX);
            let entry = PutEventsRequestEntry::builder()
                .event_bus_name(bus)
                .source(format!("task-workflow.{}", event.app))
                .detail_type(DETAIL_TYPE)
                .detail(detail)
                .time(aws_sdk_eventbridge::primitives::DateTime::from_millis(time))
                .build();
            batch.push((event, entry));
        }
        refused.extend(self.put_batch(batch).await?);
        Ok(refused)
    }

    /// Puts entries until the bus has taken each, or refused it for what it is.
    async fn put_batch<'e>(
        &self,
        mut batch: Vec<(&'e Event, PutEventsRequestEntry)>,
    ) -> Result<Vec<(&'e Event, String)>, Fault> {
        let mut backoff = ServicePause::default();
        let mut refused = Vec::new();
        while !batch.is_empty() {
            let entries = batch.iter().map(|(_, entry)| entry.clone()).collect();
            let put = self.connection.bus.put_events().set_entries(Some(entries)).send().await;
            let put = match put {
                Ok(put) => put,
                // One of them spoils the call: each goes alone.
                Err(error) if is_poison(error.code()) => {
                    if let [(event, _)] = batch[..] {
                        refused.push((event, error.code().unwrap_or_default().to_owned()));
                        return Ok(refused);
                    }
                    for one in batch {
                        refused.extend(Box::pin(self.put_batch(vec![one])).await?);
                    }
                    return Ok(refused);
                }
                Err(error) => return Err(unavailable("PutEvents", error)),
            };
            if put.failed_entry_count == 0 {
                break;
            }
            let codes = put.entries.unwrap_or_default().into_iter().map(|entry| entry.error_code);
            let mut again = Vec::new();
            for (entry, code) in batch.into_iter().zip(codes) {
                match code {
                    None => {}
                    Some(code) if is_poison(Some(&code)) => refused.push((entry.0, code)),
                    Some(_) => again.push(entry),
                }
            }
            batch = again;
            backoff.wait().await;
        }
        Ok(refused)
    }

    /// Keeps a dead letter of an event that will never be taken.
    async fn keep_letter(&self, event: &Event, error: &str) -> Result<(), Fault> {
        let source = format!("task-workflow.{}", event.app);
        let detail = serde_json::value::RawValue::from_string(event.to_detail())
            .map_err(|error| unavailable("PutEvents", error))?;
        let body = Envelope { source: &source, detail_type: DETAIL_TYPE, detail: &detail };
        let letter =
            bus_letter(SourceEvent::of(event), event.id, Json::of(&body), error, 1, self.clock.now());
        let (tenant, letter) = (event.tenant.clone(), Box::new(letter));
        let commands = vec![Command::KeepLetter(KeepLetter { tenant, letter })];
        let answers = ask(&self.asks, |answer| Ask::Execute(Call { commands, answer })).await?;
        match answers.into_iter().next() {
            // It was kept before.
            Some(Ok(_) | Err(Refusal::RecordConflict { .. })) | None => Ok(()),
            Some(Err(refusal)) => Err(damaged(refusal)),
        }
    }

    /// Sends a ticket for each message.
    async fn send_tickets(&self, queue: &str, messages: &[Message]) -> Result<(), Fault> {
        let tickets = messages.iter().map(|message| (Ticket::of(message), message.not_before)).collect();
        ticket::send(&self.connection.sqs, queue, tickets, self.clock.now()).await
    }

    /// Sends what others committed up to `end` and did not send, if the cursor stood still for `patience`. Returns
    /// how many groups.
    pub(crate) async fn push(&self, log: &CommitLog, end: u64, patience: Duration) -> Result<u64, Fault> {
        let mut cursor = self.cursor().await?;
        let mut stood_since = Instant::now();
        while cursor < end && stood_since.elapsed() < patience {
            tokio::time::sleep(LOOK_EVERY.min(patience)).await;
            let found = self.cursor().await?;
            if found > cursor {
                (cursor, stood_since) = (found, Instant::now());
            }
        }
        let from = cursor;
        while cursor < end {
            let items = log.from(cursor + 1).await?;
            if items.is_empty() {
                break;
            }
            for item in items.into_iter().take_while(|item| item.number <= end) {
                self.try_send(&Core::read_events(&item)?).await?;
                cursor = item.number;
            }
            self.move_cursor(cursor).await?;
        }
        Ok(cursor - from)
    }

    /// Sends those groups of the log that are asked for, some of them if they are many. Tells which were sent.
    pub(crate) async fn fill(
        &self,
        log: &CommitLog,
        wanted: &BTreeSet<u64>,
        sent: &mut Vec<u64>,
    ) -> Result<(), Fault> {
        let Some(first) = wanted.first() else { return Ok(()) };
        for item in log.from(*first).await?.into_iter().filter(|item| wanted.contains(&item.number)) {
            self.try_send(&Core::read_events(&item)?).await?;
            sent.push(item.number);
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

fn is_poison(code: Option<&str>) -> bool {
    code.is_some_and(|code| POISON.contains(&code))
}

/// An event as the bus has it.
#[derive(Serialize)]
struct Envelope<'a> {
    source: &'a str,
    #[serde(rename = "detail-type")]
    detail_type: &'a str,
    detail: &'a serde_json::value::RawValue,
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
