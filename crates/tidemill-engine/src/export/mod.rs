//! The lines of an export, for every home of a store. `docs/internals/export-format.md` has the fields.

mod blob_lines;
mod job_lines;
pub mod line;

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use crate::kernel::backend::Fault;
use crate::kernel::record::RecordKind;

/// What the first line calls the form.
pub const FORMAT: &str = "tidemill-export";
/// The version that this release writes. A newer one is refused by an import.
pub const VERSION: u32 = 1;
/// A line holds about this many bytes of tasks, or of a large value, at most.
pub const PART_BYTES: usize = 1 << 20;

/// How many of each there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExportTally {
    pub events: u64,
    pub blobs: u64,
    pub jobs: u64,
    /// Those that were dispatched, in jobs and on their own.
    pub tasks: u64,
    pub messages: u64,
    pub records: u64,
    pub entities: u64,
}

/// What an export did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exported {
    pub tally: ExportTally,
    /// Large values that events name and that are not there: their keys.
    pub blobs_missing: Vec<String>,
}

/// Why a store was not exported, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("the export cannot be written")]
    Write(#[from] io::Error),
}

/// Whether records of this kind leave the store.
pub fn is_exported(kind: RecordKind) -> bool {
    match kind {
        RecordKind::Idempotency
        | RecordKind::DeadLetter
        | RecordKind::Definition
        | RecordKind::Script
        | RecordKind::Subscription
        | RecordKind::Execution
        | RecordKind::Triage
        | RecordKind::ErrorGroup
        | RecordKind::Parked
        | RecordKind::Bulk
        | RecordKind::Delivery
        | RecordKind::Schedule
        | RecordKind::Usage
        | RecordKind::Budget => true,
        // Tokens and key hashes are secrets; places in this log mean nothing in another; and the store's life is its own.
        RecordKind::ApiKey | RecordKind::Token | RecordKind::Cursor | RecordKind::System => false,
    }
}

/// Where the lines go.
pub struct Lines<W: Write> {
    out: BufWriter<W>,
    text: String,
}

impl<W: Write> Lines<W> {
    pub fn new(out: W) -> Self {
        Self { out: BufWriter::new(out), text: String::new() }
    }

    pub fn put(&mut self, line: &impl Serialize) -> io::Result<()> {
        let json = serde_json::to_string(line).map_err(io::Error::other)?;
        self.put_text(|text| text.push_str(&json))
    }

    pub fn put_text(&mut self, write: impl FnOnce(&mut String)) -> io::Result<()> {
        self.text.clear();
        write(&mut self.text);
        // Within valid JSON a line break can only stand between values, where a space says the same.
        let mut rest = self.text.as_bytes();
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.out.write_all(&rest[..at])?;
            self.out.write_all(b" ")?;
            rest = &rest[at + 1..];
        }
        self.out.write_all(rest)?;
        self.out.write_all(b"\n")
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
