//! What workers report: heartbeats and outcomes.

use serde::Deserialize;
use tidemill_model::events::overflow::DETAIL_BYTES_MAX;
use tidemill_model::events::properties::{Activity, OverflowRef, TaskCompleted, TaskIdentity, Usage};
use tidemill_model::work::artifact::{ARTIFACTS_FOLDER, attempt_folder};
use tidemill_model::workflow::{self, ErrorFingerprint};
use tidemill_model::{
    ArtifactFile, Entity, ErrorCategory, Event, EventId, Fence, Json, KnownType, OnFailure, SessionId,
    Timestamp, WorkerId,
};

use crate::engine::limits::{OUTPUT_BYTES_MAX, RETRY_DELAY_MILLIS_MAX};
use crate::engine::{Beginning, Claimant, Claimed, Engine, EngineError, check, digest, take_reply};
use crate::kernel::backend::{Answer, Backend};
use crate::kernel::command::{Command, Finish, Heartbeat};
use crate::kernel::commit::TaskKey;
use crate::kernel::reads::Reads as _;
use crate::kernel::reply::{Assignment, Ending, Reply};
use crate::kernel::site::Origin;
use crate::triage::NewToken;

/// How an attempt ended, as its worker tells it.
#[derive(Debug, Clone)]
pub enum Report {
    Completed {
        /// `None` when it was moved to the blob store.
        output: Option<Json>,
        overflow: Option<(EventId, OverflowRef)>,
        duration_millis: u64,
        exit_code: i32,
        /// The files it left. Empty when they were moved to the blob store with the output.
        artifacts: Vec<ArtifactFile>,
    },
    /// Whether it is tried again depends on the category and the attempts left.
    Failed {
        error: String,
        category: ErrorCategory,
        retry_after_millis: Option<u64>,
    },
    TimedOut {
        timeout_millis: u64,
        elapsed_millis: u64,
        signal: &'static str,
    },
}

impl Report {
    /// Equal for reports that say the same of the work. How long it took does not count.
    pub fn digest(&self) -> u64 {
        let digest = match self {
            Self::Completed { output, overflow, exit_code, artifacts, .. } => {
                let output = output.as_ref().map_or("", Json::as_str);
                let moved = overflow.as_ref().map_or("", |(_, place)| place.key.as_str());
                let exit_code = exit_code.to_string();
                let mut parts =
                    vec![&b"completed"[..], output.as_bytes(), moved.as_bytes(), exit_code.as_bytes()];
                let files = artifacts.iter().flat_map(|file| [file.path.as_bytes(), file.sha256.as_bytes()]);
                parts.extend(files);
                digest::of(&parts)
            }
            Self::Failed { error, category, .. } => {
                digest::of(&[b"failed", category.as_str().as_bytes(), error.as_bytes()])
            }
            Self::TimedOut { .. } => digest::of(&[b"timed out"]),
        };
        u64::from_be_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
    }
}

/// Which error a failure is.
#[derive(Debug, Clone)]
pub struct Cause {
    pub code: workflow::ErrorCode,
    /// The message without what varies.
    pub title: String,
    /// What the runner for agents calls it, if it was an agent's.
    pub agent_code: Option<String>,
    /// For a task that is parked when it fails for good.
    pub token: Option<NewToken>,
}

/// What an agent reports of its attempt, however it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    pub usage: Option<Usage>,
    /// Where the next attempt of the run can go on.
    pub session_id: Option<SessionId>,
}

/// An output up to this size fits into its event, whatever the names around it are.
const SURELY_INLINE_BYTES: usize = DETAIL_BYTES_MAX - 16 * 1024;

/// What the name of an artifact takes in JSON beside its path.
const ARTIFACT_JSON_BYTES: usize = 160;

/// The end of an attempt, as its worker reports it.
#[derive(Debug, Clone)]
pub struct AttemptReport {
    pub task: TaskKey,
    pub fence: Fence,
    pub worker: WorkerId,
    pub report: WorkReport,
}

impl AttemptReport {
    pub fn of(assignment: &Assignment, worker: WorkerId, report: WorkReport) -> Self {
        Self { task: assignment.task.clone(), fence: assignment.fence, worker, report }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub enum WorkReport {
    Completed {
        /// Any JSON value; `{}` when absent.
        output: Option<Json>,
        duration_millis: u64,
        exit_code: i32,
        /// The files it left, by their paths below `artifacts`. They are kept already, under this lease.
        artifacts: Vec<ArtifactFile>,
        usage: Option<Usage>,
        session_id: Option<SessionId>,
    },
    /// Whether it is tried again depends on the category and the attempts left.
    Failed {
        error: String,
        category: ErrorCategory,
        retry_after_millis: Option<u64>,
        /// The code that the task itself gave its error. It counts if it is one of a workflow.
        code: Option<String>,
        usage: Option<Usage>,
        session_id: Option<SessionId>,
    },
    /// The worker killed it.
    TimedOut {
        timeout_millis: u64,
        elapsed_millis: u64,
        signal: Signal,
        usage: Option<Usage>,
        session_id: Option<SessionId>,
    },
}

impl WorkReport {
    /// A success of work that is no process.
    pub fn completed(output: Json, duration_millis: u64) -> Self {
        let (output, artifacts) = (Some(output), Vec::new());
        Self::Completed { output, duration_millis, exit_code: 0, artifacts, usage: None, session_id: None }
    }

    pub fn failed(error: impl Into<String>, category: ErrorCategory) -> Self {
        let error = error.into();
        Self::Failed { error, category, retry_after_millis: None, code: None, usage: None, session_id: None }
    }

    /// Whether it is a success, so that dependents follow.
    pub fn is_completed(&self) -> bool {
        matches!(self, Self::Completed { .. })
    }

    /// The same with the task's own code of its error, if it failed.
    #[must_use]
    pub fn with_code(mut self, own: Option<&str>) -> Self {
        if let Self::Failed { code, .. } = &mut self {
            *code = own.map(str::to_owned);
        }
        self
    }

    pub fn timed_out(timeout_millis: u64, elapsed_millis: u64, signal: Signal) -> Self {
        Self::TimedOut { timeout_millis, elapsed_millis, signal, usage: None, session_id: None }
    }

    /// The same with the files that the attempt left, if it completed: of others nobody is given any.
    #[must_use]
    pub fn with_artifacts(mut self, left: Vec<ArtifactFile>) -> Self {
        if let Self::Completed { artifacts, .. } = &mut self {
            *artifacts = left;
        }
        self
    }

    /// What the attempt used and the session it ran in.
    pub fn spent(&self) -> Spent {
        let (Self::Completed { usage, session_id, .. }
        | Self::Failed { usage, session_id, .. }
        | Self::TimedOut { usage, session_id, .. }) = self;
        Spent { usage: *usage, session_id: session_id.clone() }
    }

    /// The same with what the attempt used.
    #[must_use]
    pub fn with_spent(mut self, spent: Spent) -> Self {
        let (Self::Completed { usage, session_id, .. }
        | Self::Failed { usage, session_id, .. }
        | Self::TimedOut { usage, session_id, .. }) = &mut self;
        (*usage, *session_id) = (spent.usage, spent.session_id);
        self
    }
}

/// What ended a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Term,
    Kill,
}

impl Signal {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Term => "SIGTERM",
            Self::Kill => "SIGKILL",
        }
    }
}

/// What is recorded of a reported end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedEnding {
    pub ending: Ending,
    /// The same was reported before.
    pub repeated: bool,
}

/// A sign of life of an attempt, as its worker reports it.
#[derive(Debug, Clone)]
pub struct HeartbeatReport {
    pub task: TaskKey,
    pub fence: Fence,
    pub worker: WorkerId,
    pub process_id: u32,
    /// Resident bytes of the task's processes.
    pub rss: u64,
    pub last_activity: Option<Activity>,
}

impl<B: Backend> Engine<B> {
    /// Extends the lease of a task and tells until when.
    pub async fn heartbeat(&self, request: HeartbeatReport) -> Result<Timestamp, EngineError> {
        let HeartbeatReport { task, fence, worker, process_id, rss, mut last_activity } = request;
        if let Some(activity) = &mut last_activity {
            check::name("lastActivity.stepName", &activity.step_name)?;
            activity.step_name = self.clean(&activity.step_name);
        }
        let command = Command::Heartbeat(Heartbeat { task, fence, worker, process_id, rss, last_activity });
        let reply = self.execute(command).await?;
        take_reply!(reply, Reply::Renewed { until } => until)
    }

    /// Records how an attempt ended.
    pub async fn finish(&self, request: AttemptReport) -> Result<RecordedEnding, EngineError> {
        let command = self.finish_command(request).await?;
        finished(Ok(self.execute(command).await?))
    }

    /// Records how an attempt ended and takes the next tasks in the same commit. A refused outcome does not keep the
    /// worker from its next task.
    pub async fn finish_and_claim(
        &self,
        finish: AttemptReport,
        claim: Claimant,
    ) -> Result<(Result<RecordedEnding, EngineError>, Claimed), EngineError> {
        let claim = self.claim_command(claim)?;
        let (finish, malformed) = match self.finish_command(finish).await {
            Ok(command) => (Some(command), None),
            Err(error) => (None, Some(error)),
        };
        let mut answers = self.execute_group(finish.into_iter().chain([claim]).collect()).await?;
        let claimed = answers.pop().ok_or_else(|| crate::engine::miscounted(0, 1))??;
        let claimed = take_reply!(claimed, Reply::Claimed { tasks, next } => Claimed { tasks, next })?;
        let finished = match malformed {
            Some(error) => Err(error),
            None => answers.pop().map_or_else(|| Err(crate::engine::miscounted(0, 1)), finished),
        };
        Ok((finished, claimed))
    }

    /// Like `finish_and_claim`, for a child process. If its beginning was not said yet, `began` says it in the same
    /// group. Without `claim` nothing is taken.
    pub async fn end_and_claim(
        &self,
        began: Option<Beginning>,
        finish: AttemptReport,
        claim: Option<Claimant>,
    ) -> Result<(Result<RecordedEnding, EngineError>, Claimed), EngineError> {
        let nothing = || Claimed { tasks: Vec::new(), next: None };
        let claim = claim.map(|claim| self.claim_command(claim)).transpose()?;
        let AttemptReport { task, fence, worker, .. } = finish.clone();
        let is_begun = began.is_some();
        let start = began.map(|beginning| beginning.command(task, fence, worker));
        let finish = match self.finish_command(finish).await {
            Ok(finish) => finish,
            Err(error) => return Ok((Err(error), nothing())),
        };
        let commands: Vec<_> = start.into_iter().chain([finish]).chain(claim).collect();
        let mut answers = self.execute_group(commands).await?.into_iter();
        // Where the beginning is refused, so is the end: both need the lease.
        let answer = answers.nth(usize::from(is_begun));
        let finished = answer.map_or_else(|| Err(crate::engine::miscounted(0, 1)), finished);
        let claimed = match answers.next() {
            Some(answer) => take_reply!(answer?, Reply::Claimed { tasks, next } => Claimed { tasks, next })?,
            None => nothing(),
        };
        Ok((finished, claimed))
    }

    async fn finish_command(&self, request: AttemptReport) -> Result<Command, EngineError> {
        let AttemptReport { task, fence, worker, report } = request;
        let spent = report.spent();
        let spent = Spent { usage: spent.usage.map(Usage::bounded), ..spent };
        let mut cause = None;
        let mut digest = None;
        let report = match report {
            WorkReport::Completed { output, duration_millis, exit_code, artifacts, .. } => {
                let output = output.unwrap_or_else(Json::empty_object);
                check::size("output", output.len(), OUTPUT_BYTES_MAX)?;
                check::value("output", &output)?;
                check::artifacts(&artifacts)?;
                let artifacts = self.kept_artifacts(&task, fence, artifacts).await?;
                let completion =
                    Completion { fence, worker: &worker, duration_millis, exit_code, spent: &spent };
                let moved = self.move_output(&task, &output, &artifacts, &completion).await?;
                let report = Report::Completed {
                    output: Some(output),
                    overflow: None,
                    duration_millis,
                    exit_code,
                    artifacts,
                };
                match moved {
                    None => report,
                    Some(Moved { id, place, artifacts }) => {
                        digest = Some(report.digest());
                        let overflow = Some((id, place));
                        Report::Completed { output: None, overflow, duration_millis, exit_code, artifacts }
                    }
                }
            }
            WorkReport::Failed { error, category, retry_after_millis, code, .. } => {
                if category == ErrorCategory::Cancelled {
                    return Err(EngineError::invalid(
                        "errorCategory",
                        "is cancelled; only a cancel writes that",
                    ));
                }
                if let Some(delay) = retry_after_millis {
                    check::between("retryAfter", delay, 0..=RETRY_DELAY_MILLIS_MAX)?;
                }
                let error = self.clean(&error);
                cause = self.cause_of(&task, category, &error, code.as_deref()).await?;
                Report::Failed { error, category, retry_after_millis }
            }
            WorkReport::TimedOut { timeout_millis, elapsed_millis, signal, .. } => {
                let error = format!("timed out after {timeout_millis} ms");
                cause = self.cause_of(&task, ErrorCategory::Timeout, &error, None).await?;
                Report::TimedOut { timeout_millis, elapsed_millis, signal: signal.as_str() }
            }
        };
        let digest = digest.unwrap_or_else(|| report.digest());
        Ok(Command::Finish(Finish { task, fence, worker, report, spent, cause, digest }))
    }

    /// Which error a failure is. It may turn out that another attempt follows; then nobody asks.
    async fn cause_of(
        &self,
        task: &TaskKey,
        category: ErrorCategory,
        error: &str,
        code: Option<&str>,
    ) -> Result<Option<Box<Cause>>, EngineError> {
        // An unknown task is for the decision to refuse.
        let Some(snapshot) = self.inner.backend.task(task.clone()).await? else { return Ok(None) };
        let parks = snapshot.spec.options.on_failure == OnFailure::Park;
        // Nobody gets the token of a task that runs here, so a key that cannot be had now holds no failure back.
        let token = if parks { self.mint_park_token(&task.tenant).ok() } else { None };
        let kind = snapshot.spec.kind_of_work();
        let agent_code = code.and_then(workflow::agent_code).map(str::to_owned);
        let ErrorFingerprint { code, message: title, .. } = ErrorFingerprint::of(category, kind, error, code);
        Ok(Some(Box::new(Cause { code, title, agent_code, token })))
    }

    /// The files of an attempt by their paths among all files of its task. Of an attempt that still has its lease,
    /// each must have been kept before, with the reported size; the decision refuses or repeats any other report.
    async fn kept_artifacts(
        &self,
        task: &TaskKey,
        fence: Fence,
        mut artifacts: Vec<ArtifactFile>,
    ) -> Result<Vec<ArtifactFile>, EngineError> {
        if artifacts.is_empty() {
            return Ok(artifacts);
        }
        // An unknown task is for the decision to refuse.
        let Some(snapshot) = self.inner.backend.task(task.clone()).await? else { return Ok(Vec::new()) };
        let is_held = snapshot.head.as_ref().is_some_and(|head| head.lease_of(fence).is_some());
        let (run, ended) = snapshot.head.map_or((1, 0), |head| {
            // A report that is repeated has counted already.
            let is_over = head.outcome().is_some();
            (head.run, if is_over { head.attempts.saturating_sub(1) } else { head.attempts })
        });
        let folder = attempt_folder(run, ended.saturating_add(1));
        for artifact in &mut artifacts {
            artifact.path = format!("{folder}/{ARTIFACTS_FOLDER}/{}", artifact.path);
        }
        if is_held {
            self.check_kept(task, &artifacts).await?;
        }
        Ok(artifacts)
    }

    /// Stores an output that is too large for its event, maybe with the names of its files, and tells where; or leaves it
    /// where it is.
    async fn move_output(
        &self,
        task: &TaskKey,
        output: &Json,
        artifacts: &[ArtifactFile],
        completion: &Completion<'_>,
    ) -> Result<Option<Moved>, EngineError> {
        let listed: usize = artifacts.iter().map(|file| 6 * file.path.len() + ARTIFACT_JSON_BYTES).sum();
        if output.len() + listed <= SURELY_INLINE_BYTES {
            return Ok(None);
        }
        // The exact size depends on names that only the store knows. An unknown task is for the decision to refuse.
        let Some(snapshot) = self.inner.backend.task(task.clone()).await? else { return Ok(None) };
        let identity = TaskIdentity {
            request_id: task.request.clone(),
            job_id: snapshot.job,
            task_id: snapshot.job.map(|_| snapshot.spec.task_id.clone()),
            run: snapshot.head.map_or(1, |head| head.run),
        };
        let completed = TaskCompleted {
            task: identity,
            output: Some(output.clone()),
            duration_ms: completion.duration_millis,
            exit_code: completion.exit_code,
            artifacts: artifacts.to_vec(),
            source: None,
            usage: completion.spent.usage,
            session_id: completion.spent.session_id.clone(),
            fence: completion.fence,
            overflow: None,
        };
        let event = Event {
            id: self.mint_event_id(),
            tenant: task.tenant.clone(),
            app: snapshot.app,
            entity: Entity::task(&task.request),
            event_type: self.inner.site.event_type(KnownType::TaskCompleted),
            timestamp: Timestamp::MIN,
            received_at: Timestamp::MIN,
            context: self.inner.site.context(Origin::Worker, Some(completion.worker)),
            properties: Json::of(&completed),
            ttl: None,
            beside: None,
        };
        let id = event.id;
        let packed = self.pack(event)?;
        let Some((place, payload)) = packed.payload else { return Ok(None) };
        self.store_payload(&task.tenant, &place, payload).await?;
        let stayed: Stayed = packed.properties.read().unwrap_or_default();
        Ok(Some(Moved { id, place, artifacts: stayed.artifacts }))
    }
}

/// An output that was moved to the blob store.
struct Moved {
    /// Of the event that is to be written.
    id: EventId,
    place: OverflowRef,
    /// The files that the event itself still names.
    artifacts: Vec<ArtifactFile>,
}

/// What of a completion may stay in its event when the output moves.
#[derive(Default, Deserialize)]
struct Stayed {
    #[serde(default)]
    artifacts: Vec<ArtifactFile>,
}

/// What the completion's event holds beside the output.
struct Completion<'a> {
    fence: Fence,
    worker: &'a WorkerId,
    duration_millis: u64,
    exit_code: i32,
    spent: &'a Spent,
}

fn finished(answer: Answer) -> Result<RecordedEnding, EngineError> {
    take_reply!(answer?, Reply::Finished { ending, ended } => RecordedEnding { ending, repeated: ended.is_none() })
}
