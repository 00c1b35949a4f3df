//! A host: one data directory, its engine, workers and timers, all in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidemill_embedded::{Embedded, OpenError, StoreOptions};
use tidemill_engine::clock::SystemClock;
use tidemill_engine::engine::{EngineConfig, EngineError, JobRequest};
use tidemill_engine::reads::Reads as _;
use tidemill_engine::triage::{TriageKeeper, TriageTimer};
use tidemill_engine::warn_seldom;
use tidemill_model::{
    AppName, BadId, JobId, JobStatus, Json, TaskId, TaskName, TaskOptions, TaskSpec, TenantId, WorkerId,
};
use tidemill_worker::{Handlers, NativeWorker, WorkerConfig, WorkerHandle};
use tokio::task::JoinHandle;

use crate::EmbeddedEngine;

/// How a host is set up. The defaults work.
#[derive(Debug, Clone)]
pub struct HostOptions {
    pub tenant: TenantId,
    pub app: AppName,
    /// How many tasks run at a time.
    pub slots: usize,
    pub store: StoreOptions,
    /// How often the host looks for what stands still.
    pub sweep_every: Duration,
    /// How long running tasks may go on when the host shuts down.
    pub grace: Duration,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            tenant: TenantId::trusted("default"),
            app: AppName::trusted("task-workflow"),
            slots: 3,
            store: StoreOptions::default(),
            sweep_every: Duration::from_secs(60),
            grace: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Id(#[from] BadId),
    #[error("job {0} does not exist")]
    NoSuchJob(JobId),
}

/// An engine with its workers in this process.
#[derive(Debug)]
pub struct Host {
    engine: EmbeddedEngine,
    options: HostOptions,
    worker: Option<WorkerHandle>,
    sweeper: JoinHandle<()>,
    /// Carries out bulks, and gives up what was parked too long.
    triage: JoinHandle<()>,
}

impl Host {
    /// Opens a data directory, takes back what a former life held, and starts to work. Needs a tokio runtime.
    pub async fn open(dir: &Path, handlers: Handlers, mut options: HostOptions) -> Result<Self, HostError> {
        let clock = Arc::new(SystemClock::start());
        if options.store.seed == 0 {
            options.store.seed = random_seed();
        }
        let config = EngineConfig { policy: options.store.policy.clone(), ..EngineConfig::default() };
        let backend = Embedded::open(dir, options.store.clone(), Arc::clone(&clock) as _)?;
        let generation = backend.generation();
        let engine = EmbeddedEngine::new(backend, clock, random_seed(), config);
        engine.recover(generation).await?;
        engine.sweep().await?;
        let worker = WorkerConfig {
            generation: Some(generation),
            slots: options.slots,
            ..WorkerConfig::new(WorkerId::new(format!("native-{}", std::process::id()))?)
        };
        let worker = NativeWorker::new(engine.clone(), handlers, worker).start();
        let sweeper = tokio::spawn(sweep(engine.clone(), options.sweep_every));
        let keeper = TriageKeeper::new(engine.clone(), TokioTimer);
        let triage = tokio::spawn(async move { keeper.run().await });
        Ok(Self { engine, options, worker: Some(worker), sweeper, triage })
    }

    pub fn engine(&self) -> &EmbeddedEngine {
        &self.engine
    }

    /// Submits a job under the host's tenant and app.
    pub async fn submit(&self, name: &str, tasks: Vec<TaskSpec>) -> Result<JobId, HostError> {
        let request = JobRequest {
            tenant: self.options.tenant.clone(),
            app: self.options.app.clone(),
            request: None,
            name: Some(name.to_owned()),
            budget: None,
            callback: None,
            tasks,
            idempotency: None,
        };
        Ok(self.engine.submit_job(request).await?.job)
    }

    /// Waits until nothing more happens in a job by itself: it is completed, failed or cancelled, or all that is left of it
    /// is parked. Then it is [`JobStatus::Failing`], and [`EmbeddedEngine::unpark`] lets its tasks go on.
    pub async fn wait(&self, job: JobId) -> Result<JobStatus, HostError> {
        let backend = self.engine.backend();
        loop {
            let rest = backend.watch_rest(job);
            let found = backend.job(self.options.tenant.clone(), job).await.map_err(EngineError::from)?;
            let Some(snapshot) = found else { return Err(HostError::NoSuchJob(job)) };
            if snapshot.head.has_stopped() {
                return Ok(snapshot.status);
            }
            rest.await.map_err(EngineError::from)?;
        }
    }

    /// Claims nothing more, lets running tasks end, and closes the data directory.
    pub async fn shut_down(mut self) {
        self.sweeper.abort();
        self.triage.abort();
        if let Some(worker) = self.worker.take() {
            worker.shut_down(self.options.grace).await;
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.sweeper.abort();
        self.triage.abort();
    }
}

/// Lets time pass as the runtime does.
struct TokioTimer;

impl TriageTimer for TokioTimer {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

async fn sweep(engine: EmbeddedEngine, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        // A store that cannot answer now is asked again the next time.
        if let Err(error) = engine.sweep().await {
            warn_seldom!(error, "the sweep for what stands still failed");
        }
    }
}

/// A task of a job: its id, the name of its handler, and what it waits for.
pub fn task(id: &str, name: &str, depends_on: &[&str]) -> Result<TaskSpec, BadId> {
    Ok(TaskSpec {
        task_id: TaskId::new(id)?,
        name: TaskName::new(name)?,
        depends_on: depends_on.iter().map(TaskId::new).collect::<Result<_, _>>()?,
        input: Json::empty_object(),
        options: TaskOptions::default(),
    })
}

/// Bits that differ from process to process.
pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds its hash maps from the system's randomness.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}
