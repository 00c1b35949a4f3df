//! Put a control record, on condition of the version it has.

use super::draft::Draft;
use crate::command::PutRecord;
use crate::commit::{Expect, RecordWrite};
use crate::record::Record;
use crate::reply::{Refusal, Reply};
use crate::state::State;

pub(super) fn decide(
    state: &State,
    command: &PutRecord,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let actual = state.record(&command.key).map_or(0, |record| record.version);
    if let Some(expected) = command.expected
        && expected != actual
    {
        return Err(Refusal::RecordConflict { expected, actual });
    }
    draft.expect(Expect::RecordAt { key: command.key.clone(), version: actual });
    let version = actual + 1;
    let record = command.value.clone().map(|value| Record { version, expires_at: command.expires_at, value });
    draft.record(RecordWrite::Put { key: command.key.clone(), record });
    Ok(Reply::RecordPut { version })
}
