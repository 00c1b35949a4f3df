//! The embedded backend and the pool of hosts, with the moments that nobody outside sees: when a run was over, and when
//! its end was durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_embedded::Embedded;
use tidemill_engine::backend::{Answer, Backend, Fault};
use tidemill_engine::command::Command;
use tidemill_engine::execution::{ExecutionId, ExecutionStatus};
use tidemill_engine::record::{Record, RecordKey};
use tidemill_engine::reply::Reply;
use tidemill_engine::scripts::{RunDone, RunFailed, ScriptHost, ScriptRun};
use tidemill_engine::state::row::{Row, RowKey, RowRange};
use tidemill_engine::state::{State, StateNotices};
use tidemill_model::events::event_query::{EventPage, EventQuery};
use tidemill_model::{Entity, Event, TenantId};
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
    async fn find<T: Send>(&self, find: impl FnOnce(&State) -> Option<T> + Send) -> Result<Option<T>, Fault> {
        self.store.find(find).await
    }
    async fn stored(&self, keys: Vec<RowKey>) -> Result<Vec<Option<Row>>, Fault> {
        self.store.stored(keys).await
    }
    async fn scan<T: Send + 'static>(
        &self,
        range: RowRange,
        seed: T,
        step: impl FnMut(&mut T, RowKey, Row) -> bool + Send + 'static,
    ) -> Result<T, Fault> {
        self.store.scan(range, seed, step).await
    }
    fn notices(&self) -> StateNotices {
        self.store.notices()
    }
    async fn events(&self, query: EventQuery) -> Result<EventPage, Fault> {
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
    async fn put_blob(&self, tenant: TenantId, key: String, bytes: Vec<u8>) -> Result<(), Fault> {
        self.store.put_blob(tenant, key, bytes).await
    }
    async fn blob(&self, tenant: TenantId, key: String) -> Result<Option<Vec<u8>>, Fault> {
        self.store.blob(tenant, key).await
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
