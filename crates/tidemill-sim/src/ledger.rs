//! The ledger: what the world needs of a backend, synchronous and without threads.

use tidemill_embedded::store::retention::Retention;
use tidemill_engine::backend::{Answer, Fault, JobSnapshot};
use tidemill_engine::command::Command;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::outbound::{Delivery, DeliveryKey, DeliveryLetter};
use tidemill_engine::record::{DeadLetter, Record, RecordKey, RecordValue};
use tidemill_engine::state::Load;
use tidemill_engine::state::job::KeptTask;
use tidemill_engine::state::queue::Queued;
use tidemill_model::events::event_query::{EventPage, EventQuery};
use tidemill_model::{Entity, Event, JobId, PublicState, TaskHead, TenantId, Timestamp};

use crate::disk::SimDisk;
use crate::rng::Rng;

/// How many deliveries are asked for at a time.
pub(crate) const DUE_MAX: usize = 16;

/// A backend under test.
pub trait Ledger {
    /// Decides the commands in order. `Ok` means that all of it is acknowledged.
    fn execute(&mut self, commands: &[Command], now: Timestamp) -> Result<Vec<Answer>, Fault>;

    /// The events behind number `seen`, in the order of the log, with their numbers. Events count from 1.
    fn events_after(&mut self, seen: u64) -> Result<Vec<(u64, Event)>, Fault>;

    fn events(&mut self, query: &EventQuery) -> Result<EventPage, Fault>;

    /// The latest event of an entity.
    fn latest(&mut self, tenant: &TenantId, entity: &Entity) -> Result<Option<Event>, Fault>;

    fn task(&mut self, key: &TaskKey) -> Result<Option<TaskShown>, Fault>;

    fn job(&mut self, tenant: &TenantId, job: JobId) -> Result<Option<JobSnapshot>, Fault>;

    fn record(&mut self, key: &RecordKey) -> Result<Option<Record>, Fault>;

    /// What a tenant's unfinished tasks come to: as it was booked, and as it is counted anew.
    fn load_of(&mut self, tenant: &TenantId) -> Result<(Load, Load), Fault>;

    /// All messages, in the order of their ids.
    fn messages(&mut self) -> Result<Vec<Queued>, Fault>;

    /// All dead letters, in the order of their keys.
    fn dead_letters(&mut self) -> Result<Vec<(TenantId, DeadLetter)>, Fault>;

    /// All deliveries that wait.
    fn deliveries(&mut self) -> Result<Vec<(DeliveryKey, Delivery)>, Fault>;

    /// The deliveries that are to be tried now, the first of them if there are many.
    fn due_deliveries(&mut self, now: Timestamp) -> Result<Vec<DeliveryKey>, Fault>;

    /// All dead letters of deliveries.
    fn delivery_letters(&mut self) -> Result<Vec<(DeliveryKey, DeliveryLetter)>, Fault>;

    /// Stores a blob durably.
    fn put_blob(&mut self, tenant: &TenantId, key: &str, bytes: Vec<u8>) -> Result<(), Fault>;

    fn blob(&mut self, tenant: &TenantId, key: &str) -> Result<Option<Vec<u8>>, Fault>;

    /// Work that a store does beside its commands. Tells whether there was any.
    fn chore(&mut self, _chore: Chore, _now: Timestamp) -> Result<bool, Fault> {
        Ok(false)
    }

    /// The disk below it, if it has one. A ledger without a disk cannot be restarted.
    fn disk(&self) -> Option<&SimDisk> {
        None
    }

    /// How long events are kept; `None` for ever.
    fn retention(&self) -> Option<Retention> {
        None
    }

    /// Opens the store again after its process or its machine died.
    fn reopen(&mut self, _rng: &mut Rng) -> Result<(), Fault> {
        Ok(())
    }

    /// Makes everything derived again from the log alone, and opens the store with it.
    fn rebuild(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// What the store finds wrong with itself: nothing, if its derived rows equal the fold of its log.
    fn verify(&mut self) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }
}

/// A task as a ledger shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskShown {
    /// `None` until it is dispatched.
    pub head: Option<TaskHead>,
    /// The state that users see.
    pub state: Option<PublicState>,
}

impl TaskShown {
    pub(crate) fn of(entry: &KeptTask) -> Self {
        let state = entry.public_state().filter(|_| entry.stream.version() > 0);
        Self { head: entry.head.clone(), state }
    }
}

/// Work that a store does beside its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chore {
    /// Takes changed rows out of the state, to be written later.
    Hold,
    /// Writes changed rows to the key-value store, with those that were taken before.
    Flush,
    /// Makes the file of the next segment ahead of time.
    Prepare,
    /// Seals a full segment.
    Seal,
    /// Rewrites or drops what has expired.
    Expire,
    /// Removes blobs that no event came to name.
    SweepBlobs,
}

/// Deliveries and their keys, out of records.
pub(crate) fn deliveries_of(
    records: impl Iterator<Item = (RecordKey, Record)>,
) -> Vec<(DeliveryKey, Delivery)> {
    let of = |(key, record): (RecordKey, Record)| match record.value {
        RecordValue::Delivery(delivery) => Some((key.as_delivery()?, *delivery)),
        _ => None,
    };
    records.filter_map(of).collect()
}

/// Dead letters of deliveries and their keys, out of records.
pub(crate) fn delivery_letters_of(
    records: impl Iterator<Item = (RecordKey, Record)>,
) -> Vec<(DeliveryKey, DeliveryLetter)> {
    let of = |(key, record): (RecordKey, Record)| match record.value {
        RecordValue::DeliveryLetter(letter) => {
            Some((DeliveryKey { tenant: key.tenant?, id: letter.id }, *letter))
        }
        _ => None,
    };
    records.filter_map(of).collect()
}
