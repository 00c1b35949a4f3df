//! Export: everything that is worth keeping of a store, as lines of JSON.
//!
//! The first line names the form and its version, the last one counts what came between, so a file that was cut is
//! noticed. Events come first, in the order they were written, each large value right before the event that names it.
//! Then come the control records: jobs with their tasks, tasks on their own, messages, other records, and what the
//! events alone do not tell of an entity's history. `docs/internals/export-format.md` has the fields.
//!
//! What a store knows only about itself stays behind: leases (a leased task is written as one that waits), keys and
//! tokens, cursors into the log, and the life of the data directory.

use std::io::{self, Write};

use tidemill_engine::backend::Fault;
pub use tidemill_engine::export::{ExportError, ExportTally, Exported, FORMAT, VERSION};
use tidemill_engine::export::{Lines, is_exported, line};
use tidemill_engine::record::{RecordKey, RecordKind};
use tidemill_engine::state::row::{Row, RowKey, StoredTask};
use tidemill_engine::state::stream::Stream;
use tidemill_model::events::overflow;
use tidemill_model::{Entity, Event, JobId, KnownType, TenantId};

use super::Store;
use super::row_key;
use super::rows::row_store::io_fault;
use super::watch::{Step, Watch};
use crate::log::{Entry, LogError, LogPosition, SegmentInfo, Seq, StoredEvent};

/// Rows are read in batches of this many.
const BATCH_ROWS: usize = 512;

impl From<LogError> for ExportError {
    fn from(error: LogError) -> Self {
        Self::Store(error.into())
    }
}

impl Store {
    /// Writes the store to `out` as lines of JSON.
    pub fn export(&mut self, out: &mut dyn Write, watch: &mut Watch<'_>) -> Result<Exported, ExportError> {
        // Rows that are in memory are read as well, so no space is needed.
        self.hold_rows()?;
        let mut export = Export {
            store: self,
            segments: self.reader.segments(),
            lines: Lines::new(out),
            done: Exported::default(),
        };
        export.lines.put(&line::HeaderLine {
            kind: "header",
            format: FORMAT,
            version: VERSION,
            keys: export.has_keys()?,
        })?;
        export.events(watch)?;
        export.jobs(watch)?;
        export.tasks(watch)?;
        export.messages(watch)?;
        export.records(watch)?;
        export.entities(watch)?;
        let Export { mut lines, done, .. } = export;
        lines.put(&line::EndLine { kind: "end", tally: done.tally })?;
        lines.flush()?;
        Ok(done)
    }
}

/// An export under way.
struct Export<'s, 'o> {
    store: &'s Store,
    segments: Vec<SegmentInfo>,
    lines: Lines<&'o mut dyn Write>,
    done: Exported,
}

impl Export<'_, '_> {
    /// Whether there are or were keys, revoked ones included.
    fn has_keys(&self) -> Result<bool, Fault> {
        let rows = &self.store.rows;
        let mut any = rows.get(&RowKey::Record(RecordKey::closed()))?.is_some();
        rows.scan(&row_key::records_of_all(RecordKind::ApiKey), &mut |_, _| {
            any = true;
            false
        })?;
        Ok(any)
    }

    fn events(&mut self, watch: &mut Watch<'_>) -> Result<(), ExportError> {
        let total = self.segments.iter().map(|segment| segment.events).sum();
        let mut step = Step::begin(watch, "writing events", Some(total));
        let reader = self.store.reader.clone();
        reader.replay::<ExportError>(LogPosition::START, |entry| {
            let Entry::Event(stored) = entry else { return Ok(()) };
            step.tick();
            self.blob(&stored.event)?;
            self.event(&stored)
        })?;
        step.end();
        Ok(())
    }

    fn event(&mut self, stored: &StoredEvent) -> Result<(), ExportError> {
        self.done.tally.events += 1;
        let StoredEvent { event, links, .. } = stored;
        Ok(self.lines.put_text(|text| {
            text.push_str(r#"{"kind":"event","ordinal":"#);
            text.push_str(&links.ordinal.to_string());
            if links.is_aside && !is_heartbeat(event) {
                text.push_str(r#","late":true"#);
            }
            text.push_str(r#","event":"#);
            event.write_json(text);
            text.push('}');
        })?)
    }

    /// The large value that an event names, if it does.
    fn blob(&mut self, event: &Event) -> Result<(), ExportError> {
        let Ok(Some(place)) = overflow::reference(&event.properties) else { return Ok(()) };
        let bytes = match self.store.blobs.get(&event.tenant, &place.key) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                self.done.blobs_missing.push(place.key);
                return Ok(());
            }
            // What is left of it is worth nothing to anybody.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.done.blobs_missing.push(format!("{} (damaged)", place.key));
                return Ok(());
            }
            Err(error) => return Err(io_fault(&error).into()),
        };
        Ok(self.lines.put_blob(&event.tenant, &place.key, &bytes, &mut self.done.tally)?)
    }

    fn jobs(&mut self, watch: &mut Watch<'_>) -> Result<(), ExportError> {
        let mut step = Step::begin(watch, "writing jobs", None);
        self.each_row(&[row_key::JOB], |export, key, _| {
            let RowKey::Job(tenant, job) = key else { return Ok(()) };
            step.tick();
            export.job(&tenant, job)
        })?;
        step.end();
        Ok(())
    }

    fn job(&mut self, tenant: &TenantId, job: JobId) -> Result<(), ExportError> {
        let Some(rows) = self.store.rows.job(tenant, job)? else { return Ok(()) };
        Ok(self.lines.put_job(rows, &mut self.done.tally)?)
    }

    fn tasks(&mut self, watch: &mut Watch<'_>) -> Result<(), ExportError> {
        let mut step = Step::begin(watch, "writing tasks", None);
        self.each_row(&[row_key::TASK], |export, key, row| {
            let (RowKey::Task(key), Row::Task(row @ StoredTask { alone: Some(_), .. })) = (key, row) else {
                return Ok(());
            };
            step.tick();
            export.done.tally.tasks += 1;
            Ok(export.lines.put(&line::TaskLine::of(&key, &row))?)
        })?;
        step.end();
        Ok(())
    }

    fn messages(&mut self, watch: &mut Watch<'_>) -> Result<(), ExportError> {
        let mut step = Step::begin(watch, "writing messages", None);
        self.each_row(&[row_key::MESSAGE], |export, _, row| {
            let Row::Message(queued) = row else { return Ok(()) };
            step.tick();
            export.done.tally.messages += 1;
            let task = export.store.rows.get(&RowKey::Task(queued.message.task.clone()))?;
            Ok(export.lines.put(&line::MessageLine::of(&queued, task.as_ref()))?)
        })?;
        step.end();
        Ok(())
    }

    fn records(&mut self, watch: &mut Watch<'_>) -> Result<(), ExportError> {
        let mut step = Step::begin(watch, "writing records", None);
        self.each_row(&[row_key::RECORD], |export, key, row| {
            let (RowKey::Record(key), Row::Record(record)) = (key, row) else { return Ok(()) };
            if !is_exported(key.kind) {
                return Ok(());
            }
            step.tick();
            export.done.tally.records += 1;
            Ok(export.lines.put(&line::RecordLine::of(&key, &record))?)
        })?;
        step.end();
        Ok(())
    }

    fn entities(&mut self, watch: &mut Watch<'_>) -> Result<(), ExportError> {
        let mut step = Step::begin(watch, "writing histories", None);
        self.each_row(&[row_key::ENTITY], |export, key, row| {
            let (RowKey::Entity(tenant, entity), Row::Entity(stream)) = (key, row) else { return Ok(()) };
            step.tick();
            if export.follows_from_events(&stream)? {
                return Ok(());
            }
            export.done.tally.entities += 1;
            let Entity { kind, id } = &entity;
            let (tenant_id, stream) = (&tenant, line::StreamSummary::of(&stream));
            let line =
                line::EntityLine { kind: "entity", tenant_id, entity_type: kind, entity_id: id, stream };
            Ok(export.lines.put(&line)?)
        })?;
        step.end();
        Ok(())
    }

    /// Whether the events in the log are enough to know where the history stands.
    fn follows_from_events(&self, stream: &Stream) -> Result<bool, Fault> {
        // The newest events of both chains tell their numbers, and that of the main chain the time.
        Ok(self.is_there(stream.history.main.tip())? && self.is_there(stream.history.aside.tip())?)
    }

    fn is_there(&self, seq: Option<Seq>) -> Result<bool, Fault> {
        let Some(seq) = seq else { return Ok(true) };
        let after = self.segments.partition_point(|segment| segment.first_seq <= seq);
        let Some(segment) = after.checked_sub(1).and_then(|at| self.segments.get(at)) else {
            return Ok(false);
        };
        if segment.events == segment.end_seq.0 - segment.first_seq.0 {
            return Ok(true);
        }
        Ok(self.store.reader.read(seq)?.is_some())
    }

    /// Visits the rows whose keys begin with `prefix`, in order, a few in memory at a time.
    fn each_row(
        &mut self,
        prefix: &[u8],
        mut visit: impl FnMut(&mut Self, RowKey, Row) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let mut from = prefix.to_vec();
        loop {
            let mut batch = Vec::with_capacity(BATCH_ROWS);
            self.store.rows.scan_from(prefix, &from, &mut |key, row| {
                batch.push((key, row));
                batch.len() < BATCH_ROWS
            })?;
            let Some((last, _)) = batch.last() else { return Ok(()) };
            from = row_key::bytes_of(last);
            from.push(0);
            for (key, row) in batch {
                visit(self, key, row)?;
            }
        }
    }
}

fn is_heartbeat(event: &Event) -> bool {
    event.event_type.as_str() == KnownType::TaskHeartbeat.as_str()
}
