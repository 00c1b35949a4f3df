//! Triage: what workflow events change of executions. Errors are in `triage_errors`, those that wait in `triage_waits`,
//! tasks that run here in `triage_tasks`.
//!
//! All of it is written in the commit of the event that tells it. Nothing here reads JSON.

use std::sync::Arc;

use tidemill_model::workflow::contract::Standing;
use tidemill_model::workflow::{WorkflowRunId, WorkflowStatus};
use tidemill_model::{EventId, TenantId, Timestamp};

use crate::kernel::draft::Draft;
use crate::kernel::record::{Effect, Idempotency, RecordKey, RecordValue};
use crate::kernel::reply::Refusal;
use crate::kernel::state::State;
use crate::parking::wait::{more_codes, park, put_token, went_on};
use crate::triage::marks::{Occurred, mark, occurs};
use crate::triage::notes::Held;
use crate::triage::{
    Cell, GroupKind, SEEN_MAX, Seen, StatusItem, TokenState, TokenTaken, TriageExecution, WorkflowItem,
};

pub(crate) use crate::triage::rows::{execution_rows, forget, forget_rows, item_rows, task_rows};
pub(crate) use crate::triage::tasks::{TaskError, park_task, task_completed, task_failed, unpark_task};

/// The route under which repeated marks and old events are known.
const ONCE: &str = "workflow";

/// A workflow event that was taken in before, if it is this one.
pub(crate) fn repeated(
    state: &State,
    tenant: &TenantId,
    item: &WorkflowItem,
    draft: &mut Draft<'_, '_>,
) -> Option<EventId> {
    let once = item.once()?;
    if let WorkflowItem::Status(item) = item {
        let held = draft.notes().find(state, RecordKey::triage_execution(tenant, &item.execution));
        let execution = draft.notes().execution(held)?;
        let seen = execution.seen.iter().find(|seen| seen.once == short(&once));
        if let Some(seen) = seen {
            return Some(seen.event);
        }
        if !execution.has_spilled {
            return None;
        }
    }
    let held = draft.notes().find(state, once_key(tenant, &once));
    match draft.notes().value(held) {
        Some(RecordValue::Idempotency(Idempotency { effect: Effect::Event(event), .. })) => Some(*event),
        _ => None,
    }
}

/// What a workflow event did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TakenIn {
    /// How many errors changed their state because of a mark.
    pub(crate) changed: u64,
    /// What became of its token, if it brought one.
    pub(crate) token: Option<TokenTaken>,
}

/// Notes what a workflow event says.
pub(crate) fn take_in(
    state: &State,
    tenant: &TenantId,
    item: &WorkflowItem,
    event: EventId,
    at: Timestamp,
    draft: &mut Draft<'_, '_>,
) -> Result<TakenIn, Refusal> {
    match item {
        WorkflowItem::Status(item) => {
            let token = status(state, tenant, item, event, at, draft)?;
            Ok(TakenIn { changed: 0, token })
        }
        WorkflowItem::Mark(item) => {
            if let Some(once) = &item.once {
                let held = draft.notes().find(state, once_key(tenant, once));
                remember(held, *once, event, draft);
            }
            let changed = mark(state, tenant, item, at, draft)?;
            Ok(TakenIn { changed, token: None })
        }
    }
}

fn status(
    state: &State,
    tenant: &TenantId,
    item: &StatusItem,
    event: EventId,
    at: Timestamp,
    draft: &mut Draft<'_, '_>,
) -> Result<Option<TokenTaken>, Refusal> {
    let held = draft.notes().find(state, RecordKey::triage_execution(tenant, &item.execution));
    let is_newer = match draft.notes().execution(held) {
        None => true,
        // A task that runs here tells its own state; nobody else does.
        Some(known) if known.task.is_some() => false,
        Some(known) => {
            let digest = item.token.as_ref().map(|token| &token.digest);
            let other_token = digest.is_some() && digest != known.token_digest.as_ref();
            let stood = Standing {
                at: known.status_at,
                whole_second: known.whole_second,
                status: known.status,
                step: &known.cell.step,
            };
            let stands =
                Standing { at, whole_second: item.whole_second, status: item.status, step: &item.cell.step };
            stood.gives_way_to(&stands, other_token)
        }
    };
    if !draft.notes().is_there(held) {
        let made = new_execution(&item.execution, &item.cell, at);
        draft.notes().put(held, Some(RecordValue::TriageExecution(Arc::new(made))), None);
    }
    let spilled = draft.notes().change_execution(held, |known| {
        known.last_event_at = known.last_event_at.max(at);
        known.first_event_at = known.first_event_at.min(at);
        if is_newer {
            known.cell = item.cell.clone();
            known.status = item.status;
            known.status_at = at;
            known.whole_second = item.whole_second;
        }
        let once = item.once.as_ref().map(short)?;
        known.seen.push(Seen { once, event });
        (known.seen.len() > SEEN_MAX).then(|| {
            known.has_spilled = true;
            known.seen.remove(0)
        })
    });
    if let Some(old) = spilled.flatten() {
        let place = draft.notes().find(state, spilled_key(tenant, old.once));
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&old.once.to_be_bytes());
        remember(place, hash, old.event, draft);
    }
    for (index, code) in (0..).zip(&item.errors) {
        let occurred = Occurred {
            tenant,
            execution: &item.execution,
            code,
            kind: GroupKind::Workflow,
            title: None,
            cell: &item.cell,
            event,
            index,
            at,
        };
        occurs(state, held, &occurred, draft)?;
    }
    let mut became = None;
    match (item.status, &item.token) {
        (WorkflowStatus::Failed, Some(token)) if is_newer => {
            became = park(state, tenant, held, token, &item.errors, None, draft);
        }
        (WorkflowStatus::Failed, None) if is_newer => more_codes(state, tenant, held, &item.errors, draft),
        _ if is_newer => went_on(state, tenant, held, at, draft),
        // What came late is an error of it all the same.
        _ => more_codes(state, tenant, held, &item.errors, draft),
    }
    // A token that came too late is recorded, so that its holder learns why it does not work.
    if let Some(token) = item.token.as_ref().filter(|_| !is_newer && item.status == WorkflowStatus::Failed) {
        let place = draft.notes().find(state, RecordKey::token(tenant, &token.digest));
        if !draft.notes().is_there(place) {
            put_token(place, &item.execution, token, TokenState::Replaced, draft);
        }
        became = Some(TokenTaken::Late);
    }
    keep(held, draft);
    Ok(became)
}

fn short(once: &[u8; 32]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&once[..8]);
    u64::from_be_bytes(bytes)
}

pub(crate) fn once_key(tenant: &TenantId, once: &[u8; 32]) -> RecordKey {
    spilled_key(tenant, short(once))
}

fn spilled_key(tenant: &TenantId, once: u64) -> RecordKey {
    RecordKey::idempotency(tenant, ONCE, &format!("{once:016x}"))
}

fn remember(held: Held, body_hash: [u8; 32], event: EventId, draft: &mut Draft<'_, '_>) {
    let expires_at = Some(draft.now().plus(draft.policy().idempotency_millis));
    let value = RecordValue::Idempotency(Idempotency { body_hash, effect: Effect::Event(event) });
    draft.notes().put(held, Some(value), expires_at);
}

pub(crate) fn new_execution(id: &WorkflowRunId, cell: &Cell, at: Timestamp) -> TriageExecution {
    TriageExecution {
        id: id.clone(),
        cell: cell.clone(),
        status: WorkflowStatus::Scheduled,
        status_at: at,
        whole_second: false,
        last_event_at: at,
        first_event_at: at,
        parked: false,
        codes: Vec::new(),
        token: TokenState::None,
        token_digest: None,
        outcome: None,
        task: None,
        seen: Vec::new(),
        has_spilled: false,
    }
}

/// Sets when an execution's record may go.
pub(crate) fn keep(held: Held, draft: &mut Draft<'_, '_>) {
    let kept = draft.policy().triage_millis;
    let at = draft.notes().execution(held).filter(|known| !known.parked);
    let at = at.map(|known| known.last_event_at.plus(kept));
    draft.notes().expire(held, at);
}
