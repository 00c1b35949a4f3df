//! The embedded store as a ledger, on a disk that forgets what it may forget.

use std::sync::Arc;

use tidemill_embedded::log::{LogConfig, Seq};
use tidemill_embedded::store::retention::Retention;
use tidemill_embedded::{Store, StoreOptions};
use tidemill_engine::backend::{Answer, Fault, JobSnapshot};
use tidemill_engine::command::Command;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::outbound::{Delivery, DeliveryKey, DeliveryLetter};
use tidemill_engine::policy::Policy;
use tidemill_engine::record::{DeadLetter, Record, RecordKey, RecordKind, RecordValue};
use tidemill_engine::state::Load;
use tidemill_engine::state::queue::Queued;
use tidemill_engine::state::row::{Row, RowKey, StoredTask};
use tidemill_model::events::event_query::{EventPage, EventQuery};
use tidemill_model::{Entity, Event, JobId, TenantId, Timestamp};

use crate::disk::SimDisk;
use crate::ledger::{Chore, DUE_MAX, Ledger, TaskShown, deliveries_of, delivery_letters_of};
use crate::rng::Rng;

/// How many events are read at a time.
const READ_MAX: usize = 1_000;

/// A store and the disk it lives on. The store is absent while its process is dead.
pub struct EmbeddedLedger {
    disk: SimDisk,
    options: StoreOptions,
    store: Option<Store>,
}

impl EmbeddedLedger {
    /// Makes a store on an empty disk.
    pub fn create(disk: SimDisk, options: StoreOptions) -> Result<Self, Fault> {
        let store = Store::open(Arc::new(disk.clone()), options.clone())?;
        Ok(Self { disk, options, store: Some(store) })
    }

    fn store(&mut self) -> Result<&mut Store, Fault> {
        self.store.as_mut().ok_or_else(|| Fault::Stopped("the process is dead".to_owned()))
    }
}

/// Draws options with sizes so small that rolling, sealing, checkpoints and eviction happen all the time.
///
/// Where the clock may go back, events are kept for ever: what was received later could be past its time before what it
/// is chained to, and a history is read along its chain.
pub(crate) fn draw_options(rng: &mut Rng, policy: Policy, is_clock_steady: bool) -> StoreOptions {
    let segment_bytes = rng.weighted(&[(1, 16 << 10), (2, 32 << 10), (1, 64 << 10)]);
    let log = LogConfig {
        segment_bytes,
        hasty_segment_bytes: rng.weighted(&[(1, 8 << 10), (1, 16 << 10), (1, segment_bytes)]),
        block_bytes: rng.weighted(&[(1, 512), (1, 2 << 10), (1, 8 << 10)]),
        cache_bytes: rng.weighted(&[(1, 0), (1, 16 << 10)]),
        dictionary_bytes: rng.weighted(&[(1, 0), (1, 2 << 10)]),
        compression_level: 1,
    };
    let retention = Retention {
        event_millis: if is_clock_steady { rng.weighted(&[(1, 0), (1, 60_000), (1, 240_000)]) } else { 0 },
        heartbeat_millis: rng.weighted(&[(1, 0), (1, 20_000), (1, 60_000)]),
    };
    // Without memory for pages, rows are read where bits turn over.
    let row_cache_bytes = if log.cache_bytes == 0 { 0 } else { 16 << 10 };
    StoreOptions { policy, log, seed: rng.bits(), retention, row_cache_bytes, ..StoreOptions::default() }
}

impl Ledger for EmbeddedLedger {
    fn execute(&mut self, commands: &[Command], now: Timestamp) -> Result<Vec<Answer>, Fault> {
        self.store()?.execute(commands, now)
    }

    fn events_after(&mut self, seen: u64) -> Result<Vec<(u64, Event)>, Fault> {
        let store = self.store()?;
        let mut events = Vec::new();
        let mut from = Seq(seen + 1);
        loop {
            let page = store.events_from(from, READ_MAX)?;
            let Some(last) = page.last() else { return Ok(events) };
            from = last.seq.next();
            events.extend(page.into_iter().map(|stored| (stored.seq.0, stored.event)));
        }
    }

    fn events(&mut self, query: &EventQuery) -> Result<EventPage, Fault> {
        self.store()?.events(query)
    }

    fn latest(&mut self, tenant: &TenantId, entity: &Entity) -> Result<Option<Event>, Fault> {
        self.store()?.latest(tenant, entity)
    }

    fn task(&mut self, key: &TaskKey) -> Result<Option<TaskShown>, Fault> {
        let row = self.store()?.row(&RowKey::Task(key.clone()))?;
        Ok(row.and_then(|row| match row {
            Row::Task(StoredTask { entry, .. }) => Some(TaskShown::of(&entry)),
            _ => None,
        }))
    }

    fn job(&mut self, tenant: &TenantId, job: JobId) -> Result<Option<JobSnapshot>, Fault> {
        let row = self.store()?.row(&RowKey::Job(tenant.clone(), job))?;
        Ok(row.and_then(|row| match row {
            Row::Job(head) => Some(JobSnapshot::from(head)),
            _ => None,
        }))
    }

    fn record(&mut self, key: &RecordKey) -> Result<Option<Record>, Fault> {
        let row = self.store()?.row(&RowKey::Record(key.clone()))?;
        Ok(row.and_then(|row| match row {
            Row::Record(record) => Some(record),
            _ => None,
        }))
    }

    fn load_of(&mut self, tenant: &TenantId) -> Result<(Load, Load), Fault> {
        let store = self.store()?;
        Ok((store.state().load_of(tenant), store.state().count_load_of(tenant)))
    }

    fn messages(&mut self) -> Result<Vec<Queued>, Fault> {
        let mut messages: Vec<Queued> = self.store()?.state().queue().iter().cloned().collect();
        messages.sort_by_key(|queued| queued.message.id);
        Ok(messages)
    }

    fn put_blob(&mut self, tenant: &TenantId, key: &str, bytes: Vec<u8>) -> Result<(), Fault> {
        self.store()?.put_blob(tenant, key, &bytes)
    }

    fn blob(&mut self, tenant: &TenantId, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.store()?.blob(tenant, key)
    }

    fn deliveries(&mut self) -> Result<Vec<(DeliveryKey, Delivery)>, Fault> {
        let store = self.store()?;
        let mut keys: Vec<_> = store.state().deliveries().keys().cloned().collect();
        keys.sort();
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let record = RecordKey::delivery(&key.tenant, key.id);
            match self.record(&record)?.map(|record| record.value) {
                Some(RecordValue::Delivery(delivery)) => found.push((key, *delivery)),
                other => return Err(Fault::Damaged(format!("delivery {key:?} is {other:?}"))),
            }
        }
        Ok(found)
    }

    fn due_deliveries(&mut self, now: Timestamp) -> Result<Vec<DeliveryKey>, Fault> {
        Ok(self.store()?.state().deliveries().due(now, DUE_MAX, |_| false).due)
    }

    fn delivery_letters(&mut self) -> Result<Vec<(DeliveryKey, DeliveryLetter)>, Fault> {
        // The rows themselves are looked at too: each that waits must be known from the start.
        let stored = deliveries_of(self.store()?.records(RecordKind::Delivery)?.into_iter());
        if stored != self.deliveries()? {
            return Err(Fault::Damaged(format!("these deliveries are stored: {stored:?}")));
        }
        Ok(delivery_letters_of(self.store()?.records(RecordKind::DeadLetter)?.into_iter()))
    }

    fn dead_letters(&mut self) -> Result<Vec<(TenantId, DeadLetter)>, Fault> {
        let letters = self.store()?.records(RecordKind::DeadLetter)?;
        let letter = |(key, record): (RecordKey, Record)| match record.value {
            RecordValue::DeadLetter(letter) => Some((key.tenant?, letter)),
            _ => None,
        };
        Ok(letters.into_iter().filter_map(letter).collect())
    }

    fn chore(&mut self, chore: Chore, now: Timestamp) -> Result<bool, Fault> {
        let store = self.store()?;
        match chore {
            Chore::Hold => store.hold_rows(),
            Chore::Flush => {
                let flushed = store.flush_rows()?;
                if !flushed && store.state().dirty_len() > 0 {
                    return Err(Fault::Damaged("changed rows are no longer flushed".to_owned()));
                }
                Ok(flushed)
            }
            Chore::Prepare => store.prepare_segment(),
            Chore::Seal => store.seal(),
            Chore::SweepBlobs => Ok(store.sweep_blobs(now)? > 0),
            Chore::Expire => Ok(store.expire(now)?.events > 0),
        }
    }

    fn disk(&self) -> Option<&SimDisk> {
        Some(&self.disk)
    }

    fn retention(&self) -> Option<Retention> {
        Some(self.options.retention)
    }

    fn reopen(&mut self, rng: &mut Rng) -> Result<(), Fault> {
        // What the dead process still held is dropped first; its handles are dead too.
        self.store = None;
        self.options.seed = rng.bits();
        self.store = Some(Store::open(Arc::new(self.disk.clone()), self.options.clone())?);
        Ok(())
    }

    fn rebuild(&mut self) -> Result<(), Fault> {
        self.store = None;
        let disk = Arc::new(self.disk.clone());
        self.store = Some(Store::rebuild(disk, self.options.clone(), &mut |_| {})?);
        Ok(())
    }

    fn verify(&mut self) -> Result<Vec<String>, Fault> {
        Ok(self.store()?.verify()?.differences)
    }
}
