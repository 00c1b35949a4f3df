//! Claiming work, and what a claimed task needs to run.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use tidemill_model::access_path::AccessPath;
use tidemill_model::event_query::{EventQuery, Order};
use tidemill_model::task_input::DEPENDENCY_OUTPUTS;
use tidemill_model::{
    Entity, Event, Fence, Json, KnownType, Owner, RequestId, TaskId, TenantId, Timestamp, Usage, WorkerId,
};

use super::limits::WORK_BYTES_MAX;
use super::{Engine, EngineError, check, take_reply};
use crate::backend::{Backend, Fault};
use crate::command::{Begin, Claim, Command, Release, Spent};
use crate::commit::TaskKey;
use crate::reply::{Assignment, Reply};

/// A worker that asks for tasks.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    pub worker: WorkerId,
    /// The life of the data directory the worker belongs to; `None` for a worker on another machine.
    pub generation: Option<u64>,
    /// How many tasks it can take, from 1 to the policy's `claim_max`.
    pub max: usize,
    /// The tenants it may serve; `None` for all.
    pub tenants: Option<Arc<[TenantId]>>,
    /// Says in the same commit that work began, under this process id. A worker that starts child processes leaves it
    /// out and calls `begin`.
    pub begin: Option<u32>,
}

impl ClaimRequest {
    /// A worker inside the server that runs its tasks in this process.
    pub fn in_process(worker: WorkerId, generation: u64, max: usize) -> Self {
        Self { worker, generation: Some(generation), max, tenants: None, begin: Some(std::process::id()) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    pub tasks: Vec<Assignment>,
    /// When nothing could be claimed: the next moment at which it is worth trying, as far as it is known.
    pub next: Option<Timestamp>,
}

/// What a task runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The static input and, for a task with dependencies, `dependencyOutputs`.
    pub input: Json,
    /// The output of each dependency, in the order of `dependsOn`.
    pub dependency_outputs: Vec<(TaskId, Json)>,
}

/// The part of a completion that children need.
#[derive(Deserialize)]
struct Completion {
    #[serde(default, deserialize_with = "given")]
    output: Option<Json>,
}

/// An output that is null is an output all the same.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

impl<B: Backend> Engine<B> {
    /// Takes tasks for a worker. An empty answer comes at once; `work_arrived` waits.
    pub async fn claim(&self, request: ClaimRequest) -> Result<Claimed, EngineError> {
        let command = self.claim_command(request)?;
        let reply = self.execute(command).await?;
        take_reply!(reply, Reply::Claimed { tasks, next } => Claimed { tasks, next })
    }

    pub(super) fn claim_command(&self, request: ClaimRequest) -> Result<Command, EngineError> {
        check::count("max", request.max, self.policy().claim_max)?;
        let owner = Owner { worker: Arc::from(request.worker.as_str()), generation: request.generation };
        Ok(Command::Claim(Claim {
            owner,
            worker: request.worker,
            max: request.max,
            tenants: request.tenants,
            begin: request.begin,
        }))
    }

    /// Waits until there may be something to claim for one of `tenants`. It may return early.
    pub async fn work_arrived(&self, tenants: Option<Arc<[TenantId]>>) {
        self.inner.backend.work(tenants).await;
    }

    /// Says that the child process of a claimed task runs.
    pub async fn begin(
        &self,
        task: TaskKey,
        fence: Fence,
        worker: WorkerId,
        process_id: u32,
    ) -> Result<(), EngineError> {
        let reply = self.execute(Command::Begin(Begin { task, fence, worker, process_id })).await?;
        take_reply!(reply, Reply::Begun => ())
    }

    /// Gives a task back without an outcome; another worker may take it at once and no attempt is counted.
    pub async fn release(
        &self,
        task: TaskKey,
        fence: Fence,
        worker: WorkerId,
        reason: Option<String>,
    ) -> Result<(), EngineError> {
        self.release_spent(task, fence, worker, reason, Spent::default()).await
    }

    /// Like `release`, for an attempt that had used something. It is recorded with the reason.
    pub async fn release_spent(
        &self,
        task: TaskKey,
        fence: Fence,
        worker: WorkerId,
        reason: Option<String>,
        spent: Spent,
    ) -> Result<(), EngineError> {
        let reason = reason.map(|reason| self.clean(&reason));
        let spent = Spent { usage: spent.usage.map(Usage::bounded), ..spent };
        let reply = self.execute(Command::Release(Release { task, fence, worker, reason, spent })).await?;
        take_reply!(reply, Reply::Released => ())
    }

    /// The effective input of a claimed task. It is read outside the writer, so parents' outputs delay nobody else.
    pub async fn work_of(&self, assignment: &Assignment) -> Result<Work, EngineError> {
        let parents: Vec<_> = assignment.parents().map(|(task, request)| (task.clone(), request)).collect();
        self.resolve(&assignment.task.tenant, assignment.input(), parents).await
    }

    pub(super) async fn resolve(
        &self,
        tenant: &TenantId,
        input: &Json,
        parents: Vec<(TaskId, RequestId)>,
    ) -> Result<Work, EngineError> {
        if parents.is_empty() {
            return Ok(Work { input: input.clone(), dependency_outputs: Vec::new() });
        }
        let mut dependency_outputs = Vec::with_capacity(parents.len());
        let mut size = input.len();
        for (task, request) in parents {
            let output = self.output_of(tenant, &request).await?;
            size += output.len() + task.as_str().len();
            check::size(DEPENDENCY_OUTPUTS, size, WORK_BYTES_MAX)?;
            dependency_outputs.push((task, output));
        }
        Ok(Work { input: merged(input, &dependency_outputs), dependency_outputs })
    }

    /// What a completed task gave; `{}` if it gave nothing.
    async fn output_of(&self, tenant: &TenantId, request: &RequestId) -> Result<Json, EngineError> {
        let event = self.rehydrate(self.completion_of(tenant, request).await?).await?;
        let completed: Completion = event.properties.read().map_err(|error| {
            Fault::Damaged(format!("the completion of {request} cannot be read: {error}"))
        })?;
        Ok(completed.output.unwrap_or_else(Json::empty_object))
    }

    async fn completion_of(&self, tenant: &TenantId, request: &RequestId) -> Result<Event, EngineError> {
        let entity = Entity::task(request);
        let is_completion = |event: &Event| event.event_type.as_str() == KnownType::TaskCompleted.as_str();
        if let Some(latest) = self.inner.backend.latest(tenant.clone(), entity.clone()).await?
            && is_completion(&latest)
        {
            return Ok(latest);
        }
        let path = AccessPath::TypeEntity(KnownType::TaskCompleted.event_type(), entity);
        let query =
            EventQuery { order: Order::Descending, limit: 1, ..EventQuery::all(tenant.clone(), path) };
        let page = self.inner.backend.events(query).await?;
        let lost = || {
            if self.inner.backend.events_lag() {
                return Fault::Unavailable(format!(
                    "the event that completed task {request} cannot be read yet"
                ));
            }
            Fault::Damaged(format!("task {request} is completed and has no Task Completed event"))
        };
        Ok(page.events.into_iter().next().ok_or_else(lost)?)
    }
}

/// `input` with the outputs under their reserved key. Text is copied, so values stay as they were written.
fn merged(input: &Json, outputs: &[(TaskId, Json)]) -> Json {
    let body = input.as_str().strip_prefix('{').unwrap_or_default();
    let body = body.strip_suffix('}').unwrap_or(body).trim_end();
    let length = outputs.iter().map(|(task, output)| task.as_str().len() + output.len() + 4).sum::<usize>();
    let mut text = String::with_capacity(input.len() + length + 32);
    text.push('{');
    text.push_str(body);
    if !body.trim_start().is_empty() {
        text.push(',');
    }
    text.push('"');
    text.push_str(DEPENDENCY_OUTPUTS);
    text.push_str("\":{");
    for (place, (task, output)) in outputs.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        text.push('"');
        text.push_str(task.as_str());
        text.push_str("\":");
        text.push_str(output.as_str());
    }
    text.push_str("}}");
    Json::trusted(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_stand_beside_the_input() {
        let outputs = [
            (TaskId::trusted("a"), Json::parse("[1e400]".to_owned()).unwrap()),
            (TaskId::trusted("b"), Json::empty_object()),
        ];
        for (input, outputs, expected) in [
            ("{}", &outputs[..], r#"{"dependencyOutputs":{"a":[1e400],"b":{}}}"#),
            ("{ }", &outputs[1..], r#"{"dependencyOutputs":{"b":{}}}"#),
            (r#"{"x":{}}"#, &outputs[1..], r#"{"x":{},"dependencyOutputs":{"b":{}}}"#),
            ("{\n\"x\": 1\n}", &outputs[1..], "{\n\"x\": 1,\"dependencyOutputs\":{\"b\":{}}}"),
        ] {
            let merged = merged(&Json::parse(input.to_owned()).unwrap(), outputs);
            assert_eq!(merged.as_str(), expected);
        }
    }
}
