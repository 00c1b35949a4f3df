//! Tasks from the engine in this process.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::backend::Backend;
use tidemill_engine::command::{Spent, Surroundings};
use tidemill_engine::engine::{
    ClaimRequest, Engine, EngineError, FinishRequest, HeartbeatRequest, ParentFiles, WorkReport,
};
use tidemill_engine::reply::{Assignment, Ending, Refusal};
use tidemill_engine::warn_seldom;
use tidemill_model::{ErrorCategory, TenantId, WorkerId};
use tokio::time::Instant;

use crate::moment::Moment;
use crate::source::{AttemptEnd, Beat, Claim, Followed, Pulse, SourceError, TaskSource};

/// Who claims, and whose tasks.
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

/// If it cannot be noted that a task is given back, its lease runs out.
pub(crate) fn unreleased<T>(released: Result<T, EngineError>) {
    if let Err(error) = released {
        warn_seldom!(error, "a task could not be given back");
    }
}

impl<B: Backend> EngineSource<B> {
    pub fn new(engine: Engine<B>, config: EngineSourceConfig) -> Self {
        Self { engine, config: Arc::new(config) }
    }

    fn request(&self, slots: usize) -> ClaimRequest {
        ClaimRequest {
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
                for task in unwanted {
                    let worker = source.config.worker.clone();
                    unreleased(source.engine.release(task.task, task.fence, worker, None).await);
                }
            }
        });
        match receiver.await {
            Ok(claimed) => claimed.map_err(|error| source_error(&error)),
            Err(_) => Err(SourceError::Unavailable("the claim was not answered".to_owned())),
        }
    }

    /// What claimed tasks need to run. One that cannot be made ready is failed at once, or given back uncounted if the store
    /// cannot tell now; the last is then told too.
    async fn prepared(&self, tasks: Vec<Assignment>, asked_at: Moment) -> (Vec<Claim>, Option<EngineError>) {
        let mut claims = Vec::with_capacity(tasks.len());
        let mut unread = None;
        for task in tasks {
            match self.prepare(&task, asked_at).await {
                Ok(claim) => claims.push(claim),
                Err(error @ EngineError::Fault(_)) if error.is_transient() => {
                    let reason = Some(format!("what it needs cannot be read now: {error}"));
                    let worker = self.config.worker.clone();
                    unreleased(self.engine.release(task.task, task.fence, worker, reason).await);
                    unread = Some(error);
                }
                Err(error) => self.refuse(&task, &error).await,
            }
        }
        (claims, unread)
    }

    async fn prepare(&self, task: &Assignment, asked_at: Moment) -> Result<Claim, EngineError> {
        let execution = self.engine.execution_of(task).await?;
        let work = self.engine.work_of(task).await?;
        Ok(Claim {
            task: task.task.clone(),
            app: task.app.clone(),
            job: task.job,
            task_id: task.spec.task_id.clone(),
            name: task.spec.name.clone(),
            run: task.run,
            attempt: task.attempt,
            fence: task.fence,
            lease_until: task.lease_until,
            asked_at,
            timeout_ms: task.spec.options.timeout_ms,
            session_id: task.session_id.clone(),
            budget_left: task.budget_left,
            budget_name: task.budget_name.as_deref().map(ToOwned::to_owned),
            input: work.input,
            parents: work.dependency_artifacts,
            execution,
            surroundings: Surroundings::default(),
        })
    }

    async fn refuse(&self, task: &Assignment, error: &EngineError) {
        let category = match error {
            EngineError::Refused(Refusal::NotFound { .. }) => ErrorCategory::NotFound,
            error if error.is_transient() => ErrorCategory::ServerError,
            _ => ErrorCategory::Validation,
        };
        let report = WorkReport::failed(error.to_string(), category);
        let finish = FinishRequest::of(task, self.config.worker.clone(), report);
        // Without an answer the lease runs out and somebody tries again.
        if let Err(error) = self.engine.finish(finish).await {
            warn_seldom!(error, request = %task.task.request, "a failure could not be recorded");
        }
    }

    async fn end(
        &self,
        claim: &Claim,
        end: AttemptEnd,
        next: Option<ClaimRequest>,
    ) -> Result<Followed, SourceError> {
        let finish = FinishRequest {
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

    async fn release(&self, claim: &Claim, reason: Option<String>, spent: Spent) -> Result<(), SourceError> {
        let worker = self.config.worker.clone();
        let released =
            self.engine.release_spent(claim.task.clone(), claim.fence, worker, reason, spent).await;
        released.map_err(|error| source_error(&error))
    }
}

impl<B: Backend> TaskSource for EngineSource<B> {
    async fn claim(&self, slots: usize, wait: Duration) -> Result<Vec<Claim>, SourceError> {
        let until = Instant::now() + wait;
        loop {
            // Whoever has an outcome for a lease that ran out meanwhile is heard first.
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

    async fn begin(&self, claim: &Claim, pid: u32) -> Result<(), SourceError> {
        let worker = self.config.worker.clone();
        let begun = self.engine.begin(claim.task.clone(), claim.fence, worker, claim.beginning(pid)).await;
        begun.map_err(|error| source_error(&error))
    }

    async fn heartbeat(&self, claim: &Claim, pulse: Pulse) -> Result<Beat, SourceError> {
        let request = HeartbeatRequest {
            task: claim.task.clone(),
            fence: claim.fence,
            worker: self.config.worker.clone(),
            process_id: pulse.pid,
            rss: pulse.rss,
            last_activity: pulse.last_activity,
        };
        let renewed = self.engine.heartbeat(request).await;
        // A cancel in this process is heard by `revoked`; after it the lease is no longer ours.
        renewed.map(|lease_until| Beat { lease_until, cancel: false }).map_err(|error| source_error(&error))
    }

    async fn finish(&self, claim: &Claim, end: AttemptEnd) -> Result<Followed, SourceError> {
        self.end(claim, end, None).await
    }

    async fn finish_and_claim(&self, claim: &Claim, end: AttemptEnd) -> Result<Followed, SourceError> {
        let next = self.engine.claims_wait().is_zero().then(|| self.request(1));
        self.end(claim, end, next).await
    }

    async fn release(&self, claim: &Claim, reason: String, spent: Spent) -> Result<(), SourceError> {
        Self::release(self, claim, Some(reason), spent).await
    }

    async fn put_blob(&self, claim: &Claim, path: &str, bytes: Vec<u8>) -> Result<(), SourceError> {
        self.engine.put_task_file(&claim.task, path, bytes).await.map_err(|error| source_error(&error))
    }

    async fn artifact(
        &self,
        claim: &Claim,
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

    fn log(&self, claim: &Claim, bytes: &[u8]) {
        self.engine.live_logs().append(&claim.task, claim.run, claim.attempt, bytes);
    }

    fn log_end(&self, claim: &Claim) {
        self.engine.live_logs().end(&claim.task);
    }

    fn is_in_this_process(&self) -> bool {
        // A data directory has one process; a stage has many.
        self.config.generation.is_some()
    }

    fn revoked(&self, claim: &Claim) -> impl Future<Output = ()> + Send {
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
