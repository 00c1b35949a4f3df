//! Add tasks to a job. What depends on nothing unfinished is dispatched in the same commit.

use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;
use tidemill_model::events::properties::OverflowRef;
use tidemill_model::work::dag;
use tidemill_model::work::dag_violation::{DagViolation, DagViolations};
use tidemill_model::{
    EventId, JobId, JobStatus, Json, KnownType, PublicState, TaskId, TaskSpec, TenantId, Timestamp,
};

use crate::engine::limits::TASKS_BYTES_MAX;
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::Command;
use crate::kernel::commit::RecordWrite;
use crate::kernel::decision::Decision;
use crate::kernel::draft::{By, Draft, JobFacts};
use crate::kernel::reads::Reads as _;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::State;
use crate::kernel::state::job::{Job, spec_bytes};
use crate::kernel::state::row::RowKey;
use crate::work::rows::{inputs_bytes, tasks_bytes};
use crate::work::submitting::tenant_limit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedTasks {
    pub previous_total: u32,
    pub total: u32,
    /// Those that could start at once.
    pub dispatched: Vec<TaskId>,
}

/// The properties of `Job Tasks Added` with room for any totals.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JobTasksAdded<'a> {
    job_id: JobId,
    new_tasks: &'a Json,
    previous_total_tasks: u32,
    total_tasks_now: u32,
}

#[derive(Debug, Clone)]
pub struct AddTasks {
    pub tenant: TenantId,
    pub job: JobId,
    pub tasks: Arc<Vec<Arc<TaskSpec>>>,
    /// The JSON of `newTasks`, or where it was put.
    pub listed: Listed,
}

impl Decision for AddTasks {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![RowKey::Job(self.tenant.clone(), self.job)]
    }

    fn log_bytes(&self) -> u64 {
        tasks_bytes(&self.tasks) + inputs_bytes(&self.tasks)
    }

    fn large_field(&self) -> &'static str {
        "tasks"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

/// A task list inside an event: in place or in the blob store.
#[derive(Debug, Clone)]
pub enum Listed {
    Inline(Json),
    Overflow { id: EventId, at: OverflowRef },
}

pub(crate) fn decide(state: &State, command: &AddTasks, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let Some(job) = state.job(&command.tenant, command.job) else {
        return Err(Refusal::NotFound { what: "job", id: command.job.to_string() });
    };
    match job.head.status() {
        JobStatus::Completed => return Err(Refusal::JobCompleted(command.job)),
        JobStatus::Cancelled => return Err(Refusal::JobCancelled(command.job)),
        JobStatus::Running | JobStatus::Failing | JobStatus::Failed => {}
    }
    dag::check_addition(&command.tasks, job.nodes.len(), &|task| job.index_of(task))
        .map_err(Refusal::Graph)?;
    let size_bytes = job.spec_bytes + command.tasks.iter().map(|spec| spec_bytes(spec)).sum::<usize>();
    let limit_bytes = draft.policy().job_bytes_max;
    if size_bytes > limit_bytes {
        return Err(Refusal::TooLarge { field: "tasks", size_bytes, limit_bytes });
    }
    tenant_limit::check_in_job(state, job, command.tasks.iter(), draft)?;

    let (tenant, tasks) = (command.tenant.clone(), Arc::clone(&command.tasks));
    draft.record(RecordWrite::JobTasks { tenant, job: command.job, tasks });
    let previous_total = job.head.counts.total();
    let total = previous_total + u32::try_from(command.tasks.len()).unwrap_or(u32::MAX);
    let (id, listed) = match &command.listed {
        Listed::Inline(tasks) => (None, format!(r#""newTasks":{}"#, tasks.as_str())),
        Listed::Overflow { id, at } => (Some(*id), format!(r#""_s3Overflow":{}"#, Json::of(at).as_str())),
    };
    let mut properties = format!(r#"{{"jobId":"{}",{listed}"#, command.job);
    write!(properties, r#","previousTotalTasks":{previous_total},"totalTasksNow":{total}}}"#)
        .expect("writing to a string does not fail");
    let mut subject = draft.job_subject(job);
    let by = By { id, ..By::component(Origin::ProducerApi) };
    draft.event(&mut subject, KnownType::JobTasksAdded, by, Json::trusted(&properties));

    let mut dispatched = Vec::new();
    for spec in command.tasks.iter().filter(|spec| is_ready(job, spec)) {
        draft.dispatch(&JobFacts::of(job), spec, Origin::ProducerApi);
        dispatched.push(spec.task_id.clone());
    }
    Ok(Reply::TasksAdded { previous_total, total, dispatched })
}

/// Whether all it waits for is completed. What is added with it is not in the job yet, hence not completed either.
fn is_ready(job: &Job, spec: &TaskSpec) -> bool {
    let completed = |index| job.node(index).entry.public_state() == Some(PublicState::Completed);
    spec.depends_on.iter().all(|parent| job.index_of(parent.as_str()).is_some_and(completed))
}

impl<B: Backend> Engine<B> {
    /// Adds tasks to a job. They may depend on tasks of the job and on each other.
    pub async fn add_tasks(
        &self,
        tenant: TenantId,
        job: JobId,
        tasks: Vec<TaskSpec>,
    ) -> Result<AddedTasks, EngineError> {
        self.add_tasks_within(tenant, job, tasks, TASKS_BYTES_MAX).await
    }

    /// The same, with a limit for the bytes of the tasks.
    pub(crate) async fn add_tasks_within(
        &self,
        tenant: TenantId,
        job: JobId,
        tasks: Vec<TaskSpec>,
        limit_bytes: usize,
    ) -> Result<AddedTasks, EngineError> {
        if tasks.is_empty() {
            return Err(Refusal::Graph(one(DagViolation::EmptyTasks)).into());
        }
        if tasks.len() > dag::JOB_TASKS_MAX {
            return Err(Refusal::Graph(one(DagViolation::TooManyTasks { count: tasks.len() })).into());
        }
        check::added_tasks(&tasks)?;
        let json = Json::of(&tasks);
        check::size("tasks", json.len(), limit_bytes)?;
        let listed = self.list_tasks(&tenant, job, json).await?;
        let tasks = Arc::new(tasks.into_iter().map(Arc::new).collect());
        let reply = self.execute(Command::AddTasks(AddTasks { tenant, job, tasks, listed })).await?;
        take_reply!(reply, Reply::TasksAdded { previous_total, total, dispatched } => AddedTasks {
            previous_total, total, dispatched
        })
    }

    /// Puts a list of added tasks into the event if it fits there, else into a blob.
    async fn list_tasks(&self, tenant: &TenantId, job: JobId, json: Json) -> Result<Listed, EngineError> {
        let Some(snapshot) = self.inner.backend.job(tenant.clone(), job).await? else {
            return Err(Refusal::NotFound { what: "job", id: job.to_string() }.into());
        };
        let id = self.mint_event_id();
        let most = u32::try_from(dag::JOB_TASKS_MAX).unwrap_or(u32::MAX);
        let added = JobTasksAdded {
            job_id: job,
            new_tasks: &json,
            previous_total_tasks: most,
            total_tasks_now: most,
        };
        let app = &snapshot.head.app;
        let packed =
            self.pack(self.job_event(tenant, app, job, KnownType::JobTasksAdded, id, Json::of(&added)))?;
        let Some((place, payload)) = packed.payload else { return Ok(Listed::Inline(json)) };
        drop(json);
        self.store_payload(tenant, &place, payload).await?;
        Ok(Listed::Overflow { id, at: place })
    }
}

fn one(violation: DagViolation) -> DagViolations {
    DagViolations { listed: vec![violation], total: 1 }
}
