//! Import: the lines of an export become a store.
//!
//! The new log begins with the events, linked to each other anew, and goes on with the rows of jobs, tasks, messages
//! and records as the log carries them when its beginning is dropped (`Control::Carry`). So a replay, a rebuild and a
//! verify need to know nothing about imports. Nothing is started for an imported event: a record says where they end,
//! and followers of the log begin there.
//!
//! After an error what was made so far is worthless; `import_dir` throws it away.

mod assembly;
mod fields;
mod forgotten;
mod gathered_job;
mod histories;
mod line;
mod lines;
mod log_writer;
mod renew;

use std::io::{self, BufRead};
use std::sync::Arc;

use tidemill_engine::backend::Fault;
use tidemill_engine::record::{Record, RecordKey};
use tidemill_model::Timestamp;

use self::assembly::Assembly;
use self::fields::BadField;
use self::line::Line;
use self::lines::Lines;
use super::export::{ExportTally, FORMAT, VERSION};
use super::watch::{Step, Watch};
use super::{Store, StoreOptions};
use crate::disk::Disk;
use crate::log::LogError;

/// What an import did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    pub tally: ExportTally,
    /// Messages that open tasks lacked and got.
    pub messages_made: u64,
    /// Whether the store stays closed until a key is made, and why.
    pub closed: Option<Closed>,
    /// Properties and inputs that not all readers of JSON can read. History is not changed, so they are taken over.
    pub unreadable: u64,
}

/// Why an imported store lets nobody in until a key is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// There were keys where it comes from.
    HadKeys,
    /// The export does not say, so there may have been some.
    Unknown,
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("line {line}: {problem}")]
    Line { line: u64, problem: String },
    #[error("the export has version {found}; this release reads versions up to {VERSION}")]
    Newer { found: u32 },
    #[error("the export ends after line {line} without an end line: it was cut")]
    Cut { line: u64 },
    #[error("the store is not empty: it holds {holds}; import into a new data directory")]
    NotEmpty { holds: String },
    #[error("the export cannot be read")]
    Read(#[source] io::Error),
    #[error("the data directory cannot be changed")]
    Directory(#[source] io::Error),
    #[error(transparent)]
    Store(#[from] Fault),
}

impl From<LogError> for ImportError {
    fn from(error: LogError) -> Self {
        Self::Store(error.into())
    }
}

/// What a salvage has that is not in an export.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    pub(crate) records: Vec<(RecordKey, Record)>,
    /// Whether the store is closed until a key is made, whatever the export says.
    pub(crate) closed: bool,
}

impl Store {
    /// Makes a store of an export, on a disk that holds none.
    pub fn import(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        input: &mut dyn BufRead,
        now: Timestamp,
        watch: &mut Watch<'_>,
    ) -> Result<Imported, ImportError> {
        Self::import_all(disk, options, input, None, now, watch)
    }

    /// Like `import`, of a store with holes: counts that its rows missed are those of the events.
    pub(crate) fn import_salvaged(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        input: &mut dyn BufRead,
        extra: Extra,
        now: Timestamp,
        watch: &mut Watch<'_>,
    ) -> Result<Imported, ImportError> {
        Self::import_all(disk, options, input, Some(extra), now, watch)
    }

    fn import_all(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        input: &mut dyn BufRead,
        extra: Option<Extra>,
        now: Timestamp,
        watch: &mut Watch<'_>,
    ) -> Result<Imported, ImportError> {
        let mut lines = Lines::new(input);
        let closed = match check_header(&mut lines)? {
            Some(false) => None,
            Some(true) => Some(Closed::HadKeys),
            None => Some(Closed::Unknown),
        };
        let mut assembly = Assembly::start(&disk, &options, extra.is_some())?;
        let mut step = Step::begin(watch, "reading lines", None);
        let mut unreadable = 0;
        let tally = loop {
            let last = lines.number();
            let (number, text) = lines.next()?.ok_or(ImportError::Cut { line: last })?;
            step.tick();
            let line = Line::read(text).map_err(|bad| Problem::from(bad).at(number))?;
            unreadable += line.unreadable();
            if let Some(tally) = assembly.take(number, line)? {
                break tally;
            }
        };
        if let Some((line, _)) = lines.next()? {
            return Err(ImportError::Line { line, problem: "it comes after the end line".into() });
        }
        step.end();
        let extra = extra.unwrap_or_default();
        assembly.finish(&disk, closed.is_some() || extra.closed, extra)?;
        let mut store = Self::open_watched(disk, options, watch)?;
        let messages_made = store.renew_messages(now)?;
        store.flush_rows()?;
        Ok(Imported { tally, messages_made, closed, unreadable })
    }
}

/// Whether there were keys, if the header tells.
fn check_header(lines: &mut Lines<'_>) -> Result<Option<bool>, ImportError> {
    let (line, text) = lines.next()?.ok_or(ImportError::Cut { line: 0 })?;
    let bad = |bad: BadField| Problem::from(bad).at(line);
    match Line::read(text).map_err(bad)? {
        Line::Header { format, version, keys } if format == FORMAT && version == VERSION => Ok(keys),
        Line::Header { format, version, .. } if format == FORMAT && version > VERSION => {
            Err(ImportError::Newer { found: version })
        }
        Line::Header { format, version, .. } => {
            let problem = format!("is {format:?} version {version}, not {FORMAT:?} version {VERSION}");
            Err(bad(BadField::new("format", problem)))
        }
        _ => Err(bad(BadField::new("kind", "is not header, which comes first"))),
    }
}

/// What can go wrong with a line.
enum Problem {
    Field(BadField),
    Store(Fault),
}

impl Problem {
    fn at(self, line: u64) -> ImportError {
        match self {
            Self::Field(bad) => ImportError::Line { line, problem: bad.to_string() },
            Self::Store(fault) => ImportError::Store(fault),
        }
    }
}

impl From<BadField> for Problem {
    fn from(bad: BadField) -> Self {
        Self::Field(bad)
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::Store(fault)
    }
}
