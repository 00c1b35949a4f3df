//! Any backend behind one type, for callers that do not care which one it is.
//!
//! What is generic over its backend is compiled once for each, in the crate that names it: a server with all its routes and pages
//! again in every binary. Behind this type it is compiled once. A call costs one more allocation; what runs tasks in this process
//! by the hundred thousand names its backend instead.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tidemill_model::events::event_query::{EventPage, EventQuery};
use tidemill_model::{Entity, Event, TenantId};

use crate::kernel::backend::{Answer, Backend, Fault};
use crate::kernel::command::Command;
use crate::kernel::record::{Record, RecordKey};
use crate::kernel::state::row::{Row, RowKey, RowRange};
use crate::kernel::state::{State, StateNotices};
use crate::metrics::CommitMetrics;

type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
type Step = Box<dyn FnMut(RowKey, Row) -> bool + Send>;

/// The verbs of a backend without type parameters. Each does what the one of [`Backend`] with its name does.
trait Erased: Send + Sync + 'static {
    fn execute(&self, commands: Vec<Command>) -> Soon<'_, Result<Vec<Answer>, Fault>>;
    fn ready(&self) -> Soon<'_, Result<(), Fault>>;
    fn stopped(&self) -> Option<Fault>;
    fn work(&self, tenants: Option<Arc<[TenantId]>>) -> Soon<'_, ()>;
    /// `find` says whether it found what it keeps for itself.
    fn find<'a>(&'a self, find: &'a mut (dyn FnMut(&State) -> bool + Send)) -> Soon<'a, Result<bool, Fault>>;
    fn stored(&self, keys: Vec<RowKey>) -> Soon<'_, Result<Vec<Option<Row>>, Fault>>;
    fn scan(&self, range: RowRange, step: Step) -> Soon<'_, Result<(), Fault>>;
    fn record(&self, key: RecordKey) -> Soon<'_, Result<Option<Record>, Fault>>;
    fn notices(&self) -> StateNotices;
    fn events(&self, query: EventQuery) -> Soon<'_, Result<EventPage, Fault>>;
    fn events_lag(&self) -> bool;
    fn latest(&self, tenant: TenantId, entity: Entity) -> Soon<'_, Result<Option<Event>, Fault>>;
    fn newest(&self) -> u64;
    fn follow(&self, after: u64, limit: usize) -> Soon<'_, Result<Vec<(u64, Event)>, Fault>>;
    fn committed(&self, after: u64) -> Soon<'_, ()>;
    fn put_blob(&self, tenant: TenantId, key: String, bytes: Vec<u8>) -> Soon<'_, Result<(), Fault>>;
    fn blob(&self, tenant: TenantId, key: String) -> Soon<'_, Result<Option<Vec<u8>>, Fault>>;
    fn blob_size(&self, tenant: TenantId, key: String) -> Soon<'_, Result<Option<u64>, Fault>>;
    fn commits(&self) -> CommitMetrics;
}

impl<B: Backend> Erased for B {
    fn execute(&self, commands: Vec<Command>) -> Soon<'_, Result<Vec<Answer>, Fault>> {
        Box::pin(Backend::execute(self, commands))
    }

    fn ready(&self) -> Soon<'_, Result<(), Fault>> {
        Box::pin(Backend::ready(self))
    }

    fn stopped(&self) -> Option<Fault> {
        Backend::stopped(self)
    }

    fn work(&self, tenants: Option<Arc<[TenantId]>>) -> Soon<'_, ()> {
        Box::pin(Backend::work(self, tenants))
    }

    fn find<'a>(&'a self, find: &'a mut (dyn FnMut(&State) -> bool + Send)) -> Soon<'a, Result<bool, Fault>> {
        Box::pin(async move { Ok(Backend::find(self, |state| find(state).then_some(())).await?.is_some()) })
    }

    fn stored(&self, keys: Vec<RowKey>) -> Soon<'_, Result<Vec<Option<Row>>, Fault>> {
        Box::pin(Backend::stored(self, keys))
    }

    fn scan(&self, range: RowRange, mut step: Step) -> Soon<'_, Result<(), Fault>> {
        Box::pin(Backend::scan(self, range, (), move |(), key, row| step(key, row)))
    }

    fn record(&self, key: RecordKey) -> Soon<'_, Result<Option<Record>, Fault>> {
        Box::pin(Backend::record(self, key))
    }

    fn notices(&self) -> StateNotices {
        Backend::notices(self)
    }

    fn events(&self, query: EventQuery) -> Soon<'_, Result<EventPage, Fault>> {
        Box::pin(Backend::events(self, query))
    }

    fn events_lag(&self) -> bool {
        Backend::events_lag(self)
    }

    fn latest(&self, tenant: TenantId, entity: Entity) -> Soon<'_, Result<Option<Event>, Fault>> {
        Box::pin(Backend::latest(self, tenant, entity))
    }

    fn newest(&self) -> u64 {
        Backend::newest(self)
    }

    fn follow(&self, after: u64, limit: usize) -> Soon<'_, Result<Vec<(u64, Event)>, Fault>> {
        Box::pin(Backend::follow(self, after, limit))
    }

    fn committed(&self, after: u64) -> Soon<'_, ()> {
        Box::pin(Backend::committed(self, after))
    }

    fn put_blob(&self, tenant: TenantId, key: String, bytes: Vec<u8>) -> Soon<'_, Result<(), Fault>> {
        Box::pin(Backend::put_blob(self, tenant, key, bytes))
    }

    fn blob(&self, tenant: TenantId, key: String) -> Soon<'_, Result<Option<Vec<u8>>, Fault>> {
        Box::pin(Backend::blob(self, tenant, key))
    }

    fn blob_size(&self, tenant: TenantId, key: String) -> Soon<'_, Result<Option<u64>, Fault>> {
        Box::pin(Backend::blob_size(self, tenant, key))
    }

    fn commits(&self) -> CommitMetrics {
        Backend::commits(self)
    }
}

/// A backend of any kind. Clones share it.
#[derive(Clone)]
pub struct AnyBackend(Arc<dyn Erased>);

impl std::fmt::Debug for AnyBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AnyBackend")
    }
}

impl AnyBackend {
    pub(crate) fn of<B: Backend>(backend: Arc<B>) -> Self {
        Self(backend)
    }
}

impl Backend for AnyBackend {
    fn execute(&self, commands: Vec<Command>) -> impl Future<Output = Result<Vec<Answer>, Fault>> + Send {
        self.0.execute(commands)
    }

    fn ready(&self) -> impl Future<Output = Result<(), Fault>> + Send {
        self.0.ready()
    }

    fn stopped(&self) -> Option<Fault> {
        self.0.stopped()
    }

    fn work(&self, tenants: Option<Arc<[TenantId]>>) -> impl Future<Output = ()> + Send {
        self.0.work(tenants)
    }

    async fn find<T: Send>(&self, find: impl FnOnce(&State) -> Option<T> + Send) -> Result<Option<T>, Fault> {
        let (mut find, mut found) = (Some(find), None);
        let mut look = |state: &State| {
            found = find.take().and_then(|find| find(state));
            found.is_some()
        };
        self.0.find(&mut look).await?;
        Ok(found)
    }

    fn stored(&self, keys: Vec<RowKey>) -> impl Future<Output = Result<Vec<Option<Row>>, Fault>> + Send {
        self.0.stored(keys)
    }

    async fn scan<T: Send + 'static>(
        &self,
        range: RowRange,
        seed: T,
        mut step: impl FnMut(&mut T, RowKey, Row) -> bool + Send + 'static,
    ) -> Result<T, Fault> {
        // The thread that reads rows has it meanwhile.
        let taken = Arc::new(Mutex::new(Some(seed)));
        let filled = Arc::clone(&taken);
        let step = move |key, row| {
            let mut taken = filled.lock().unwrap_or_else(PoisonError::into_inner);
            taken.as_mut().is_some_and(|taken| step(taken, key, row))
        };
        self.0.scan(range, Box::new(step)).await?;
        let taken = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(taken.expect("only this takes it"))
    }

    fn record(&self, key: RecordKey) -> impl Future<Output = Result<Option<Record>, Fault>> + Send {
        self.0.record(key)
    }

    fn notices(&self) -> StateNotices {
        self.0.notices()
    }

    fn events(&self, query: EventQuery) -> impl Future<Output = Result<EventPage, Fault>> + Send {
        self.0.events(query)
    }

    fn events_lag(&self) -> bool {
        self.0.events_lag()
    }

    fn latest(
        &self,
        tenant: TenantId,
        entity: Entity,
    ) -> impl Future<Output = Result<Option<Event>, Fault>> + Send {
        self.0.latest(tenant, entity)
    }

    fn newest(&self) -> u64 {
        self.0.newest()
    }

    fn follow(
        &self,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(u64, Event)>, Fault>> + Send {
        self.0.follow(after, limit)
    }

    fn committed(&self, after: u64) -> impl Future<Output = ()> + Send {
        self.0.committed(after)
    }

    fn put_blob(
        &self,
        tenant: TenantId,
        key: String,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        self.0.put_blob(tenant, key, bytes)
    }

    fn blob(
        &self,
        tenant: TenantId,
        key: String,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, Fault>> + Send {
        self.0.blob(tenant, key)
    }

    fn blob_size(
        &self,
        tenant: TenantId,
        key: String,
    ) -> impl Future<Output = Result<Option<u64>, Fault>> + Send {
        self.0.blob_size(tenant, key)
    }

    fn commits(&self) -> CommitMetrics {
        self.0.commits()
    }
}
