//! The port where a worker gets its tasks and reports to: the engine in this process, or a server elsewhere.

use std::future::Future;
use std::time::Duration;

use tidemill_engine::command::{Spent, Surroundings};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::{Beginning, LoadedTask, ParentFiles, WorkReport};
use tidemill_model::events::properties::Activity;
use tidemill_model::work::runner_spec::ResolvedRunner;
use tidemill_model::{AppName, Fence, JobId, Json, SessionId, TaskId, TaskName, Timestamp};

use crate::moment::Moment;

/// A task that a worker holds and is to run.
#[derive(Debug, Clone)]
pub struct HeldTask {
    pub task: TaskKey,
    pub app: AppName,
    pub job: Option<JobId>,
    pub task_id: TaskId,
    pub name: TaskName,
    pub run: u32,
    /// Counts from 1 within the run.
    pub attempt: u32,
    pub fence: Fence,
    pub lease_until: Timestamp,
    /// How long the source's leases last without being renewed, which this worker's own settings do not decide.
    pub lease: Duration,
    /// When it was asked for, by the clock of this machine: the lease began no earlier. A worker that counted from
    /// the answer would count the time of the answer's way as its own.
    pub asked_at: Moment,
    /// Wall time for this attempt, in milliseconds; the worker's own limit when absent.
    pub timeout_ms: Option<u64>,
    /// The agent's session in the last attempt of this run that reported one.
    pub session_id: Option<SessionId>,
    /// What is left of the tightest budget of an agent task, in millionths of a dollar.
    pub budget_left: Option<u64>,
    /// Which budget that is, in words.
    pub budget_name: Option<String>,
    /// The static input and, for a task with dependencies, `dependencyOutputs` and `dependencyArtifacts`.
    pub input: Json,
    /// The files of those of its parents that left any.
    pub parents: Vec<ParentFiles>,
    pub execution: ResolvedRunner,
    /// Where the attempt writes here, and which variables of this process it gets. The worker says so before it begins.
    pub surroundings: Surroundings,
}

impl HeldTask {
    /// A task that was claimed from an engine in this process.
    pub(crate) fn of(loaded: LoadedTask, asked_at: Moment, lease: Duration) -> Self {
        let LoadedTask { assignment: task, execution, work } = loaded;
        Self {
            task: task.task,
            app: task.app,
            job: task.job,
            task_id: task.spec.task_id.clone(),
            name: task.spec.name.clone(),
            run: task.run,
            attempt: task.attempt,
            fence: task.fence,
            lease_until: task.lease_until,
            lease,
            asked_at,
            timeout_ms: task.spec.options.timeout_ms,
            session_id: task.session_id,
            budget_left: task.budget_left,
            budget_name: task.budget_name.as_deref().map(ToOwned::to_owned),
            input: work.input,
            parents: work.dependency_artifacts,
            execution,
            surroundings: Surroundings::default(),
        }
    }

    /// That the process of the attempt began.
    pub fn beginning(&self, process_id: u32) -> Beginning {
        Beginning { process_id, surroundings: self.surroundings.clone() }
    }
}

/// What a heartbeat tells.
#[derive(Debug, Clone)]
pub struct Pulse {
    pub pid: u32,
    /// Resident bytes of the task's processes.
    pub rss: u64,
    pub last_activity: Option<Activity>,
}

/// What a heartbeat is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    pub lease_until: Timestamp,
    /// How long the lease lasts from the heartbeat on.
    pub lease: Duration,
    /// The task was cancelled: its processes are to end, and nothing is to be reported.
    pub cancel: bool,
}

/// The end of an attempt.
#[derive(Debug, Clone)]
pub struct AttemptEnd {
    /// The process id of a child that ended before its beginning was reported. It is recorded first.
    pub began: Option<u32>,
    pub report: WorkReport,
}

/// What follows an outcome that was recorded.
#[derive(Debug, Clone, Default)]
pub struct Followed {
    /// Whether the run of the task is over. Otherwise another attempt comes, or somebody else has the task.
    pub is_over: bool,
    pub next: Option<HeldTask>,
}

/// Why a source did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The lease is gone. Nothing may be written any more.
    #[error("the lease is lost")]
    Lost,
    /// It will never be done as it was asked.
    #[error("refused: {0}")]
    Refused(String),
    /// Not now. It is worth trying again.
    #[error("unavailable: {0}")]
    Unavailable(String),
}

/// Where a worker gets its tasks.
pub trait TaskSource: Clone + Send + Sync + 'static {
    /// Takes up to `slots` tasks. Waits for the first for up to `wait`; an empty answer is no error.
    fn claim(
        &self,
        slots: usize,
        wait: Duration,
    ) -> impl Future<Output = Result<Vec<HeldTask>, SourceError>> + Send;

    /// Says that the child process of a task runs.
    fn begin(&self, claim: &HeldTask, pid: u32) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Extends the lease.
    fn heartbeat(
        &self,
        claim: &HeldTask,
        pulse: Pulse,
    ) -> impl Future<Output = Result<Beat, SourceError>> + Send;

    /// Records how an attempt ended, and takes nothing.
    fn finish(
        &self,
        claim: &HeldTask,
        end: AttemptEnd,
    ) -> impl Future<Output = Result<Followed, SourceError>> + Send;

    /// Records how an attempt ended and takes the next task if there is one, in one step where that can be.
    ///
    /// An error is about the finish. Nothing was taken then.
    fn finish_and_claim(
        &self,
        claim: &HeldTask,
        end: AttemptEnd,
    ) -> impl Future<Output = Result<Followed, SourceError>> + Send;

    /// Gives a task back without an outcome. Another worker may take it at once and no attempt is counted.
    /// What it had used is recorded with the reason.
    fn release(
        &self,
        claim: &HeldTask,
        reason: String,
        spent: Spent,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Keeps a log, an artifact or a trace of an attempt under `task/logs/{requestId}/{path}`.
    fn put_blob(
        &self,
        claim: &HeldTask,
        path: &str,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// A file that a parent of the task left. `Refused`: it is not kept any more.
    fn artifact(
        &self,
        claim: &HeldTask,
        parent: &ParentFiles,
        path: &str,
    ) -> impl Future<Output = Result<Vec<u8>, SourceError>> + Send;

    /// Shows output of a running task to its watchers. Best effort.
    fn log(&self, claim: &HeldTask, bytes: &[u8]);

    /// Says that no more output comes.
    fn log_end(&self, claim: &HeldTask);

    /// Whether nobody can be given a lease of this source while this process stands still, because it is the one that gives
    /// them. A lease that seems to be over is then asked for once more before its child is killed.
    fn is_in_this_process(&self) -> bool {
        false
    }

    /// Returns when the task was cancelled or taken away, as soon as this process knows. A source that learns it only
    /// by heartbeats never returns.
    fn revoked(&self, claim: &HeldTask) -> impl Future<Output = ()> + Send;
}
