//! A worker that runs handlers in this process, so many at a time.

use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::backend::Backend;
use tidemill_engine::engine::Engine;
use tidemill_model::{TenantId, WorkerId};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::handler::Handlers;
use crate::slot::Slot;

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    pub worker: WorkerId,
    /// The life of the data directory it belongs to; `None` for a worker on another machine.
    pub generation: Option<u64>,
    /// How many tasks run at a time.
    pub slots: usize,
    /// The tenants it serves; `None` for all.
    pub tenants: Option<Arc<[TenantId]>>,
    /// How often a lease is renewed. It must be well below the lease's length.
    pub heartbeat: Duration,
    /// Wall time for one attempt of a task that does not say its own.
    pub timeout: Duration,
    /// How long a store that is full or busy is tried again before an outcome is given up to the next worker.
    pub persistence: Duration,
}

impl WorkerConfig {
    pub fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            generation: None,
            slots: 3,
            tenants: None,
            heartbeat: Duration::from_secs(20),
            timeout: Duration::from_secs(200),
            persistence: Duration::from_secs(40),
        }
    }
}

/// Runs handlers for the tasks of an engine.
#[derive(Debug)]
pub struct NativeWorker<B> {
    engine: Engine<B>,
    handlers: Handlers,
    config: WorkerConfig,
}

impl<B: Backend> NativeWorker<B> {
    pub fn new(engine: Engine<B>, handlers: Handlers, config: WorkerConfig) -> Self {
        Self { engine, handlers, config }
    }

    /// Starts the slots on the current runtime.
    pub fn start(self) -> WorkerHandle {
        let (stop, stopping) = watch::channel(Pace::Work);
        let shared = Arc::new(self);
        let slots = (0..shared.config.slots)
            .map(|_| tokio::spawn(Slot::new(Arc::clone(&shared), stopping.clone()).run()))
            .collect();
        WorkerHandle { stop, slots }
    }

    pub(crate) fn engine(&self) -> &Engine<B> {
        &self.engine
    }

    pub(crate) fn handlers(&self) -> &Handlers {
        &self.handlers
    }

    pub(crate) fn config(&self) -> &WorkerConfig {
        &self.config
    }
}

/// A running worker. Dropping it ends its tasks where they are; their leases run out.
#[derive(Debug)]
pub struct WorkerHandle {
    stop: watch::Sender<Pace>,
    slots: Vec<JoinHandle<()>>,
}

impl WorkerHandle {
    /// Claims nothing more, lets running tasks end for at most `grace`, and gives back the rest.
    pub async fn shut_down(mut self, grace: Duration) {
        // Slots that are gone already need no word.
        let _ = self.stop.send(Pace::Finish);
        if tokio::time::timeout(grace, self.ended()).await.is_err() {
            let _ = self.stop.send(Pace::GiveBack);
            if tokio::time::timeout(GIVE_BACK, self.ended()).await.is_err() {
                self.slots.iter().for_each(JoinHandle::abort);
            }
        }
    }

    async fn ended(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_finished()) {
            // A slot that panicked has said so already.
            let _ = slot.await;
        }
    }
}

/// How long a store may take to note that tasks were given back.
const GIVE_BACK: Duration = Duration::from_secs(5);

/// What the slots of a worker are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    Work,
    /// End what runs and take nothing more.
    Finish,
    /// Give back what runs.
    GiveBack,
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.slots.iter().for_each(JoinHandle::abort);
    }
}
