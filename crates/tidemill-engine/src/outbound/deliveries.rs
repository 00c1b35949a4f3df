//! Deliveries and their dead letters, as the courier and callers see them.

use std::sync::Arc;

use tidemill_model::{EventType, TenantId, Timestamp};

use crate::engine::limits::{LIST_MAX, MANY_LETTERS_MAX};
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::{Command, DeliveryEnd, DiscardDelivery, EndDelivery, ReplayDelivery};
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{DELIVERY_LETTER, DeadLetterState, RecordKey, RecordKind, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::outbound::{Delivery, DeliveryId, DeliveryKey, DeliveryLetter};

/// Which of the deliveries' dead letters. Without anything, all.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    pub event_type: Option<EventType>,
    /// Failed at this moment or later, and before that one.
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub state: Option<DeadLetterState>,
}

impl DeliveryFilter {
    fn wants(&self, letter: &DeliveryLetter) -> bool {
        self.event_type.as_ref().is_none_or(|wanted| letter.event.event_type == *wanted)
            && self.from.is_none_or(|from| letter.failed_at >= from)
            && self.until.is_none_or(|until| letter.failed_at < until)
            && self.state.is_none_or(|state| letter.state == state)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryLetterPage {
    pub letters: Vec<DeliveryLetter>,
    /// Where to go on; `None` when nothing follows.
    pub next: Option<DeliveryId>,
}

/// What one call did with many letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManyDeliveries {
    pub letters: Vec<DeliveryId>,
    /// Whether others fit too; the same call goes on with them.
    pub more: bool,
}

impl<B: Backend> Engine<B> {
    /// A delivery that has not arrived yet.
    pub async fn delivery(&self, key: &DeliveryKey) -> Result<Option<Delivery>, EngineError> {
        let record = self.inner.backend.record(RecordKey::delivery(&key.tenant, key.id)).await?;
        Ok(match record.map(|record| record.value) {
            Some(RecordValue::Delivery(delivery)) => Some(*delivery),
            _ => None,
        })
    }

    /// Whether anything of a tenant has not arrived yet, except for alerts about something else than failed jobs.
    pub(crate) async fn has_webhooks_waiting(&self, tenant: &TenantId) -> Result<bool, EngineError> {
        let mut after = None;
        loop {
            let page = (RecordKind::Delivery, Some(tenant.clone()), after.take(), LIST_MAX);
            let records = self.inner.backend.records(page.0, page.1, page.2, page.3).await?;
            let is_webhook = |value: &RecordValue| match value {
                RecordValue::Delivery(delivery) => {
                    !delivery.target.is_alert() || delivery.failed_job_count() > 0
                }
                _ => false,
            };
            if records.iter().any(|(_, record)| is_webhook(&record.value)) {
                return Ok(true);
            }
            if records.len() < LIST_MAX {
                return Ok(false);
            }
            after = records.last().map(|(key, _)| key.id.clone());
        }
    }

    pub(crate) async fn end_delivery(
        &self,
        key: &DeliveryKey,
        attempt: u32,
        told: u32,
        end: DeliveryEnd,
    ) -> Result<(), EngineError> {
        let command = EndDelivery { tenant: key.tenant.clone(), delivery: key.id, attempt, told, end };
        let reply = self.execute(Command::EndDelivery(command)).await?;
        take_reply!(reply, Reply::DeliveryEnded { .. } => ())
    }

    /// A tenant's dead letters of deliveries, oldest first, those after `after`.
    pub async fn delivery_letters(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        after: Option<DeliveryId>,
        limit: usize,
    ) -> Result<DeliveryLetterPage, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let mut letters: Vec<DeliveryLetter> = Vec::new();
        let from = after.map(|id| RecordKey::delivery_letter(tenant, id).id);
        let mut from = Some(from.unwrap_or_else(|| Arc::from(DELIVERY_LETTER)));
        loop {
            let page = (RecordKind::DeadLetter, Some(tenant.clone()), from.take(), LIST_MAX);
            let records = self.inner.backend.records(page.0, page.1, page.2, page.3).await?;
            let is_last = records.len() < LIST_MAX;
            for (key, record) in records {
                // Behind them stand the letters of others.
                let RecordValue::DeliveryLetter(letter) = record.value else {
                    return Ok(DeliveryLetterPage { letters, next: None });
                };
                if letters.len() == limit {
                    let next = letters.last().map(|letter| letter.id);
                    return Ok(DeliveryLetterPage { letters, next });
                }
                from = Some(key.id);
                letters.extend(Some(*letter).filter(|letter| filter.wants(letter)));
            }
            if is_last {
                return Ok(DeliveryLetterPage { letters, next: None });
            }
        }
    }

    pub async fn delivery_letter(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
    ) -> Result<Option<DeliveryLetter>, EngineError> {
        let record = self.inner.backend.record(RecordKey::delivery_letter(tenant, id)).await?;
        Ok(match record.map(|record| record.value) {
            Some(RecordValue::DeliveryLetter(letter)) => Some(*letter),
            _ => None,
        })
    }

    /// Delivers what a dead letter holds once more.
    pub async fn replay_delivery(
        &self,
        tenant: TenantId,
        letter: DeliveryId,
    ) -> Result<DeliveryId, EngineError> {
        let reply = self.execute(Command::ReplayDelivery(ReplayDelivery { tenant, letter })).await?;
        take_reply!(reply, Reply::DeliveryReplayed { delivery } => delivery)
    }

    /// Puts a dead letter aside. It stays on record.
    pub async fn discard_delivery(&self, tenant: TenantId, letter: DeliveryId) -> Result<(), EngineError> {
        let reply = self.execute(Command::DiscardDelivery(DiscardDelivery { tenant, letter })).await?;
        take_reply!(reply, Reply::Discarded => ())
    }

    /// Replays the open letters that fit, the first of them if there are very many.
    pub async fn replay_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<ManyDeliveries, EngineError> {
        self.change_deliveries(tenant, filter, DeadLetterState::Replayed).await
    }

    /// Discards the open letters that fit, the first of them if there are very many.
    pub async fn discard_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<ManyDeliveries, EngineError> {
        self.change_deliveries(tenant, filter, DeadLetterState::Discarded).await
    }

    async fn change_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        to: DeadLetterState,
    ) -> Result<ManyDeliveries, EngineError> {
        let found = self.deliveries_to_change(tenant, filter).await?;
        let mut letters = Vec::new();
        for id in found.letters {
            let changed = match to {
                DeadLetterState::Replayed => self.replay_delivery(tenant.clone(), id).await.map(|_| ()),
                _ => self.discard_delivery(tenant.clone(), id).await,
            };
            match changed {
                Ok(()) => letters.push(id),
                // The rest has to wait until some have arrived.
                Err(EngineError::Refused(Refusal::TooManyWaiting { .. })) if !letters.is_empty() => {
                    return Ok(ManyDeliveries { letters, more: true });
                }
                // Somebody else was faster.
                Err(EngineError::Refused(Refusal::NotOpen(_))) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ManyDeliveries { letters, more: found.more })
    }

    /// Those that one of the above would change.
    pub async fn deliveries_to_change(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<ManyDeliveries, EngineError> {
        let open = DeliveryFilter { state: Some(DeadLetterState::Open), ..filter.clone() };
        let page = self.delivery_letters(tenant, &open, None, MANY_LETTERS_MAX).await?;
        let letters = page.letters.iter().map(|letter| letter.id).collect();
        Ok(ManyDeliveries { letters, more: page.next.is_some() })
    }
}
