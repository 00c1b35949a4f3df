//! Forget: remove records whose time is over.

use super::draft::Draft;
use super::triage;
use crate::commit::RecordWrite;
use crate::record::{RecordKey, RecordKind};
use crate::reply::Reply;
use crate::state::State;

pub(super) fn decide(state: &State, keys: &[RecordKey], draft: &mut Draft<'_, '_>) -> Reply {
    let mut forgotten = 0;
    for key in keys {
        let Some(record) = state.record(key) else { continue };
        if record.expires_at.is_none_or(|at| at > draft.now()) {
            continue;
        }
        if key.kind == RecordKind::Triage {
            forgotten += u32::from(triage::forget(state, key, draft));
            continue;
        }
        draft.record(RecordWrite::Put { key: key.clone(), record: None });
        forgotten += 1;
    }
    Reply::Forgotten { records: forgotten }
}
