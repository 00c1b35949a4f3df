//! Control entries: the part of a commit that users do not see, as the log keeps it.

pub use tidemill_engine::codec::control::Control;
use tidemill_engine::codec::control::each_control;
use tidemill_engine::commit::Commit;

use crate::log::Group;

/// The memory for one entry is kept, but for that of a very large one.
const KEPT_SCRATCH_BYTES: usize = 1 << 20;

/// Puts a commit's control entries into a group, in the order in which they are applied.
pub(super) fn push_controls(group: &mut Group, commit: &Commit, scratch: &mut Vec<u8>) {
    each_control(commit, scratch, |bytes| group.push_control(bytes));
    if scratch.capacity() > KEPT_SCRATCH_BYTES {
        *scratch = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidemill_engine::commit::RecordWrite;
    use tidemill_engine::record::{Record, RecordKey, RecordKind, RecordValue};

    use super::*;

    #[test]
    fn the_memory_of_a_very_large_entry_is_given_back() {
        for (bytes, is_kept) in [(1_000, true), (2 * KEPT_SCRATCH_BYTES, false)] {
            let key = RecordKey { kind: RecordKind::Script, tenant: None, id: Arc::from("x") };
            let value = RecordValue::Bytes(vec![7; bytes].into());
            let record = Some(Record { version: 1, expires_at: None, value });
            let commit = Commit { records: vec![RecordWrite::Put { key, record }], ..Commit::default() };
            let (mut group, mut scratch) = (Group::new(), Vec::new());
            push_controls(&mut group, &commit, &mut scratch);
            assert!(group.byte_count() > bytes);
            assert_eq!(scratch.capacity() > 0, is_kept, "{bytes}");
        }
    }
}
