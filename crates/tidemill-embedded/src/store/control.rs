//! Control entries: the part of a commit that users do not see, as the log keeps it.

use tidemill_engine::backend::Fault;
use tidemill_engine::commit::{Commit, Message, MessageId, RecordWrite, TaskChange, Visibility};
use tidemill_engine::state::row::{Row, RowKey};

use super::stored::Stored;
use crate::codec::{BadBytes, Reader};
use crate::log::Group;

/// The form of control entries that this release writes.
const VERSION: u8 = 1;

/// One control entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    Record(RecordWrite),
    Task(TaskChange),
    Enqueue(Message),
    Visibility(Visibility),
    Settle(MessageId),
    /// A row as it stands, written again because the segment that made it is about to go.
    Carry(RowKey, Option<Row>),
}

impl Control {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        match self {
            Self::Record(write) => tagged(out, 1, write),
            Self::Task(change) => tagged(out, 2, change),
            Self::Enqueue(message) => tagged(out, 3, message),
            Self::Visibility(change) => tagged(out, 4, change),
            Self::Settle(message) => tagged(out, 5, message),
            Self::Carry(key, row) => {
                tagged(out, 7, key);
                row.put(out);
            }
        }
    }

    /// What a control entry of the log says.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Fault> {
        Self::decode(bytes).map_err(|error| Fault::Damaged(format!("a control entry in the log {error}")))
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, BadBytes> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != VERSION {
            return Err(BadBytes("has a version this release does not know"));
        }
        let control = match reader.byte()? {
            1 => Self::Record(Stored::take(&mut reader)?),
            2 => Self::Task(Stored::take(&mut reader)?),
            3 => Self::Enqueue(Stored::take(&mut reader)?),
            4 => Self::Visibility(Stored::take(&mut reader)?),
            5 => Self::Settle(Stored::take(&mut reader)?),
            7 => Self::Carry(Stored::take(&mut reader)?, Stored::take(&mut reader)?),
            _ => return Err(BadBytes("holds an unknown kind of control entry")),
        };
        if reader.is_at_end() { Ok(control) } else { Err(BadBytes("goes on after its end")) }
    }
}

fn tagged<T: Stored>(out: &mut Vec<u8>, tag: u8, value: &T) {
    out.push(tag);
    value.put(out);
}

/// The memory for one entry is kept, but for that of a very large one.
const KEPT_SCRATCH_BYTES: usize = 1 << 20;

/// Puts a commit's control entries into a group, in the order in which they are applied.
pub(super) fn push_controls(group: &mut Group, commit: &Commit, scratch: &mut Vec<u8>) {
    let mut push = |tag: u8, put: &dyn Fn(&mut Vec<u8>)| {
        scratch.clear();
        scratch.push(VERSION);
        scratch.push(tag);
        put(scratch);
        group.push_control(scratch);
    };
    for write in &commit.records {
        push(1, &|out| write.put(out));
    }
    for change in &commit.tasks {
        push(2, &|out| change.put(out));
    }
    for message in &commit.enqueue {
        push(3, &|out| message.put(out));
    }
    for change in &commit.visibility {
        push(4, &|out| change.put(out));
    }
    for message in &commit.settle {
        push(5, &|out| message.put(out));
    }
    if scratch.capacity() > KEPT_SCRATCH_BYTES {
        *scratch = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
