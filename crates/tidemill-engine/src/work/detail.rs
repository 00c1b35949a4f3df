//! Tasks in detail: beside where they stand, when they ran and what came of it.
//!
//! It is read from the head and one or two events of each task. A list never opens a blob: what is large is left out
//! and said to be.

use serde::{Deserialize, Deserializer};
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};
use tidemill_model::events::overflow;
use tidemill_model::events::properties::Usage;
use tidemill_model::work::last_error::{RECEIVED_TOO_OFTEN, RETRIES_EXHAUSTED};
use tidemill_model::{
    Entity, ErrorCategory, Event, Fence, JobId, Json, KnownType, LastError, Outcome, TaskHead, TaskState,
    TenantId, Timestamp,
};

use crate::engine::limits::{LIST_MAX, LISTED_OUTPUT_BYTES_MAX};
use crate::engine::{Engine, EngineError, check};
use crate::kernel::backend::{Backend, Fault, TaskSnapshot};
use crate::kernel::commit::TaskKey;
use crate::kernel::reads::Reads as _;
use crate::outside::lenient::{if_readable, or_default};

/// How many of a task's last failed attempts and ends are looked at: attempts that a worker gave back, and later runs, come
/// in between.
const EVENTS_LOOKED_AT_MAX: usize = 10;

/// A task, when it ran and what came of it. All but `task` is about its newest run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskDetail {
    pub task: TaskSnapshot,
    pub run: u32,
    /// The attempt that runs or ran last, from 1; 0 before the first.
    pub attempt: u32,
    /// When that attempt began.
    pub started_at: Option<Timestamp>,
    /// When the run ended.
    pub finished_at: Option<Timestamp>,
    pub duration_ms: Option<u64>,
    pub usage: Option<Usage>,
    /// Of a completed task, unless `output_omitted`.
    pub output: Option<Json>,
    /// The output is too large for a list; it is shown with the task alone.
    pub output_omitted: bool,
    /// What the last failed attempt, or the end of the run, said.
    pub error: Option<String>,
    pub error_category: Option<ErrorCategory>,
    /// What the last attempt said. None of a task that is completed, or that no attempt of this run has failed yet.
    pub last_error: Option<LastError>,
    /// Until when a worker holds it; only while one does.
    pub effective_until: Option<Timestamp>,
    pub worker_id: Option<String>,
    /// When a failed attempt is made again is known to the queue alone; this is whether one will be.
    pub retrying: bool,
    /// It failed for good and waits for somebody.
    pub parked: bool,
}

/// What the events of an end, or of a failed attempt, say.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ending {
    #[serde(deserialize_with = "given")]
    output: Option<Json>,
    #[serde(deserialize_with = "if_readable")]
    duration_ms: Option<u64>,
    #[serde(deserialize_with = "if_readable")]
    usage: Option<Usage>,
    #[serde(deserialize_with = "if_readable")]
    error: Option<String>,
    #[serde(deserialize_with = "if_readable")]
    error_category: Option<ErrorCategory>,
    #[serde(deserialize_with = "if_readable")]
    timeout_ms: Option<u64>,
    #[serde(deserialize_with = "if_readable")]
    elapsed_ms: Option<u64>,
    #[serde(deserialize_with = "if_readable")]
    source: Option<String>,
    #[serde(deserialize_with = "if_readable")]
    code: Option<String>,
    #[serde(deserialize_with = "if_readable")]
    fence: Option<Fence>,
}

/// What the event of a failed attempt says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attempt {
    #[serde(default = "first_run")]
    run: u32,
    #[serde(default, deserialize_with = "or_default")]
    error: String,
    #[serde(default, deserialize_with = "if_readable")]
    error_category: Option<ErrorCategory>,
    #[serde(default, deserialize_with = "if_readable")]
    code: Option<String>,
    /// Whether it was an attempt: one that a worker gave back is none.
    #[serde(default = "yes")]
    counted: bool,
    #[serde(default)]
    parked: bool,
    fence: Option<Fence>,
}

impl Attempt {
    fn into_last_error(self) -> LastError {
        // A parked task has no other end.
        let is_bare = self.error == RETRIES_EXHAUSTED;
        let message = if is_bare { RECEIVED_TOO_OFTEN.to_owned() } else { self.error };
        let category = self.error_category.unwrap_or(ErrorCategory::Unknown);
        LastError { message, category, code: self.code }
    }
}

fn first_run() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// An output that is null is an output all the same.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// How much of an output is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Listed,
}

impl<B: Backend> Engine<B> {
    /// A task with all that is known of its newest run.
    pub async fn task_detail(&self, task: TaskKey) -> Result<Option<TaskDetail>, EngineError> {
        let Some(snapshot) = self.inner.backend.task(task).await? else { return Ok(None) };
        self.detail_of(snapshot, Extent::Whole).await.map(Some)
    }

    /// Why a run of a task failed, whatever came after it. None if it did not fail, or nothing is left of it.
    pub(crate) async fn error_of_run(
        &self,
        task: TaskKey,
        run: u32,
    ) -> Result<Option<LastError>, EngineError> {
        let Some(snapshot) = self.inner.backend.task(task.clone()).await? else { return Ok(None) };
        let Some(head) = snapshot.head.clone() else { return Ok(None) };
        if head.run == run {
            return Ok(self.detail_of(snapshot, Extent::Whole).await?.last_error);
        }
        for (known, outcome) in
            [(KnownType::TaskFailed, Outcome::Failed), (KnownType::TaskTimeout, Outcome::TimedOut)]
        {
            let ends = self.last_few(&task, known).await?;
            let Some(end) = ends.into_iter().find(|event| run_of(event) == run) else { continue };
            let then = TaskHead { run, state: TaskState::Done(outcome), ..head };
            let mut detail = waiting(snapshot);
            self.fill_ending(&mut detail, end, &then, Extent::Whole).await?;
            return Ok(detail.last_error);
        }
        Ok(None)
    }

    /// A job's tasks in the order they were handed in, from the index `from` on. Large outputs are left out.
    pub async fn job_task_details(
        &self,
        tenant: TenantId,
        job: JobId,
        from: u32,
        limit: usize,
    ) -> Result<Vec<TaskDetail>, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let snapshots = self.inner.backend.job_tasks(tenant, job, from, limit).await?;
        let mut details = Vec::with_capacity(snapshots.len());
        for snapshot in snapshots {
            details.push(self.detail_of(snapshot, Extent::Listed).await?);
        }
        Ok(details)
    }

    async fn detail_of(&self, task: TaskSnapshot, extent: Extent) -> Result<TaskDetail, EngineError> {
        let Some(head) = task.head.clone() else { return Ok(waiting(task)) };
        let mut detail = TaskDetail {
            run: head.run,
            attempt: attempt_of(&head),
            effective_until: head.lease().map(|lease| lease.until),
            worker_id: head.lease().map(|lease| lease.owner.worker.to_string()),
            error_category: head.last_error.filter(|_| head.outcome() != Some(Outcome::Completed)),
            retrying: head.attempts > 0 && head.outcome().is_none() && !head.is_parked(),
            parked: head.is_parked(),
            ..waiting(task)
        };
        if !head.begun && head.outcome().is_none() {
            return Ok(detail);
        }
        let key = detail.task.task.clone();
        if head.begun {
            let started = self.last_of(&key, KnownType::TaskProcessingStarted).await?;
            // One of an earlier run says nothing of this one.
            detail.started_at =
                started.filter(|event| run_of(event) == head.run).map(|event| event.timestamp);
        }
        let told = match head.outcome() {
            Some(outcome) => self.ending_of(&key, outcome).await?,
            None if head.attempts > 0 || head.is_parked() => {
                self.last_of(&key, KnownType::TaskProcessingFailed).await?
            }
            None => None,
        };
        let Some(event) = told else { return Ok(detail) };
        self.fill_ending(&mut detail, event, &head, extent).await?;
        Ok(detail)
    }

    /// Puts into `detail` what an event says.
    async fn fill_ending(
        &self,
        detail: &mut TaskDetail,
        event: Event,
        head: &TaskHead,
        extent: Extent,
    ) -> Result<(), EngineError> {
        let is_over = head.outcome().is_some();
        detail.finished_at = is_over.then_some(event.timestamp);
        let is_moved = overflow::reference(&event.properties)?.is_some();
        let event = if is_moved && extent == Extent::Whole { self.rehydrate(event).await? } else { event };
        let mut ending: Ending = event.properties.read().map_err(|error| {
            Fault::Damaged(format!("the end of task {} cannot be read: {error}", detail.task.task.request))
        })?;
        detail.duration_ms = ending.duration_ms.or(ending.elapsed_ms);
        detail.usage = ending.usage;
        detail.error = match (ending.error.take(), ending.timeout_ms) {
            (Some(error), _) => Some(error),
            (None, Some(limit)) => Some(format!("timed out after {limit} ms")),
            (None, None) => None,
        };
        detail.error_category = ending.error_category.or(detail.error_category);
        detail.last_error = self.last_error(detail, head, &ending).await?;
        let fits = |output: &Json| extent == Extent::Whole || output.len() <= LISTED_OUTPUT_BYTES_MAX;
        detail.output_omitted = (is_moved && extent == Extent::Listed)
            || ending.output.as_ref().is_some_and(|output| !fits(output));
        detail.output = ending.output.filter(fits);
        Ok(())
    }

    /// Why the task failed. What ended it says so itself, but for those ends that only say that no attempt follows.
    async fn last_error(
        &self,
        detail: &TaskDetail,
        head: &TaskHead,
        ending: &Ending,
    ) -> Result<Option<LastError>, EngineError> {
        let own = || {
            let (message, category) = (detail.error.clone()?, detail.error_category);
            let category = category.unwrap_or(ErrorCategory::Unknown);
            Some(LastError { message, category, code: ending.code.clone() })
        };
        let attempt = || self.last_attempt(&detail.task.task, head.run);
        Ok(match (head.outcome(), ending.source.as_deref()) {
            (Some(Outcome::Completed), _) => None,
            (Some(Outcome::Cancelled), _) if head.attempts == 0 => None,
            (None | Some(Outcome::Cancelled), _) => attempt().await?.map(Attempt::into_last_error),
            (Some(Outcome::Failed), Some("api" | "expired")) => {
                attempt().await?.map(Attempt::into_last_error).or_else(own)
            }
            (Some(Outcome::Failed), Some("dlq")) if detail.error.as_deref() == Some(RETRIES_EXHAUSTED) => {
                // It was the last attempt that ended it only if both were written under the same right.
                let last = attempt().await?.filter(|attempt| attempt.fence == ending.fence);
                let received =
                    || own().map(|own| LastError { message: RECEIVED_TOO_OFTEN.to_owned(), ..own });
                last.map(Attempt::into_last_error).or_else(received)
            }
            (Some(_), _) => own(),
        })
    }

    /// The last attempt of a run that failed.
    async fn last_attempt(&self, task: &TaskKey, run: u32) -> Result<Option<Attempt>, EngineError> {
        let events = self.last_few(task, KnownType::TaskProcessingFailed).await?;
        let attempts = events.iter().filter_map(|event| event.properties.read::<Attempt>().ok());
        Ok(attempts.filter(|attempt| attempt.run == run).find(|attempt| attempt.counted || attempt.parked))
    }

    /// The last events of a kind, the latest first.
    async fn last_few(&self, task: &TaskKey, known: KnownType) -> Result<Vec<Event>, EngineError> {
        let path = AccessPath::TypeEntity(known.event_type(), Entity::task(&task.request));
        let all = EventQuery::all(task.tenant.clone(), path);
        let query = EventQuery { order: Order::Descending, limit: EVENTS_LOOKED_AT_MAX, ..all };
        Ok(self.inner.backend.events(query).await?.events)
    }

    /// The event that ended the newest run: the latest, but for what a replaced worker may have written after it.
    async fn ending_of(&self, task: &TaskKey, outcome: Outcome) -> Result<Option<Event>, EngineError> {
        let known = match outcome {
            Outcome::Completed => KnownType::TaskCompleted,
            Outcome::TimedOut => KnownType::TaskTimeout,
            Outcome::Failed | Outcome::Cancelled => KnownType::TaskFailed,
        };
        let entity = Entity::task(&task.request);
        let latest = self.inner.backend.latest(task.tenant.clone(), entity).await?;
        if let Some(event) = latest
            && event.event_type.as_str() == known.as_str()
        {
            return Ok(Some(event));
        }
        self.last_of(task, known).await
    }

    pub(crate) async fn last_of(
        &self,
        task: &TaskKey,
        known: KnownType,
    ) -> Result<Option<Event>, EngineError> {
        let path = AccessPath::TypeEntity(known.event_type(), Entity::task(&task.request));
        let all = EventQuery::all(task.tenant.clone(), path);
        let page =
            self.inner.backend.events(EventQuery { order: Order::Descending, limit: 1, ..all }).await?;
        Ok(page.events.into_iter().next())
    }
}

/// A task of which nothing has happened yet.
fn waiting(task: TaskSnapshot) -> TaskDetail {
    TaskDetail {
        task,
        run: 1,
        attempt: 0,
        started_at: None,
        finished_at: None,
        duration_ms: None,
        usage: None,
        output: None,
        output_omitted: false,
        error: None,
        error_category: None,
        last_error: None,
        effective_until: None,
        worker_id: None,
        retrying: false,
        parked: false,
    }
}

/// The attempt that runs, or the last that ended.
fn attempt_of(head: &TaskHead) -> u32 {
    match head.state {
        TaskState::Leased(_) => head.attempts + 1,
        TaskState::Queued | TaskState::Parked | TaskState::Done(_) => head.attempts,
    }
}

fn run_of(event: &Event) -> u32 {
    #[derive(Deserialize)]
    struct Run {
        #[serde(default = "first_run")]
        run: u32,
    }
    event.properties.read::<Run>().map_or(1, |properties| properties.run)
}
