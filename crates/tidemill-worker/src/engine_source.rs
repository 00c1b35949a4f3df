//! Tasks from the engine in this process.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::backend::Backend;
use tidemill_engine::command::Spent;
use tidemill_engine::engine::{AttemptReport, Claimant, Engine, EngineError, HeartbeatReport, ParentFiles};
use tidemill_engine::reply::{Assignment, Ending, Refusal};
use tidemill_engine::warn_seldom;
use tidemill_model::{TenantId, WorkerId};
use tokio::time::Instant;

use crate::moment::Moment;
use crate::source::{AttemptEnd, Beat, Followed, HeldTask, Pulse, SourceError, TaskSource};

/// The worker that claims, and for which tenants.
#[derive(Debug, Clone)]
pub struct EngineSourceConfig {
    pub worker: WorkerId,
    /// The life of the data directory it belongs to.
    pub generation: Option<u64>,
    /// The tenants it serves; `None` for all.
    pub tenants: Option<Arc<[TenantId]>>,
}

/// An engine in this process as a source of tasks.
#[derive(Debug)]
pub struct EngineSource<B> {
    engine: Engine<B>,
    config: Arc<EngineSourceConfig>,
}

impl<B> Clone for EngineSource<B> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), config: Arc::clone(&self.config) }
    }
}

impl<B: Backend> EngineSource<B> {
    pub fn new(engine: Engine<B>, config: EngineSourceConfig) -> Self {
        Self { engine, config: Arc::new(config) }
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.engine.policy().lease_millis)
    }

    fn request(&self, slots: usize) -> Claimant {
        Claimant {
            worker: self.config.worker.clone(),
            generation: self.config.generation,
            max: slots.clamp(1, self.engine.policy().claim_max),
            tenants: self.config.tenants.clone(),
            begin: None,
        }
    }

    /// Claims without waiting. What is claimed when nobody waits for the answer any more is given back.
    async fn claim_now(&self, slots: usize) -> Result<Vec<Assignment>, SourceError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (source, request) = (self.clone(), self.request(slots));
        tokio::spawn(async move {
            let claimed = source.engine.claim(request).await.map(|claimed| claimed.tasks);
            if let Err(Ok(unwanted)) = sender.send(claimed) {
                source.engine.give_back(&unwanted, &source.config.worker, None).await;
            }
        });
        match receiver.await {
            Ok(claimed) => claimed.map_err(|error| source_error(&error)),
            Err(_) => Err(SourceError::Unavailable("the claim was not answered".to_owned())),
        }
    }

    /// What claimed tasks need to run. One that cannot be made ready is failed at once, or given back uncounted if the store
    /// cannot tell now; the last is then told too.
    async fn prepared(
        &self,
        tasks: Vec<Assignment>,
        asked_at: Moment,
    ) -> (Vec<HeldTask>, Option<EngineError>) {
        let (engine, worker) = (&self.engine, &self.config.worker);
        let mut claims = Vec::with_capacity(tasks.len());
        let mut unread = None;
        for task in tasks {
            match engine.load_task(&task, worker).await.map_err(EngineError::from) {
                Ok(loaded) => {
                    claims.extend(loaded.map(|loaded| HeldTask::of(loaded, asked_at, self.lease())));
                }
                Err(error) if error.is_transient() => {
                    let reason = format!("what it needs cannot be read now: {error}");
                    engine.give_back(&[task], worker, Some(&reason)).await;
                    unread = Some(error);
                }
                Err(error) => engine.fail_unloaded(&task, worker, &error).await,
            }
        }
        (claims, unread)
    }

    async fn end(
        &self,
        claim: &HeldTask,
        end: AttemptEnd,
        next: Option<Claimant>,
    ) -> Result<Followed, SourceError> {
        let finish = AttemptReport {
            task: claim.task.clone(),
            fence: claim.fence,
            worker: self.config.worker.clone(),
            report: end.report,
        };
        let asked_at = Moment::now();
        let ended = self.engine.end_and_claim(end.began.map(|pid| claim.beginning(pid)), finish, next).await;
        let (finished, claimed) = ended.map_err(|error| source_error(&error))?;
        let (next, _) = self.prepared(claimed.tasks, asked_at).await;
        let next = next.into_iter().next();
        match (finished, next) {
            (Err(error), None) => Err(source_error(&error)),
            // What is wrong with an outcome is for its slot to mend first.
            (Err(error), Some(next)) if !matches!(error, EngineError::Refused(_)) => {
                if let Err(error) = self.release(&next, None, Spent::default()).await {
                    warn_seldom!(error, request = %next.task.request, "a task could not be given back");
                }
                Err(source_error(&error))
            }
            // A lost lease keeps nobody from the next task.
            (Err(_), next) => Ok(Followed { is_over: false, next }),
            (Ok(finished), next) => {
                Ok(Followed { is_over: !matches!(finished.ending, Ending::Retrying { .. }), next })
            }
        }
    }

    async fn release(
        &self,
        claim: &HeldTask,
        reason: Option<String>,
        spent: Spent,
    ) -> Result<(), SourceError> {
        let worker = self.config.worker.clone();
        let released =
            self.engine.release_spent(claim.task.clone(), claim.fence, worker, reason, spent).await;
        released.map_err(|error| source_error(&error))
    }
}

impl<B: Backend> TaskSource for EngineSource<B> {
    async fn claim(&self, slots: usize, wait: Duration) -> Result<Vec<HeldTask>, SourceError> {
        let until = Instant::now() + wait;
        loop {
            // Workers with an outcome for a lease that ran out meanwhile come first.
            let wait = self.engine.claims_wait();
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let asked_at = Moment::now();
            let tasks = self.claim_now(slots).await?;
            if !tasks.is_empty() {
                let (claims, unread) = self.prepared(tasks, asked_at).await;
                if !claims.is_empty() {
                    return Ok(claims);
                }
                if let Some(error) = unread {
                    return Err(source_error(&error));
                }
                continue;
            }
            let arrived = self.engine.work_arrived(self.config.tenants.clone());
            if tokio::time::timeout_at(until, arrived).await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    async fn begin(&self, claim: &HeldTask, pid: u32) -> Result<(), SourceError> {
        let worker = self.config.worker.clone();
        let begun = self.engine.begin(claim.task.clone(), claim.fence, worker, claim.beginning(pid)).await;
        begun.map_err(|error| source_error(&error))
    }

    async fn heartbeat(&self, claim: &HeldTask, pulse: Pulse) -> Result<Beat, SourceError> {
        let request = HeartbeatReport {
            task: claim.task.clone(),
            fence: claim.fence,
            worker: self.config.worker.clone(),
            process_id: pulse.pid,
            rss: pulse.rss,
            last_activity: pulse.last_activity,
        };
        let renewed = self.engine.heartbeat(request).await;
        // `revoked` reports a cancel in this process; after it the lease is no longer ours.
        renewed
            .map(|lease_until| Beat { lease_until, lease: self.lease(), cancel: false })
            .map_err(|error| source_error(&error))
    }

    async fn finish(&self, claim: &HeldTask, end: AttemptEnd) -> Result<Followed, SourceError> {
        self.end(claim, end, None).await
    }

    async fn finish_and_claim(&self, claim: &HeldTask, end: AttemptEnd) -> Result<Followed, SourceError> {
        let next = self.engine.claims_wait().is_zero().then(|| self.request(1));
        self.end(claim, end, next).await
    }

    async fn release(&self, claim: &HeldTask, reason: String, spent: Spent) -> Result<(), SourceError> {
        Self::release(self, claim, Some(reason), spent).await
    }

    async fn put_blob(&self, claim: &HeldTask, path: &str, bytes: Vec<u8>) -> Result<(), SourceError> {
        self.engine.put_task_file(&claim.task, path, bytes).await.map_err(|error| source_error(&error))
    }

    async fn artifact(
        &self,
        claim: &HeldTask,
        parent: &ParentFiles,
        path: &str,
    ) -> Result<Vec<u8>, SourceError> {
        let found = self.engine.parent_file(&claim.task.tenant, parent, path).await;
        found.map_err(|error| match error {
            // It was there when it was named. It does not come back.
            EngineError::BlobMissing { .. } => SourceError::Refused(error.to_string()),
            error => source_error(&error),
        })
    }

    fn log(&self, claim: &HeldTask, bytes: &[u8]) {
        self.engine.live_logs().append(&claim.task, claim.run, claim.attempt, bytes);
    }

    fn log_end(&self, claim: &HeldTask) {
        self.engine.live_logs().end(&claim.task);
    }

    fn is_in_this_process(&self) -> bool {
        // A data directory has one process; a stage has many.
        self.config.generation.is_some()
    }

    fn revoked(&self, claim: &HeldTask) -> impl Future<Output = ()> + Send {
        self.engine.revoked(&claim.task, claim.fence)
    }
}

fn source_error(error: &EngineError) -> SourceError {
    match error {
        EngineError::Refused(
            Refusal::LeaseLost { .. } | Refusal::OutcomeDiffers { .. } | Refusal::NotFound { .. },
        ) => SourceError::Lost,
        EngineError::Fault(_) => SourceError::Unavailable(error.to_string()),
        error if error.is_transient() => SourceError::Unavailable(error.to_string()),
        error => SourceError::Refused(error.to_string()),
    }
}
