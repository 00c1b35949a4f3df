//! A worker that runs handlers in this process, one in each slot.

use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::backend::Backend;
use tidemill_engine::engine::Engine;
use tidemill_model::{TenantId, WorkerId};
use tokio::sync::watch;

use crate::command_worker::PERSISTENCE;
use crate::handler::Handlers;
use crate::lease_keeper::LeaseKeeper;
use crate::pace::{Pace, WorkerHandle};
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
    /// How long an outcome is offered to a store that cannot take it, before it is given up and the task runs again. Half a
    /// minute at most once the worker stops.
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
            persistence: PERSISTENCE,
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
        let config = &shared.config;
        // It ends with the last slot.
        let leases =
            Arc::new(LeaseKeeper::start(shared.engine.clone(), config.worker.clone(), config.heartbeat));
        let slots = (0..config.slots)
            .map(|_| Slot::new(Arc::clone(&shared), Arc::clone(&leases), stopping.clone()))
            .map(|slot| tokio::spawn(slot.run()))
            .collect();
        WorkerHandle::new(stop, slots, GIVE_BACK)
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

/// How long a store may take to note that tasks were given back.
const GIVE_BACK: Duration = Duration::from_secs(5);
