//! Forget: remove records whose time is over.

use crate::kernel::commit::{Expect, RecordWrite};
use crate::kernel::draft::Draft;
use crate::kernel::record::{RecordKey, RecordKind};
use crate::kernel::reply::Reply;
use crate::kernel::state::State;
use crate::triage::ingest;

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
        draft.expect(Expect::RecordAt { key: key.clone(), version: record.version });
        draft.record(RecordWrite::Put { key: key.clone(), record: None });
        forgotten += 1;
    }
    Reply::Forgotten { records: forgotten }
}
