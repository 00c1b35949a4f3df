//! The raw queue: messages by hand, for those who bring their own workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tidemill_model::{AppName, Artifact, JobId, Json, RequestId, TaskId, TaskName, TenantId, Timestamp};

use crate::engine::limits::{DELAY_MILLIS_MAX, VISIBILITY_MILLIS_MAX};
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::{Backend, QueueDepth};
use crate::kernel::command::{ChangeVisibility, Command, Delete, Receive, Send};
use crate::kernel::commit::{Message, MessageId, NewTask, Receipt, TaskKey};
use crate::kernel::reply::{Refusal, Reply};

/// A message by hand. For a task that is known it is another delivery; else the task begins with it, unannounced.
#[derive(Debug, Clone)]
pub struct SendRequest {
    pub tenant: TenantId,
    pub app: AppName,
    /// Any task of the tenant, or a new id without the form of a job task's; minted when absent.
    pub request: Option<RequestId>,
    /// For a new task.
    pub name: TaskName,
    /// For a new task.
    pub input: Json,
    /// The run it is meant for, from 1.
    pub run: u32,
    pub delay_millis: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub messages: Vec<Delivery>,
    /// When nothing was there: the next moment at which it is worth trying, as far as it is known.
    pub next: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub message: Message,
    pub receipt: Receipt,
    /// How often the message was received by hand, this time included.
    pub deliveries: u32,
}

/// What a message says, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    request_id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<JobId>,
    name: &'a TaskName,
    input: &'a Json,
    dependency_outputs: BTreeMap<&'a TaskId, &'a Json>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    dependency_artifacts: BTreeMap<&'a TaskId, &'a [Artifact]>,
}

impl<B: Backend> Engine<B> {
    pub async fn send(&self, request: SendRequest) -> Result<MessageId, EngineError> {
        check::between("delay", request.delay_millis, 0..=DELAY_MILLIS_MAX)?;
        check::between("run", request.run.into(), 1..=u32::MAX.into())?;
        let task = match request.request {
            Some(known) if known.job_part().is_some() => {
                let key = TaskKey { tenant: request.tenant, request: known };
                let Some(snapshot) = self.inner.backend.task(key.clone()).await? else {
                    return Err(Refusal::NotFound { what: "task", id: key.request.to_string() }.into());
                };
                NewTask { tenant: key.tenant, app: snapshot.app, request: key.request, spec: snapshot.spec }
            }
            alone => self.new_task(request.tenant, request.app, alone, request.name, request.input)?,
        };
        let send = Send { task, run: request.run, delay_millis: request.delay_millis };
        let reply = self.execute(Command::Send(send)).await?;
        take_reply!(reply, Reply::Sent { message } => message)
    }

    /// Takes up to `max` messages and hides them for a while. An empty answer comes at once; `work_arrived` waits.
    pub async fn receive(
        &self,
        tenants: Option<Arc<[TenantId]>>,
        max: usize,
        visibility_millis: Option<u64>,
    ) -> Result<Received, EngineError> {
        check::count("max", max, self.policy().claim_max)?;
        if let Some(visibility) = visibility_millis {
            check::between("visibility", visibility, 0..=VISIBILITY_MILLIS_MAX)?;
        }
        let reply = self.execute(Command::Receive(Receive { tenants, max, visibility_millis })).await?;
        let (messages, next) = take_reply!(reply, Reply::Received { messages, next } => (messages, next))?;
        let deliveries = messages.into_iter().map(|(message, receipt, deliveries)| Delivery {
            message,
            receipt,
            deliveries,
        });
        Ok(Received { messages: deliveries.collect(), next })
    }

    /// What the message of a task says: its name, its input and the outputs of its parents.
    pub async fn message_body(&self, task: &TaskKey) -> Result<Json, EngineError> {
        let Some(snapshot) = self.inner.backend.task(task.clone()).await? else {
            return Err(Refusal::NotFound { what: "task", id: task.request.to_string() }.into());
        };
        let parents = snapshot.job.into_iter().flat_map(|job| {
            snapshot.spec.depends_on.iter().map(move |parent| (parent.clone(), job.request_id(parent)))
        });
        let work = self.resolve(&task.tenant, &snapshot.spec.input, parents.collect()).await?;
        Ok(Json::of(&Body {
            request_id: &task.request,
            task_id: snapshot.job.map(|_| &snapshot.spec.task_id),
            job_id: snapshot.job,
            name: &snapshot.spec.name,
            input: &snapshot.spec.input,
            dependency_outputs: work.dependency_outputs.iter().map(|(task, output)| (task, output)).collect(),
            dependency_artifacts: work
                .dependency_artifacts
                .iter()
                .map(|parent| (&parent.task, &*parent.artifacts))
                .collect(),
        }))
    }

    /// Removes a message. A receipt of an older delivery removes nothing; the answer is whether it did.
    ///
    /// It says nothing of the task: one that is not done and has no message left gets a new one from the next sweep.
    /// Whoever did the work by hand finishes or cancels the task.
    pub async fn delete(&self, tenant: Option<TenantId>, receipt: Receipt) -> Result<bool, EngineError> {
        let reply = self.execute(Command::Delete(Delete { tenant, receipt })).await?;
        take_reply!(reply, Reply::Deleted { existed } => existed)
    }

    /// Hides a message from now on, or shows it at once with 0. The answer is whether the receipt was good.
    pub async fn change_visibility(
        &self,
        tenant: Option<TenantId>,
        receipt: Receipt,
        visible_in_millis: u64,
    ) -> Result<bool, EngineError> {
        check::between("visibility", visible_in_millis, 0..=VISIBILITY_MILLIS_MAX)?;
        let reply = self
            .execute(Command::ChangeVisibility(ChangeVisibility { tenant, receipt, visible_in_millis }))
            .await?;
        take_reply!(reply, Reply::VisibilityChanged { existed } => existed)
    }

    pub async fn queue_depth(&self) -> Result<QueueDepth, EngineError> {
        Ok(self.inner.backend.queue().await?)
    }
}
