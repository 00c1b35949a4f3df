//! A store under way: takes lines in the order of an export and writes them to the new log.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_engine::record::{Record, RecordKey, RecordKind, RecordValue};
use tidemill_engine::state::job::KeptTask;
use tidemill_engine::state::row::{Row, RowKey, StoredTask};
use tidemill_model::{Entity, Event, JobId, Json, TenantId};

use super::fields::BadField;
use super::gathered_job::GatheredJob;
use super::histories::Histories;
use super::line::{Line, TaskLine};
use super::log_writer::LogWriter;
use super::{Extra, ImportError, Problem, forgotten};
use crate::blob::Blobs;
use crate::disk::Disk;
use crate::log::{Log, Seq};
use crate::store::StoreOptions;
use crate::store::control::Control;
use crate::store::export::ExportTally;
use crate::store::row_key;
use crate::store::rows::row_store::{RowStore, io_fault};

pub(super) struct Assembly {
    log: LogWriter,
    blobs: Blobs,
    histories: Histories,
    section: Section,
    /// The key of the last row of this section, so that none comes twice.
    last_key: Vec<u8>,
    /// A large value of which more is to come.
    blob: Option<PartialBlob>,
    job: Option<GatheredJob>,
    /// The jobs of all tenants so far.
    jobs: HashSet<JobId>,
    tally: ExportTally,
}

/// The parts of an export, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Events,
    Jobs,
    Tasks,
    Messages,
    Records,
    Entities,
    End,
}

struct PartialBlob {
    tenant: TenantId,
    key: String,
    bytes: Vec<u8>,
}

impl Assembly {
    /// With holes, a line about a history may say less than its events do.
    pub(super) fn start(
        disk: &Arc<dyn Disk>,
        options: &StoreOptions,
        has_holes: bool,
    ) -> Result<Self, ImportError> {
        if !disk.list("log").map_err(|error| io_fault(&error))?.is_empty() {
            return Err(ImportError::NotEmpty { holds: "a log".into() });
        }
        let mut begun = Vec::new();
        note_of_import(None).encode(&mut begun);
        forgotten::start_log(disk, options.log, &begun)?;
        Ok(Self {
            log: LogWriter::new(Log::open(Arc::clone(disk), options.log, None)?),
            blobs: Blobs::open(Arc::clone(disk)).map_err(|error| io_fault(&error))?,
            histories: Histories::new(disk, has_holes)?,
            section: Section::Events,
            last_key: Vec::new(),
            blob: None,
            job: None,
            jobs: HashSet::new(),
            tally: ExportTally::default(),
        })
    }

    /// Takes a line. The last one gives what was taken in all.
    pub(super) fn take(&mut self, number: u64, line: Line) -> Result<Option<ExportTally>, ImportError> {
        self.enter(&line).map_err(|problem| problem.at(number))?;
        if is_end_of_job(&line)
            && let Some(job) = self.job.take()
        {
            let begun = job.line;
            self.write_job(job).map_err(|problem| problem.at(begun))?;
        }
        let is_end = matches!(line, Line::End(_));
        self.take_in(number, line).map_err(|problem| problem.at(number))?;
        Ok(is_end.then_some(self.tally))
    }

    /// Writes what is left, and that the store is closed if it is to be.
    pub(super) fn finish(
        mut self,
        disk: &Arc<dyn Disk>,
        closed: bool,
        extra: Extra,
    ) -> Result<(), ImportError> {
        let log = &mut self.log;
        self.histories.each_cut(|key, row| log.controls(&[Control::Carry(key, Some(row))]))?;
        let end = self.log.next_seq();
        self.log.controls(&[note_of_import(Some(end))])?;
        for (key, record) in extra.records {
            self.log.controls(&[Control::Carry(RowKey::Record(key), Some(Row::Record(record)))])?;
        }
        if closed {
            self.log.controls(&[note(RecordKey::closed(), 1, &Json::empty_object())])?;
        }
        self.log.finish()?;
        // Every blob came with the event that names it, so no note has to lead to it.
        for (note, ..) in self.blobs.notes().map_err(|error| io_fault(&error))? {
            self.blobs.remove_note(&note).map_err(|error| io_fault(&error))?;
        }
        Ok(RowStore::remove(disk)?)
    }

    /// Sees to it that lines come in the order of an export.
    fn enter(&mut self, line: &Line) -> Result<(), Problem> {
        let section = match line {
            Line::Header { .. } => return Err(BadField::new("kind", "is header a second time").into()),
            Line::Blob { .. } | Line::Event { .. } => Section::Events,
            Line::Job { .. } | Line::JobTasks { .. } => Section::Jobs,
            Line::Task(task) if task.alone.is_none() => Section::Jobs,
            Line::Task(_) => Section::Tasks,
            Line::Message(_) => Section::Messages,
            Line::Record(..) => Section::Records,
            Line::Entity { .. } => Section::Entities,
            Line::End(_) => Section::End,
        };
        if section < self.section {
            let problem = format!("is one of {section:?}, but {:?} have begun", self.section);
            return Err(BadField::new("kind", problem).into());
        }
        if let (Some(blob), false) = (&self.blob, matches!(line, Line::Blob { .. })) {
            return Err(BadField::new("kind", format!("is not blob, but {:?} is not whole", blob.key)).into());
        }
        if section > self.section {
            self.last_key.clear();
            self.section = section;
        }
        Ok(())
    }

    fn take_in(&mut self, number: u64, line: Line) -> Result<(), Problem> {
        match line {
            Line::Header { .. } => Ok(()),
            Line::Blob { tenant, key, bytes, more } => {
                self.take_blob(PartialBlob { tenant, key, bytes }, more)
            }
            Line::Event { ordinal, late, event } => self.take_event(&event, ordinal, late),
            Line::Job { head, told } => {
                self.tally.jobs += 1;
                if !self.jobs.insert(head.job) {
                    let problem = format!("is {}, which is that of another job", head.job);
                    return Err(BadField::new("jobId", problem).into());
                }
                let job = GatheredJob::new(number, *head, told);
                self.check_order(&job.key())?;
                self.job = Some(job);
                Ok(())
            }
            Line::JobTasks { job, first, tasks } => match &mut self.job {
                Some(gathered) => Ok(gathered.add_specs(job, first, tasks)?),
                None => Err(BadField::new("jobId", format!("is {job}, but its job line is missing")).into()),
            },
            Line::Task(task) => {
                self.tally.tasks += 1;
                self.take_task(*task)
            }
            Line::Message(queued) => {
                self.tally.messages += 1;
                self.carry(RowKey::Message(queued.message.id), Row::Message(*queued))
            }
            Line::Record(key, record) => {
                self.tally.records += 1;
                self.carry(RowKey::Record(key), Row::Record(record))
            }
            Line::Entity { tenant, entity, told } => {
                self.tally.entities += 1;
                let stream = self.histories.stream_with_summary(&tenant, &entity, Some(told))?;
                self.carry(RowKey::Entity(tenant, entity), Row::Entity(stream))
            }
            Line::End(told) if told == self.tally => Ok(()),
            Line::End(told) => {
                let problem = format!("counts {told:?}, but there are {:?}", self.tally);
                Err(BadField::new("the line", problem).into())
            }
        }
    }

    fn take_blob(&mut self, part: PartialBlob, more: bool) -> Result<(), Problem> {
        let whole = match self.blob.take() {
            None => part,
            Some(mut begun) if (&begun.tenant, &begun.key) == (&part.tenant, &part.key) => {
                begun.bytes.extend_from_slice(&part.bytes);
                begun
            }
            Some(begun) => {
                return Err(BadField::new(
                    "key",
                    format!("is {:?}, but {:?} is not whole", part.key, begun.key),
                )
                .into());
            }
        };
        if more {
            self.blob = Some(whole);
            return Ok(());
        }
        self.tally.blobs += 1;
        let PartialBlob { tenant, key, bytes } = whole;
        Ok(self.blobs.put(&tenant, &key, &bytes).map_err(|error| io_fault(&error))?)
    }

    fn take_event(&mut self, event: &Event, ordinal: Option<u64>, late: bool) -> Result<(), Problem> {
        self.tally.events += 1;
        let links = self.histories.push(self.log.next_seq(), event, ordinal, late)?;
        Ok(self.log.event(event, &links)?)
    }

    fn take_task(&mut self, task: TaskLine) -> Result<(), Problem> {
        let Some(alone) = task.alone else {
            return match &mut self.job {
                Some(gathered) => gathered.add_task(task, &mut self.histories),
                None => Err(BadField::new("requestId", "names a job whose line is missing").into()),
            };
        };
        let TaskLine { key, head, message, told, .. } = task;
        let stream = self.histories.stream_with_summary(&key.tenant, &Entity::task(&key.request), told)?;
        let row = StoredTask { alone: Some(alone), entry: KeptTask { head, stream, message }, index: None };
        self.carry(RowKey::Task(key), Row::Task(row))
    }

    fn write_job(&mut self, job: GatheredJob) -> Result<(), Problem> {
        let controls = job.into_controls(&mut self.histories)?;
        Ok(self.log.controls(&controls)?)
    }

    fn carry(&mut self, key: RowKey, row: Row) -> Result<(), Problem> {
        self.check_order(&key)?;
        Ok(self.log.controls(&[Control::Carry(key, Some(row))])?)
    }

    /// Rows come in the order of their keys, so that one that comes twice is noticed.
    fn check_order(&mut self, key: &RowKey) -> Result<(), BadField> {
        let bytes = row_key::bytes_of(key);
        if bytes <= self.last_key {
            return Err(BadField::new("the line", "comes twice or out of order"));
        }
        self.last_key = bytes;
        Ok(())
    }
}

fn is_end_of_job(line: &Line) -> bool {
    match line {
        Line::JobTasks { .. } => false,
        Line::Task(task) => task.alone.is_some(),
        _ => true,
    }
}

/// The record of an import: where the imported events end, once that is known.
fn note_of_import(end: Option<Seq>) -> Control {
    let key = RecordKey { kind: RecordKind::System, tenant: None, id: "import".into() };
    let value = end.map_or_else(Json::empty_object, |end| Json::of(&serde_json::json!({ "nextSeq": end.0 })));
    note(key, if end.is_some() { 2 } else { 1 }, &value)
}

fn note(key: RecordKey, version: u64, value: &Json) -> Control {
    let value = RecordValue::Bytes(value.as_str().as_bytes().into());
    Control::Carry(RowKey::Record(key), Some(Row::Record(Record { version, expires_at: None, value })))
}
