//! Giving up: a task that no worker may try again ends, or is parked, and its job is told.

use tidemill_model::events::properties::{FailureSource, JobFailureDetected, TaskFailed};
use tidemill_model::work::last_error::{RECEIVED_TOO_OFTEN, RETRIES_EXHAUSTED};
use tidemill_model::{ErrorCategory, Fence, Json, KnownType, LastError, Outcome, PublicState, TaskHead};

use crate::kernel::commit::{TaskChangeKind, TaskKey};
use crate::kernel::draft::{By, Draft, Subject, identity};
use crate::kernel::site::Origin;
use crate::kernel::state::{State, TaskPlace, TaskRef};
use crate::parking::park::Defeat;
use crate::work::statuses;

/// Why a task is given up.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Exhausted {
    Attempts,
    Takeovers,
    Crashes,
    Deliveries,
}

impl Exhausted {
    fn text(self) -> &'static str {
        match self {
            Self::Attempts | Self::Deliveries => RETRIES_EXHAUSTED,
            Self::Takeovers => "taken from silent workers too often, moved to DLQ",
            Self::Crashes => "the server crashed again while it ran alone, moved to DLQ",
        }
    }

    /// The same as an answer to why, where no attempt said anything.
    fn reason(self) -> &'static str {
        match self {
            Self::Deliveries => RECEIVED_TOO_OFTEN,
            Self::Attempts | Self::Takeovers | Self::Crashes => self.text(),
        }
    }
}

/// How a task is given up.
pub(crate) struct End {
    pub(crate) fence: Fence,
    pub(crate) why: Exhausted,
    /// What the last attempt said.
    pub(crate) said: LastError,
}

/// Ends a task that no worker may try again, or parks it. Nobody holds it, so the fence is raised.
pub(crate) fn give_up(
    state: &State,
    key: &TaskKey,
    task: &TaskRef<'_>,
    head: &TaskHead,
    why: Exhausted,
    draft: &mut Draft<'_, '_>,
) {
    let category = head.last_error.unwrap_or(ErrorCategory::Unknown);
    let defeat = Defeat { key, task, category, error: why.text(), cause: None };
    if defeat.park_unheld(state, head, draft) {
        return;
    }
    let subject = draft.task_subject(key, task);
    let said = LastError::new(why.reason(), category);
    end_exhausted(key, task, head, End { fence: head.fence.next(), why, said }, subject, draft);
    defeat.note(state, draft);
    report_failure(task, draft);
}

pub(crate) fn end_exhausted(
    key: &TaskKey,
    task: &TaskRef<'_>,
    head: &TaskHead,
    End { fence, why, said }: End,
    mut subject: Subject,
    draft: &mut Draft<'_, '_>,
) {
    let category = head.last_error.unwrap_or(ErrorCategory::Unknown);
    let finish = TaskChangeKind::Finish {
        fence,
        outcome: Outcome::Failed,
        attempts: head.attempts,
        error: Some(category),
    };
    draft.change(key, finish);
    let message = match task.entry.message {
        Some(message) => message,
        None => draft.message_id(),
    };
    draft.bury(key, message, head.run, why.text(), Some(said));
    draft.change(key, TaskChangeKind::Bury { letter: message });
    let failed = TaskFailed {
        task: identity(&key.request, task),
        error: why.text().to_owned(),
        error_category: category,
        retry_count: head.attempts,
        source: FailureSource::Dlq,
        code: None,
        // The events of the attempts say what they used.
        duration_ms: None,
        usage: None,
        session_id: None,
        fence: Some(fence),
    };
    let by = By::component(Origin::DlqProcessor);
    draft.event(&mut subject, KnownType::TaskFailed, by, Json::of(&failed));
}

/// Tells the job that a task of it failed, once per task and run.
pub(crate) fn report_failure(task: &TaskRef<'_>, draft: &mut Draft<'_, '_>) {
    let TaskPlace::InJob { job, index } = task.place else { return };
    let mut subject = draft.job_subject(job);
    subject.not_before(draft.last_time_of(&job.request_of(index)));
    let detected = JobFailureDetected {
        job_id: job.head.job,
        failed_task_id: job.node(index).spec.task_id.clone(),
        statuses: statuses::of(job, (index, PublicState::Failed), draft.policy()),
    };
    let by = By::component(Origin::Dispatcher);
    draft.event(&mut subject, KnownType::JobFailureDetected, by, Json::of(&detected));
}
