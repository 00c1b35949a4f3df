//! Cancel a job: everything active in it ends in one commit, and fences are raised so that no worker can write.

use tidemill_model::events::properties::{FailureSource, JobCancelled, TaskFailed};
use tidemill_model::{
    ErrorCategory, JobId, JobStatus, Json, KnownType, Outcome, RequestId, TenantId, Timestamp,
};

use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::Command;
use crate::kernel::commit::{RecordWrite, TaskChangeKind, TaskKey};
use crate::kernel::decision::Decision;
use crate::kernel::draft::{By, Draft, identity};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{State, TaskPlace, TaskRef};
use crate::work::resume::leave_parking;
use crate::work::rows::job_rows;
use crate::work::running::finish::cut;

#[derive(Debug, Clone)]
pub struct Cancel {
    pub tenant: TenantId,
    pub job: JobId,
    pub by: String,
    pub reason: Option<String>,
}

impl Decision for Cancel {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        job_rows(state, &self.tenant, self.job)
    }

    fn large_field(&self) -> &'static str {
        "tasks"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

pub(crate) fn decide(state: &State, command: &Cancel, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let Some(job) = state.job(&command.tenant, command.job) else {
        return Err(Refusal::NotFound { what: "job", id: command.job.to_string() });
    };
    match job.head.status() {
        JobStatus::Completed => return Err(Refusal::JobCompleted(command.job)),
        JobStatus::Cancelled => return Ok(Reply::Cancelled { tasks: Vec::new() }),
        JobStatus::Running | JobStatus::Failing | JobStatus::Failed => {}
    }
    let tenant = command.tenant.clone();
    draft.record(RecordWrite::JobCancelled { tenant, job: command.job, cancelled: true });
    let limit = draft.policy().error_chars_max;
    let cancelled = JobCancelled {
        job_id: command.job,
        by: cut(&command.by, limit),
        reason: command.reason.as_deref().map(|reason| cut(reason, limit)),
    };
    let mut subject = draft.job_subject(job);
    let by = By::component(Origin::ProducerApi);
    draft.event(&mut subject, KnownType::JobCancelled, by, Json::of(&cancelled));

    let mut ended = Vec::new();
    for (index, node) in (0u32..).zip(&job.nodes) {
        let Some(head) = node.entry.head.as_ref().filter(|head| head.outcome().is_none()) else { continue };
        let key = TaskKey { tenant: command.tenant.clone(), request: job.request_of(index) };
        let task = TaskRef { entry: &node.entry, place: TaskPlace::InJob { job, index } };
        let fence = head.fence.next();
        let finish = TaskChangeKind::Finish {
            fence,
            outcome: Outcome::Cancelled,
            attempts: head.attempts,
            error: Some(ErrorCategory::Cancelled),
        };
        draft.change(&key, finish);
        draft.settle(node.entry.message);
        let failed = TaskFailed {
            task: identity(&key.request, &task),
            error: "job cancelled".to_owned(),
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
        draft.event(&mut subject, KnownType::TaskFailed, by, Json::of(&failed));
        leave_parking(state, &key, &task, draft);
        ended.push(key.request);
    }
    Ok(Reply::Cancelled { tasks: ended })
}

impl<B: Backend> Engine<B> {
    /// Ends everything active in a job and tells what that was. Repeating it changes nothing.
    pub async fn cancel(
        &self,
        tenant: TenantId,
        job: JobId,
        by: String,
        reason: Option<String>,
    ) -> Result<Vec<RequestId>, EngineError> {
        let reason = self.checked_reason(&by, reason)?;
        let reply = self.execute(Command::Cancel(Cancel { tenant, job, by, reason })).await?;
        take_reply!(reply, Reply::Cancelled { tasks } => tasks)
    }

    /// A reason as it may be stored.
    pub(crate) fn checked_reason(
        &self,
        by: &str,
        reason: Option<String>,
    ) -> Result<Option<String>, EngineError> {
        check::name("by", by)?;
        if let Some(reason) = &reason {
            check::text("reason", reason)?;
        }
        Ok(reason.map(|reason| self.clean(&reason)))
    }
}
