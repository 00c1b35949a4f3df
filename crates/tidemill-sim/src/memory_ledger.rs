//! The in-memory backend as a ledger.

use std::task::{Context, Poll, Waker};

use tidemill_engine::backend::{Answer, Backend, Fault, JobSnapshot};
use tidemill_engine::command::Command;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::memory::MemoryBackend;
use tidemill_engine::outbound::{Delivery, DeliveryKey, DeliveryLetter};
use tidemill_engine::policy::Policy;
use tidemill_engine::record::{DeadLetter, Record, RecordKey, RecordValue};
use tidemill_engine::state::Load;
use tidemill_engine::state::queue::Queued;
use tidemill_model::events::event_query::{EventPage, EventQuery};
use tidemill_model::{Entity, Event, JobId, TenantId, Timestamp};

use crate::clock::VirtualClock;
use crate::ledger::{DUE_MAX, Ledger, TaskShown, deliveries_of, delivery_letters_of};

/// A ledger without a disk.
#[derive(Debug)]
pub struct MemoryLedger {
    backend: MemoryBackend<VirtualClock>,
}

impl MemoryLedger {
    pub fn new(clock: VirtualClock, policy: Policy, seed: u64) -> Self {
        Self { backend: MemoryBackend::new(clock, policy, seed) }
    }

    /// All records, in the order of their keys.
    fn records(&self) -> Vec<(RecordKey, Record)> {
        let mut records: Vec<(RecordKey, Record)> = self.backend.with_state(|state| {
            state.records().filter_map(|(key, record)| Some((key.clone(), record?.clone()))).collect()
        });
        records.sort_by(|(a, _), (b, _)| a.cmp(b));
        records
    }
}

impl Ledger for MemoryLedger {
    fn execute(&mut self, commands: &[Command], _now: Timestamp) -> Result<Vec<Answer>, Fault> {
        self.backend.execute_now(commands)
    }

    fn events_after(&mut self, seen: u64) -> Result<Vec<(u64, Event)>, Fault> {
        let events = self.backend.events_since(usize::try_from(seen).unwrap_or(usize::MAX));
        Ok((seen + 1..).zip(events).collect())
    }

    fn events(&mut self, query: &EventQuery) -> Result<EventPage, Fault> {
        at_once(self.backend.events(query.clone()))
    }

    fn latest(&mut self, tenant: &TenantId, entity: &Entity) -> Result<Option<Event>, Fault> {
        at_once(self.backend.latest(tenant.clone(), entity.clone()))
    }

    fn task(&mut self, key: &TaskKey) -> Result<Option<TaskShown>, Fault> {
        Ok(self.backend.with_state(|state| state.task(key).map(|task| TaskShown::of(task.entry))))
    }

    fn job(&mut self, tenant: &TenantId, job: JobId) -> Result<Option<JobSnapshot>, Fault> {
        Ok(self
            .backend
            .with_state(|state| state.job(tenant, job).map(|job| JobSnapshot::from(job.head.clone()))))
    }

    fn record(&mut self, key: &RecordKey) -> Result<Option<Record>, Fault> {
        Ok(self.backend.with_state(|state| state.record(key).cloned()))
    }

    fn load_of(&mut self, tenant: &TenantId) -> Result<(Load, Load), Fault> {
        Ok(self.backend.with_state(|state| (state.load_of(tenant), state.count_load_of(tenant))))
    }

    fn messages(&mut self) -> Result<Vec<Queued>, Fault> {
        let mut messages: Vec<Queued> =
            self.backend.with_state(|state| state.queue().iter().cloned().collect());
        messages.sort_by_key(|queued| queued.message.id);
        Ok(messages)
    }

    fn put_blob(&mut self, tenant: &TenantId, key: &str, bytes: Vec<u8>) -> Result<(), Fault> {
        at_once(self.backend.put_blob(tenant.clone(), key.to_owned(), bytes))
    }

    fn blob(&mut self, tenant: &TenantId, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        at_once(self.backend.blob(tenant.clone(), key.to_owned()))
    }

    fn deliveries(&mut self) -> Result<Vec<(DeliveryKey, Delivery)>, Fault> {
        Ok(self.backend.with_state(|state| {
            let keys = state.deliveries().keys().map(|key| RecordKey::delivery(&key.tenant, key.id));
            let mut records: Vec<(RecordKey, Record)> =
                keys.filter_map(|key| Some((key.clone(), state.record(&key)?.clone()))).collect();
            records.sort_by(|(a, _), (b, _)| a.cmp(b));
            deliveries_of(records.into_iter())
        }))
    }

    fn due_deliveries(&mut self, now: Timestamp) -> Result<Vec<DeliveryKey>, Fault> {
        Ok(self.backend.with_state(|state| state.deliveries().due(now, DUE_MAX, |_| false).due))
    }

    fn delivery_letters(&mut self) -> Result<Vec<(DeliveryKey, DeliveryLetter)>, Fault> {
        Ok(delivery_letters_of(self.records().into_iter()))
    }

    fn dead_letters(&mut self) -> Result<Vec<(TenantId, DeadLetter)>, Fault> {
        let mut letters: Vec<(RecordKey, DeadLetter)> = self.backend.with_state(|state| {
            let letter = |(key, record): (&RecordKey, Option<&Record>)| match &record?.value {
                RecordValue::DeadLetter(letter) => Some((key.clone(), letter.clone())),
                _ => None,
            };
            state.records().filter_map(letter).collect()
        });
        letters.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(letters.into_iter().filter_map(|(key, letter)| Some((key.tenant?, letter))).collect())
    }
}

/// The result of a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("the in-memory backend answers at once"),
    }
}
