//! Dead letters of scripts: run again as an execution of their own, or put aside.

use tidemill_model::{TenantId, Timestamp};

use crate::kernel::command::NewExecution;
use crate::kernel::commit::RecordWrite;
use crate::kernel::decision::{Decision, LETTER_BYTES};
use crate::kernel::draft::Draft;
use crate::kernel::record::{DeadLetterState, RecordKey, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::scripts::execution::{ExecutionId, ScriptExecution, ScriptLetter};
use crate::scripts::matched::queued;

/// Runs a script's dead letter again.
#[derive(Debug, Clone)]
pub struct ReplayLetter {
    pub tenant: TenantId,
    pub letter: ExecutionId,
}

/// Puts a script's dead letter aside.
#[derive(Debug, Clone)]
pub struct DiscardLetter {
    pub tenant: TenantId,
    pub letter: ExecutionId,
}

impl Decision for ReplayLetter {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![RowKey::Record(RecordKey::script_letter(&self.tenant, self.letter))]
    }

    fn log_bytes(&self) -> u64 {
        LETTER_BYTES
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        replay(state, &self.tenant, self.letter, draft)
    }
}

impl Decision for DiscardLetter {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![RowKey::Record(RecordKey::script_letter(&self.tenant, self.letter))]
    }

    fn log_bytes(&self) -> u64 {
        LETTER_BYTES
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        discard(state, &self.tenant, self.letter, draft)
    }
}

/// Runs exactly what failed once more, as an execution of its own.
pub(crate) fn replay(
    state: &State,
    tenant: &TenantId,
    id: ExecutionId,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let letter = open_letter(state, tenant, id)?.clone();
    let execution = ExecutionId::from_u128(draft.event_id().as_u128());
    let new = NewExecution {
        tenant: tenant.clone(),
        script: letter.script_id.clone(),
        subscription: letter.subscription_id.clone(),
        event: letter.event.clone(),
    };
    let again = ScriptExecution { replay_of: Some(id), ..queued(execution, &new, draft) };
    let key = RecordKey::execution(tenant, execution);
    draft.record(RecordWrite::over(key, 0, RecordValue::Execution(Box::new(again))));
    let marked = ScriptLetter { state: DeadLetterState::Replayed, replayed_by: Some(execution), ..letter };
    mark(state, tenant, marked, draft);
    Ok(Reply::LetterReplayed { execution })
}

pub(crate) fn discard(
    state: &State,
    tenant: &TenantId,
    id: ExecutionId,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let letter = open_letter(state, tenant, id)?.clone();
    mark(state, tenant, ScriptLetter { state: DeadLetterState::Discarded, ..letter }, draft);
    Ok(Reply::Discarded)
}

fn open_letter<'s>(
    state: &'s State,
    tenant: &TenantId,
    id: ExecutionId,
) -> Result<&'s ScriptLetter, Refusal> {
    match state.record(&RecordKey::script_letter(tenant, id)).map(|record| &record.value) {
        Some(RecordValue::ScriptLetter(letter)) if letter.state == DeadLetterState::Open => Ok(letter),
        Some(_) => Err(Refusal::NotOpen(id.to_string())),
        None => Err(Refusal::NotFound { what: "dead letter", id: id.to_string() }),
    }
}

fn mark(state: &State, tenant: &TenantId, letter: ScriptLetter, draft: &mut Draft<'_, '_>) {
    let key = RecordKey::script_letter(tenant, letter.id);
    let version = state.record(&key).map_or(0, |record| record.version);
    draft.record(RecordWrite::over(key, version, RecordValue::ScriptLetter(Box::new(letter))));
}
