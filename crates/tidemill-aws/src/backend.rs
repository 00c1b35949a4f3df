//! The port's methods: commands and questions.
//!
//! A question first takes in what other processes wrote, so that whoever was told of a thing finds it, through whichever
//! process. Events are the exception: they are read from the table, which hears of them a little later; what this process
//! knows and the table may not have yet is added.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemill_engine::backend::{Answer, Backend, Fault, JobSnapshot, QueueDepth, TaskSnapshot};
use tidemill_engine::clock::Clock;
use tidemill_engine::command::Command;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::execution::ExecutionKey;
use tidemill_engine::health::{LiveTask, Lookout};
use tidemill_engine::job_list::JobList;
use tidemill_engine::notice::Notice;
use tidemill_engine::outbound::DeliveryKey;
use tidemill_engine::record::{Record, RecordKey, RecordKind};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_engine::state::{DueDeliveries, DueExecutions, Room, State, TriageIndex};
use tidemill_model::event_query::{EventQuery, Page};
use tidemill_model::{Entity, Event, JobId, JobStatus, RequestId, TenantId, Timestamp};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::bus::outbox::Outbox;
use crate::connection::Connection;
use crate::deciding::core::{Core, RecordListener};
use crate::deciding::writer::{Ask, Call, Notices};
use crate::deciding::writer_handle::WriterHandle;
use crate::events::event_page;
use crate::fault::unavailable;
use crate::log::commit_log::CommitLog;
use crate::log::group::group_of;
use crate::objects::Objects;
use crate::rows::row_item::{jobs_partition, record_key, records_partition, records_prefix};
use crate::rows::row_scan::Scan;
use crate::rows::row_store::RowStore;
use crate::stage::duty::Roster;
use crate::tickets::held_tickets::HeldTickets;

/// The engine's store in a table, a bucket, a bus and a queue. Any number of processes may have it open.
pub struct Aws {
    pub(crate) writer: WriterHandle,
    pub(crate) runtime: Handle,
    pub(crate) connection: Connection,
    pub(crate) table: Arc<str>,
    pub(crate) objects: Objects,
    pub(crate) rows: RowStore,
    pub(crate) record_listener: Arc<RecordListener>,
    pub(crate) log: CommitLog,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) notices: Notices,
    pub(crate) newest: Arc<AtomicU64>,
    pub(crate) sent: Arc<AtomicU64>,
    pub(crate) unsent: Arc<AtomicU64>,
    pub(crate) outbox: Outbox,
    pub(crate) tickets: Option<HeldTickets>,
    pub(crate) keep_log: Duration,
    pub(crate) patience: Duration,
    pub(crate) skew_millis: i64,
    pub(crate) deliveries_nearer: Notice,
    pub(crate) triage_nearer: Notice,
    pub(crate) triage_ended: Notice,
    pub(crate) tasks: Vec<JoinHandle<()>>,
}

impl Drop for Aws {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Aws {
    /// How far this machine's clock was ahead of AWS when the store was opened, in milliseconds; 0 if nobody looked.
    pub fn skew_millis(&self) -> i64 {
        self.skew_millis
    }

    /// Has every record told that another process wrote, before its group can be read here. The engine over this store wants
    /// to know: see `Engine::heard_of`.
    pub fn tell_records(&self, listener: impl Fn(&RecordKey) + Send + Sync + 'static) {
        self.record_listener.listen(Box::new(listener));
    }

    /// The clock has moved.
    pub fn time_passed(&self) {
        self.notices.arrived.ring();
    }

    /// Writes down the rows that changed, so that the next to open has little to read.
    pub async fn flush(&self) -> Result<(), Fault> {
        self.writer.ask(Ask::Flush).await
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Who has which duty of the stage, as `holder`.
    pub fn roster(&self, holder: &str) -> Roster {
        Roster::new(&self.connection, &self.table, self.rows.shard(), holder, Arc::clone(&self.clock))
    }

    /// Calls of the SDK want its runtime, whoever waits for them.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        self.runtime.spawn(call).await.map_err(|error| unavailable("a call ended", error))?
    }

    /// Looks at the state with all that any process was told of.
    pub(crate) async fn fresh<T>(&self, look: impl FnOnce(&Core) -> T) -> Result<T, Fault> {
        self.writer.fresh(look).await
    }

    /// A state that holds one stored job, or one stored task.
    async fn stored(&self, key: &TaskKey) -> Result<State, Fault> {
        if let Some(job) = key.request.job_part() {
            return self.stored_job(key.tenant.clone(), job).await;
        }
        let (rows, key) = (self.rows.clone(), RowKey::Task(key.clone()));
        let mut state = State::default();
        if let Some(row) = self
            .call({
                let key = key.clone();
                async move { rows.row(&key).await }
            })
            .await?
        {
            state.load(key, row);
        }
        Ok(state)
    }

    async fn stored_job(&self, tenant: TenantId, job: JobId) -> Result<State, Fault> {
        let rows = self.rows.clone();
        let found = self.call(async move { rows.job(&tenant, job).await }).await?;
        let mut state = State::default();
        if let Some(job) = found {
            state.load_job(job.head, job.tasks, job.entries);
        }
        Ok(state)
    }

    /// Records that fit, in order, at most `limit`: those in memory as they are there, the others as they were stored.
    async fn records_that(
        &self,
        kind: RecordKind,
        fits: impl Fn(&RecordKey) -> bool + Send + 'static,
        scan: Scan,
        limit: usize,
    ) -> Result<Vec<(RecordKey, Record)>, Fault> {
        let changed = self.fresh(|core| {
            let own = core.state.records().filter(|(key, _)| fits(key));
            own.map(|(key, record)| (key.clone(), record.cloned())).collect::<BTreeMap<_, _>>()
        });
        let changed = changed.await?;
        let rows = self.rows.clone();
        self.call(async move {
            let mut scan = scan;
            let mut found = BTreeMap::new();
            let enough = limit.saturating_add(changed.len());
            while found.len() < enough
                && let Some((sk, row)) = scan.next(&rows).await?
            {
                if let (Some(key), Some(Row::Record(record))) = (record_key(kind, &sk), row.row)
                    && fits(&key)
                    && !changed.contains_key(&key)
                {
                    found.insert(key, record);
                }
            }
            found.extend(changed.into_iter().filter_map(|(key, record)| record.map(|record| (key, record))));
            Ok(found.into_iter().take(limit).collect())
        })
        .await
    }

    pub(crate) async fn page(&self, query: EventQuery) -> Result<Page, Fault> {
        query.check()?;
        let unsaved = self.writer.core.look(|core| {
            let unsaved = core.recent.unsaved().filter(|event| query.matches(event));
            unsaved.cloned().collect::<Vec<Event>>()
        });
        let unsaved = unsaved.await;
        let (connection, table, now) = (self.connection.clone(), Arc::clone(&self.table), self.clock.now());
        self.call(async move { event_page::page(&connection, &table, &query, unsaved, now).await }).await
    }
}

impl Backend for Aws {
    async fn execute(&self, commands: Vec<Command>) -> Result<Vec<Answer>, Fault> {
        self.writer.ask(|answer| Ask::Execute(Call { commands, answer })).await
    }

    async fn work(&self, tenants: Option<Arc<[TenantId]>>) {
        let arrived = self.notices.arrived.listen();
        let _waiting = self.tickets.as_ref().map(|tickets| tickets.wait(tenants.clone()));
        let now = self.clock.now();
        let serves = |tenant: &TenantId| tenants.as_ref().is_none_or(|served| served.contains(tenant));
        let is_ready = self.writer.core.look(|core| {
            core.state.move_on(now);
            core.state.queue().has_ready(serves)
        });
        if !is_ready.await {
            arrived.await;
        }
    }

    async fn task(&self, key: TaskKey) -> Result<Option<TaskSnapshot>, Fault> {
        if let Some(found) = self.fresh(|core| TaskSnapshot::of(&core.state, &key)).await? {
            return Ok(Some(found));
        }
        Ok(TaskSnapshot::of(&self.stored(&key).await?, &key))
    }

    async fn job(&self, tenant: TenantId, job: JobId) -> Result<Option<JobSnapshot>, Fault> {
        let found = self.fresh(|core| core.state.job(&tenant, job).map(|job| JobSnapshot::of(&job.head)));
        if let Some(found) = found.await? {
            return Ok(Some(found));
        }
        let rows = self.rows.clone();
        let found = self.call(async move { rows.row(&RowKey::Job(tenant, job)).await }).await?;
        Ok(found.and_then(|row| if let Row::Job(head) = row { Some(JobSnapshot::of(&head)) } else { None }))
    }

    async fn job_tasks(
        &self,
        tenant: TenantId,
        job: JobId,
        from: u32,
        limit: usize,
    ) -> Result<Vec<TaskSnapshot>, Fault> {
        let found = self.fresh(|core| {
            let is_here = core.state.job(&tenant, job).is_some();
            is_here.then(|| TaskSnapshot::of_job(&core.state, &tenant, job, from, limit))
        });
        if let Some(tasks) = found.await? {
            return Ok(tasks);
        }
        let state = self.stored_job(tenant.clone(), job).await?;
        Ok(TaskSnapshot::of_job(&state, &tenant, job, from, limit))
    }

    async fn jobs(
        &self,
        tenant: TenantId,
        status: Option<JobStatus>,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<JobSnapshot>, Fault> {
        let list = self.fresh(|core| JobList::begin(&core.state, &tenant, status, before, limit));
        let (mut list, rows) = (list.await?, self.rows.clone());
        self.call(async move {
            let partition = jobs_partition(rows.shard(), &tenant);
            let mut scan = Scan::backward(partition, before.map(|before| before.to_string()));
            while !list.is_full()
                && let Some((_, row)) = scan.next(&rows).await?
            {
                if let Some(Row::Job(head)) = row.row {
                    list.push_stored(&head);
                }
            }
            Ok(list.finish())
        })
        .await
    }

    async fn events(&self, query: EventQuery) -> Result<Page, Fault> {
        self.page(query).await
    }

    fn events_lag(&self) -> bool {
        true
    }

    async fn latest(&self, tenant: TenantId, entity: Entity) -> Result<Option<Event>, Fault> {
        self.latest_of(tenant, entity).await
    }

    fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    async fn follow(&self, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, Fault> {
        let now = self.clock.now();
        let Some(first) = after.checked_add(1) else { return Ok(Vec::new()) };
        let found = self.writer.core.look(|core| match core.recent.from(group_of(first)) {
            Some(recent) => {
                let later = recent.filter(|(number, event)| *number > after && !event.is_outlived(now));
                Ok(later.take(limit).cloned().collect())
            }
            None => Err(core.end),
        });
        let end = match found.await {
            Ok(recent) => return Ok(recent),
            Err(end) => end,
        };
        let log = self.log.clone();
        self.call(async move {
            let mut found = Vec::new();
            let mut next = group_of(first).max(1);
            while found.len() < limit && next <= end {
                let items = log.from(next).await?;
                if items.is_empty() {
                    break;
                }
                for item in items.into_iter().take_while(|item| item.number <= end) {
                    next = item.number + 1;
                    let events = Core::read_events(&item)?.events;
                    let later =
                        events.iter().filter(|(number, event)| *number > after && !event.is_outlived(now));
                    found.extend(later.cloned());
                }
            }
            found.truncate(limit);
            Ok(found)
        })
        .await
    }

    async fn committed(&self, after: u64) {
        loop {
            let grown = self.notices.grown.listen();
            if self.newest() > after {
                return;
            }
            grown.await;
        }
    }

    async fn record(&self, key: RecordKey) -> Result<Option<Record>, Fault> {
        let row = RowKey::Record(key.clone());
        let found = self.fresh(|core| core.state.is_loaded(&row).then(|| core.state.record(&key).cloned()));
        if let Some(record) = found.await? {
            return Ok(record);
        }
        let rows = self.rows.clone();
        let found = self.call(async move { rows.row(&row).await }).await?;
        Ok(found.and_then(|row| if let Row::Record(record) = row { Some(record) } else { None }))
    }

    async fn records(
        &self,
        kind: RecordKind,
        tenant: Option<TenantId>,
        after: Option<Arc<str>>,
        limit: usize,
    ) -> Result<Vec<(RecordKey, Record)>, Fault> {
        let prefix = records_prefix(tenant.as_ref());
        let behind = after.as_ref().map(|after| format!("{prefix}{after}"));
        let scan = Scan::prefix(records_partition(self.rows.shard(), kind), prefix, behind);
        let fits = move |key: &RecordKey| {
            key.kind == kind && key.tenant == tenant && after.as_ref().is_none_or(|after| key.id > *after)
        };
        self.records_that(kind, fits, scan, limit).await
    }

    async fn all_records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
    ) -> Result<Vec<(RecordKey, Record)>, Fault> {
        let behind = after.as_ref().map(|key| format!("{}{}", records_prefix(key.tenant.as_ref()), key.id));
        let scan = Scan::prefix(records_partition(self.rows.shard(), kind), String::new(), behind);
        let fits = move |key: &RecordKey| key.kind == kind && after.as_ref().is_none_or(|after| key > after);
        self.records_that(kind, fits, scan, limit).await
    }

    async fn due_executions(
        &self,
        now: Timestamp,
        room: &Room,
        skip: impl Fn(&ExecutionKey) -> bool + Send,
    ) -> Result<DueExecutions, Fault> {
        self.fresh(|core| core.state.pending().due(now, room, skip)).await
    }

    async fn due_deliveries(
        &self,
        now: Timestamp,
        limit: usize,
        skip: impl Fn(&DeliveryKey) -> bool + Send,
    ) -> Result<DueDeliveries, Fault> {
        self.fresh(|core| core.state.deliveries().due(now, limit, skip)).await
    }

    fn deliveries_nearer(&self) -> Notice {
        self.deliveries_nearer.clone()
    }

    async fn triage<T: Send>(&self, look: impl FnOnce(&TriageIndex) -> T + Send) -> Result<T, Fault> {
        self.fresh(|core| look(core.state.triage())).await
    }

    fn triage_nearer(&self) -> Notice {
        self.triage_nearer.clone()
    }

    fn triage_ended(&self) -> Notice {
        self.triage_ended.clone()
    }

    async fn live_tasks(
        &self,
        tenant: TenantId,
        after: Option<RequestId>,
        limit: usize,
    ) -> Result<Vec<LiveTask>, Fault> {
        self.fresh(|core| core.state.live_tasks(&tenant, after.as_ref(), limit)).await
    }

    async fn lookout(&self, tenant: Option<TenantId>) -> Result<BTreeMap<TenantId, Lookout>, Fault> {
        self.fresh(|core| core.state.lookout(tenant.as_ref())).await
    }

    async fn put_blob(&self, tenant: TenantId, key: String, bytes: Vec<u8>) -> Result<(), Fault> {
        let objects = self.objects.clone();
        self.call(async move { objects.put_blob(&tenant, &key, bytes).await }).await
    }

    async fn blob(&self, tenant: TenantId, key: String) -> Result<Option<Vec<u8>>, Fault> {
        let objects = self.objects.clone();
        self.call(async move { objects.blob(&tenant, &key).await }).await
    }

    async fn blob_size(&self, tenant: TenantId, key: String) -> Result<Option<u64>, Fault> {
        let objects = self.objects.clone();
        self.call(async move { objects.blob_size(&tenant, &key).await }).await
    }

    async fn queue(&self) -> Result<QueueDepth, Fault> {
        let now = self.clock.now();
        self.fresh(|_| ()).await?;
        let depth = self.writer.core.look(|core| {
            core.state.move_on(now);
            core.state.queue().depth()
        });
        Ok(depth.await)
    }
}
