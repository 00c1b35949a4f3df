//! Dead letters of deliveries: kept, delivered once more, put aside.

use tidemill_model::{TenantId, Timestamp};

use crate::kernel::decision::{Decision, LETTER_BYTES};
use crate::kernel::draft::Draft;
use crate::kernel::record::{DeadLetterState, RecordKey, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::outbound::outbox::{alert, put_letter, put_new};
use crate::outbound::{Delivery, DeliveryId, DeliveryLetter, alert_text};

/// Keeps what will never arrive as a dead letter, and tells people of it. It is refused if the letter is there.
#[derive(Debug, Clone)]
pub struct KeepLetter {
    pub tenant: TenantId,
    pub letter: Box<DeliveryLetter>,
}

impl Decision for KeepLetter {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![RowKey::Record(RecordKey::delivery_letter(&self.tenant, self.letter.id))]
    }

    fn log_bytes(&self) -> u64 {
        LETTER_BYTES
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        if let Some(earlier) = state.record(&RecordKey::delivery_letter(&self.tenant, self.letter.id)) {
            return Err(Refusal::RecordConflict { expected: 0, actual: earlier.version });
        }
        let text = alert_text::delivery_failure(&self.letter.event, self.letter.id);
        alert(&self.tenant, "delivery_failure", &text, true, &self.letter.event, draft);
        put_letter(&self.tenant, 0, (*self.letter).clone(), draft);
        Ok(Reply::RecordPut { version: 1 })
    }
}

/// Delivers what a dead letter holds once more.
#[derive(Debug, Clone)]
pub struct ReplayDelivery {
    pub tenant: TenantId,
    pub letter: DeliveryId,
}

impl Decision for ReplayDelivery {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![RowKey::Record(RecordKey::delivery_letter(&self.tenant, self.letter))]
    }

    fn log_bytes(&self) -> u64 {
        LETTER_BYTES
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        let letter = open_letter(state, &self.tenant, self.letter)?.clone();
        let limit = draft.policy().deliveries_max;
        if draft.waiting(&self.tenant, letter.target.lane()) >= limit {
            return Err(Refusal::TooManyWaiting { limit });
        }
        let now = draft.now();
        let again = Delivery {
            id: DeliveryId(draft.event_id()),
            target: letter.target.clone(),
            event: letter.event.clone(),
            body: letter.body.clone(),
            attempts: 0,
            next_try_at: now,
            created_at: now,
            error: None,
            replay_of: Some(self.letter),
            failed_jobs: None,
        };
        let delivery = put_new(&self.tenant, again, draft);
        let marked =
            DeliveryLetter { state: DeadLetterState::Replayed, replayed_by: Some(delivery), ..letter };
        mark(state, &self.tenant, marked, draft);
        Ok(Reply::DeliveryReplayed { delivery })
    }
}

/// Puts a delivery's dead letter aside.
#[derive(Debug, Clone)]
pub struct DiscardDelivery {
    pub tenant: TenantId,
    pub letter: DeliveryId,
}

impl Decision for DiscardDelivery {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![RowKey::Record(RecordKey::delivery_letter(&self.tenant, self.letter))]
    }

    fn log_bytes(&self) -> u64 {
        LETTER_BYTES
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        let letter = open_letter(state, &self.tenant, self.letter)?.clone();
        mark(state, &self.tenant, DeliveryLetter { state: DeadLetterState::Discarded, ..letter }, draft);
        Ok(Reply::Discarded)
    }
}

fn open_letter<'s>(
    state: &'s State,
    tenant: &TenantId,
    id: DeliveryId,
) -> Result<&'s DeliveryLetter, Refusal> {
    match state.record(&RecordKey::delivery_letter(tenant, id)).map(|record| &record.value) {
        Some(RecordValue::DeliveryLetter(letter)) if letter.state == DeadLetterState::Open => Ok(letter),
        Some(_) => Err(Refusal::NotOpen(id.to_string())),
        None => Err(Refusal::NotFound { what: "dead letter", id: id.to_string() }),
    }
}

fn mark(state: &State, tenant: &TenantId, letter: DeliveryLetter, draft: &mut Draft<'_, '_>) {
    let key = RecordKey::delivery_letter(tenant, letter.id);
    let version = state.record(&key).map_or(0, |record| record.version);
    put_letter(tenant, version, letter, draft);
}
