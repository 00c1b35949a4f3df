//! Release: a worker gives a task back, as at shutdown. The message is visible at once and no attempt is counted.

use tidemill_model::events::properties::TaskProcessingFailed;
use tidemill_model::{ErrorCategory, Fence, Json, KnownType, Timestamp, WorkerId};

use crate::kernel::command::Spent;
use crate::kernel::commit::{Delivered, TaskChangeKind, TaskKey};
use crate::kernel::decision::{Decision, MayFail};
use crate::kernel::draft::{By, Draft, identity};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::usage::charge::{self, Charge};
use crate::work::rows::task_row;
use crate::work::running::finish::{cut, held_for, keep_session};
use crate::work::running::heartbeat::held;

/// A worker gives a task back without an outcome, as at shutdown.
#[derive(Debug, Clone)]
pub struct Release {
    pub task: TaskKey,
    pub fence: Fence,
    pub worker: WorkerId,
    /// Recorded as `Task Processing Failed`; no attempt is counted.
    pub reason: Option<String>,
    /// Recorded with the reason.
    pub spent: Spent,
}

impl Decision for Release {
    fn touches(&self, state: &State, now: Timestamp) -> Vec<RowKey> {
        let mut keys = vec![task_row(&self.task)];
        if self.spent.usage.is_some() {
            keys.extend(charge::rows(state, &self.task, now));
        }
        keys
    }

    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::OfAnyTenant
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

pub(crate) fn decide(state: &State, command: &Release, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let (task, _) = held(state, &command.task, command.fence)?;
    let head = task.entry.head.as_ref().expect("a held task has a head");
    if let Some(reason) = &command.reason {
        // The event says that work had begun, so the head must say it too.
        draft.change(&command.task, TaskChangeKind::Begin { fence: command.fence });
        let mut subject = draft.task_subject(&command.task, &task);
        let failed = TaskProcessingFailed {
            task: identity(&command.task.request, &task),
            // Numbered like any attempt, and marked as one that does not count.
            attempt_number: head.attempts.saturating_add(1),
            counted: false,
            parked: false,
            error: cut(reason, draft.policy().error_chars_max),
            error_category: ErrorCategory::ServerError,
            code: None,
            duration_ms: command.spent.usage.map(|_| held_for(head, draft)),
            usage: command.spent.usage,
            session_id: command.spent.session_id.clone(),
            fence: command.fence,
        };
        let by = By::worker(&command.worker);
        draft.event(&mut subject, KnownType::TaskProcessingFailed, by, Json::of(&failed));
        if let (Some(usage), Some(at)) = (&command.spent.usage, subject.last) {
            let charge = Charge { usage, duration_millis: held_for(head, draft), is_end: false, at };
            charge::charge(state, &command.task, &task, &charge, draft);
        }
    }
    draft.change(&command.task, TaskChangeKind::Release { fence: command.fence, failed: None });
    if command.reason.is_some() {
        keep_session(&command.task, command.fence, &command.spent, draft);
    }
    match task.entry.message {
        Some(message) => draft.show_at(message, draft.now(), Delivered::No),
        None => {
            draft.enqueue(&command.task, head.run, draft.now());
        }
    }
    Ok(Reply::Released)
}
