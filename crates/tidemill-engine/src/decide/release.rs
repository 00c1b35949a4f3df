//! Release: a worker gives a task back, as at shutdown. The message is visible at once and no attempt is counted.

use tidemill_model::properties::TaskProcessingFailed;
use tidemill_model::{ErrorCategory, Json, KnownType};

use super::draft::{By, Draft, identity};
use super::finish::{cut, held_for, keep_session};
use super::heartbeat::held;
use super::usage::{self, Charge};
use crate::command::Release;
use crate::commit::{Delivered, TaskChangeKind};
use crate::reply::{Refusal, Reply};
use crate::state::State;

pub(super) fn decide(state: &State, command: &Release, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
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
            duration_ms: command.spent.usage.map(|_| held_for(head, draft)),
            usage: command.spent.usage,
            session_id: command.spent.session_id.clone(),
            fence: command.fence,
        };
        let by = By::worker(&command.worker);
        draft.event(&mut subject, KnownType::TaskProcessingFailed, by, Json::of(&failed));
        if let (Some(usage), Some(at)) = (&command.spent.usage, subject.last) {
            let charge = Charge { usage, duration_millis: held_for(head, draft), is_end: false, at };
            usage::charge(state, &command.task, &task, &charge, draft);
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
