//! The port's methods: commands and questions.
//!
//! Nothing is answered before what it rests on is on disk: an answer from the state waits for the newest group that was
//! decided when it was looked at.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemill_engine::backend::{Answer, Backend, Fault};
use tidemill_engine::command::{Command, Forget};
use tidemill_engine::metrics::CommitMetrics;
use tidemill_engine::record::{Record, RecordKey};
use tidemill_engine::state::row::{Row, RowKey, RowRange};
use tidemill_engine::state::stream::Stream;
use tidemill_engine::state::trail::Seq;
use tidemill_engine::state::{State, StateNotices};
use tidemill_model::events::event_query::{EventPage, EventQuery};
use tidemill_model::{Entity, Event, TenantId};

use super::embedded::{Embedded, Shared, Turn};
use crate::store::query;
use crate::store::rows::row_store::{RowStore, file_fault};

impl Shared {
    /// Looks at the state, and tells which group must be on disk before the answer may leave.
    fn look<T>(&self, look: impl FnOnce(&State) -> T) -> (T, u64) {
        let deciding = self.deciding();
        (look(&deciding.decider.state), deciding.newest())
    }

    /// Waits for a group, making sure that somebody writes it.
    async fn settle(&self, number: u64) -> Result<(), Fault> {
        if self.progress.synced() < number {
            self.writer_bell.ring();
        }
        self.progress.wait(number).await
    }

    /// Where an entity's events stand on disk; if its newest event is not there yet, that is waited for.
    async fn stream(&self, tenant: &TenantId, entity: &Entity) -> Result<Option<Stream>, Fault> {
        let (stream, number) = self.look(|state| state.stream(tenant, entity));
        let Some(stream) = stream else { return stored_stream(&self.rows, tenant, entity) };
        let newest = stream.newest().map_or(0, |seq| seq.0);
        if newest > self.synced_seq.load(Ordering::Acquire) {
            self.settle(number).await?;
        }
        Ok(Some(stream))
    }
}

fn stored_stream(rows: &RowStore, tenant: &TenantId, entity: &Entity) -> Result<Option<Stream>, Fault> {
    Ok(rows.get(&RowKey::of_entity(tenant, entity))?.and_then(Row::into_stream))
}

impl Embedded {
    /// The latest event of an entity, for callers that may block.
    pub fn latest_blocking(&self, tenant: &TenantId, entity: &Entity) -> Result<Option<Event>, Fault> {
        let shared = self.shared();
        let stream = pollster::block_on(shared.stream(tenant, entity))?;
        stream.map_or(Ok(None), |stream| query::latest(&shared.reader, &stream, shared.clock.now()))
    }

    /// A page of events, for callers that may block.
    pub fn events_blocking(&self, query: &EventQuery) -> Result<EventPage, Fault> {
        pollster::block_on(self.page(query))
    }

    async fn page(&self, query: &EventQuery) -> Result<EventPage, Fault> {
        query.check()?;
        let shared = self.shared();
        let stream = match query.path.entity() {
            None => None,
            Some(entity) => match shared.stream(&query.tenant, entity).await? {
                None => return Ok(EventPage { events: Vec::new(), next: None }),
                found => found,
            },
        };
        query::answer(&shared.reader, stream.as_ref(), query, shared.clock.now())
    }
}

impl Backend for Embedded {
    async fn ready(&self) -> Result<(), Fault> {
        self.shared().check_space()?;
        self.execute(vec![Command::Forget(Forget { keys: Vec::new() })]).await.map(drop)
    }

    fn stopped(&self) -> Option<Fault> {
        self.shared().progress.stopped_fast()
    }

    async fn execute(&self, commands: Vec<Command>) -> Result<Vec<Answer>, Fault> {
        let shared = self.shared();
        loop {
            match shared.try_decide(&commands)? {
                Turn::Decided(answers, number) => {
                    shared.settle(number).await?;
                    return Ok(answers);
                }
                // What becomes of the others' group is their matter; the next try tells what it means for this one.
                Turn::Crowded(number) => drop(shared.settle(number).await),
                Turn::FlushFirst(relieved) => relieved.await,
            }
        }
    }

    async fn work(&self, tenants: Option<Arc<[TenantId]>>) {
        let shared = self.shared();
        let waiting = shared.work.register(tenants.is_some());
        let now = shared.clock.now();
        let ready = {
            let mut deciding = shared.deciding();
            let state = &mut deciding.decider.state;
            state.show_due_messages(now);
            state.queue().has_ready(|tenant| tenants.as_ref().is_none_or(|served| served.contains(tenant)))
        };
        if !ready {
            shared.timer_bell.ring();
            waiting.await;
        }
    }

    async fn find<T: Send>(&self, find: impl FnOnce(&State) -> Option<T> + Send) -> Result<Option<T>, Fault> {
        let shared = self.shared();
        let (found, number) = shared.look(find);
        if found.is_some() {
            shared.settle(number).await?;
        }
        Ok(found)
    }

    async fn stored(&self, keys: Vec<RowKey>) -> Result<Vec<Option<Row>>, Fault> {
        keys.iter().map(|key| self.shared().rows.get(key)).collect()
    }

    async fn scan<T: Send + 'static>(
        &self,
        range: RowRange,
        mut seed: T,
        mut step: impl FnMut(&mut T, RowKey, Row) -> bool + Send + 'static,
    ) -> Result<T, Fault> {
        self.shared().rows.scan_range(&range, &mut |key, row| step(&mut seed, key, row))?;
        Ok(seed)
    }

    fn notices(&self) -> StateNotices {
        self.shared().look(State::notices).0
    }

    async fn events(&self, query: EventQuery) -> Result<EventPage, Fault> {
        self.page(&query).await
    }

    async fn latest(&self, tenant: TenantId, entity: Entity) -> Result<Option<Event>, Fault> {
        let shared = self.shared();
        let stream = shared.stream(&tenant, &entity).await?;
        stream.map_or(Ok(None), |stream| query::latest(&shared.reader, &stream, shared.clock.now()))
    }

    fn newest(&self) -> u64 {
        self.shared().synced_seq.load(Ordering::Acquire)
    }

    async fn follow(&self, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, Fault> {
        let shared = self.shared();
        let now = shared.clock.now();
        let mut from = Seq(after.saturating_add(1));
        let mut events = Vec::new();
        // The reader sees published groups only, and a group is published once it is synced.
        while events.len() < limit {
            let found = shared.reader.read_from(from, limit - events.len())?;
            let Some(last) = found.last() else { break };
            from = last.seq.next();
            let live = found.into_iter().filter(|stored| !stored.event.is_outlived(now));
            events.extend(live.map(|stored| (stored.seq.0, stored.event)));
        }
        Ok(events)
    }

    async fn committed(&self, after: u64) {
        let shared = self.shared();
        loop {
            let grown = shared.grown.listen();
            if self.newest() > after {
                return;
            }
            grown.await;
        }
    }

    async fn record(&self, key: RecordKey) -> Result<Option<Record>, Fault> {
        let shared = self.shared();
        let row = RowKey::Record(key.clone());
        let (found, number) = {
            let deciding = shared.deciding();
            let state = &deciding.decider.state;
            (state.is_loaded(&row).then(|| state.record(&key).cloned()), deciding.group_of(&key))
        };
        if let Some(record) = found {
            // Not held up by what others write meanwhile.
            shared.settle(number).await?;
            return Ok(record);
        }
        Ok(shared.rows.get(&row)?.and_then(Row::into_record))
    }

    async fn put_blob(&self, tenant: TenantId, key: String, bytes: Vec<u8>) -> Result<(), Fault> {
        let shared = self.shared();
        let put = shared.blobs.put(&tenant, &key, &bytes);
        let put = put.map_err(|error| file_fault(&format!("blobs/{tenant}/{key}"), &error));
        put.inspect_err(|fault| shared.note_refusal(fault, bytes.len() as u64))
    }

    async fn blob(&self, tenant: TenantId, key: String) -> Result<Option<Vec<u8>>, Fault> {
        let found = self.shared().blobs.get(&tenant, &key);
        found.map_err(|error| file_fault(&format!("blobs/{tenant}/{key}"), &error))
    }

    fn commits(&self) -> CommitMetrics {
        self.shared().meter.read()
    }
}
