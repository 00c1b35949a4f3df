//! Submit a task on its own.

use std::sync::Arc;

use tidemill_model::events::properties::{TaskIdentity, TaskPending};
use tidemill_model::work::task_input::new_input_problem;
use tidemill_model::{
    AppName, Json, KnownType, RequestId, TaskId, TaskName, TaskOptions, TaskSpec, TenantId, Timestamp,
};

use crate::engine::limits::TASKS_BYTES_MAX;
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::{Command, Once};
use crate::kernel::commit::{NewTask, RecordWrite, TaskChangeKind, TaskKey};
use crate::kernel::decision::Decision;
use crate::kernel::draft::{By, Draft, Subject};
use crate::kernel::record::Effect;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{State, TaskPlace};
use crate::work::rows::{once_rows, task_row};
use crate::work::submitting::submit_job::{IdempotencyKey, earlier_effect, once, remember};
use crate::work::submitting::tenant_limit;

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

/// The name that a task without a job has instead of a name within its job.
pub(crate) const ALONE: &str = "task";

#[derive(Debug, Clone)]
pub struct SubmitTask {
    pub task: NewTask,
    /// Each of them is good for one request, whichever is met again.
    pub once: Vec<Once>,
}

impl Decision for SubmitTask {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        let mut keys: Vec<_> = once_rows(&self.once).collect();
        let NewTask { tenant, request, .. } = &self.task;
        keys.push(task_row(&TaskKey { tenant: tenant.clone(), request: request.clone() }));
        keys
    }

    fn log_bytes(&self) -> u64 {
        self.task.spec.input.len() as u64 + 2_000
    }

    fn large_field(&self) -> &'static str {
        "input"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

pub(crate) fn decide(
    state: &State,
    command: &SubmitTask,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let task = &command.task;
    let key = TaskKey { tenant: task.tenant.clone(), request: task.request.clone() };
    if let Some(effect) = earlier_effect(state, &command.once, draft)? {
        let Effect::Task(request) = &effect else {
            return Err(Refusal::IdempotencyConflict { earlier: effect });
        };
        // The id names another task than the key does.
        if *request != key.request && state.task(&key).is_some() {
            return Err(Refusal::IdempotencyConflict { earlier: effect });
        }
        remember(state, &command.once, &effect, draft);
        return Ok(Reply::TaskSubmitted { request: request.clone(), repeated: true });
    }
    if let Some(known) = state.task(&key) {
        let is_same = |earlier: &NewTask| earlier.spec == task.spec && earlier.app == task.app;
        if !matches!(known.place, TaskPlace::Alone(earlier) if is_same(earlier)) {
            return Err(Refusal::RequestTaken(key.request));
        }
        remember(state, &command.once, &Effect::Task(key.request.clone()), draft);
        return Ok(Reply::TaskSubmitted { request: key.request, repeated: true });
    }
    tenant_limit::check(state, &key.tenant, [&task.spec], draft)?;
    remember(state, &command.once, &Effect::Task(key.request.clone()), draft);
    draft.record(RecordWrite::Task(Arc::new(task.clone())));
    draft.change(&key, TaskChangeKind::Dispatch);
    draft.enqueue(&key, 1, draft.now());
    let mut subject = Subject {
        tenant: task.tenant.clone(),
        app: task.app.clone(),
        entity: draft.site().task(&key.request),
        last: None,
    };
    let identity = TaskIdentity { request_id: key.request.clone(), job_id: None, task_id: None, run: 1 };
    let pending = TaskPending::alone(identity, task.spec.name.clone());
    draft.event(&mut subject, KnownType::TaskPending, By::component(Origin::ProducerApi), Json::of(&pending));
    Ok(Reply::TaskSubmitted { request: key.request, repeated: false })
}

impl<B: Backend> Engine<B> {
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
}
