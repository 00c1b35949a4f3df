//! What can go wrong with the log.

use std::io;
use std::sync::Arc;

use super::{LogPosition, Seq};

/// Why the log did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// No space for the next segment. Nothing of the group was written; try again when space was freed.
    #[error("the disk is full: {file} needs {bytes} bytes")]
    Full { file: String, bytes: u64, source: io::Error },
    /// A write or sync failed, now or earlier: what is on disk is unknown. Reopen the log.
    #[error("the log is closed after a failure to {action} {file}")]
    Poisoned { action: &'static str, file: String, source: Arc<io::Error> },
    /// The bytes at this place are not what was written.
    #[error("{file} is damaged at byte {offset}: {problem}")]
    Corrupt { file: String, offset: u64, problem: String },
    /// Acknowledged entries are missing at the end.
    #[error("the log ends at {found} although {known_by} knows of {known}: acknowledged entries are lost")]
    Lost { found: LogPosition, known: LogPosition, known_by: &'static str },
    /// Written by a newer version of this program.
    #[error("{file} has format version {found}; this program knows versions up to {known}")]
    Newer { file: String, found: u32, known: u32 },
    /// The disk refused something that changed nothing which matters; the log works on.
    #[error("cannot {action} {file}")]
    Io { action: &'static str, file: String, source: io::Error },
    /// A group must start with the log's next number.
    #[error("the group starts with event {given}; the next one is {expected}")]
    OutOfSequence { expected: Seq, given: Seq },
    /// The last group must be synced before the next one is appended.
    #[error("the last group is not synced yet")]
    NotSynced,
    #[error("the group is {bytes} bytes long; the limit is {limit}")]
    TooLarge { bytes: u64, limit: u64 },
    /// There is no sealed segment of this number.
    #[error("there is no sealed segment {segment}")]
    NoSuchSegment { segment: u32 },
}

impl LogError {
    pub(super) fn io(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io { action, file, source }
    }

    pub(super) fn corrupt(file: &str, offset: u64, problem: impl Into<String>) -> Self {
        Self::Corrupt { file: file.to_owned(), offset, problem: problem.into() }
    }
}
