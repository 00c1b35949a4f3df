//! Dead letters: replay one, or put it aside. Neither ever deletes it.

use std::sync::Arc;

use tidemill_model::{RequestId, TenantId, Timestamp};

use crate::engine::limits::LIST_MAX;
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::Command;
use crate::kernel::commit::{MessageId, RecordWrite, TaskKey};
use crate::kernel::decision::Decision;
use crate::kernel::draft::Draft;
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{DeadLetter, DeadLetterState, Record, RecordKey, RecordKind, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::job::KeptTask;
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{State, TaskPlace, TaskRef};
use crate::work::resume::{leave_parking, reopen, reopen_job};
use crate::work::rows::steered_rows;
use crate::work::submitting::tenant_limit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterPage {
    pub letters: Vec<DeadLetter>,
    /// Where to go on; `None` when nothing follows.
    pub next: Option<MessageId>,
}

/// Puts what a dead letter holds into the queue again.
#[derive(Debug, Clone)]
pub struct Replay {
    pub tenant: TenantId,
    pub message: MessageId,
}

impl Decision for Replay {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        replied_rows(state, &self.tenant, self.message)
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        replay(state, &self.tenant, self.message, draft)
    }
}

/// Puts a dead letter aside.
#[derive(Debug, Clone)]
pub struct Discard {
    pub tenant: TenantId,
    pub message: MessageId,
}

impl Decision for Discard {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        replied_rows(state, &self.tenant, self.message)
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        discard(state, &self.tenant, self.message, draft)
    }
}

pub(crate) fn replay(
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
            if let TaskPlace::InJob { job, .. } = task.place {
                reopen_job(job, draft);
            }
            reopen(&key, &task, draft)?;
            tenant_limit::check_again(state, &key, &task, draft)?;
            leave_parking(state, &key, &task, draft);
            if letter_of(task.entry) != Some(message) {
                close_letter(state, &key, &task, draft);
            }
        }
    }
    mark(state, tenant, message, &letter, DeadLetterState::Replayed, draft);
    Ok(Reply::Replayed { request: key.request })
}

pub(crate) fn discard(
    state: &State,
    tenant: &TenantId,
    message: MessageId,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let letter = open_letter(state, tenant, message)?.clone();
    mark(state, tenant, message, &letter, DeadLetterState::Discarded, draft);
    Ok(Reply::Discarded)
}

/// The dead letter that the newest run of a task ended in.
fn letter_of(entry: &KeptTask) -> Option<MessageId> {
    entry.head.as_ref()?.letter.map(MessageId)
}

/// The row that `close_letter` needs.
pub(crate) fn letter_row(tenant: &TenantId, entry: &KeptTask) -> Option<RowKey> {
    letter_of(entry).map(|message| RowKey::Record(RecordKey::dead_letter(tenant, message)))
}

/// A task that runs again needs its dead letter no more: its work is done again, as by a replay.
pub(crate) fn close_letter(state: &State, key: &TaskKey, task: &TaskRef<'_>, draft: &mut Draft<'_, '_>) {
    #[cfg(feature = "faults")]
    if draft.policy().faults.keep_letters_open {
        return;
    }
    let Some(message) = letter_of(task.entry) else { return };
    // Somebody may have put it aside.
    if let Ok(letter) = open_letter(state, &key.tenant, message) {
        mark(state, &key.tenant, message, &letter.clone(), DeadLetterState::Replayed, draft);
    }
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
    let value = RecordValue::DeadLetter(DeadLetter { state: new, ..letter.clone() });
    let record = Some(Record { version: version + 1, expires_at: None, value });
    draft.record(RecordWrite::Put { key, record });
}

/// The rows that a letter and its task need. The task is known once the letter is here.
fn replied_rows(state: &State, tenant: &TenantId, message: MessageId) -> Vec<RowKey> {
    let key = RecordKey::dead_letter(tenant, message);
    let mut rows = Vec::new();
    if let Some(RecordValue::DeadLetter(letter)) = state.record(&key).map(|record| &record.value) {
        let key = TaskKey { tenant: tenant.clone(), request: letter.request.clone() };
        rows.extend(steered_rows(state, &key));
    }
    rows.push(RowKey::Record(key));
    rows
}

impl<B: Backend> Engine<B> {
    /// Runs a dead letter's task again.
    pub async fn replay(&self, tenant: TenantId, message: MessageId) -> Result<RequestId, EngineError> {
        let reply = self.execute(Command::Replay(Replay { tenant, message })).await?;
        take_reply!(reply, Reply::Replayed { request } => request)
    }

    /// Puts a dead letter aside. It stays on record.
    pub async fn discard(&self, tenant: TenantId, message: MessageId) -> Result<(), EngineError> {
        let reply = self.execute(Command::Discard(Discard { tenant, message })).await?;
        take_reply!(reply, Reply::Discarded => ())
    }
}

impl<B: Backend> Engine<B> {
    /// A tenant's dead letters, oldest first; only those in `state` if it is given.
    pub async fn dead_letters(
        &self,
        tenant: TenantId,
        state: Option<DeadLetterState>,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<DeadLetterPage, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let mut letters = Vec::new();
        let mut from = after.map(|message| RecordKey::dead_letter(&tenant, message).id);
        loop {
            let records = self.dead_letter_records(&tenant, from.take()).await?;
            let is_last = records.len() < LIST_MAX;
            for (id, letter) in records {
                if letters.len() == limit {
                    let next = letters.last().map(|letter: &DeadLetter| letter.message);
                    return Ok(DeadLetterPage { letters, next });
                }
                letters.extend(letter.filter(|letter| state.is_none_or(|state| letter.state == state)));
                from = Some(id);
            }
            if is_last {
                return Ok(DeadLetterPage { letters, next: None });
            }
        }
    }

    async fn dead_letter_records(
        &self,
        tenant: &TenantId,
        after: Option<Arc<str>>,
    ) -> Result<Vec<(Arc<str>, Option<DeadLetter>)>, EngineError> {
        let (kind, tenant) = (RecordKind::DeadLetter, Some(tenant.clone()));
        let records = self.inner.backend.records(kind, tenant, after, LIST_MAX).await?;
        let letters = records.into_iter().map(|(key, record)| match record.value {
            RecordValue::DeadLetter(letter) => (key.id, Some(letter)),
            _ => (key.id, None),
        });
        Ok(letters.collect())
    }
}
