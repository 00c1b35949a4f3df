//! The port's methods: commands and questions.
//!
//! Nothing is answered before what it rests on is on disk: an answer from the state waits for the newest group that was
//! decided when it was looked at.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemill_engine::backend::{Answer, Backend, Fault, JobSnapshot, QueueDepth, TaskSnapshot};
use tidemill_engine::command::{Command, Forget};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::execution::ExecutionKey;
use tidemill_engine::health::{LiveTask, Lookout};
use tidemill_engine::job_list::JobList;
use tidemill_engine::metrics::CommitMetrics;
use tidemill_engine::notice::Notice;
use tidemill_engine::outbound::DeliveryKey;
use tidemill_engine::record::{Record, RecordKey, RecordKind};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_engine::state::stream::Stream;
use tidemill_engine::state::trail::Seq;
use tidemill_engine::state::{DueDeliveries, DueExecutions, Room, State, TriageIndex};
use tidemill_model::event_query::{EventQuery, Page};
use tidemill_model::{Entity, Event, JobId, JobStatus, RequestId, TenantId, Timestamp};

use super::embedded::{Embedded, Shared, Turn, block_on};
use super::stored_task;
use crate::store::row_store::{RowStore, file_fault};
use crate::store::{query, row_key};

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

    /// Records that fit, in order, at most `limit`: those in memory as they are there, the others as they were stored.
    async fn records_that(
        &self,
        fits: impl Fn(&RecordKey) -> bool,
        prefix: &[u8],
        from: &[u8],
        limit: usize,
    ) -> Result<Vec<(RecordKey, Record)>, Fault> {
        let (changed, number) = self.look(|state| {
            let own = state.records().filter(|(key, _)| fits(key));
            own.map(|(key, record)| (key.clone(), record.cloned())).collect::<BTreeMap<_, _>>()
        });
        self.settle(number).await?;
        let mut found = BTreeMap::new();
        let enough = limit.saturating_add(changed.len());
        self.rows.scan_from(prefix, from, &mut |key, row| {
            if let (RowKey::Record(key), Row::Record(record)) = (key, row)
                && fits(&key)
                && !changed.contains_key(&key)
            {
                found.insert(key, record);
            }
            found.len() < enough
        })?;
        found.extend(changed.into_iter().filter_map(|(key, record)| record.map(|record| (key, record))));
        Ok(found.into_iter().take(limit).collect())
    }
}

fn stored_stream(rows: &RowStore, tenant: &TenantId, entity: &Entity) -> Result<Option<Stream>, Fault> {
    Ok(rows.get(&RowKey::of_entity(tenant, entity))?.and_then(Row::into_stream))
}

impl Embedded {
    /// The latest event of an entity, for callers that may block.
    pub fn latest_blocking(&self, tenant: &TenantId, entity: &Entity) -> Result<Option<Event>, Fault> {
        let shared = self.shared();
        let stream = block_on(shared.stream(tenant, entity))?;
        stream.map_or(Ok(None), |stream| query::latest(&shared.reader, &stream, shared.clock.now()))
    }

    /// A page of events, for callers that may block.
    pub fn events_blocking(&self, query: &EventQuery) -> Result<Page, Fault> {
        block_on(self.page(query))
    }

    async fn page(&self, query: &EventQuery) -> Result<Page, Fault> {
        query.check()?;
        let shared = self.shared();
        let stream = match query.path.entity() {
            None => None,
            Some(entity) => match shared.stream(&query.tenant, entity).await? {
                None => return Ok(Page { events: Vec::new(), next: None }),
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
                Turn::Behind(relieved) => relieved.await,
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
            state.move_on(now);
            state.queue().has_ready(|tenant| tenants.as_ref().is_none_or(|served| served.contains(tenant)))
        };
        if !ready {
            shared.timer_bell.ring();
            waiting.await;
        }
    }

    async fn task(&self, key: TaskKey) -> Result<Option<TaskSnapshot>, Fault> {
        let shared = self.shared();
        let (found, number) = shared.look(|state| TaskSnapshot::of(state, &key));
        if found.is_some() {
            shared.settle(number).await?;
            return Ok(found);
        }
        stored_task::task(&shared.rows, &key)
    }

    async fn job(&self, tenant: TenantId, job: JobId) -> Result<Option<JobSnapshot>, Fault> {
        let shared = self.shared();
        let (found, number) =
            shared.look(|state| state.job(&tenant, job).map(|job| JobSnapshot::of(&job.head)));
        if found.is_some() {
            shared.settle(number).await?;
            return Ok(found);
        }
        Ok(match shared.rows.get(&RowKey::Job(tenant, job))? {
            Some(Row::Job(head)) => Some(JobSnapshot::of(&head)),
            _ => None,
        })
    }

    async fn job_tasks(
        &self,
        tenant: TenantId,
        job: JobId,
        from: u32,
        limit: usize,
    ) -> Result<Vec<TaskSnapshot>, Fault> {
        let shared = self.shared();
        let (found, number) = shared.look(|state| {
            state.job(&tenant, job).map(|_| TaskSnapshot::of_job(state, &tenant, job, from, limit))
        });
        if let Some(tasks) = found {
            shared.settle(number).await?;
            return Ok(tasks);
        }
        stored_task::page(&shared.rows, &tenant, job, from, limit)
    }

    async fn jobs(
        &self,
        tenant: TenantId,
        status: Option<JobStatus>,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<JobSnapshot>, Fault> {
        let shared = self.shared();
        let (mut list, number) = shared.look(|state| JobList::begin(state, &tenant, status, before, limit));
        shared.settle(number).await?;
        let prefix = row_key::jobs_of(&tenant);
        let end = row_key::jobs_before(&tenant, before);
        shared.rows.scan_back(&prefix, &end, &mut |_, row| {
            let Row::Job(head) = row else { return true };
            list.push_stored(&head);
            !list.is_full()
        })?;
        Ok(list.finish())
    }

    async fn events(&self, query: EventQuery) -> Result<Page, Fault> {
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
        Ok(match shared.rows.get(&row)? {
            Some(Row::Record(record)) => Some(record),
            _ => None,
        })
    }

    async fn records(
        &self,
        kind: RecordKind,
        tenant: Option<TenantId>,
        after: Option<Arc<str>>,
        limit: usize,
    ) -> Result<Vec<(RecordKey, Record)>, Fault> {
        let prefix = row_key::records_of(kind, tenant.as_ref());
        let mut from = prefix.clone();
        from.extend_from_slice(after.as_deref().unwrap_or_default().as_bytes());
        let fits = |key: &RecordKey| {
            key.kind == kind && key.tenant == tenant && after.as_ref().is_none_or(|after| key.id > *after)
        };
        self.shared().records_that(fits, &prefix, &from, limit).await
    }

    async fn all_records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
    ) -> Result<Vec<(RecordKey, Record)>, Fault> {
        let prefix = row_key::records_of_all(kind);
        let from =
            after.clone().map_or_else(|| prefix.clone(), |key| row_key::bytes_of(&RowKey::Record(key)));
        let fits = |key: &RecordKey| key.kind == kind && after.as_ref().is_none_or(|after| key > after);
        self.shared().records_that(fits, &prefix, &from, limit).await
    }

    async fn due_executions(
        &self,
        now: Timestamp,
        room: &Room,
        skip: impl Fn(&ExecutionKey) -> bool + Send,
    ) -> Result<DueExecutions, Fault> {
        let shared = self.shared();
        let (due, number) = shared.look(|state| state.pending().due(now, room, skip));
        shared.settle(number).await?;
        Ok(due)
    }

    async fn due_deliveries(
        &self,
        now: Timestamp,
        limit: usize,
        skip: impl Fn(&DeliveryKey) -> bool + Send,
    ) -> Result<DueDeliveries, Fault> {
        let shared = self.shared();
        let (due, number) = shared.look(|state| state.deliveries().due(now, limit, skip));
        shared.settle(number).await?;
        Ok(due)
    }

    fn deliveries_nearer(&self) -> Notice {
        self.shared().look(|state| state.deliveries().nearer()).0
    }

    async fn triage<T: Send>(&self, look: impl FnOnce(&TriageIndex) -> T + Send) -> Result<T, Fault> {
        let shared = self.shared();
        let (found, number) = shared.look(|state| look(state.triage()));
        shared.settle(number).await?;
        Ok(found)
    }

    fn triage_nearer(&self) -> Notice {
        self.shared().look(|state| state.triage().nearer()).0
    }

    fn triage_ended(&self) -> Notice {
        self.shared().look(|state| state.triage().ended()).0
    }

    async fn live_tasks(
        &self,
        tenant: TenantId,
        after: Option<RequestId>,
        limit: usize,
    ) -> Result<Vec<LiveTask>, Fault> {
        let shared = self.shared();
        let (found, number) = shared.look(|state| state.live_tasks(&tenant, after.as_ref(), limit));
        shared.settle(number).await?;
        Ok(found)
    }

    async fn lookout(&self, tenant: Option<TenantId>) -> Result<BTreeMap<TenantId, Lookout>, Fault> {
        let shared = self.shared();
        let (found, number) = shared.look(|state| state.lookout(tenant.as_ref()));
        shared.settle(number).await?;
        Ok(found)
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

    async fn queue(&self) -> Result<QueueDepth, Fault> {
        let shared = self.shared();
        let now = shared.clock.now();
        let (depth, number) = {
            let mut deciding = shared.deciding();
            deciding.decider.state.move_on(now);
            let queue = deciding.decider.state.queue();
            (queue.depth(), deciding.newest())
        };
        shared.settle(number).await?;
        Ok(depth)
    }

    fn commits(&self) -> CommitMetrics {
        self.shared().meter.read()
    }
}
