//! Forget: remove records whose time is over.

use tidemill_model::Timestamp;

use crate::kernel::commit::RecordWrite;
use crate::kernel::decision::Decision;
use crate::kernel::draft::Draft;
use crate::kernel::record::{RecordKey, RecordKind};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::triage::ingest;

/// Removes those of the records whose time is over.
#[derive(Debug, Clone)]
pub struct Forget {
    pub keys: Vec<RecordKey>,
}

impl Decision for Forget {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        let mut rows: Vec<_> = self.keys.iter().cloned().map(RowKey::Record).collect();
        rows.extend(self.keys.iter().flat_map(|key| ingest::forget_rows(state, key)));
        rows
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        Ok(decide(state, &self.keys, draft))
    }
}

pub(crate) fn decide(state: &State, keys: &[RecordKey], draft: &mut Draft<'_, '_>) -> Reply {
    let mut forgotten = 0;
    for key in keys {
        let Some(record) = state.record(key) else { continue };
        if record.expires_at.is_none_or(|at| at > draft.now()) {
            continue;
        }
        if key.kind == RecordKind::Triage {
            forgotten += u32::from(ingest::forget(state, key, draft));
            continue;
        }
        draft.record(RecordWrite::Put { key: key.clone(), record: None });
        forgotten += 1;
    }
    Reply::Forgotten { records: forgotten }
}
