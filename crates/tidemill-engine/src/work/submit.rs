//! Submitting: jobs, further tasks of a job, and tasks on their own.

use std::sync::Arc;

use serde::Serialize;
use tidemill_model::dag::{self, Dag};
use tidemill_model::dag_violation::{Violation, Violations};
use tidemill_model::task_input::new_input_problem;
use tidemill_model::{
    AppName, Budget, CallbackUrl, Entity, Event, EventId, JobId, Json, KnownType, RequestId, TaskId,
    TaskName, TaskOptions, TaskSpec, TenantId, Timestamp,
};

use crate::engine::limits::TASKS_BYTES_MAX;
use crate::engine::{Engine, EngineError, check, digest, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::{AddTasks, Command, Listed, Once, SubmitJob, SubmitTask};
use crate::kernel::commit::{NewJob, NewTask};
use crate::kernel::record::RecordKey;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;

/// A job as it is handed in.
#[derive(Debug, Clone)]
pub struct JobRequest {
    pub tenant: TenantId,
    pub app: AppName,
    /// The client's own id for the request, minted when absent. Repeating it with the same content gives the same job,
    /// with whatever key.
    pub request: Option<RequestId>,
    pub name: Option<String>,
    /// What its agents may use in all.
    pub budget: Option<Budget>,
    /// Who is told once it is at rest.
    pub callback: Option<CallbackUrl>,
    pub tasks: Vec<TaskSpec>,
    pub idempotency: Option<IdempotencyKey>,
}

/// A client's promise that requests with this key are the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Keys of different routes do not meet.
    pub route: String,
    pub key: String,
    /// Any digest of the request body.
    pub body_hash: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedJob {
    pub job: JobId,
    pub request: RequestId,
    pub total_tasks: u32,
    pub root_tasks: Vec<TaskId>,
    pub created_at: Timestamp,
    /// The job was there already, made by the same request.
    pub repeated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedTasks {
    pub previous_total: u32,
    pub total: u32,
    /// Those that could start at once.
    pub dispatched: Vec<TaskId>,
}

/// A task on its own, as it is handed in.
#[derive(Debug, Clone)]
pub struct TaskRequest {
    pub tenant: TenantId,
    pub app: AppName,
    /// Unique in its tenant; minted when absent.
    pub request: Option<RequestId>,
    pub name: TaskName,
    pub input: Json,
    pub options: TaskOptions,
    pub idempotency: Option<IdempotencyKey>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedTask {
    pub request: RequestId,
    /// The task was there already, made by the same request.
    pub repeated: bool,
}

/// The properties of `Job Created`; the model's own type would want the tasks for itself.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JobCreated<'a> {
    job_id: JobId,
    request_id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Budget>,
    tasks: &'a Json,
    total_tasks: u32,
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

/// The name that a task without a job has instead of a name within its job.
pub(crate) const ALONE: &str = "task";

impl<B: Backend> Engine<B> {
    /// Creates a job and dispatches its roots, all in one commit.
    pub async fn submit_job(&self, request: JobRequest) -> Result<SubmittedJob, EngineError> {
        let mut promises = Vec::new();
        if let Some(key) = &request.idempotency {
            promises.push(once(&request.tenant, key)?);
        }
        if let Some(id) = &request.request {
            promises.push(once_by_request(&request, id));
        }
        self.check_callback(request.callback.as_ref(), &promises).await?;
        self.submit_job_once(request, promises, TASKS_BYTES_MAX).await
    }

    /// The same, with the promises made already and a limit for the bytes of the tasks.
    pub(crate) async fn submit_job_once(
        &self,
        request: JobRequest,
        once: Vec<Once>,
        limit_bytes: usize,
    ) -> Result<SubmittedJob, EngineError> {
        let submit = self.prepare_job(request, once, limit_bytes, self.mint_job_id()).await?;
        let reply = self.execute(Command::SubmitJob(submit)).await?;
        take_reply!(reply, Reply::JobSubmitted { job, request, total, roots, created_at, repeated } => SubmittedJob {
            job, request, total_tasks: total, root_tasks: roots, created_at, repeated
        })
    }

    /// Checks a job and makes its command. What does not fit into an event is stored.
    pub(crate) async fn prepare_job(
        &self,
        request: JobRequest,
        once: Vec<Once>,
        limit_bytes: usize,
        job: JobId,
    ) -> Result<SubmitJob, EngineError> {
        let tasks = check_job(&request, limit_bytes)?;
        let id = self.mint_event_id();
        let request_id = request.request.unwrap_or_else(|| self.mint_request_id());
        let total_tasks = u32::try_from(request.tasks.len()).unwrap_or(u32::MAX);
        let name = request.name.as_deref();
        let budget = request.budget;
        let created =
            JobCreated { job_id: job, request_id: &request_id, name, budget, tasks: &tasks, total_tasks };
        let created = Json::of(&created);
        // The list may be long: it is in the event now.
        drop(tasks);
        let packed = self.pack(self.job_event(
            &request.tenant,
            &request.app,
            job,
            KnownType::JobCreated,
            id,
            created,
        ))?;
        let created = self.ship(&request.tenant, id, packed).await?;
        let job = NewJob {
            tenant: request.tenant,
            app: request.app,
            job,
            request: request_id,
            name: request.name.map(Arc::from),
            created_at: Timestamp::MIN,
            tasks: request.tasks.into_iter().map(Arc::new).collect(),
        };
        let callback = request.callback.map(|callback| Arc::clone(callback.text()));
        Ok(SubmitJob { job, created, once, budget, callback })
    }

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
            return Err(Refusal::Graph(one(Violation::EmptyTasks)).into());
        }
        if tasks.len() > dag::JOB_TASKS_MAX {
            return Err(Refusal::Graph(one(Violation::TooManyTasks { count: tasks.len() })).into());
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

    /// Submits a task without a job.
    pub async fn submit_task(&self, request: TaskRequest) -> Result<SubmittedTask, EngineError> {
        let once = request.idempotency.as_ref().map(|key| once(&request.tenant, key)).transpose()?;
        self.submit_task_once(request, Vec::from_iter(once)).await
    }

    /// The same, with the promises made already.
    pub(crate) async fn submit_task_once(
        &self,
        request: TaskRequest,
        once: Vec<Once>,
    ) -> Result<SubmittedTask, EngineError> {
        let task =
            self.new_task(request.tenant, request.app, request.request, request.name, request.input)?;
        check::options("", &request.options)?;
        let spec = TaskSpec { options: request.options, ..(*task.spec).clone() };
        let task = NewTask { spec: Arc::new(spec), ..task };
        let reply = self.execute(Command::SubmitTask(SubmitTask { task, once })).await?;
        take_reply!(reply, Reply::TaskSubmitted { request, repeated } => SubmittedTask { request, repeated })
    }

    /// A task without a job, checked.
    pub(crate) fn new_task(
        &self,
        tenant: TenantId,
        app: AppName,
        request: Option<RequestId>,
        name: TaskName,
        input: Json,
    ) -> Result<NewTask, EngineError> {
        let request = match request {
            Some(given) => RequestId::standalone(given)?,
            None => self.mint_request_id(),
        };
        if let Some(problem) = new_input_problem(&input) {
            return Err(EngineError::invalid("input", problem.to_string()));
        }
        check::size("input", input.len(), TASKS_BYTES_MAX)?;
        let spec = TaskSpec {
            task_id: TaskId::trusted(ALONE),
            name,
            depends_on: Vec::new(),
            input,
            options: TaskOptions::default(),
        };
        Ok(NewTask { tenant, app, request, spec: Arc::new(spec) })
    }

    /// A job's event as the decision will write it, but for its times.
    fn job_event(
        &self,
        tenant: &TenantId,
        app: &AppName,
        job: JobId,
        known: KnownType,
        id: EventId,
        properties: Json,
    ) -> Event {
        Event {
            id,
            tenant: tenant.clone(),
            app: app.clone(),
            entity: Entity::job(job),
            event_type: self.inner.site.event_type(known),
            timestamp: Timestamp::MIN,
            received_at: Timestamp::MIN,
            context: self.inner.site.context(Origin::ProducerApi, None),
            properties,
            ttl: None,
        }
    }
}

/// Checks a job, and gives its tasks as JSON.
pub(crate) fn check_job(request: &JobRequest, limit_bytes: usize) -> Result<Json, EngineError> {
    Dag::default().check(&request.tasks).map_err(Refusal::Graph)?;
    check::added_tasks(&request.tasks)?;
    if let Some(name) = &request.name {
        check::name("name", name)?;
    }
    let tasks = Json::of(&request.tasks);
    check::size("tasks", tasks.len(), limit_bytes)?;
    Ok(tasks)
}

fn one(violation: Violation) -> Violations {
    Violations { listed: vec![violation], total: 1 }
}

pub(crate) fn once(tenant: &TenantId, key: &IdempotencyKey) -> Result<Once, EngineError> {
    check::key("route", &key.route)?;
    check::key("idempotencyKey", &key.key)?;
    Ok(Once {
        key: RecordKey::idempotency(tenant, &key.route, &key.key),
        body_hash: key.body_hash,
        lasting: false,
    })
}

/// The request's own id as its key. The digest covers all that makes the job.
fn once_by_request(request: &JobRequest, id: &RequestId) -> Once {
    let name = request.name.as_deref().unwrap_or_default();
    let tasks = Json::of(&request.tasks);
    let mut parts = vec![request.app.as_str().as_bytes(), name.as_bytes(), tasks.as_str().as_bytes()];
    let budget = request.budget.map(|budget| Json::of(&budget));
    parts.extend(budget.iter().map(|budget| budget.as_str().as_bytes()));
    parts.extend(request.callback.iter().map(|callback| callback.as_str().as_bytes()));
    let body_hash = digest::of(&parts);
    Once {
        key: RecordKey::idempotency(&request.tenant, "job requestId", id.as_str()),
        body_hash,
        lasting: true,
    }
}

/// The id that a file gives its request as the key. The digest covers what the file says.
pub(crate) fn once_by_file(
    tenant: &TenantId,
    route: &str,
    id: &RequestId,
    app: &AppName,
    content: &str,
) -> Once {
    let body_hash = digest::of(&[b"file", app.as_str().as_bytes(), content.as_bytes()]);
    Once { key: RecordKey::idempotency(tenant, route, id.as_str()), body_hash, lasting: true }
}
