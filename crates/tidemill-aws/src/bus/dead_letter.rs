//! Dead letters of events that the bus did not take, or could not deliver.

use std::sync::Arc;

use tidemill_engine::command::{Command, PutRecord};
use tidemill_engine::execution::SourceEvent;
use tidemill_engine::outbound::{DeliveryId, DeliveryLetter, Target};
use tidemill_engine::record::{DeadLetterState, RecordKey, RecordValue};
use tidemill_model::{EventId, Json, TenantId, Timestamp};

/// A letter that can be replayed: `body` is the event as the bus has it.
pub(crate) fn bus_letter(
    event: SourceEvent,
    id: EventId,
    body: Json,
    error: &str,
    attempts: u32,
    now: Timestamp,
) -> DeliveryLetter {
    DeliveryLetter {
        id: DeliveryId(id),
        target: Target::Bus,
        event,
        body,
        error: Arc::from(error),
        attempts,
        failed_at: now,
        created_at: now,
        state: DeadLetterState::Open,
        replayed_by: None,
    }
}

/// Keeps a letter, unless one with its id is there.
pub(crate) fn put_letter(tenant: &TenantId, letter: DeliveryLetter) -> Command {
    Command::PutRecord(PutRecord {
        key: RecordKey::delivery_letter(tenant, letter.id),
        value: Some(RecordValue::DeliveryLetter(Box::new(letter))),
        expires_at: None,
        expected: Some(0),
    })
}
