//! The in-memory backend: the engine's state and a list of events. For tests, and as the plainest reading of the port.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tidemill_model::events::event_query::{EventPage, EventQuery};
use tidemill_model::{Entity, Event, TenantId};

use crate::kernel::backend::{Answer, Backend, Fault};
use crate::kernel::clock::Clock;
use crate::kernel::command::Command;
use crate::kernel::decision::{Circumstances, decide};
use crate::kernel::id_source::IdSource;
use crate::kernel::notice::Notice;
use crate::kernel::policy::Policy;
use crate::kernel::site::Site;
use crate::kernel::state::row::{Row, RowKey, RowRange};
use crate::kernel::state::trail::Seq;
use crate::kernel::state::{State, StateNotices};

/// A backend that forgets everything when it is dropped.
#[derive(Debug)]
pub struct MemoryBackend<C> {
    clock: C,
    inner: Mutex<Inner>,
    /// Rung when there are new events.
    grown: Notice,
}

#[derive(Debug)]
struct Inner {
    state: State,
    events: Vec<Event>,
    blobs: BTreeMap<(TenantId, String), Vec<u8>>,
    ids: IdSource,
    policy: Policy,
    site: Site,
    /// Grows whenever a message may have become deliverable.
    arrivals: u64,
    waiting: Vec<Waker>,
    grown: Notice,
}

impl<C: Clock> MemoryBackend<C> {
    pub fn new(clock: C, policy: Policy, seed: u64) -> Self {
        #[cfg_attr(not(feature = "faults"), expect(unused_mut, reason = "only faults change it here"))]
        let mut state = State::default();
        #[cfg(feature = "faults")]
        {
            state.faults = policy.faults;
        }
        let grown = Notice::default();
        let inner = Inner {
            state,
            events: Vec::new(),
            blobs: BTreeMap::new(),
            ids: IdSource::new(seed),
            policy,
            site: Site::default(),
            arrivals: 0,
            waiting: Vec::new(),
            grown: grown.clone(),
        };
        Self { clock, inner: Mutex::new(inner), grown }
    }

    /// Wakes waiting workers: time has moved on and a hidden message may be due.
    pub fn time_passed(&self) {
        self.lock().arrived();
    }

    /// What `execute` does, for callers that do not wait.
    pub fn execute_now(&self, commands: &[Command]) -> Result<Vec<Answer>, Fault> {
        let now = self.clock.now();
        let mut inner = self.lock();
        Ok(commands.iter().map(|command| inner.execute(command, now)).collect())
    }

    /// Looks at the state.
    pub fn with_state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock().state)
    }

    /// All events in the order they were written.
    pub fn all_events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// The events after the first `count`, in the order they were written.
    pub fn events_since(&self, count: usize) -> Vec<Event> {
        self.lock().events.get(count..).unwrap_or_default().to_vec()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn execute(&mut self, command: &Command, now: tidemill_model::Timestamp) -> Answer {
        self.state.show_due_messages(now);
        let mut circumstances =
            Circumstances { now, ids: &mut self.ids, policy: &self.policy, site: &self.site };
        let (commit, reply) = decide(&self.state, command, &mut circumstances)?;
        let first = Seq(self.events.len() as u64 + 1);
        self.state.apply(&commit, first);
        if !commit.enqueue.is_empty() || !commit.visibility.is_empty() {
            self.arrived();
        }
        if !commit.events.is_empty() {
            self.events.extend(commit.events);
            self.grown.ring();
        }
        Ok(reply)
    }

    fn arrived(&mut self) {
        self.arrivals += 1;
        self.waiting.drain(..).for_each(Waker::wake);
    }
}

impl<C: Clock> Backend for MemoryBackend<C> {
    async fn execute(&self, commands: Vec<Command>) -> Result<Vec<Answer>, Fault> {
        self.execute_now(&commands)
    }

    async fn work(&self, _tenants: Option<Arc<[TenantId]>>) {
        let seen = self.lock().arrivals;
        Arrival { inner: &self.inner, seen }.await;
    }

    async fn find<T: Send>(&self, find: impl FnOnce(&State) -> Option<T> + Send) -> Result<Option<T>, Fault> {
        Ok(find(&self.lock().state))
    }

    /// Everything is in memory.
    async fn stored(&self, keys: Vec<RowKey>) -> Result<Vec<Option<Row>>, Fault> {
        Ok(vec![None; keys.len()])
    }

    async fn scan<T: Send + 'static>(
        &self,
        _range: RowRange,
        seed: T,
        _step: impl FnMut(&mut T, RowKey, Row) -> bool + Send + 'static,
    ) -> Result<T, Fault> {
        Ok(seed)
    }

    fn notices(&self) -> StateNotices {
        self.lock().state.notices()
    }

    async fn events(&self, query: EventQuery) -> Result<EventPage, Fault> {
        query.check()?;
        let now = self.clock.now();
        Ok(query.select(self.lock().events.iter().filter(|event| !event.is_outlived(now))))
    }

    async fn latest(&self, tenant: TenantId, entity: Entity) -> Result<Option<Event>, Fault> {
        let now = self.clock.now();
        let inner = self.lock();
        let own = inner.events.iter().filter(|event| event.tenant == tenant && event.entity == entity);
        let own = own.filter(|event| !event.is_outlived(now));
        Ok(own.max_by_key(|event| event.position()).cloned())
    }

    fn newest(&self) -> u64 {
        self.lock().events.len() as u64
    }

    async fn follow(&self, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, Fault> {
        let now = self.clock.now();
        let inner = self.lock();
        let later = usize::try_from(after).unwrap_or(usize::MAX);
        let events = (1u64..).zip(&inner.events).skip(later).filter(|(_, event)| !event.is_outlived(now));
        Ok(events.take(limit).map(|(number, event)| (number, event.clone())).collect())
    }

    async fn committed(&self, after: u64) {
        loop {
            let grown = self.grown.listen();
            if self.newest() > after {
                return;
            }
            grown.await;
        }
    }

    async fn put_blob(&self, tenant: TenantId, key: String, bytes: Vec<u8>) -> Result<(), Fault> {
        self.lock().blobs.insert((tenant, key), bytes);
        Ok(())
    }

    async fn blob(&self, tenant: TenantId, key: String) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.lock().blobs.get(&(tenant, key)).cloned())
    }
}

/// Resolves when something arrived after `seen`.
struct Arrival<'a> {
    inner: &'a Mutex<Inner>,
    seen: u64,
}

impl Future for Arrival<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.arrivals != self.seen || inner.state.queue().ready() > 0 {
            return Poll::Ready(());
        }
        inner.waiting.push(context.waker().clone());
        Poll::Pending
    }
}
