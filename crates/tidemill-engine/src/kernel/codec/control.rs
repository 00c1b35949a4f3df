//! Control entries: the part of a commit that users do not see, as the log keeps it.

use crate::kernel::backend::Fault;
use crate::kernel::commit::{Commit, Message, MessageId, RecordWrite, TaskChange, Visibility};
use crate::kernel::state::row::{Row, RowKey};

use crate::kernel::codec::bytes::{BadBytes, Reader};
use crate::kernel::codec::stored::Stored;

/// The form of control entries that this release writes.
const VERSION: u8 = 2;
/// The form before: fields without numbers.
const VERSION_1: u8 = 1;

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
                // A row that is gone is none.
                if let Some(row) = row {
                    row.put(out);
                }
            }
        }
    }

    /// What a control entry of the log says.
    pub fn read(bytes: &[u8]) -> Result<Self, Fault> {
        Self::decode(bytes).map_err(|error| Fault::Damaged(format!("a control entry in the log {error}")))
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, BadBytes> {
        let mut reader = Reader::new(bytes);
        let control = match reader.byte()? {
            VERSION => Self::take(&mut reader)?,
            VERSION_1 => Self::take_v1(&mut reader)?,
            _ => return Err(BadBytes("has a version this release does not know")),
        };
        if reader.is_at_end() { Ok(control) } else { Err(BadBytes("goes on after its end")) }
    }
}

impl Control {
    fn take(reader: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(match reader.byte()? {
            1 => Self::Record(Stored::take(reader)?),
            2 => Self::Task(Stored::take(reader)?),
            3 => Self::Enqueue(Stored::take(reader)?),
            4 => Self::Visibility(Stored::take(reader)?),
            5 => Self::Settle(Stored::take(reader)?),
            7 => {
                let key = Stored::take(reader)?;
                Self::Carry(key, if reader.is_at_end() { None } else { Some(Stored::take(reader)?) })
            }
            _ => return Err(BadBytes("holds an unknown kind of control entry")),
        })
    }

    fn take_v1(reader: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(match reader.byte()? {
            1 => Self::Record(Stored::take_v1(reader)?),
            2 => Self::Task(Stored::take_v1(reader)?),
            3 => Self::Enqueue(Stored::take_v1(reader)?),
            4 => Self::Visibility(Stored::take_v1(reader)?),
            5 => Self::Settle(Stored::take_v1(reader)?),
            7 => Self::Carry(Stored::take_v1(reader)?, Stored::take_v1(reader)?),
            _ => return Err(BadBytes("holds an unknown kind of control entry")),
        })
    }
}

fn tagged<T: Stored>(out: &mut Vec<u8>, tag: u8, value: &T) {
    out.push(tag);
    value.put(out);
}

/// A commit's control entries, one after the other in the order in which they are applied: each is given as what appends its
/// bytes, so that a large one is not copied.
pub fn each_control(commit: &Commit, mut each: impl FnMut(&dyn Fn(&mut Vec<u8>))) {
    let mut push = |tag: u8, put: &dyn Fn(&mut Vec<u8>)| {
        each(&|out| {
            out.extend_from_slice(&[VERSION, tag]);
            put(out);
        });
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
}
