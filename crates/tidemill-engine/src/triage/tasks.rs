//! Tasks that run here, as executions of their own.

use std::sync::Arc;

use tidemill_model::workflow::{ErrorCode, WorkflowRunId, WorkflowStatus};
use tidemill_model::{EventId, Timestamp};

use crate::kernel::commit::TaskKey;
use crate::kernel::draft::Draft;
use crate::kernel::record::{RecordKey, RecordValue};
use crate::kernel::state::State;
use crate::parking::wait::{end_wait, park};
use crate::triage::ingest::{keep, new_execution};
use crate::triage::marks::{Occurred, group_of, is_full, occurs, turn_error};
use crate::triage::{
    Cell, ErrorState, GroupKind, NewToken, OTHER_CODE, TokenState, TriageExecution, Unparked,
};

/// An error that ended a task that runs here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskError<'a> {
    pub(crate) task: &'a TaskKey,
    pub(crate) code: &'a ErrorCode,
    pub(crate) title: Option<&'a str>,
    pub(crate) cell: &'a Cell,
    /// The task's event that tells it.
    pub(crate) event: EventId,
    pub(crate) at: Timestamp,
}

/// Notes a failure of a task, as that of an execution of its own.
pub(crate) fn task_failed(state: &State, draft: &mut Draft<'_, '_>, error: &TaskError<'_>) {
    let tenant = &error.task.tenant;
    let execution = WorkflowRunId::from(&error.task.request);
    let held = draft.notes().find(state, RecordKey::triage_execution(tenant, &execution));
    if !draft.notes().is_there(held) {
        let made = TriageExecution {
            task: Some(error.task.request.clone()),
            ..new_execution(&execution, error.cell, error.at)
        };
        draft.notes().put(held, Some(RecordValue::TriageExecution(Arc::new(made))), None);
    }
    draft.notes().change_execution(held, |known| {
        known.task = Some(error.task.request.clone());
        known.cell = error.cell.clone();
        known.status = WorkflowStatus::Failed;
        known.status_at = error.at;
        known.last_event_at = known.last_event_at.max(error.at);
        if !known.parked {
            known.outcome = None;
        }
    });
    let other = ErrorCode::trusted(OTHER_CODE);
    let group = group_of(state, tenant, error.code, draft);
    // A task's failure is never refused.
    let has_room = draft.notes().is_there(group) || !is_full(state, tenant, draft);
    let (code, title) = if has_room { (error.code, error.title) } else { (&other, Some("other errors")) };
    let occurred = Occurred {
        tenant,
        execution: &execution,
        code,
        kind: GroupKind::Task,
        title,
        cell: error.cell,
        event: error.event,
        index: 0,
        at: error.at,
    };
    let _ = occurs(state, held, &occurred, draft);
    keep(held, draft);
}

/// Parks a task whose failure was just noted.
pub(crate) fn park_task(
    state: &State,
    draft: &mut Draft<'_, '_>,
    task: &TaskKey,
    token: &NewToken,
    park_timeout_millis: Option<u64>,
    code: &ErrorCode,
) {
    let execution = WorkflowRunId::from(&task.request);
    let held = draft.notes().find(state, RecordKey::triage_execution(&task.tenant, &execution));
    park(state, &task.tenant, held, token, std::slice::from_ref(code), park_timeout_millis, draft);
}

/// A task that failed before came to a good end: its errors are mended.
pub(crate) fn task_completed(state: &State, draft: &mut Draft<'_, '_>, task: &TaskKey) {
    if !has_triage(state, task) {
        return;
    }
    let execution = WorkflowRunId::from(&task.request);
    let held = draft.notes().find(state, RecordKey::triage_execution(&task.tenant, &execution));
    let now = draft.now();
    let codes = draft.notes().change_execution(held, |known| {
        known.status = WorkflowStatus::Succeeded;
        known.status_at = now;
        known.last_event_at = known.last_event_at.max(now);
        known.codes.clone()
    });
    let by: Arc<str> = Arc::from("completed");
    for code in codes.unwrap_or_default() {
        let to = |_| ErrorState::Resolved;
        turn_error(state, &task.tenant, &code, &execution, to, (Some(&by), None), draft);
    }
    keep(held, draft);
}

/// A task that was parked waits no longer, whatever becomes of it.
pub(crate) fn unpark_task(state: &State, draft: &mut Draft<'_, '_>, task: &TaskKey, how: Unparked) {
    let execution = WorkflowRunId::from(&task.request);
    let held = draft.notes().find(state, RecordKey::triage_execution(&task.tenant, &execution));
    if draft.notes().execution(held).is_some_and(|known| known.parked) {
        let token =
            if matches!(how, Unparked::Expired { .. }) { TokenState::Expired } else { TokenState::Used };
        end_wait(state, &task.tenant, held, how, token, draft);
    }
}

/// Whether a task failed before. Its record is in memory if it was among the rows of the command.
fn has_triage(state: &State, task: &TaskKey) -> bool {
    let execution = WorkflowRunId::from(&task.request);
    state.record(&RecordKey::triage_execution(&task.tenant, &execution)).is_some()
}
