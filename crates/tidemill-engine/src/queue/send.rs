//! Send a message by hand, without running anything.

use std::sync::Arc;

use tidemill_model::{AppName, Json, RequestId, TaskName, TenantId, Timestamp};

use crate::engine::limits::DELAY_MILLIS_MAX;
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::Command;
use crate::kernel::commit::{MessageId, NewTask, RecordWrite, TaskChangeKind, TaskKey};
use crate::kernel::decision::Decision;
use crate::kernel::draft::Draft;
use crate::kernel::reads::Reads as _;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::work::rows::task_row;
use crate::work::submitting::tenant_limit;

/// A message by hand. For a task that is known it is another delivery; else the task begins with it, unannounced.
#[derive(Debug, Clone)]
pub struct NewMessage {
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

/// A message from outside. Without a head the task begins here, and nothing announces it.
#[derive(Debug, Clone)]
pub struct Send {
    pub task: NewTask,
    pub run: u32,
    pub delay_millis: u64,
}

impl Decision for Send {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        let NewTask { tenant, request, .. } = &self.task;
        vec![task_row(&TaskKey { tenant: tenant.clone(), request: request.clone() })]
    }

    fn log_bytes(&self) -> u64 {
        self.task.spec.input.len() as u64 + 2_000
    }

    fn large_field(&self) -> &'static str {
        "input"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        send(state, self, draft)
    }
}

pub(crate) fn send(state: &State, command: &Send, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let task = &command.task;
    let key = TaskKey { tenant: task.tenant.clone(), request: task.request.clone() };
    if state.task(&key).is_none() && key.request.job_part().is_none() {
        tenant_limit::check(state, &key.tenant, [&task.spec], draft)?;
        draft.record(RecordWrite::Task(Arc::new(task.clone())));
        draft.change(&key, TaskChangeKind::Dispatch);
    }
    let not_before = draft.now().plus(command.delay_millis);
    Ok(Reply::Sent { message: draft.enqueue(&key, command.run, not_before) })
}

impl<B: Backend> Engine<B> {
    pub async fn send(&self, request: NewMessage) -> Result<MessageId, EngineError> {
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
}
