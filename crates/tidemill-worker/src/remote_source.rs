//! Where a worker on another machine gets its tasks: a server over HTTP.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_api::client::{Call, ClientError, HttpClient, Query};
use tidemill_api::{self as api, encode};
use tidemill_engine::command::{Spent, Surroundings};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::{ParentFiles, WorkReport};
use tidemill_engine::warn_seldom;
use tidemill_model::{
    AppName, ArtifactFile, Fence, JobId, Json, RequestId, TaskId, TaskName, TenantId, Timestamp,
};

use crate::moment::Moment;
use crate::source::{AttemptEnd, Beat, Followed, HeldTask, Pulse, SourceError, TaskSource};

/// What one call may ask for at most.
const SLOTS_MAX: usize = 64;
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long an answer may take, beyond what the server was asked to wait.
const CLAIM_PATIENCE: Duration = Duration::from_secs(10);
const CALL_PATIENCE: Duration = Duration::from_secs(30);
const BLOB_PATIENCE: Duration = Duration::from_secs(60);
/// How much of a task's output waits for the next heartbeat. The newest counts.
const LOG_BYTES_MAX: usize = 128 * 1024;

/// A server, spoken to as one worker.
#[derive(Clone)]
pub struct RemoteSource {
    inner: Arc<Inner>,
}

struct Inner {
    client: HttpClient,
    worker_id: String,
    /// The tasks that run here at a time.
    slots: usize,
    /// Names claims; a worker's id is never used by another process.
    claims: AtomicU64,
    /// The name of a claim whose answer was lost. Asking again under it gives what it took.
    lost_claim: Mutex<Option<String>>,
    /// Output that no heartbeat has carried yet.
    logs: Mutex<HashMap<(TaskKey, Fence), Vec<u8>>>,
}

impl RemoteSource {
    pub fn new(client: HttpClient, worker_id: String, slots: usize) -> Self {
        let inner = Inner {
            client,
            worker_id,
            slots,
            claims: AtomicU64::new(0),
            lost_claim: Mutex::default(),
            logs: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    async fn call<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        patience: Duration,
    ) -> Result<T, SourceError> {
        self.answer(Call::post(path, body), patience).await
    }

    /// The whole answer to a call, if it comes in time. A server that stands still holds up nobody for ever.
    async fn answer<T: serde::de::DeserializeOwned>(
        &self,
        call: Call,
        patience: Duration,
    ) -> Result<T, SourceError> {
        match tokio::time::timeout(patience, self.inner.client.json(call)).await {
            Ok(answer) => answer.map_err(refusal),
            Err(_) => Err(late(patience)),
        }
    }

    fn logs(&self) -> std::sync::MutexGuard<'_, HashMap<(TaskKey, Fence), Vec<u8>>> {
        self.inner.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost_claim(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.inner.lost_claim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worker_id(&self) -> String {
        self.inner.worker_id.clone()
    }
}

fn late(patience: Duration) -> SourceError {
    SourceError::Unavailable(format!("no answer came in {} s", patience.as_secs()))
}

fn key_of(claim: &HeldTask) -> (TaskKey, Fence) {
    (claim.task.clone(), claim.fence)
}

fn tenant_of(claim: &HeldTask) -> String {
    claim.task.tenant.to_string()
}

/// What an error means for the holder of a task.
fn refusal(error: ClientError) -> SourceError {
    match error {
        ClientError::Problem(problem) => match (problem.status, problem.code.as_ref()) {
            // What it asked for is with others, or its report does not count: there is nothing left to do for it.
            (_, "LEASE_LOST" | "OUTCOME_DIFFERS" | "CLAIM_USED") | (404, _) => SourceError::Lost,
            // A key may be given its rights back, and a store that was imported opens when it has a key: until then what this
            // worker knows is kept.
            (401 | 403 | 408 | 425 | 429 | 500.., _) => SourceError::Unavailable(problem.detail),
            (_, code) => SourceError::Refused(format!("{} ({code})", problem.detail)),
        },
        error @ (ClientError::Unreachable { .. } | ClientError::Strange(_)) => {
            SourceError::Unavailable(error.to_string())
        }
    }
}

impl TaskSource for RemoteSource {
    async fn claim(&self, slots: usize, wait: Duration) -> Result<Vec<HeldTask>, SourceError> {
        let wait = wait.min(WAIT_MAX);
        let lost = self.lost_claim().take();
        let claim_id = lost.unwrap_or_else(|| {
            let number = self.inner.claims.fetch_add(1, Ordering::Relaxed);
            format!("{}-{number}", self.inner.worker_id)
        });
        let request = api::ClaimRequest {
            worker_id: self.inner.worker_id.clone(),
            claim_id: Some(claim_id.clone()),
            slots: Some(u32::try_from(slots.clamp(1, SLOTS_MAX)).expect("it was bounded")),
            wait_ms: Some(u64::try_from(wait.as_millis()).expect("it was bounded")),
        };
        let (patience, sent_at) = (wait + CLAIM_PATIENCE, Moment::now());
        let call = Call::post("/v1/worker/claim", &request)
            .header("Tidemill-Worker-Slots", self.inner.slots.max(1).to_string());
        let answer: Result<api::ClaimedTasks, _> = self.answer(call, patience).await;
        match answer {
            Ok(claimed) => {
                // The server got the request later than it was sent, and claimed the tasks this long after that.
                let after = Duration::from_millis(claimed.claimed_after_ms.unsigned_abs());
                let asked_at = match claimed.claimed_after_ms {
                    0.. => sent_at.plus(after.min(sent_at.elapsed())),
                    _ => sent_at.minus(after),
                };
                let lease = Duration::from_millis(claimed.lease_ms);
                claimed.tasks.into_iter().map(|task| claim_of(task, asked_at, lease)).collect()
            }
            // A claim whose answer was lost was asked for again too late. The next one has another name.
            Err(SourceError::Lost) => Ok(Vec::new()),
            Err(error) => {
                if matches!(error, SourceError::Unavailable(_)) {
                    *self.lost_claim() = Some(claim_id);
                }
                Err(error)
            }
        }
    }

    async fn begin(&self, claim: &HeldTask, pid: u32) -> Result<(), SourceError> {
        let request = api::BeginRequest {
            tenant_id: Some(tenant_of(claim)),
            request_id: claim.task.request.to_string(),
            fence: claim.fence.0,
            worker_id: Some(self.worker_id()),
            pid,
            directory: claim.surroundings.directory.clone(),
            variables: claim.surroundings.variables.clone(),
        };
        self.call::<api::Done>("/v1/worker/begin", &request, CALL_PATIENCE).await.map(drop)
    }

    async fn heartbeat(&self, claim: &HeldTask, pulse: Pulse) -> Result<Beat, SourceError> {
        let log =
            self.logs().remove(&key_of(claim)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let request = api::HeartbeatRequest {
            tenant_id: Some(tenant_of(claim)),
            request_id: claim.task.request.to_string(),
            fence: claim.fence.0,
            worker_id: Some(self.worker_id()),
            pid: Some(pulse.pid),
            rss: Some(pulse.rss),
            last_activity: pulse.last_activity,
            log,
        };
        let answer: api::HeartbeatAnswer = self.call("/v1/worker/heartbeat", &request, CALL_PATIENCE).await?;
        let lease_until = answer.lease_until.map_or(claim.lease_until, Timestamp::clamped);
        // A server that does not say it grants what it granted with the claim.
        let lease = answer.lease_ms.map_or(claim.lease, Duration::from_millis);
        Ok(Beat { lease_until, lease, cancel: answer.cancel })
    }

    async fn finish(&self, claim: &HeldTask, end: AttemptEnd) -> Result<Followed, SourceError> {
        self.logs().remove(&key_of(claim));
        let request = api::FinishRequest {
            tenant_id: Some(tenant_of(claim)),
            request_id: claim.task.request.to_string(),
            fence: claim.fence.0,
            worker_id: Some(self.worker_id()),
            // In the same step, so that a report that is repeated says it once.
            pid: end.began,
            directory: claim.surroundings.directory.clone().filter(|_| end.began.is_some()),
            variables: end.began.map_or_else(Vec::new, |_| claim.surroundings.variables.clone()),
            outcome: outcome_of(end.report),
        };
        let finished: api::Finished = self.call("/v1/worker/finish", &request, CALL_PATIENCE).await?;
        Ok(Followed { is_over: finished.state != api::FinishedState::Retrying, next: None })
    }

    async fn finish_and_claim(&self, claim: &HeldTask, end: AttemptEnd) -> Result<Followed, SourceError> {
        let finished = self.finish(claim, end).await?;
        // An error is about the finish only: what cannot be claimed now is claimed by the next call.
        let claimed = self.claim(1, Duration::ZERO).await;
        let next = claimed.unwrap_or_else(|error| {
            warn_seldom!(error, "no task could be claimed; it is tried again");
            Vec::new()
        });
        let next = next.into_iter().next();
        Ok(Followed { next, ..finished })
    }

    async fn release(&self, claim: &HeldTask, reason: String, spent: Spent) -> Result<(), SourceError> {
        self.logs().remove(&key_of(claim));
        let request = api::ReleaseRequest {
            tenant_id: Some(tenant_of(claim)),
            request_id: claim.task.request.to_string(),
            fence: claim.fence.0,
            worker_id: Some(self.worker_id()),
            reason: Some(reason),
            usage: spent.usage.map(Into::into),
            session_id: spent.session_id,
        };
        self.call::<api::Done>("/v1/worker/release", &request, CALL_PATIENCE).await.map(drop)
    }

    async fn put_blob(&self, claim: &HeldTask, path: &str, bytes: Vec<u8>) -> Result<(), SourceError> {
        // The server knows run and attempt by the fence.
        let own = format!("r{}-a{}/", claim.run, claim.attempt);
        let path = path.strip_prefix(&own).unwrap_or(path);
        let path = path.split('/').map(encode).collect::<Vec<_>>().join("/");
        let path = format!("/v1/worker/blobs/{}/{}/{path}", claim.task.request, claim.fence.0);
        let mut call = Call::put(Query::new().set("tenantId", &claim.task.tenant).on(&path));
        call.body = Some(bytes.into());
        call.content_type = "application/octet-stream";
        self.answer::<api::BlobStored>(call, BLOB_PATIENCE).await.map(drop)
    }

    async fn artifact(
        &self,
        claim: &HeldTask,
        parent: &ParentFiles,
        path: &str,
    ) -> Result<Vec<u8>, SourceError> {
        let path = path.split('/').map(encode).collect::<Vec<_>>().join("/");
        let (request, fence) = (&claim.task.request, claim.fence.0);
        let path = format!("/v1/worker/inputs/{request}/{fence}/{}/{path}", parent.task);
        let call = Call::get(Query::new().set("tenantId", &claim.task.tenant).on(&path));
        match tokio::time::timeout(BLOB_PATIENCE, self.inner.client.bytes(call)).await {
            Ok(answer) => answer.map(Vec::from).map_err(refusal),
            Err(_) => Err(late(BLOB_PATIENCE)),
        }
    }

    fn log(&self, claim: &HeldTask, bytes: &[u8]) {
        let mut logs = self.logs();
        let waiting = logs.entry(key_of(claim)).or_default();
        waiting.extend_from_slice(bytes);
        if waiting.len() > LOG_BYTES_MAX {
            waiting.drain(..waiting.len() - LOG_BYTES_MAX);
        }
    }

    fn log_end(&self, claim: &HeldTask) {
        self.logs().remove(&key_of(claim));
    }

    async fn revoked(&self, _claim: &HeldTask) {
        // Only heartbeats tell.
        std::future::pending::<()>().await;
    }
}

fn claim_of(task: api::ClaimedTask, asked_at: Moment, lease: Duration) -> Result<HeldTask, SourceError> {
    let strange =
        |what: &dyn std::fmt::Display| SourceError::Unavailable(format!("a claimed task is strange: {what}"));
    let job = task.job_id.map(JobId::new).transpose().map_err(|error| strange(&error))?;
    Ok(HeldTask {
        task: TaskKey {
            tenant: TenantId::new(&task.tenant_id).map_err(|error| strange(&error))?,
            request: RequestId::new(&task.request_id).map_err(|error| strange(&error))?,
        },
        app: AppName::new(&task.app).map_err(|error| strange(&error))?,
        job,
        task_id: TaskId::new(&task.task_id).map_err(|error| strange(&error))?,
        name: TaskName::new(&task.name).map_err(|error| strange(&error))?,
        run: task.run,
        attempt: task.attempt,
        fence: Fence(task.fence),
        lease_until: Timestamp::clamped(task.lease_until),
        lease,
        asked_at,
        timeout_ms: task.timeout_ms,
        session_id: task.session_id,
        budget_left: task.budget_left_usd.map(|left| left.0),
        budget_name: task.budget_name,
        parents: parents_of(&task.input, task.dependency_attempts).map_err(|error| strange(&error))?,
        input: task.input,
        execution: task.execution,
        surroundings: Surroundings::default(),
    })
}

/// What the input of a task names of the files of its parents.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    #[serde(default)]
    dependency_artifacts: HashMap<String, Vec<ArtifactFile>>,
}

fn parents_of(
    input: &Json,
    attempts: Vec<api::DependencyAttempt>,
) -> Result<Vec<ParentFiles>, Box<dyn std::error::Error>> {
    if attempts.is_empty() {
        return Ok(Vec::new());
    }
    let mut named: Named = input.read()?;
    let files = |parent: api::DependencyAttempt| {
        let artifacts = named.dependency_artifacts.remove(&parent.task_id).unwrap_or_default();
        Ok(ParentFiles {
            task: TaskId::new(&parent.task_id)?,
            request: RequestId::new(&parent.request_id)?,
            run: parent.run,
            attempt: parent.attempt,
            fence: Fence(parent.fence),
            artifacts,
        })
    };
    attempts.into_iter().map(files).collect()
}

fn outcome_of(report: WorkReport) -> api::OutcomeReport {
    let Spent { usage, session_id } = report.spent();
    let mut outcome = api::OutcomeReport {
        status: api::OutcomeStatus::Completed,
        output: None,
        duration_ms: None,
        exit_code: None,
        artifacts: Vec::new(),
        usage: usage.map(Into::into),
        session_id,
        error: None,
        error_category: None,
        error_code: None,
        retry_after_ms: None,
        timeout_ms: None,
        elapsed_ms: None,
        signal: None,
    };
    match report {
        WorkReport::Completed { output, duration_millis, exit_code, artifacts, .. } => {
            outcome.artifacts = artifacts;
            outcome.output = output;
            outcome.duration_ms = Some(duration_millis);
            outcome.exit_code = Some(exit_code);
        }
        WorkReport::Failed { error, category, retry_after_millis, code, .. } => {
            outcome.status = api::OutcomeStatus::Failed;
            outcome.error = Some(error);
            outcome.error_category = Some(category);
            outcome.retry_after_ms = retry_after_millis;
            outcome.error_code = code;
        }
        WorkReport::TimedOut { timeout_millis, elapsed_millis, signal, .. } => {
            outcome.status = api::OutcomeStatus::Timeout;
            outcome.timeout_ms = Some(timeout_millis);
            outcome.elapsed_ms = Some(elapsed_millis);
            outcome.signal = Some(signal.as_str().to_owned());
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_kept_while_the_server_may_still_take_it() {
        for (status, code, expected) in [
            (409, "LEASE_LOST", SourceError::Lost),
            (404, "NOT_FOUND", SourceError::Lost),
            (400, "INVALID_PARAMETER", SourceError::Refused("no (INVALID_PARAMETER)".to_owned())),
            (413, "BODY_TOO_LARGE", SourceError::Refused("no (BODY_TOO_LARGE)".to_owned())),
            (401, "UNAUTHORIZED", SourceError::Unavailable("no".to_owned())),
            (403, "STORE_CLOSED", SourceError::Unavailable("no".to_owned())),
            (429, "RATE_LIMITED", SourceError::Unavailable("no".to_owned())),
            (503, "STORE_FULL", SourceError::Unavailable("no".to_owned())),
        ] {
            let text = format!(
                r#"{{"type":"urn","title":"t","status":{status},"code":"{code}","detail":"no","details":[]}}"#
            );
            let problem = serde_json::from_str(&text).unwrap();
            assert_eq!(refusal(ClientError::Problem(problem)), expected, "{status} {code}");
        }
    }
}
