//! Errors: occurrences are counted, and marks change their state.

use std::sync::Arc;

use tidemill_model::workflow::{ErrorCode, WorkflowRunId};
use tidemill_model::{EventId, TenantId, Timestamp};

use crate::kernel::draft::Draft;
use crate::kernel::record::{RecordKey, RecordValue};
use crate::kernel::reply::Refusal;
use crate::kernel::state::State;
use crate::parking::unpark;
use crate::triage::notes::Held;
use crate::triage::{
    CODES_MAX, Cell, ERROR_GROUPS_MAX, ErrorGroup, ErrorMark, ErrorState, GroupKind, Ignored, Mark, MarkItem,
    OCCURRENCES_MAX, OTHER_CODE, Occurrence, Sample, TriageError, bulk_steps,
};

/// An error that occurred.
pub(crate) struct Occurred<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) execution: &'a WorkflowRunId,
    pub(crate) code: &'a ErrorCode,
    pub(crate) kind: GroupKind,
    pub(crate) title: Option<&'a str>,
    pub(crate) cell: &'a Cell,
    pub(crate) event: EventId,
    pub(crate) index: u32,
    pub(crate) at: Timestamp,
}

pub(crate) fn occurs(
    state: &State,
    execution: Held,
    occurred: &Occurred<'_>,
    draft: &mut Draft<'_, '_>,
) -> Result<(), Refusal> {
    let Occurred { tenant, code, at, .. } = *occurred;
    let now = draft.now();
    let group = group_of(state, tenant, code, draft);
    if !draft.notes().is_there(group) {
        // There is always room for those that find none.
        if code.as_str() != OTHER_CODE && is_full(state, tenant, draft) {
            return Err(Refusal::TooManyCodes { code: code.clone(), limit: ERROR_GROUPS_MAX });
        }
        let made = ErrorGroup::new(code.clone(), occurred.kind, occurred.title.map(Arc::from), at);
        draft.notes().new_groups += 1;
        draft.notes().put(group, Some(RecordValue::ErrorGroup(Arc::new(made))), None);
    }
    let error = draft.notes().find(state, RecordKey::triage_error(tenant, code, occurred.execution));
    let known = draft.notes().error(error).map(|known| (known.state, known.clock, known.cell));
    let sample = Sample {
        execution: occurred.execution.clone(),
        event: occurred.event,
        index: occurred.index,
        at,
        of_task: occurred.kind == GroupKind::Task,
    };
    let counted = draft.notes().change_group(group, |group| {
        let before = known.map(|(state, clock, _)| group.state_of(state, clock));
        let after = group.state_after(before);
        let here = group.cell(occurred.cell);
        let cell = known.map_or(here, |(.., cell)| (cell as usize).min(group.cells.len() - 1));
        group.move_one(cell, before, Some(after));
        group.occurred(here, sample);
        let clock = group.clock;
        // Perhaps it was ignored until it occurred a number of times.
        group.lapse(now);
        (after, clock, cell)
    });
    let Some((after, clock, cell)) = counted else { return Ok(()) };
    if !draft.notes().is_there(error) {
        let made = TriageError {
            code: code.clone(),
            execution: occurred.execution.clone(),
            count: 0,
            first_seen: at,
            last_seen: at,
            state: after,
            clock,
            cell: u32::try_from(cell).unwrap_or(u32::MAX),
            occurrences: Vec::new(),
            by: None,
            reason: None,
        };
        draft.notes().put(error, Some(RecordValue::TriageError(Arc::new(made))), None);
    }
    let occurrence = Occurrence { event: occurred.event, index: occurred.index, at };
    let last = draft.notes().change_error(error, |known| {
        if known.state != after {
            (known.by, known.reason) = (None, None);
        }
        (known.state, known.clock) = (after, clock);
        known.count += 1;
        known.first_seen = known.first_seen.min(at);
        known.last_seen = known.last_seen.max(at);
        if known.occurrences.len() >= OCCURRENCES_MAX {
            known.occurrences.remove(0);
        }
        known.occurrences.push(occurrence);
        known.last_seen
    });
    let kept = draft.policy().triage_millis;
    draft.notes().expire(error, last.map(|last| last.plus(kept)));
    draft.notes().change_execution(execution, |known| {
        if known.codes.len() < CODES_MAX && !known.codes.contains(code) {
            known.codes.push(code.clone());
        }
    });
    Ok(())
}

pub(crate) fn mark(
    state: &State,
    tenant: &TenantId,
    item: &MarkItem,
    at: Timestamp,
    draft: &mut Draft<'_, '_>,
) -> Result<u64, Refusal> {
    match (&item.execution, &item.code) {
        (None, Some(code)) => Ok(mark_code(state, tenant, code, item, draft)),
        (Some(execution), code) => mark_execution(state, tenant, execution, code.as_ref(), item, at, draft),
        (None, None) => Ok(0),
    }
}

fn mark_code(
    state: &State,
    tenant: &TenantId,
    code: &ErrorCode,
    item: &MarkItem,
    draft: &mut Draft<'_, '_>,
) -> u64 {
    let group = group_of(state, tenant, code, draft);
    let since = draft.now();
    let mark = Mark { clock: 0, since, by: item.by.clone(), reason: item.reason.clone() };
    let changed = draft.notes().change_group(group, |group| match item.mark {
        ErrorMark::Resolve => group.settle(ErrorState::Resolved, mark),
        ErrorMark::Reopen => group.settle(ErrorState::Open, mark),
        ErrorMark::Unrecoverable => group.give_up(mark),
        ErrorMark::Ignore(until) => {
            let total = group.counts().occurrences;
            let until_occurrences = until.occurrences.map(|more| total.saturating_add(more));
            group.ignore(Ignored { mark, until: until.time, until_occurrences, ended: None })
        }
    });
    if item.mark == ErrorMark::Resolve && draft.policy().auto_resume {
        bulk_steps::resume_settled(state, tenant, code, draft);
    }
    changed.unwrap_or(0)
}

fn mark_execution(
    state: &State,
    tenant: &TenantId,
    execution: &WorkflowRunId,
    code: Option<&ErrorCode>,
    item: &MarkItem,
    at: Timestamp,
    draft: &mut Draft<'_, '_>,
) -> Result<u64, Refusal> {
    let held = draft.notes().find(state, RecordKey::triage_execution(tenant, execution));
    let Some(known) = draft.notes().execution(held) else { return Ok(0) };
    let codes = match code {
        Some(code) => vec![code.clone()],
        None => known.codes.clone(),
    };
    let mut changed = 0;
    for code in &codes {
        let to = |before| match item.mark {
            ErrorMark::Resolve => ErrorState::Resolved,
            ErrorMark::Reopen => ErrorState::Open,
            ErrorMark::Unrecoverable if before == ErrorState::Resolved => before,
            ErrorMark::Unrecoverable => ErrorState::Unrecoverable,
            ErrorMark::Ignore(_) => before,
        };
        let turned =
            turn_error(state, tenant, code, execution, to, (item.by.as_ref(), item.reason.as_ref()), draft);
        changed += u64::from(turned);
    }
    if item.mark == ErrorMark::Resolve && draft.policy().auto_resume {
        unpark::resume_if_settled(state, tenant, held, at, draft)?;
    }
    Ok(changed)
}

/// Sets the state of one error by itself. Says whether that changed anything.
pub(crate) fn turn_error(
    state: &State,
    tenant: &TenantId,
    code: &ErrorCode,
    execution: &WorkflowRunId,
    to: impl FnOnce(ErrorState) -> ErrorState,
    (by, reason): (Option<&Arc<str>>, Option<&Arc<str>>),
    draft: &mut Draft<'_, '_>,
) -> bool {
    let error = draft.notes().find(state, RecordKey::triage_error(tenant, code, execution));
    let Some(known) = draft.notes().error(error) else { return false };
    let (was, clock, cell) = (known.state, known.clock, known.cell as usize);
    let group = group_of(state, tenant, code, draft);
    let Some(found) = draft.notes().group(group) else { return false };
    let before = found.state_of(was, clock);
    let after = to(before);
    if before == after {
        return false;
    }
    let clock = draft.notes().change_group(group, |group| {
        group.clock += 1;
        group.move_one(cell.min(group.cells.len() - 1), Some(before), Some(after));
        group.clock
    });
    draft.notes().change_error(error, |known| {
        known.state = after;
        known.clock = clock.unwrap_or(known.clock);
        known.by = by.cloned();
        known.reason = reason.cloned();
    });
    true
}

/// Whether nothing is left of an execution's errors that anybody would have to mend.
pub(crate) fn is_settled(state: &State, tenant: &TenantId, held: Held, draft: &mut Draft<'_, '_>) -> bool {
    let Some(known) = draft.notes().execution(held) else { return false };
    let (id, codes) = (known.id.clone(), known.codes.clone());
    codes.iter().all(|code| {
        let group = group_of(state, tenant, code, draft);
        let error = draft.notes().find(state, RecordKey::triage_error(tenant, code, &id));
        let notes = draft.notes();
        match (notes.group(group), notes.error(error)) {
            (Some(group), Some(error)) => {
                matches!(group.state_of(error.state, error.clock), ErrorState::Resolved | ErrorState::Ignored)
            }
            _ => true,
        }
    })
}

/// The copy of a group, as it is now.
pub(crate) fn group_of(
    state: &State,
    tenant: &TenantId,
    code: &ErrorCode,
    draft: &mut Draft<'_, '_>,
) -> Held {
    let now = draft.now();
    let held = draft.notes().find(state, RecordKey::error_group(tenant, code));
    if draft.notes().group(held).is_some_and(ErrorGroup::is_ignored) {
        draft.notes().change_group(held, |group| group.lapse(now));
    }
    held
}

pub(crate) fn is_full(state: &State, tenant: &TenantId, draft: &mut Draft<'_, '_>) -> bool {
    state.triage().group_count(tenant) + draft.notes().new_groups >= ERROR_GROUPS_MAX
}
