//! The embedded backend and the pool of hosts, with the moments that nobody outside sees: when a run was over, and when
//! its end was durable.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_embedded::Embedded;
use tidemill_engine::backend::{Answer, Backend, Fault, JobSnapshot, QueueDepth, TaskSnapshot};
use tidemill_engine::command::Command;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::execution::{ExecutionId, ExecutionKey, ExecutionStatus};
use tidemill_engine::health::{LiveTask, Lookout};
use tidemill_engine::notice::Notice;
use tidemill_engine::outbound::DeliveryKey;
use tidemill_engine::record::{Record, RecordKey, RecordKind};
use tidemill_engine::reply::Reply;
use tidemill_engine::scripts::{RunDone, RunFailed, ScriptHost, ScriptRun};
use tidemill_engine::state::{DueDeliveries, DueExecutions, Room, TriageIndex};
use tidemill_model::event_query::{EventQuery, Page};
use tidemill_model::{Entity, Event, JobId, JobStatus, RequestId, TenantId, Timestamp};
use tokio::sync::Semaphore;

use crate::script_pool::ScriptPool;

/// How an execution ended for good.
#[derive(Debug, Clone, Copy)]
pub struct End {
    pub at: Instant,
    pub status: ExecutionStatus,
}

pub struct Watched {
    store: Embedded,
    ends: Mutex<HashMap<ExecutionId, End>>,
    /// One more with each end.
    pub ended: Semaphore,
}

impl Watched {
    pub fn new(store: Embedded) -> Self {
        Self { store, ends: Mutex::default(), ended: Semaphore::new(0) }
    }

    /// The ends since the last call.
    pub fn take_ends(&self) -> HashMap<ExecutionId, End> {
        std::mem::take(&mut *self.ends.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes what was put off.
    pub fn settle(&self) {
        self.store.checkpoint().expect("rows can be written");
        self.store.seal_all().expect("segments can be sealed");
    }
}

impl Backend for Watched {
    async fn execute(&self, commands: Vec<Command>) -> Result<Vec<Answer>, Fault> {
        let ending = |command: &Command| match command {
            Command::EndExecution(end) => Some(end.execution),
            _ => None,
        };
        let ending: Vec<_> = commands.iter().map(ending).collect();
        let answers = self.store.execute(commands).await?;
        for (execution, answer) in ending.into_iter().zip(&answers) {
            if let (Some(id), Ok(Reply::ExecutionEnded { status, .. })) = (execution, answer)
                && !status.is_pending()
            {
                let end = End { at: Instant::now(), status: *status };
                self.ends.lock().unwrap_or_else(PoisonError::into_inner).insert(id, end);
                self.ended.add_permits(1);
            }
        }
        Ok(answers)
    }

    async fn work(&self, tenants: Option<Arc<[TenantId]>>) {
        self.store.work(tenants).await;
    }
    async fn task(&self, key: TaskKey) -> Result<Option<TaskSnapshot>, Fault> {
        self.store.task(key).await
    }
    async fn job(&self, tenant: TenantId, job: JobId) -> Result<Option<JobSnapshot>, Fault> {
        self.store.job(tenant, job).await
    }
    async fn job_tasks(
        &self,
        tenant: TenantId,
        job: JobId,
        from: u32,
        limit: usize,
    ) -> Result<Vec<TaskSnapshot>, Fault> {
        self.store.job_tasks(tenant, job, from, limit).await
    }
    async fn jobs(
        &self,
        tenant: TenantId,
        status: Option<JobStatus>,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<JobSnapshot>, Fault> {
        self.store.jobs(tenant, status, before, limit).await
    }
    async fn events(&self, query: EventQuery) -> Result<Page, Fault> {
        self.store.events(query).await
    }
    async fn latest(&self, tenant: TenantId, entity: Entity) -> Result<Option<Event>, Fault> {
        self.store.latest(tenant, entity).await
    }
    fn newest(&self) -> u64 {
        self.store.newest()
    }
    async fn follow(&self, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, Fault> {
        self.store.follow(after, limit).await
    }
    async fn committed(&self, after: u64) {
        self.store.committed(after).await;
    }
    async fn record(&self, key: RecordKey) -> Result<Option<Record>, Fault> {
        self.store.record(key).await
    }
    async fn records(
        &self,
        kind: RecordKind,
        tenant: Option<TenantId>,
        after: Option<Arc<str>>,
        limit: usize,
    ) -> Result<Vec<(RecordKey, Record)>, Fault> {
        self.store.records(kind, tenant, after, limit).await
    }
    async fn all_records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
    ) -> Result<Vec<(RecordKey, Record)>, Fault> {
        self.store.all_records(kind, after, limit).await
    }
    async fn due_executions(
        &self,
        now: Timestamp,
        room: &Room,
        skip: impl Fn(&ExecutionKey) -> bool + Send,
    ) -> Result<DueExecutions, Fault> {
        self.store.due_executions(now, room, skip).await
    }
    async fn due_deliveries(
        &self,
        now: Timestamp,
        limit: usize,
        skip: impl Fn(&DeliveryKey) -> bool + Send,
    ) -> Result<DueDeliveries, Fault> {
        self.store.due_deliveries(now, limit, skip).await
    }
    fn deliveries_nearer(&self) -> Notice {
        self.store.deliveries_nearer()
    }
    async fn triage<T: Send>(&self, look: impl FnOnce(&TriageIndex) -> T + Send) -> Result<T, Fault> {
        self.store.triage(look).await
    }
    fn triage_nearer(&self) -> Notice {
        self.store.triage_nearer()
    }
    fn triage_ended(&self) -> Notice {
        self.store.triage_ended()
    }
    async fn live_tasks(
        &self,
        tenant: TenantId,
        after: Option<RequestId>,
        limit: usize,
    ) -> Result<Vec<LiveTask>, Fault> {
        self.store.live_tasks(tenant, after, limit).await
    }
    async fn lookout(&self, tenant: Option<TenantId>) -> Result<BTreeMap<TenantId, Lookout>, Fault> {
        self.store.lookout(tenant).await
    }
    async fn put_blob(&self, tenant: TenantId, key: String, bytes: Vec<u8>) -> Result<(), Fault> {
        self.store.put_blob(tenant, key, bytes).await
    }
    async fn blob(&self, tenant: TenantId, key: String) -> Result<Option<Vec<u8>>, Fault> {
        self.store.blob(tenant, key).await
    }
    async fn queue(&self) -> Result<QueueDepth, Fault> {
        self.store.queue().await
    }
}

/// The binary's pool of hosts; tells when a run was over.
pub struct WatchedHost {
    pub pool: ScriptPool,
    pub runs: Arc<Mutex<HashMap<ExecutionId, Instant>>>,
}

impl ScriptHost for WatchedHost {
    async fn run(&self, run: ScriptRun) -> Result<RunDone, RunFailed> {
        let id = run.execution;
        let done = ScriptHost::run(&self.pool, run).await;
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Instant::now());
        done
    }

    async fn sleep(&self, time: Duration) {
        self.pool.sleep(time).await;
    }

    async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.pool.aside(work).await
    }
}
