//! Matched: what matched is queued in the commit that moves the cursor.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_model::{ScriptId, SubscriptionId, TenantId, Timestamp};

use crate::kernel::commit::RecordWrite;
use crate::kernel::decision::Decision;
use crate::kernel::draft::Draft;
use crate::kernel::record::{RecordKey, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::scripts::execution::{ExecutionId, ExecutionStatus, ScriptExecution, SourceEvent};

/// Moves the place up to which events were matched with subscriptions, and queues what matched.
#[derive(Debug, Clone)]
pub struct Match {
    /// The tenant whose events are matched apart from those of all others, if this is about one.
    pub lane: Option<TenantId>,
    /// The version that the cursor's record must have; 0 means absent.
    pub cursor_version: u64,
    /// The number of the last event that was matched. `None` removes the cursor: nobody follows any more.
    pub to: Option<u64>,
    /// Those that are there already are left as they are.
    pub executions: Vec<NewExecution>,
}

/// A script that is to run for an event.
#[derive(Debug, Clone)]
pub struct NewExecution {
    pub tenant: TenantId,
    pub script: ScriptId,
    pub subscription: SubscriptionId,
    pub event: SourceEvent,
}

impl Decision for Match {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        let mut keys = vec![RowKey::Record(RecordKey::scripts_cursor_of(self.lane.as_ref()))];
        keys.extend(self.executions.iter().map(|new| {
            let id = ExecutionId::of(new.event.id, &new.subscription);
            RowKey::Record(RecordKey::execution(&new.tenant, id))
        }));
        keys
    }

    fn log_bytes(&self) -> u64 {
        self.executions.iter().map(|new| new.event.len() as u64 + 1_000).sum()
    }

    fn large_field(&self) -> &'static str {
        "executions"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        matched(state, self, draft)
    }
}

pub(crate) fn matched(state: &State, command: &Match, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let cursor = RecordKey::scripts_cursor_of(command.lane.as_ref());
    let actual = state.record(&cursor).map_or(0, |record| record.version);
    if actual != command.cursor_version {
        return Err(Refusal::RecordConflict { expected: command.cursor_version, actual });
    }
    let mut created = HashSet::new();
    for new in &command.executions {
        let id = ExecutionId::of(new.event.id, &new.subscription);
        let key = RecordKey::execution(&new.tenant, id);
        if state.record(&key).is_some() || !created.insert(key.clone()) {
            continue;
        }
        let execution = queued(id, new, draft);
        draft.record(RecordWrite::over(key, 0, RecordValue::Execution(Box::new(execution))));
    }
    let stays = match (command.to, state.record(&cursor).map(|record| &record.value)) {
        (Some(to), Some(RecordValue::Bytes(bytes))) => bytes.as_ref() == to.to_le_bytes(),
        (to, at) => to.is_none() && at.is_none(),
    };
    let cursor_version = if stays {
        actual
    } else if let Some(to) = command.to {
        let value = RecordValue::Bytes(Arc::from(to.to_le_bytes().as_slice()));
        draft.record(RecordWrite::over(cursor, actual, value));
        actual + 1
    } else {
        draft.record(RecordWrite::Put { key: cursor, record: None });
        0
    };
    Ok(Reply::Matched { created: u32::try_from(created.len()).unwrap_or(u32::MAX), cursor_version })
}

pub(crate) fn queued(id: ExecutionId, new: &NewExecution, draft: &Draft<'_, '_>) -> ScriptExecution {
    ScriptExecution {
        id,
        script_id: new.script.clone(),
        subscription_id: new.subscription.clone(),
        event: new.event.clone(),
        status: ExecutionStatus::Queued,
        attempts: 0,
        next_run_at: draft.now(),
        created_at: draft.now(),
        ended_at: None,
        duration_ms: None,
        error: None,
        result: None,
        logs: None,
        replay_of: None,
    }
}
