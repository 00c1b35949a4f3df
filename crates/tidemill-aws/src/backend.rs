//! The port's methods: commands and questions.
//!
//! A question first reads what other processes wrote, so that a caller finds through any process what another one
//! acknowledged. Events are the exception: they are read from the table, which gets them a little later. The process
//! adds those that it knows and the table may not have yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemill_engine::backend::{Answer, Backend, Fault};
use tidemill_engine::clock::Clock;
use tidemill_engine::command::Command;
use tidemill_engine::record::RecordKey;
use tidemill_engine::state::row::{Row, RowKey, RowRange};
use tidemill_engine::state::{State, StateNotices};
use tidemill_model::events::event_query::{EventPage, EventQuery};
use tidemill_model::{Entity, Event, TenantId, Timestamp};
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
use crate::rows::range_scan::RangeScan;
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
    pub(crate) state_notices: StateNotices,
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

    /// Calls `listener` with every record that another process wrote, before its group can be read here. The engine over this
    /// store wants to know: see `Engine::note_record_change`.
    pub fn listen_to_records(&self, listener: impl Fn(&RecordKey) + Send + Sync + 'static) {
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

    /// Which process has which duty of the stage, as `holder`.
    pub fn roster(&self, holder: &str) -> Roster {
        Roster::new(&self.connection, &self.table, self.rows.shard(), holder, Arc::clone(&self.clock))
    }

    /// Calls of the SDK need its runtime, no matter which runtime awaits them.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        self.runtime.spawn(call).await.map_err(|error| unavailable("a call ended", error))?
    }

    /// Looks at the state with everything that any process committed.
    pub(crate) async fn fresh<T>(&self, look: impl FnOnce(&Core) -> T) -> Result<T, Fault> {
        self.writer.fresh(look).await
    }

    pub(crate) async fn page(&self, query: EventQuery) -> Result<EventPage, Fault> {
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
            core.state.show_due_messages(now);
            core.state.queue().has_ready(serves)
        });
        if !is_ready.await {
            arrived.await;
        }
    }

    async fn find<T: Send>(&self, find: impl FnOnce(&State) -> Option<T> + Send) -> Result<Option<T>, Fault> {
        self.fresh(|core| find(&core.state)).await
    }

    async fn stored(&self, keys: Vec<RowKey>) -> Result<Vec<Option<Row>>, Fault> {
        let rows = self.rows.clone();
        self.call(async move { rows.rows(&keys).await }).await
    }

    async fn scan<T: Send + 'static>(
        &self,
        range: RowRange,
        mut seed: T,
        mut step: impl FnMut(&mut T, RowKey, Row) -> bool + Send + 'static,
    ) -> Result<T, Fault> {
        let rows = self.rows.clone();
        self.call(async move {
            let mut scan = RangeScan::new(rows.shard(), range);
            while let Some((key, row)) = scan.next(&rows).await? {
                if !step(&mut seed, key, row) {
                    break;
                }
            }
            Ok(seed)
        })
        .await
    }

    fn notices(&self) -> StateNotices {
        self.state_notices.clone()
    }

    async fn events(&self, query: EventQuery) -> Result<EventPage, Fault> {
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
}
