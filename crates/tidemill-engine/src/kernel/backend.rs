//! The port to everything durable.
//!
//! A backend takes commands, makes their commits durable and true, and answers questions about the result. Its
//! promises are written at each method and checked by the suite in `tidemill-conformance`; a backend is finished when it
//! passes.

use std::future::Future;
use std::sync::Arc;

use tidemill_model::events::event_query::{BadQuery, EventPage, EventQuery};
use tidemill_model::{
    AppName, Entity, Event, JobId, JobStatus, PublicState, TaskHead, TaskId, TaskSpec, TenantId, Timestamp,
};

use crate::kernel::command::{Command, Forget};
use crate::kernel::commit::TaskKey;
use crate::kernel::record::{Record, RecordKey};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::job::JobHead;
use crate::kernel::state::row::{Row, RowKey, RowRange};
use crate::kernel::state::{State, StateNotices};
use crate::metrics::CommitMetrics;

/// Why the backend could not do its part. The command may or may not be worth repeating, but it was not acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Fault {
    /// Nothing was written. It works again once there is room.
    #[error("no space is left in the store: {0}")]
    Full(String),
    /// What was asked may be written or not; the store refuses everything until it is opened again.
    #[error("the store stopped: {0}")]
    Stopped(String),
    /// The store cannot be reached. What was asked may be written or not; the next try may work.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// Something stored cannot be read back.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// Written by a newer release; this one must not touch it.
    #[error("the store is of a newer release: {0}")]
    Newer(String),
    #[error(transparent)]
    Query(#[from] BadQuery),
    #[error("{field} is {size_bytes} bytes; the limit is {limit_bytes}")]
    TooLarge { field: &'static str, size_bytes: usize, limit_bytes: usize },
}

/// One command's answer within a group.
pub type Answer = Result<Reply, Refusal>;

/// Where events, heads, messages, records and blobs live.
pub trait Backend: Send + Sync + 'static {
    /// Decides the commands in order and makes their commits durable together.
    ///
    /// Each command sees what those before it did. When the answer is there, every effect survives a crash and a power
    /// loss; when it is not (a fault, or the process died), all of the group's effects are there or none. A refused
    /// command changes nothing and does not stop the others.
    fn execute(&self, commands: Vec<Command>) -> impl Future<Output = Result<Vec<Answer>, Fault>> + Send;

    /// Whether commands are carried out now: the fault that they would meet otherwise.
    fn ready(&self) -> impl Future<Output = Result<(), Fault>> + Send {
        // Forgetting nothing goes the whole way of a write and changes nothing.
        let nothing = self.execute(vec![Command::Forget(Forget { keys: Vec::new() })]);
        async move { nothing.await.map(drop) }
    }

    /// Why nothing is carried out until the store is opened again, if so.
    fn stopped(&self) -> Option<Fault> {
        None
    }

    /// Waits until a message may have become deliverable for one of `tenants` (`None`: any), or is dropped.
    ///
    /// It may return early; it never misses a message that was enqueued, released or came due after the call.
    fn work(&self, tenants: Option<Arc<[TenantId]>>) -> impl Future<Output = ()> + Send;

    /// Looks for something in the state, all of it as of one moment. What is found is answered once it is durable; that
    /// nothing is found is answered at once, because it may be stored.
    ///
    /// `find` is called once, under the lock that decisions take: it must be short. Nothing is held while this waits.
    fn find<T: Send>(
        &self,
        find: impl FnOnce(&State) -> Option<T> + Send,
    ) -> impl Future<Output = Result<Option<T>, Fault>> + Send;

    /// Looks at the state, all of it as of one moment, and answers once what was seen is durable.
    fn look<T: Send>(
        &self,
        look: impl FnOnce(&State) -> T + Send,
    ) -> impl Future<Output = Result<T, Fault>> + Send {
        async move {
            let seen = self.find(|state| Some(look(state))).await?;
            Ok(seen.expect("what is found is answered"))
        }
    }

    /// Rows as they were last written down, in the order of `keys`; `None` for one that is not stored. Each was checked.
    ///
    /// They are durable and may be older than what is in memory: a caller that needs the current state looks there
    /// first.
    fn stored(&self, keys: Vec<RowKey>) -> impl Future<Output = Result<Vec<Option<Row>>, Fault>> + Send;

    /// Goes through stored rows in the order of the range. `step` takes each into what began as `seed`, and says
    /// whether it wants another. Each was checked, and is as old as those of `stored`.
    fn scan<T: Send + 'static>(
        &self,
        range: RowRange,
        seed: T,
        step: impl FnMut(&mut T, RowKey, Row) -> bool + Send + 'static,
    ) -> impl Future<Output = Result<T, Fault>> + Send;

    /// A record as it stands. A backend that knows when a record was last written need not wait for more than that.
    fn record(&self, key: RecordKey) -> impl Future<Output = Result<Option<Record>, Fault>> + Send {
        async move {
            let row = RowKey::Record(key.clone());
            let found = self.find(|state| state.is_loaded(&row).then(|| state.record(&key).cloned())).await?;
            if let Some(record) = found {
                return Ok(record);
            }
            Ok(self.stored(vec![row]).await?.pop().flatten().and_then(Row::into_record))
        }
    }

    /// What the state rings when it changes. The same for as long as the backend lives.
    fn notices(&self) -> StateNotices;

    /// A page of events on one of the eight access paths, ordered by (timestamp, id). Like every read: durable facts
    /// only, and nothing of another tenant. Events are as they were stored: large fields may lie in a blob.
    fn events(&self, query: EventQuery) -> impl Future<Output = Result<EventPage, Fault>> + Send;

    /// Whether an event that was committed may be missing from answers for a while.
    fn events_lag(&self) -> bool {
        false
    }

    /// The latest event of an entity.
    fn latest(
        &self,
        tenant: TenantId,
        entity: Entity,
    ) -> impl Future<Output = Result<Option<Event>, Fault>> + Send;

    /// The number of the newest durable event of any tenant; 0 when there is none. It never goes down.
    fn newest(&self) -> u64;

    /// Durable events of all tenants with numbers above `after`, in the order of the log, at most `limit`.
    ///
    /// Nothing of a group is shown before all of it is durable. Numbers are never used twice; those of events that
    /// expired are passed over.
    fn follow(
        &self,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(u64, Event)>, Fault>> + Send;

    /// Waits until `newest` is above `after`. It may return early; it never misses an event that became durable after
    /// the call. When the store has stopped it waits for ever.
    fn committed(&self, after: u64) -> impl Future<Output = ()> + Send;

    /// Stores a blob durably before it returns. A key that exists is replaced whole.
    fn put_blob(
        &self,
        tenant: TenantId,
        key: String,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    fn blob(
        &self,
        tenant: TenantId,
        key: String,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, Fault>> + Send;

    /// The bytes that a blob has; `None` if it is not there.
    fn blob_size(
        &self,
        tenant: TenantId,
        key: String,
    ) -> impl Future<Output = Result<Option<u64>, Fault>> + Send {
        async move { Ok(self.blob(tenant, key).await?.map(|bytes| bytes.len() as u64)) }
    }

    /// What was written since the process began. A backend that writes nothing counts nothing.
    fn commits(&self) -> CommitMetrics {
        CommitMetrics::default()
    }
}

/// A task as readers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSnapshot {
    pub task: TaskKey,
    pub app: AppName,
    pub job: Option<JobId>,
    pub spec: Arc<TaskSpec>,
    /// `None`: not dispatched.
    pub state: Option<PublicState>,
    pub head: Option<TaskHead>,
    /// The tasks that it waits for before it is dispatched; the first of them, at most [`BLOCKED_BY_MAX`].
    pub blocked_by: Vec<TaskId>,
}

/// How many of the tasks that a task waits for are listed.
pub const BLOCKED_BY_MAX: usize = 100;

/// A job as readers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSnapshot {
    pub status: JobStatus,
    pub head: JobHead,
}

impl From<JobHead> for JobSnapshot {
    fn from(head: JobHead) -> Self {
        Self { status: head.status(), head }
    }
}

/// How full the queue is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// All messages, hidden ones included.
    pub messages: usize,
    /// Messages that could be delivered now.
    pub ready: usize,
    /// Since when the message that is next for a tenant could be delivered; the longest of all tenants.
    pub oldest_ready: Option<Timestamp>,
}
