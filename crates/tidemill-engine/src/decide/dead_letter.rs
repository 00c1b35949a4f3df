//! Dead letters: replay one, or put it aside. Neither ever deletes it.

use tidemill_model::TenantId;

use super::draft::Draft;
use super::resume::{leave_parking, reopen, reopen_job};
use super::tenant_limit;
use crate::commit::{Expect, MessageId, RecordWrite, TaskKey};
use crate::record::{DeadLetter, DeadLetterState, Record, RecordKey, RecordValue};
use crate::reply::{Refusal, Reply};
use crate::state::{Place, State};

pub(super) fn replay(
    state: &State,
    tenant: &TenantId,
    message: MessageId,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let letter = open_letter(state, tenant, message)?.clone();
    let key = TaskKey { tenant: tenant.clone(), request: letter.request.clone() };
    let Some(task) = state.task(&key) else {
        return Err(Refusal::NotFound { what: "task", id: key.request.to_string() });
    };
    match task.entry.head.as_ref() {
        Some(head) if head.outcome().is_none() && !head.is_parked() => {
            draft.enqueue(&key, head.run, draft.now());
        }
        _ => {
            if let Place::InJob { job, .. } = task.place {
                reopen_job(job, draft);
            }
            reopen(&key, &task, draft)?;
            tenant_limit::check_again(state, &key, &task, draft)?;
            leave_parking(state, &key, &task, draft);
        }
    }
    mark(state, tenant, message, &letter, DeadLetterState::Replayed, draft);
    Ok(Reply::Replayed { request: key.request })
}

pub(super) fn discard(
    state: &State,
    tenant: &TenantId,
    message: MessageId,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let letter = open_letter(state, tenant, message)?.clone();
    mark(state, tenant, message, &letter, DeadLetterState::Discarded, draft);
    Ok(Reply::Discarded)
}

fn open_letter<'s>(
    state: &'s State,
    tenant: &TenantId,
    message: MessageId,
) -> Result<&'s DeadLetter, Refusal> {
    match state.record(&RecordKey::dead_letter(tenant, message)).map(|record| &record.value) {
        Some(RecordValue::DeadLetter(letter)) if letter.state == DeadLetterState::Open => Ok(letter),
        Some(_) => Err(Refusal::NotOpen(format!("{:032x}", message.0))),
        None => Err(Refusal::NotFound { what: "dead letter", id: format!("{:032x}", message.0) }),
    }
}

fn mark(
    state: &State,
    tenant: &TenantId,
    message: MessageId,
    letter: &DeadLetter,
    new: DeadLetterState,
    draft: &mut Draft<'_, '_>,
) {
    let key = RecordKey::dead_letter(tenant, message);
    let version = state.record(&key).map_or(0, |record| record.version);
    draft.expect(Expect::RecordAt { key: key.clone(), version });
    let value = RecordValue::DeadLetter(DeadLetter { state: new, ..letter.clone() });
    let record = Some(Record { version: version + 1, expires_at: None, value });
    draft.record(RecordWrite::Put { key, record });
}
