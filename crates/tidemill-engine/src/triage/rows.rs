//! The rows that triage needs in memory, and when they may go.

use tidemill_model::workflow::{ErrorCode, WorkflowRunId, WorkflowStatus};
use tidemill_model::{RequestId, TenantId};

use crate::kernel::draft::Draft;
use crate::kernel::record::{RecordKey, RecordValue};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::triage::ingest::once_key;
use crate::triage::marks::group_of;
use crate::triage::{CODES_MAX, ErrorState, TriageExecution, WorkflowItem};

/// Adds the rows that a workflow event needs.
pub(crate) fn item_rows(state: &State, tenant: &TenantId, item: &WorkflowItem, rows: &mut Vec<RowKey>) {
    match item {
        WorkflowItem::Status(item) => {
            let key = RecordKey::triage_execution(tenant, &item.execution);
            if let Some(known) = execution_of(state, &key) {
                let may_have =
                    |code: &&ErrorCode| known.codes.len() >= CODES_MAX || known.codes.contains(*code);
                rows.extend(
                    item.errors
                        .iter()
                        .filter(may_have)
                        .map(|code| RowKey::Record(RecordKey::triage_error(tenant, code, &item.execution))),
                );
                let gives_way = known.parked || item.token.is_some();
                if let Some(digest) = known.token_digest.as_ref().filter(|_| gives_way) {
                    rows.push(RowKey::Record(RecordKey::token(tenant, digest)));
                }
                if let Some(once) = item.once.as_ref().filter(|_| known.has_spilled) {
                    rows.push(RowKey::Record(once_key(tenant, once)));
                }
            }
            if let Some(token) = item.token.as_ref().filter(|_| item.status == WorkflowStatus::Failed) {
                rows.push(RowKey::Record(RecordKey::token(tenant, &token.digest)));
            }
            rows.push(RowKey::Record(key));
        }
        WorkflowItem::Mark(item) => {
            if let Some(once) = &item.once {
                rows.push(RowKey::Record(once_key(tenant, once)));
            }
            if let Some(execution) = &item.execution {
                rows.extend(execution_rows(state, tenant, execution));
            }
        }
    }
}

/// The rows of an execution: its own, and then those of its errors and of its token.
pub(crate) fn execution_rows(state: &State, tenant: &TenantId, execution: &WorkflowRunId) -> Vec<RowKey> {
    let key = RecordKey::triage_execution(tenant, execution);
    let mut rows = Vec::new();
    if let Some(known) = execution_of(state, &key) {
        rows.extend(
            known.codes.iter().map(|code| RowKey::Record(RecordKey::triage_error(tenant, code, execution))),
        );
        if let Some(digest) = known.token_digest.as_ref().filter(|_| known.parked) {
            rows.push(RowKey::Record(RecordKey::token(tenant, digest)));
        }
    }
    rows.push(RowKey::Record(key));
    rows
}

/// The rows that failing, completing or unparking a task may need.
pub(crate) fn task_rows(state: &State, tenant: &TenantId, request: &RequestId) -> Vec<RowKey> {
    execution_rows(state, tenant, &WorkflowRunId::from(request))
}

fn execution_of<'s>(state: &'s State, key: &RecordKey) -> Option<&'s TriageExecution> {
    match state.record(key).map(|record| &record.value) {
        Some(RecordValue::TriageExecution(execution)) => Some(execution),
        _ => None,
    }
}

/// The rows that forgetting a triage record needs beside it.
pub(crate) fn forget_rows(state: &State, key: &RecordKey) -> Vec<RowKey> {
    match (&key.tenant, execution_of(state, key)) {
        (Some(tenant), Some(known)) => execution_rows(state, tenant, &known.id),
        _ => Vec::new(),
    }
}

/// Forgets a triage record whose time is over, unless something is still open. Says whether it is gone.
pub(crate) fn forget(state: &State, key: &RecordKey, draft: &mut Draft<'_, '_>) -> bool {
    let Some(tenant) = key.tenant.clone() else { return false };
    let held = draft.notes().find(state, key.clone());
    let later = Some(draft.now().plus(draft.policy().triage_millis));
    match draft.notes().value(held).cloned() {
        Some(RecordValue::TriageError(error)) => {
            let group = group_of(state, &tenant, &error.code, draft);
            let cell = error.cell as usize;
            let stands = draft.notes().group(group).map(|group| group.state_of(error.state, error.clock));
            if stands == Some(ErrorState::Open) {
                draft.notes().expire(held, later);
                return false;
            }
            let is_bare = draft.notes().change_group(group, |group| {
                let cell = cell.min(group.cells.len().saturating_sub(1));
                group.move_one(cell, stands, None);
                group.counts().executions() == 0 && group.unrecoverable.is_none() && !group.is_ignored()
            });
            if is_bare == Some(true) {
                draft.notes().put(group, None, None);
            }
        }
        Some(RecordValue::TriageExecution(known)) => {
            let has_errors = known.codes.iter().any(|code| {
                let key = RecordKey::triage_error(&tenant, code, &known.id);
                let error = draft.notes().find(state, key);
                draft.notes().is_there(error)
            });
            if known.parked || has_errors {
                draft.notes().expire(held, later.filter(|_| !known.parked));
                return false;
            }
        }
        _ => return false,
    }
    draft.notes().put(held, None, None);
    true
}
