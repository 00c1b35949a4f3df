//! The end of a try: what arrived is over, what did not is tried again or becomes a dead letter.

use std::sync::Arc;

use tidemill_model::{TenantId, Timestamp};

use crate::kernel::commit::RecordWrite;
use crate::kernel::decision::{Decision, LETTER_BYTES};
use crate::kernel::draft::Draft;
use crate::kernel::record::{RecordKey, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::outbound::outbox::bury;
use crate::outbound::{Delivery, DeliveryId, pause_after};

/// Records how a try of a delivery ended.
#[derive(Debug, Clone)]
pub struct EndDelivery {
    pub tenant: TenantId,
    pub delivery: DeliveryId,
    /// Counts from 1. Each try ends once.
    pub attempt: u32,
    /// How many failed jobs the try reported. If more have joined, it reported too few, and does not count.
    pub told: u32,
    pub end: DeliveryEnd,
}

impl Decision for EndDelivery {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        let mut keys = vec![RowKey::Record(RecordKey::delivery(&self.tenant, self.delivery))];
        if let DeliveryEnd::Failed { .. } = self.end {
            keys.push(RowKey::Record(RecordKey::delivery_letter(&self.tenant, self.delivery)));
        }
        keys
    }

    fn log_bytes(&self) -> u64 {
        LETTER_BYTES
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        let EndDelivery { tenant, delivery: id, attempt, told, end } = self;
        let key = RecordKey::delivery(tenant, *id);
        let refused = || Refusal::NotDelivering { id: *id, attempt: *attempt };
        let record = state.record(&key).ok_or_else(refused)?;
        let RecordValue::Delivery(before) = &record.value else { return Err(refused()) };
        if before.attempts + 1 != *attempt || before.failed_job_count() != *told {
            return Err(refused());
        }
        let DeliveryEnd::Failed { error } = end else {
            draft.record(RecordWrite::Put { key, record: None });
            return Ok(Reply::DeliveryEnded { retry_at: None, is_dead: false });
        };
        #[cfg(feature = "faults")]
        if draft.policy().faults.forget_delivery {
            draft.record(RecordWrite::Put { key, record: None });
            let retry_at = Some(draft.now().plus(draft.policy().delivery_millis));
            return Ok(Reply::DeliveryEnded { retry_at, is_dead: false });
        }
        if let Some(pause) = pause_after(&before.target, *attempt, draft.policy().delivery_millis) {
            let retry_at = draft.now().plus(pause);
            let error = Some(Arc::clone(error));
            let after = Delivery { attempts: *attempt, next_try_at: retry_at, error, ..(**before).clone() };
            draft.record(RecordWrite::over(key, record.version, RecordValue::Delivery(Box::new(after))));
            return Ok(Reply::DeliveryEnded { retry_at: Some(retry_at), is_dead: false });
        }
        draft.record(RecordWrite::Put { key, record: None });
        let letter = state.record(&RecordKey::delivery_letter(tenant, *id));
        let version = letter.map_or(0, |record| record.version);
        bury(tenant, before, *attempt, version, error, draft);
        Ok(Reply::DeliveryEnded { retry_at: None, is_dead: true })
    }
}

#[derive(Debug, Clone)]
pub enum DeliveryEnd {
    Arrived,
    /// Whether it is tried again depends on where it goes and how often it was tried.
    Failed {
        error: Arc<str>,
    },
}
