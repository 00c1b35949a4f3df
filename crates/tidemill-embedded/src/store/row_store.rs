//! The row store: derived rows on disk, with the place in the log they reflect.
//!
//! Nothing here is the truth. Rows are written in the background, many at a time, in one transaction with their
//! position; if the file is lost or damaged it is made again from the log.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use redb::{ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};
use tidemill_engine::backend::Fault;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::execution::ExecutionId;
use tidemill_engine::record::{RecordKey, RecordKind};
use tidemill_engine::state::job::{Entry, JobHead};
use tidemill_engine::state::row::{Row, RowKey, TaskRow, is_open};
use tidemill_model::{JobId, TaskSpec, TenantId, Timestamp};

use super::row_key;
use super::stored::{Stored, read_all};
use crate::codec::Reader;
use crate::disk::{Disk, DiskFile, read_exact_at};
use crate::log::{LogPosition, Seq};

/// The directory of derived data.
pub(super) const DIR: &str = "derived";
const FILE: &str = "derived/rows.redb";
/// How much memory the store uses for pages.
const CACHE_BYTES: usize = 16 << 20;
/// The form of rows that this release writes. Rows of another form are made again from the log.
const VERSION: u8 = 2;

const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
/// The keys of rows that must be in memory from the start: open jobs, live tasks, budgets; of pending
/// executions only when they run.
const OPEN: TableDefinition<&[u8], ()> = TableDefinition::new("open");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const CHECKPOINT: &str = "checkpoint";

type RowTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

pub(crate) struct RowStore {
    disk: Arc<dyn Disk>,
    /// `None` while it is opened anew.
    opened: RwLock<Option<Opened>>,
    /// Held by whoever writes or opens anew.
    turn: Mutex<()>,
}

struct Opened {
    db: redb::Database,
    /// The rows as of the last write; replaced with every write, so that old pages can be used again.
    rows: RwLock<RowTable>,
}

/// What the rows reflect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) position: LogPosition,
}

/// A job with all its parts.
pub(crate) struct JobRows {
    pub(crate) head: JobHead,
    pub(crate) tasks: Vec<(u32, Vec<Arc<TaskSpec>>)>,
    pub(crate) entries: Vec<(TaskKey, Entry)>,
}

impl JobRows {
    /// The job's tasks as they were handed in.
    pub(crate) fn task_list(&self) -> Vec<Arc<TaskSpec>> {
        let mut list = Vec::new();
        for (first, chunk) in &self.tasks {
            // A chunk that was stored after the job grew also holds what came later.
            let known = list.len().saturating_sub(*first as usize);
            list.extend(chunk.iter().skip(known).cloned());
        }
        list
    }
}

impl RowStore {
    /// Opens the rows, or makes an empty store. What cannot be opened is removed: the log can make it again.
    pub(crate) fn open(disk: &Arc<dyn Disk>) -> Result<Self, Fault> {
        disk.create_dir(DIR).map_err(|error| io_fault(&error))?;
        // A damaged file may make the store panic: that too means that it has to be made again.
        let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Self::try_open(disk)));
        match opened {
            Ok(Err(fault)) if !matches!(fault, Fault::Damaged(_)) => Err(fault),
            Ok(Ok(opened)) => Ok(Self::new(disk, opened)),
            Ok(Err(_)) | Err(_) => Self::make_anew(disk),
        }
    }

    /// Removes the rows and makes an empty store.
    pub(crate) fn make_anew(disk: &Arc<dyn Disk>) -> Result<Self, Fault> {
        Self::remove(disk)?;
        Ok(Self::new(disk, Self::try_open(disk)?))
    }

    fn new(disk: &Arc<dyn Disk>, opened: Opened) -> Self {
        Self { disk: Arc::clone(disk), opened: RwLock::new(Some(opened)), turn: Mutex::new(()) }
    }

    /// Removes the rows. The next open starts from the beginning of the log.
    pub(crate) fn remove(disk: &Arc<dyn Disk>) -> Result<(), Fault> {
        match disk.remove(FILE) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_fault(&error)),
            _ => disk.sync_dir(DIR).map_err(|error| io_fault(&error)),
        }
    }

    fn try_open(disk: &Arc<dyn Disk>) -> Result<Opened, Fault> {
        let file = match disk.open(FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(FILE),
            opened => opened,
        };
        let file = file.map_err(|error| io_fault(&error))?;
        disk.sync_dir(DIR).map_err(|error| io_fault(&error))?;
        let mut builder = redb::Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let db = builder.create_with_backend(DiskBackend(file)).map_err(|error| fault(&error.into()))?;
        let rows = (|| -> Result<RowTable, redb::Error> {
            // Tables that are there need no space.
            match db.begin_read()?.open_table(ROWS) {
                Err(redb::TableError::TableDoesNotExist(_)) => {}
                opened => return Ok(opened?),
            }
            let transaction = db.begin_write()?;
            transaction.open_table(ROWS)?;
            transaction.open_table(OPEN)?;
            transaction.open_table(META)?;
            transaction.commit()?;
            Ok(db.begin_read()?.open_table(ROWS)?)
        })();
        let rows = rows.map_err(|error| fault(&error))?;
        Ok(Opened { db, rows: RwLock::new(rows) })
    }

    /// Looks at the rows. If a write failed meanwhile, waits until they are opened anew and looks again.
    fn look<T>(&self, mut look: impl FnMut(&Opened) -> Result<T, LookError>) -> Result<T, Fault> {
        let mut is_second = false;
        loop {
            let found = match &*self.opened.read().unwrap_or_else(PoisonError::into_inner) {
                Some(opened) => look(opened),
                None => Err(LookError::Store(redb::Error::PreviousIo)),
            };
            match found {
                Ok(found) => return Ok(found),
                Err(LookError::Store(redb::Error::PreviousIo)) if !is_second => {
                    is_second = true;
                    let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                    self.open_if_closed()?;
                }
                Err(LookError::Store(error)) => return Err(fault(&error)),
                Err(LookError::Row(fault)) => return Err(fault),
            }
        }
    }

    /// Opens the rows if the last attempt to do so failed. Only with the turn.
    fn open_if_closed(&self) -> Result<(), Fault> {
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        if opened.is_none() {
            *opened = Some(Self::try_open(&self.disk)?);
        }
        Ok(())
    }

    /// Opens the rows anew: after a write that found no space the database refuses everything. Only with the turn.
    fn reopen(&self) {
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        // The old one must be gone before the file is opened again.
        *opened = None;
        // If that fails too, the next one to come tries again and tells why.
        *opened = Self::try_open(&self.disk).ok();
    }

    /// The place in the log that the rows reflect; `None` for a new store.
    pub(crate) fn checkpoint(&self) -> Result<Option<Checkpoint>, Fault> {
        let read = |opened: &Opened| {
            let table = opened.db.begin_read()?.open_table(META)?;
            Ok(table.get(CHECKPOINT)?.map(|value| value.value().to_vec()))
        };
        let Some(bytes) = self.look(read)? else { return Ok(None) };
        let mut reader = Reader::new(&bytes);
        let parsed = (|| {
            let segment = u32::take(&mut reader)?;
            let offset = u64::take(&mut reader)?;
            let next_seq = Seq::take(&mut reader)?;
            Ok(Checkpoint { position: LogPosition { segment, offset, next_seq } })
        })();
        parsed
            .map(Some)
            .map_err(|error: crate::codec::BadBytes| Fault::Damaged(format!("the checkpoint {error}")))
    }

    /// Writes rows and the place they reflect, all or nothing.
    pub(crate) fn write(&self, rows: &[(RowKey, Option<Row>)], checkpoint: Checkpoint) -> Result<(), Fault> {
        let mut sorted: Vec<(Vec<u8>, &RowKey, Option<&Row>)> =
            rows.iter().map(|(key, row)| (row_key::bytes_of(key), key, row.as_ref())).collect();
        sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.open_if_closed()?;
        let write = |opened: &Opened| -> Result<(), redb::Error> {
            let mut transaction = opened.db.begin_write()?;
            transaction.set_quick_repair(true);
            {
                let mut table = transaction.open_table(ROWS)?;
                let mut open = transaction.open_table(OPEN)?;
                let mut value = Vec::with_capacity(256);
                for (bytes, key, row) in &sorted {
                    let Some(row) = row else {
                        table.remove(bytes.as_slice())?;
                        if matches!(key, RowKey::Record(key) if key.kind.may_be_open()) {
                            open.remove(bytes.as_slice())?;
                        }
                        continue;
                    };
                    value.clear();
                    value.push(VERSION);
                    row.put(&mut value);
                    table.insert(bytes.as_slice(), value.as_slice())?;
                    match is_open(key, row) {
                        // Looking is cheaper than writing, and most of them are there.
                        Some(true) if open.get(bytes.as_slice())?.is_none() => {
                            open.insert(bytes.as_slice(), ())?;
                        }
                        Some(false) => {
                            open.remove(bytes.as_slice())?;
                        }
                        Some(true) | None => {}
                    }
                }
                let mut meta = transaction.open_table(META)?;
                value.clear();
                checkpoint.position.segment.put(&mut value);
                checkpoint.position.offset.put(&mut value);
                checkpoint.position.next_seq.put(&mut value);
                meta.insert(CHECKPOINT, value.as_slice())?;
            }
            transaction.commit()?;
            let table = opened.db.begin_read()?.open_table(ROWS)?;
            *opened.rows.write().unwrap_or_else(PoisonError::into_inner) = table;
            Ok(())
        };
        let written = match &*self.opened.read().unwrap_or_else(PoisonError::into_inner) {
            Some(opened) => write(opened),
            None => Err(redb::Error::PreviousIo),
        };
        let fault = match written {
            Ok(()) => return Ok(()),
            Err(error) => fault(&error),
        };
        // What is on disk is known then: the transaction before. After any other failure only the log knows.
        if matches!(fault, Fault::Full(_)) {
            self.reopen();
        }
        Err(fault)
    }

    pub(crate) fn get(&self, key: &RowKey) -> Result<Option<Row>, Fault> {
        let key = row_key::bytes_of(key);
        self.look(|opened| {
            let rows = opened.rows.read().unwrap_or_else(PoisonError::into_inner);
            let found = rows.get(key.as_slice())?;
            found.map(|value| read_row(value.value())).transpose().map_err(LookError::Row)
        })
    }

    /// A job with its tasks, if it is stored.
    pub(crate) fn job(&self, tenant: &TenantId, job: JobId) -> Result<Option<JobRows>, Fault> {
        let Some(Row::Job(head)) = self.get(&RowKey::Job(tenant.clone(), job))? else { return Ok(None) };
        let mut tasks = Vec::new();
        self.scan(&row_key::tasks_of(tenant, job), &mut |key, row| {
            if let (RowKey::JobTasks(_, _, first), Row::JobTasks(chunk)) = (key, row) {
                tasks.push((first, chunk));
            }
            true
        })?;
        let mut entries = Vec::new();
        self.scan(&row_key::entries_of(tenant, job), &mut |key, row| {
            if let (RowKey::Task(key), Row::Task(TaskRow { entry, .. })) = (key, row) {
                entries.push((key, entry));
            }
            true
        })?;
        Ok(Some(JobRows { head, tasks, entries }))
    }

    /// Calls `each` with the rows whose keys begin with `prefix`, in order, until it says no.
    pub(crate) fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(RowKey, Row) -> bool) -> Result<(), Fault> {
        self.scan_from(prefix, prefix, each)
    }

    /// Like `scan`, beginning with the first key at or after `from`.
    pub(crate) fn scan_from(
        &self,
        prefix: &[u8],
        from: &[u8],
        each: &mut dyn FnMut(RowKey, Row) -> bool,
    ) -> Result<(), Fault> {
        let mut from = from.to_vec();
        self.look(|opened| {
            let rows = opened.rows.read().unwrap_or_else(PoisonError::into_inner);
            for item in rows.range(from.as_slice()..)? {
                let (key, value) = item?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                let (parsed, row) = read_item(key.value(), value.value())?;
                // Should this have to be done again, it goes on behind this row.
                from.clear();
                from.extend_from_slice(key.value());
                from.push(0);
                if !each(parsed, row) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Like `scan`, newest key first, beginning with the last key before `before`.
    pub(crate) fn scan_back(
        &self,
        prefix: &[u8],
        before: &[u8],
        each: &mut dyn FnMut(RowKey, Row) -> bool,
    ) -> Result<(), Fault> {
        let mut before = before.to_vec();
        self.look(|opened| {
            let rows = opened.rows.read().unwrap_or_else(PoisonError::into_inner);
            for item in rows.range(prefix..before.as_slice())?.rev() {
                let (key, value) = item?;
                let (parsed, row) = read_item(key.value(), value.value())?;
                before.clear();
                before.extend_from_slice(key.value());
                if !each(parsed, row) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Records of a kind whose time is over, of whatever tenant, those after `after`, at most `limit`.
    ///
    /// All records of the kind are read, but for executions: their keys are in the order of their moments, newest first, and
    /// none is outdated before `oldest`. So those are passed over, and what it costs is two looks for each tenant and
    /// one for each execution that is older.
    pub(crate) fn outdated(
        &self,
        kind: RecordKind,
        now: Timestamp,
        oldest: Timestamp,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<RecordKey>, Fault> {
        let mut keys = Vec::new();
        let prefix = row_key::records_of_all(kind);
        let mut from = after.map_or_else(
            || prefix.clone(),
            |after| {
                let mut from = row_key::bytes_of(&RowKey::Record(after.clone()));
                from.push(0);
                from
            },
        );
        loop {
            let mut pass_to = None;
            self.scan_from(&prefix, &from, &mut |key, row| {
                let (RowKey::Record(key), Row::Record(record)) = (key, row) else { return true };
                if let Some(first) = first_older(&key, oldest) {
                    pass_to = Some(first);
                    return false;
                }
                if record.expires_at.is_some_and(|at| at <= now) {
                    keys.push(key);
                }
                keys.len() < limit
            })?;
            match pass_to {
                Some(to) => from = to,
                None => return Ok(keys),
            }
        }
    }

    /// The rows that must be in memory from the start.
    pub(crate) fn open_keys(&self) -> Result<Vec<RowKey>, Fault> {
        let read = |opened: &Opened| {
            let table = opened.db.begin_read()?.open_table(OPEN)?;
            let mut keys = Vec::new();
            for item in table.iter()? {
                keys.push(row_key::parse(item?.0.value()));
            }
            Ok(keys)
        };
        let keys: Vec<Option<RowKey>> = self.look(read)?;
        keys.into_iter()
            .map(|key| key.ok_or_else(|| Fault::Damaged("a row has a key that is none".into())))
            .collect()
    }
}

/// Where a tenant's executions older than a moment begin, if this is one that is not.
fn first_older(key: &RecordKey, oldest: Timestamp) -> Option<Vec<u8>> {
    let execution = key.as_execution()?;
    let last = (u128::from(oldest.millis()) << 80) | ((1 << 80) - 1);
    (execution.id.as_u128() > last).then(|| {
        let first = RecordKey::execution(&execution.tenant, ExecutionId::from_u128(last));
        row_key::bytes_of(&RowKey::Record(first))
    })
}

/// Why a look at the rows failed: the database, or what a row holds.
enum LookError {
    Store(redb::Error),
    Row(Fault),
}

impl<E: Into<redb::Error>> From<E> for LookError {
    fn from(error: E) -> Self {
        Self::Store(error.into())
    }
}

fn read_item(key: &[u8], row: &[u8]) -> Result<(RowKey, Row), LookError> {
    let key = row_key::parse(key).ok_or_else(|| Fault::Damaged("a row has a key that is none".into()));
    let row = read_row(row);
    key.and_then(|key| Ok((key, row?))).map_err(LookError::Row)
}

fn read_row(bytes: &[u8]) -> Result<Row, Fault> {
    let damaged = |error: crate::codec::BadBytes| Fault::Damaged(format!("a row {error}"));
    match bytes.split_first() {
        Some((&VERSION, rest)) => read_all(rest).map_err(damaged),
        _ => Err(Fault::Damaged("a row has a version this release does not know".into())),
    }
}

pub(crate) fn io_fault(error: &io::Error) -> Fault {
    if crate::disk::is_full(error) {
        Fault::Full(error.to_string())
    } else if error.kind() == io::ErrorKind::InvalidData {
        Fault::Damaged(error.to_string())
    } else {
        Fault::Stopped(error.to_string())
    }
}

fn fault(error: &redb::Error) -> Fault {
    match error {
        redb::Error::Io(error)
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            Fault::Damaged(format!("rows: {error}"))
        }
        redb::Error::Io(error) => io_fault(error),
        redb::Error::Corrupted(reason) => Fault::Damaged(format!("rows: {reason}")),
        redb::Error::UpgradeRequired(version) => Fault::Damaged(format!("rows have form {version}")),
        redb::Error::RepairAborted => Fault::Damaged("rows could not be repaired".into()),
        error => Fault::Stopped(format!("rows: {error}")),
    }
}

/// The store's file, through the disk port.
struct DiskBackend(Arc<dyn DiskFile>);

impl std::fmt::Debug for DiskBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DiskBackend")
    }
}

impl redb::StorageBackend for DiskBackend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        read_exact_at(&*self.0, out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)
    }
}
