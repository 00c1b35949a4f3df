//! Cancel a task without a job: it ends, and its fence is raised so that no worker can write.

use tidemill_model::events::properties::{FailureSource, TaskFailed};
use tidemill_model::{ErrorCategory, Json, KnownType, Outcome, RequestId, TenantId, Timestamp};

use crate::engine::{Engine, EngineError, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::Command;
use crate::kernel::commit::{TaskChangeKind, TaskKey};
use crate::kernel::decision::{Decision, MayFail};
use crate::kernel::draft::{By, Draft, identity};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{State, TaskPlace};
use crate::work::resume::leave_parking;
use crate::work::rows::steered_rows;
use crate::work::running::finish::cut;

/// Ends a task without a job.
#[derive(Debug, Clone)]
pub struct CancelTask {
    pub tenant: TenantId,
    pub request: RequestId,
    pub by: String,
    pub reason: Option<String>,
}

impl Decision for CancelTask {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        let key = TaskKey { tenant: self.tenant.clone(), request: self.request.clone() };
        steered_rows(state, &key)
    }

    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::Of(&self.tenant)
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

pub(crate) fn decide(
    state: &State,
    command: &CancelTask,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let key = TaskKey { tenant: command.tenant.clone(), request: command.request.clone() };
    let Some(task) = state.task(&key) else {
        return Err(Refusal::NotFound { what: "task", id: key.request.to_string() });
    };
    if let TaskPlace::InJob { job, .. } = task.place {
        return Err(Refusal::PartOfJob { request: key.request, job: job.head.job });
    }
    let Some(head) = task.entry.head.as_ref() else {
        return Err(Refusal::NotFound { what: "task", id: key.request.to_string() });
    };
    match head.outcome() {
        Some(Outcome::Cancelled) => return Ok(Reply::Cancelled { tasks: Vec::new() }),
        Some(_) => return Err(Refusal::TaskEnded(key.request)),
        None => {}
    }
    let fence = head.fence.next();
    let finish = TaskChangeKind::Finish {
        fence,
        outcome: Outcome::Cancelled,
        attempts: head.attempts,
        error: Some(ErrorCategory::Cancelled),
    };
    draft.change(&key, finish);
    draft.settle(task.entry.message);
    let error = match &command.reason {
        Some(reason) => format!("cancelled by {}: {reason}", command.by),
        None => format!("cancelled by {}", command.by),
    };
    let failed = TaskFailed {
        task: identity(&key.request, &task),
        error: cut(&error, draft.policy().error_chars_max),
        error_category: ErrorCategory::Cancelled,
        retry_count: head.attempts,
        source: FailureSource::Api,
        code: None,
        duration_ms: None,
        usage: None,
        session_id: None,
        fence: Some(fence),
    };
    let mut subject = draft.task_subject(&key, &task);
    let by = By::component(Origin::ProducerApi);
    draft.event(&mut subject, KnownType::TaskFailed, by, Json::of(&failed));
    leave_parking(state, &key, &task, draft);
    Ok(Reply::Cancelled { tasks: vec![key.request] })
}

impl<B: Backend> Engine<B> {
    /// Ends a task without a job and tells whether it was active. Repeating it changes nothing; a task that ended
    /// otherwise is refused, as is one of a job.
    pub async fn cancel_task(
        &self,
        tenant: TenantId,
        request: RequestId,
        by: String,
        reason: Option<String>,
    ) -> Result<bool, EngineError> {
        let reason = self.checked_reason(&by, reason)?;
        let reply = self.execute(Command::CancelTask(CancelTask { tenant, request, by, reason })).await?;
        take_reply!(reply, Reply::Cancelled { tasks } => !tasks.is_empty())
    }
}
