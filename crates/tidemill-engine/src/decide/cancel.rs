//! Cancel a job: everything active in it ends in one commit, and fences are raised so that no worker can write.

use tidemill_model::properties::{FailureSource, JobCancelled, TaskFailed};
use tidemill_model::{ErrorCategory, JobStatus, Json, KnownType, Outcome};

use super::draft::{By, Draft, identity};
use super::finish::cut;
use super::resume::leave_parking;
use crate::command::Cancel;
use crate::commit::{RecordWrite, TaskChangeKind, TaskKey};
use crate::reply::{Refusal, Reply};
use crate::site::Origin;
use crate::state::{Place, State, TaskView};

pub(super) fn decide(state: &State, command: &Cancel, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
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
        let task = TaskView { entry: &node.entry, place: Place::InJob { job, index } };
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
