//! The row store: derived rows on disk, with the place in the log they reflect.
//!
//! Nothing here is the truth. Rows are held in memory first and written in the background, many at a time, in one
//! transaction with their position; if the file is lost or damaged it is made again from the log.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use redb::{AccessGuard, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};
use tidemill_engine::backend::Fault;
use tidemill_engine::commit::MessageId;
use tidemill_engine::execution::ExecutionId;
use tidemill_engine::record::{RecordKey, RecordKind};
use tidemill_engine::state::row::{JobRows, Row, RowKey, RowRange, task_list_of};
use tidemill_model::{JobId, TenantId, Timestamp};

use super::fresh_rows::{FreshRows, RowBytes, Run};
use super::row_trouble::{MADE_AGAIN, RowConfig, Trouble, guarded};
use super::row_value;
use crate::checked_file::CheckedFile;
use crate::codec::Reader;
use crate::disk::{Disk, read_exact_at};
use crate::log::{LogPosition, Seq};
use crate::store::row_key;
use crate::store::stored::Stored;
use crate::store::tell::Tell;

/// The directory of derived data.
pub(in crate::store) const DIR: &str = "derived";
const FILE: &str = "derived/rows.redb";
/// Rows that are being made again, until they take the place of the others.
const AGAIN: &str = "derived/rows.again";

const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
/// The keys of rows that must be in memory from the start: open jobs, live tasks, budgets; of pending
/// executions only when they run.
const OPEN: TableDefinition<&[u8], ()> = TableDefinition::new("open");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const CHECKPOINT: &str = "checkpoint";

type RowTable = ReadOnlyTable<&'static [u8], &'static [u8]>;
type StoredRow<'t> = (AccessGuard<'t, &'static [u8]>, AccessGuard<'t, &'static [u8]>);

pub(crate) struct RowStore {
    disk: Arc<dyn Disk>,
    path: &'static str,
    config: RowConfig,
    /// What was found wrong with the rows, and what repairs it.
    pub(crate) trouble: Trouble,
    /// `None` while it is opened anew.
    opened: RwLock<Option<Opened>>,
    /// Held by the thread that writes or reopens.
    turn: Mutex<()>,
    /// The rows that the file does not have yet. After `opened`.
    fresh: Mutex<Arc<FreshRows>>,
    /// The messages of rows that were made again, until the state has taken note of them. It leaves no trace of a message
    /// that came and went between two checkpoints, but these rows may have it.
    found: Mutex<Option<Found>>,
}

/// Messages that rows have which were made from the log.
pub(crate) type Found = Arc<[MessageId]>;

struct Opened {
    db: redb::Database,
    view: RwLock<Arc<View>>,
}

/// The rows as of one moment: those of the file, and those in front of them. Replaced with every write, so that old pages
/// can be used again.
struct View {
    table: Arc<RowTable>,
    fresh: Arc<FreshRows>,
}

impl Opened {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the rows reflect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) position: LogPosition,
}

/// Rows of the form before.
pub(crate) enum Former {
    /// There are none.
    None,
    /// There are, and they reflect this, as far as it is known.
    Rows(Option<Checkpoint>),
}

impl RowStore {
    /// Opens the rows, or makes an empty store. What cannot be opened is removed: the log can make it again.
    pub(crate) fn open(disk: &Arc<dyn Disk>, config: RowConfig, tell: &Tell) -> Result<Self, Fault> {
        disk.create_dir(DIR).map_err(|error| io_fault(&error))?;
        if disk.list(DIR).map_err(|error| io_fault(&error))?.iter().any(|name| AGAIN.ends_with(name)) {
            remove(disk, AGAIN)?;
        }
        match Self::new(disk, FILE, config) {
            Err(Fault::Damaged(problem)) => {
                tell.say(&format!("{MADE_AGAIN}: {problem}"));
                Self::make_anew(disk, config)
            }
            opened => opened,
        }
    }

    /// Removes the rows and makes an empty store.
    pub(crate) fn make_anew(disk: &Arc<dyn Disk>, config: RowConfig) -> Result<Self, Fault> {
        Self::remove(disk)?;
        Self::new(disk, FILE, config)
    }

    /// An empty store beside the rows, to take their place.
    pub(in crate::store) fn beside(disk: &Arc<dyn Disk>, config: RowConfig) -> Result<Self, Fault> {
        remove(disk, AGAIN)?;
        Self::new(disk, AGAIN, config)
    }

    fn new(disk: &Arc<dyn Disk>, path: &'static str, config: RowConfig) -> Result<Self, Fault> {
        let fresh = Arc::new(FreshRows::default());
        let opened = try_open(disk, path, config, &fresh)?;
        Ok(Self {
            disk: Arc::clone(disk),
            path,
            config,
            trouble: Trouble::default(),
            opened: RwLock::new(Some(opened)),
            turn: Mutex::new(()),
            fresh: Mutex::new(fresh),
            found: Mutex::new(None),
        })
    }

    /// Removes the rows. The next open starts from the beginning of the log.
    pub(crate) fn remove(disk: &Arc<dyn Disk>) -> Result<(), Fault> {
        remove(disk, FILE)
    }

    /// What the rows of the form before reflect, if that is what is here. They had no checksums, so nothing more is taken
    /// from them.
    pub(crate) fn former(disk: &Arc<dyn Disk>) -> Result<Former, Fault> {
        let file = match disk.open(FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Former::None),
            opened => opened.map_err(|error| io_fault(&error))?,
        };
        let mut begin = [0; FORMER_MARK.len()];
        match read_exact_at(&*file, &mut begin, 0) {
            Ok(()) if begin == FORMER_MARK => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(io_fault(&error)),
            _ => return Ok(Former::None),
        }
        let read = || -> Result<Option<Vec<u8>>, LookError> {
            let db = redb::Builder::new().create_with_backend(FormerFile(file)).map_err(redb::Error::from)?;
            let table = db.begin_read()?.open_table(META)?;
            Ok(table.get(CHECKPOINT)?.map(|value| value.value().to_vec()))
        };
        // Rows of a former form that cannot be read are made again from the log, as those are that there are none of.
        let bytes = guarded(read).ok().flatten();
        Ok(Former::Rows(bytes.and_then(|bytes| read_checkpoint(&bytes).ok())))
    }

    /// Lets rows that were made again beside these take their place. Fresh rows go that the others have.
    pub(in crate::store) fn replace_with(
        &self,
        other: Self,
        reflected: Checkpoint,
        messages: Vec<MessageId>,
    ) -> Result<(), Fault> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = opened.take() {
            // What a damaged store does when it is closed is its own matter.
            let _ = guarded(|| {
                drop(old);
                Ok(())
            });
        }
        self.disk.rename(other.path, self.path).map_err(|error| io_fault(&error))?;
        self.disk.sync_dir(DIR).map_err(|error| io_fault(&error))?;
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        *fresh = Arc::new(fresh.behind(reflected));
        let new = other.opened.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(new) = &new {
            let mut view = new.view.write().unwrap_or_else(PoisonError::into_inner);
            *view = Arc::new(View { table: Arc::clone(&view.table), fresh: Arc::clone(&fresh) });
        }
        *opened = new;
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(messages.into());
        Ok(())
    }

    /// What the state must take note of before rows are taken from it. Nothing is settled until those are held.
    pub(crate) fn found(&self) -> Option<Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The rows are held that were taken from a state which had taken note of `noted`.
    pub(crate) fn noted(&self, noted: &Found) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.take_if(|found| Arc::ptr_eq(found, noted));
    }

    pub(in crate::store) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(in crate::store) fn config(&self) -> RowConfig {
        self.config
    }

    /// Looks at the rows. If a write failed meanwhile, waits until they are reopened and looks again. Damaged rows
    /// are closed and rebuilt: here and now, or by the keeper if it has the task, and then this fails.
    fn look<T>(&self, mut look: impl FnMut(&Opened) -> Result<T, LookError>) -> Result<T, Fault> {
        let (mut is_second, mut is_mended) = (false, false);
        loop {
            self.check_trouble()?;
            let times = self.trouble.times();
            let found = guarded(|| match &*self.opened.read().unwrap_or_else(PoisonError::into_inner) {
                Some(opened) => look(opened),
                None => Err(LookError::Store(redb::Error::PreviousIo)),
            });
            let fault = match found {
                Ok(found) => return Ok(found),
                Err(LookError::Store(redb::Error::PreviousIo)) if !is_second => {
                    is_second = true;
                    let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                    let opened = self.open_if_closed();
                    drop(turn);
                    match opened {
                        Ok(()) => continue,
                        Err(fault) => fault,
                    }
                }
                // Nobody mends the rows meanwhile, and after a damaged block the database refuses everything.
                Err(LookError::Store(redb::Error::PreviousIo)) if self.trouble.is_left_alone() => {
                    Fault::Damaged("rows: a block was found damaged before".to_owned())
                }
                Err(LookError::Store(error)) => fault(&error),
                Err(LookError::Row(fault)) => fault,
            };
            if is_mended {
                return Err(fault);
            }
            self.mend(fault, times)?;
            is_mended = true;
        }
    }

    /// Opens the rows if the last attempt to do so failed. Only with the turn.
    fn open_if_closed(&self) -> Result<(), Fault> {
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        if opened.is_none() {
            *opened = Some(try_open(&self.disk, self.path, self.config, &self.fresh())?);
        }
        Ok(())
    }

    /// Opens the rows anew: after a write that found no space the database refuses everything. Only with the turn.
    fn reopen(&self) {
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        // The old one must be gone before the file is opened again.
        *opened = None;
        // If that fails too, the next one to come tries again and tells why.
        *opened = try_open(&self.disk, self.path, self.config, &self.fresh()).ok();
    }

    fn fresh(&self) -> Arc<FreshRows> {
        Arc::clone(&self.fresh.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The place in the log that the rows reflect; `None` for a new store.
    pub(crate) fn checkpoint(&self) -> Result<Option<Checkpoint>, Fault> {
        match self.fresh().checkpoint() {
            Some(checkpoint) => Ok(Some(checkpoint)),
            None => self.stored_checkpoint(),
        }
    }

    /// The place in the log that the file reflects: what an open begins with.
    pub(crate) fn stored_checkpoint(&self) -> Result<Option<Checkpoint>, Fault> {
        let read = |opened: &Opened| -> Result<Option<Vec<u8>>, LookError> {
            let table = opened.db.begin_read()?.open_table(META)?;
            Ok(table.get(CHECKPOINT)?.map(|value| value.value().to_vec()))
        };
        self.look(|opened| {
            let bytes = read(opened)?;
            bytes.map(|bytes| read_checkpoint(&bytes)).transpose().map_err(LookError::Row)
        })
    }

    /// Takes rows and the place they reflect into memory, until they are settled. From now on they are seen.
    pub(crate) fn hold(&self, rows: &[(RowKey, Option<Row>)], checkpoint: Checkpoint) {
        let run = Run::new(rows, checkpoint);
        self.change_fresh(None, |fresh| fresh.with(run));
    }

    /// Changes what is in front of the file, and the file's table if it has another one, at once.
    fn change_fresh(&self, table: Option<RowTable>, change: impl FnOnce(&FreshRows) -> FreshRows) {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        *fresh = Arc::new(change(&fresh));
        if let Some(opened) = &*opened {
            let mut view = opened.view.write().unwrap_or_else(PoisonError::into_inner);
            let table = table.map_or_else(|| Arc::clone(&view.table), Arc::new);
            *view = Arc::new(View { table, fresh: Arc::clone(&fresh) });
        }
    }

    /// What rows take in memory that are not in the file.
    pub(crate) fn held_bytes(&self) -> usize {
        self.fresh().byte_count()
    }

    /// Writes rows and the place they reflect, all or nothing, with those that are held.
    pub(crate) fn write(&self, rows: &[(RowKey, Option<Row>)], checkpoint: Checkpoint) -> Result<(), Fault> {
        self.hold(rows, checkpoint);
        self.settle().map(|_| ())
    }

    /// Writes what is held into the file, all or nothing. Says whether it did. What cannot be written stays held, and what
    /// is held meanwhile waits for the next time. So does all of it if the rows were made again just now.
    pub(crate) fn settle(&self) -> Result<bool, Fault> {
        self.check_trouble()?;
        let times = self.trouble.times();
        match self.settle_once() {
            Err(fault @ Fault::Damaged(_)) => {
                self.mend(fault, times)?;
                self.settle_once()
            }
            settled => settled,
        }
    }

    fn settle_once(&self) -> Result<bool, Fault> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.open_if_closed()?;
        if self.found().is_some() {
            return Ok(false);
        }
        let fresh = self.fresh();
        let Some(checkpoint) = fresh.checkpoint() else { return Ok(false) };
        let write = |opened: &Opened| -> Result<RowTable, redb::Error> {
            let mut transaction = opened.db.begin_write()?;
            transaction.set_quick_repair(true);
            {
                let mut table = transaction.open_table(ROWS)?;
                let mut open = transaction.open_table(OPEN)?;
                for RowBytes { key, value, is_open } in fresh.from(&[]) {
                    match value {
                        Some(value) => drop(table.insert(key, value)?),
                        None => drop(table.remove(key)?),
                    }
                    match is_open {
                        // Looking is cheaper than writing, and most of them are there.
                        Some(true) if open.get(key)?.is_none() => drop(open.insert(key, ())?),
                        Some(false) => drop(open.remove(key)?),
                        Some(true) | None => {}
                    }
                }
                let mut meta = transaction.open_table(META)?;
                meta.insert(CHECKPOINT, checkpoint_bytes(checkpoint).as_slice())?;
            }
            transaction.commit()?;
            Ok(opened.db.begin_read()?.open_table(ROWS)?)
        };
        let written = guarded(|| match &*self.opened.read().unwrap_or_else(PoisonError::into_inner) {
            Some(opened) => write(opened).map_err(LookError::Store),
            None => Err(LookError::Store(redb::Error::PreviousIo)),
        });
        let fault = match written {
            Ok(table) => {
                self.change_fresh(Some(table), |now| now.without(fresh.run_count()));
                return Ok(true);
            }
            Err(LookError::Store(error)) => fault(&error),
            Err(LookError::Row(fault)) => fault,
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
            let view = opened.view();
            let read = |value: &[u8]| row_value::read(&key, value, self.config.is_checked);
            if let Some(found) = view.fresh.find(&key) {
                return found.value.map(read).transpose().map_err(LookError::Row);
            }
            let found = view.table.get(key.as_slice())?;
            found.map(|value| read(value.value())).transpose().map_err(LookError::Row)
        })
    }

    /// A job with its tasks, if it is stored.
    pub(crate) fn job(&self, tenant: &TenantId, job: JobId) -> Result<Option<JobRows>, Fault> {
        let Some(Row::Job(head)) = self.get(&RowKey::Job(tenant.clone(), job))? else { return Ok(None) };
        let mut rows = JobRows::new(head);
        self.scan_range(&RowRange::Tasks { tenant: tenant.clone(), job }, &mut |key, row| {
            rows.push(key, row);
            true
        })?;
        Ok(Some(rows))
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
            let view = opened.view();
            let stored = view.table.range(from.as_slice()..)?;
            let fresh = view.fresh.from(&from);
            merge(fresh, stored, Ordering::is_lt, |key, value| {
                if !key.starts_with(prefix) {
                    return Ok(false);
                }
                let (parsed, row) = self.read_item(key, value)?;
                // Should this have to be done again, it goes on behind this row.
                from.clear();
                from.extend_from_slice(key);
                from.push(0);
                Ok(each(parsed, row))
            })
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
            let view = opened.view();
            let stored = view.table.range(prefix..before.as_slice())?.rev();
            let fresh = view.fresh.back_from(&before);
            merge(fresh, stored, Ordering::is_gt, |key, value| {
                if key < prefix {
                    return Ok(false);
                }
                let (parsed, row) = self.read_item(key, value)?;
                before.clear();
                before.extend_from_slice(key);
                Ok(each(parsed, row))
            })
        })
    }

    /// Calls `each` with the rows of a range, in its order, until it says no.
    pub(crate) fn scan_range(
        &self,
        range: &RowRange,
        each: &mut dyn FnMut(RowKey, Row) -> bool,
    ) -> Result<(), Fault> {
        match range {
            RowRange::Records { kind, tenant, after } => {
                let prefix = row_key::records_of(*kind, tenant.as_ref());
                let mut from = prefix.clone();
                if let Some(after) = after {
                    from.extend_from_slice(after.as_bytes());
                    from.push(0);
                }
                self.scan_from(&prefix, &from, each)
            }
            RowRange::AllRecords { kind, after } => {
                let prefix = row_key::records_of_all(*kind);
                let from = after.as_ref().map(|after| {
                    let mut from = row_key::bytes_of(&RowKey::Record(after.clone()));
                    from.push(0);
                    from
                });
                self.scan_from(&prefix, from.as_ref().unwrap_or(&prefix), each)
            }
            RowRange::Jobs { tenant, before } => {
                self.scan_back(&row_key::jobs_of(tenant), &row_key::jobs_before(tenant, *before), each)
            }
            RowRange::TaskLists { tenant, job, from } => {
                let first = RowKey::JobTasks(tenant.clone(), *job, task_list_of(*from));
                self.scan_from(&row_key::tasks_of(tenant, *job), &row_key::bytes_of(&first), each)
            }
            RowRange::Tasks { tenant, job } => {
                let mut wants_more = true;
                self.scan(&row_key::tasks_of(tenant, *job), &mut |key, row| {
                    wants_more = each(key, row);
                    wants_more
                })?;
                if wants_more {
                    self.scan(&row_key::entries_of(tenant, *job), each)?;
                }
                Ok(())
            }
        }
    }

    /// Records of a kind that expired, of all tenants, those after `after`, at most `limit`.
    ///
    /// It reads all records of the kind, except for executions: their keys are in the order of their moments, newest
    /// first, and none that is newer than `oldest` has expired. So it skips those, and costs two looks for each
    /// tenant and one for each older execution.
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

    fn read_item(&self, key: &[u8], value: &[u8]) -> Result<(RowKey, Row), LookError> {
        let row = row_value::read(key, value, self.config.is_checked).map_err(LookError::Row)?;
        Ok((parse_key(key)?, row))
    }

    /// The rows that must be in memory from the start.
    pub(crate) fn open_keys(&self) -> Result<Vec<RowKey>, Fault> {
        let read = |opened: &Opened| {
            let table = opened.db.begin_read()?.open_table(OPEN)?;
            let mut keys: BTreeSet<Vec<u8>> = BTreeSet::new();
            for item in table.iter()? {
                keys.insert(item?.0.value().to_vec());
            }
            for row in opened.view().fresh.from(&[]) {
                match row.is_open {
                    Some(true) => drop(keys.insert(row.key.to_vec())),
                    Some(false) => drop(keys.remove(row.key)),
                    None => {}
                }
            }
            keys.iter().map(|key| parse_key(key)).collect()
        };
        self.look(read)
    }
}

/// Goes through rows that are fresh and rows of the file in one order until `each` says no. What is fresh hides what is in
/// the file.
fn merge<'a, 't>(
    fresh: impl Iterator<Item = RowBytes<'a>>,
    mut stored: impl Iterator<Item = Result<StoredRow<'t>, redb::StorageError>>,
    is_first: fn(Ordering) -> bool,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, LookError>,
) -> Result<(), LookError> {
    let mut next = stored.next().transpose()?;
    for RowBytes { key, value, .. } in fresh {
        while let Some((stored_key, stored_value)) = &next {
            let order = stored_key.value().cmp(key);
            if order.is_ne() && !is_first(order) {
                break;
            }
            if order.is_ne() && !each(stored_key.value(), stored_value.value())? {
                return Ok(());
            }
            next = stored.next().transpose()?;
        }
        if let Some(value) = value
            && !each(key, value)?
        {
            return Ok(());
        }
    }
    while let Some((key, value)) = next {
        if !each(key.value(), value.value())? {
            break;
        }
        next = stored.next().transpose()?;
    }
    Ok(())
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
pub(in crate::store) enum LookError {
    Store(redb::Error),
    Row(Fault),
}

impl<E: Into<redb::Error>> From<E> for LookError {
    fn from(error: E) -> Self {
        Self::Store(error.into())
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

/// The same with the file that it happened to.
pub(crate) fn file_fault(file: &str, error: &io::Error) -> Fault {
    match io_fault(error) {
        Fault::Full(text) => Fault::Full(format!("{file}: {text}")),
        Fault::Stopped(text) => Fault::Stopped(format!("{file}: {text}")),
        Fault::Damaged(text) => Fault::Damaged(format!("{file}: {text}")),
        other => other,
    }
}

fn fault(error: &redb::Error) -> Fault {
    match error {
        redb::Error::Io(error)
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            Fault::Damaged(format!("rows: {error}"))
        }
        redb::Error::Io(error) => file_fault(FILE, error),
        redb::Error::Corrupted(reason) => Fault::Damaged(format!("rows: {reason}")),
        redb::Error::UpgradeRequired(version) => Fault::Damaged(format!("rows have form {version}")),
        redb::Error::RepairAborted => Fault::Damaged("rows could not be repaired".into()),
        error => Fault::Stopped(format!("rows: {error}")),
    }
}

fn remove(disk: &Arc<dyn Disk>, path: &str) -> Result<(), Fault> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_fault(&error)),
        _ => disk.sync_dir(DIR).map_err(|error| io_fault(&error)),
    }
}

fn try_open(
    disk: &Arc<dyn Disk>,
    path: &str,
    config: RowConfig,
    fresh: &Arc<FreshRows>,
) -> Result<Opened, Fault> {
    let file = match disk.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(path),
        opened => opened,
    };
    let file = file.map_err(|error| io_fault(&error))?;
    disk.sync_dir(DIR).map_err(|error| io_fault(&error))?;
    let file = if config.is_checked { CheckedFile::new(file) } else { CheckedFile::unchecked(file) };
    let open = || -> Result<Opened, LookError> {
        let mut builder = redb::Builder::new();
        builder.set_cache_size(config.cache_bytes);
        let db = builder.create_with_backend(file).map_err(redb::Error::from)?;
        let table = open_tables(&db)?;
        let view = RwLock::new(Arc::new(View { table: Arc::new(table), fresh: Arc::clone(fresh) }));
        Ok(Opened { db, view })
    };
    guarded(open).map_err(|error| match error {
        LookError::Store(error) => fault(&error),
        LookError::Row(fault) => fault,
    })
}

fn open_tables(db: &redb::Database) -> Result<RowTable, redb::Error> {
    // Tables that are there need no space.
    match db.begin_read()?.open_table(ROWS) {
        Err(redb::TableError::TableDoesNotExist(_)) => {}
        opened => return Ok(opened?),
    }
    let mut transaction = db.begin_write()?;
    // Otherwise a crash within the next transaction makes an open look at pages that may be torn, see `CheckedFile`.
    transaction.set_quick_repair(true);
    transaction.open_table(ROWS)?;
    transaction.open_table(OPEN)?;
    transaction.open_table(META)?;
    transaction.commit()?;
    Ok(db.begin_read()?.open_table(ROWS)?)
}

fn checkpoint_bytes(checkpoint: Checkpoint) -> Vec<u8> {
    let mut value = Vec::new();
    checkpoint.position.segment.put(&mut value);
    checkpoint.position.offset.put(&mut value);
    checkpoint.position.next_seq.put(&mut value);
    value
}

fn read_checkpoint(bytes: &[u8]) -> Result<Checkpoint, Fault> {
    let mut reader = Reader::new(bytes);
    let parsed = (|| {
        let segment = u32::take(&mut reader)?;
        let offset = u64::take(&mut reader)?;
        let next_seq = Seq::take(&mut reader)?;
        Ok(Checkpoint { position: LogPosition { segment, offset, next_seq } })
    })();
    parsed.map_err(|error: crate::codec::BadBytes| Fault::Damaged(format!("the checkpoint {error}")))
}

fn parse_key(key: &[u8]) -> Result<RowKey, LookError> {
    row_key::parse(key).ok_or_else(|| LookError::Row(Fault::Damaged("a row has a key that is none".into())))
}

/// What the file of the form before begins with.
const FORMER_MARK: [u8; 4] = *b"redb";

/// The file of the form before. Opening it may write: it is mended if it was not closed.
struct FormerFile(Arc<dyn crate::disk::DiskFile>);

impl std::fmt::Debug for FormerFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FormerFile")
    }
}

impl redb::StorageBackend for FormerFile {
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
