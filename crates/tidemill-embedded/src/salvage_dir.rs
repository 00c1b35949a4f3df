//! Salvage: what is whole of a damaged data directory becomes a store in a new one.
//!
//! What is whole of the log is copied into a log with holes, in a directory within the new one. Rows, if every one can be
//! read, say what the lost parts had come to. From both a store is made as an import makes one, which knows how to live
//! without events that are gone; keys and tokens, which an export leaves behind, come along. Then come the blobs. The
//! damaged directory is only read.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_engine::backend::Fault;
use tidemill_engine::export::ExportError;
use tidemill_engine::record::{Record, RecordKey, RecordKind};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_engine::state::stream::Stream;
use tidemill_model::{Entity, JobId, RequestId, TenantId, Timestamp};

use crate::blob::Blobs;
use crate::data_lock::{DataLock, LockError};
use crate::disk::{Disk, DiskFile};
use crate::log::{Copied, Entry, LogError, LogPosition, Lost, Seq, copy_whole};
use crate::real_disk::RealDisk;
use crate::store::import::{Extra, ImportError};
use crate::store::rows::row_store::{RowStore, io_fault};
use crate::store::rows::row_trouble::RowConfig;
use crate::store::verify::Findings;
use crate::store::watch::{Progress, Step, Watch};
use crate::store::{Store, StoreOptions, Tell, row_key};

/// Where the pieces are put together.
const STAGING: &str = "salvage.partial";
const ROWS: &str = "derived/rows.redb";
const BLOBS: &str = "blobs";
/// How many of the entities that lost something are named; the rest are only counted.
pub const NAMED_MAX: usize = 1_000;

/// What was saved, and what was not.
#[derive(Debug, Clone, Default)]
pub struct Salvaged {
    pub log: Copied,
    /// Whether the rows told what the lost parts had come to.
    pub rows_used: bool,
    /// Events that the new store holds.
    pub events: u64,
    pub jobs: u64,
    pub tasks: u64,
    pub blobs: u64,
    /// Large values and files that are missing or damaged, by name.
    pub blobs_lost: Vec<String>,
    /// Whose history has a hole, as far as it shows: the first of them by name.
    pub touched: Vec<Touched>,
    pub touched_total: u64,
    /// Jobs that are not in the new store though something of them is left: the first of them by id. A job of which nothing
    /// is left is in no list.
    pub gone: Vec<Gone>,
    pub gone_total: u64,
    /// What the losses mean for the API keys.
    pub keys: KeysLeft,
    /// What a verify of the new store says.
    pub findings: Findings,
}

/// What became of the API keys, which are in the log too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeysLeft {
    /// They stand as they stood.
    #[default]
    All,
    /// There are keys, but some may be missing, and what was revoked may be valid again.
    Uncertain,
    /// None is left, and there may have been some: the store is closed until one is made.
    Closed,
}

/// Somebody whose events are not all there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touched {
    pub tenant: TenantId,
    pub entity: Entity,
}

/// A job that the new store does not have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gone {
    pub tenant: TenantId,
    pub job: JobId,
}

impl Gone {
    /// The job that something left behind belongs to, by the id of one of its tasks.
    fn by_task(tenant: &TenantId, request: &str) -> Option<Self> {
        let job = RequestId::new(request).ok()?.job_part()?;
        Some(Self { tenant: tenant.clone(), job })
    }

    fn by_event(tenant: &TenantId, entity: &Entity) -> Option<Self> {
        match entity.kind.as_str() {
            "JOB" => Some(Self { tenant: tenant.clone(), job: JobId::new(entity.id.as_str()).ok()? }),
            "TASK" => Self::by_task(tenant, entity.id.as_str()),
            _ => None,
        }
    }

    /// By the path of a file that a task left.
    fn by_file(path: &str) -> Option<Self> {
        let (tenant, file) = path.strip_prefix(BLOBS)?.strip_prefix('/')?.split_once('/')?;
        let (request, _) = file.strip_prefix("task/logs/")?.split_once('/')?;
        // A long name is cut there, behind the id of the job.
        let request = request.split('%').next()?;
        Self::by_task(&TenantId::new(tenant).ok()?, request)
    }
}

impl Salvaged {
    /// Whether nothing was lost.
    pub fn is_whole(&self) -> bool {
        self.log.lost.is_empty() && self.blobs_lost.is_empty()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    #[error(transparent)]
    Held(#[from] LockError),
    #[error("{dir} is not empty; name a new directory")]
    NotEmpty { dir: String },
    #[error("there is no log in {dir}")]
    NoLog { dir: String },
    #[error("{dir} lies in the damaged directory, which is only read; name a directory beside it")]
    Inside { dir: String },
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: String, source: io::Error },
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Store(#[from] Fault),
}

impl From<LogError> for SalvageError {
    fn from(error: LogError) -> Self {
        Self::Store(error.into())
    }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SalvageError {
    let path = path.display().to_string();
    move |source| SalvageError::Io { action, path, source }
}

/// Makes a store in `to`, which must be new or empty, from what is whole in `from`, which nobody may have open.
pub fn salvage(
    from: &Path,
    to: &Path,
    options: &StoreOptions,
    now: Timestamp,
    watch: &mut Watch<'_>,
) -> Result<Salvaged, SalvageError> {
    if let Some(holder) = DataLock::holder(from) {
        return Err(LockError::Held { dir: from.display().to_string(), holder }.into());
    }
    if !from.join("log").is_dir() {
        return Err(SalvageError::NoLog { dir: from.display().to_string() });
    }
    if lies_in(to, from) {
        return Err(SalvageError::Inside { dir: to.display().to_string() });
    }
    let target = Arc::new(RealDisk::new(to).map_err(io_error("make", to))?);
    let mut entries = fs::read_dir(to).map_err(io_error("read", to))?;
    if entries.next().is_some() {
        return Err(SalvageError::NotEmpty { dir: to.display().to_string() });
    }
    let _lock = DataLock::take(to)?;
    let staging = to.join(STAGING);
    let made = make(from, &staging, &target, options, now, watch);
    let removed = fs::remove_dir_all(&staging).map_err(io_error("remove", &staging));
    let salvaged = made?;
    removed?;
    Ok(salvaged)
}

/// Whether a place that may not be there yet lies in a directory.
fn lies_in(place: &Path, directory: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else { return false };
    let absolute = std::path::absolute(place).unwrap_or_else(|_| place.to_owned());
    // What is there of it may be reached through links.
    let there = absolute.ancestors().find_map(|part| part.canonicalize().ok());
    there.is_some_and(|there| there.starts_with(&directory))
}

fn make(
    from: &Path,
    staging: &Path,
    target: &Arc<RealDisk>,
    options: &StoreOptions,
    now: Timestamp,
    watch: &mut Watch<'_>,
) -> Result<Salvaged, SalvageError> {
    let disk: Arc<dyn Disk> = Arc::new(Overlay {
        own: RealDisk::new(staging).map_err(io_error("make", staging))?,
        source: ReadOnly { root: from.to_owned() },
    });
    let mut salvaged = Salvaged::default();
    let known = copy_rows(from, staging, &disk, &mut salvaged)?;
    let source = ReadOnly { root: from.to_owned() };
    let mut step = |done| watch(Progress { step: "reading segments", done, total: None });
    salvaged.log = copy_whole(&source, &*disk, options.log, known, &mut step)?;
    let mut store = match Store::open_watched(Arc::clone(&disk), options.clone(), watch) {
        Err(Fault::Damaged(_)) if salvaged.rows_used => {
            salvaged.rows_used = false;
            RowStore::remove(&disk)?;
            Store::open_watched(Arc::clone(&disk), options.clone(), watch)?
        }
        opened => opened?,
    };
    let mut jobs = find_touched(&mut store, &mut salvaged, watch)?;
    let export = staging.join("export");
    let file = File::create(&export).map_err(io_error("make", &export))?;
    let exported = store.export(&mut BufWriter::new(file), watch)?;
    salvaged.blobs_lost = exported.blobs_missing;
    let records = kept_records(&store)?;
    drop(store);
    let has_keys = records.iter().any(|(key, _)| key.kind == RecordKind::ApiKey);
    salvaged.keys = match (salvaged.log.lost.is_empty(), has_keys) {
        (true, _) => KeysLeft::All,
        (false, true) => KeysLeft::Uncertain,
        (false, false) => KeysLeft::Closed,
    };
    let extra = Extra { records, closed: salvaged.keys == KeysLeft::Closed };
    let file = File::open(&export).map_err(io_error("read", &export))?;
    let disk: Arc<dyn Disk> = Arc::clone(target) as _;
    let mut input = BufReader::new(file);
    let imported = Store::import_salvaged(Arc::clone(&disk), options.clone(), &mut input, extra, now, watch)?;
    (salvaged.events, salvaged.jobs, salvaged.tasks) =
        (imported.tally.events, imported.tally.jobs, imported.tally.tasks);
    copy_blobs(from, target, &mut salvaged, &mut jobs, watch)?;
    let store = Store::open_watched(disk, options.clone(), watch)?;
    find_gone(&store, &mut salvaged, jobs)?;
    salvaged.findings = store.verify_watched(watch)?;
    Ok(salvaged)
}

/// Copies the rows, if every one of them can be read. Gives the place in the log that they reflect.
fn copy_rows(
    from: &Path,
    staging: &Path,
    disk: &Arc<dyn Disk>,
    salvaged: &mut Salvaged,
) -> Result<Option<LogPosition>, SalvageError> {
    let (source, copy) = (from.join(ROWS), staging.join(ROWS));
    disk.create_dir("derived").map_err(io_error("make", &copy))?;
    match fs::copy(&source, &copy) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        copied => copied.map_err(io_error("copy", &source))?,
    };
    // What keeps the rows may panic over damaged ones.
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let rows = RowStore::open(disk, RowConfig::USUAL, &Tell::default())?;
        let checkpoint = rows.checkpoint()?;
        rows.scan(&[], &mut |_, _| true)?;
        Ok::<_, Fault>(checkpoint.map(|checkpoint| checkpoint.position))
    }));
    if let Ok(Ok(known @ Some(_))) = read {
        salvaged.rows_used = true;
        return Ok(known);
    }
    match fs::remove_file(&copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &copy)(error)),
        _ => Ok(None),
    }
}

/// Finds the entities that lost events: the next event names a lost one as the one before, or the newest is lost.
/// Returns the jobs that still have events.
fn find_touched(
    store: &mut Store,
    salvaged: &mut Salvaged,
    watch: &mut Watch<'_>,
) -> Result<BTreeSet<Gone>, SalvageError> {
    let lost: Vec<Lost> = salvaged.log.lost.clone();
    let mut jobs = BTreeSet::new();
    if lost.is_empty() {
        return Ok(jobs);
    }
    let is_lost = |seq: Option<Seq>| {
        seq.is_some_and(|seq| lost.iter().any(|lost| lost.first_seq <= seq && seq < lost.end_seq))
    };
    let mut touched = BTreeSet::new();
    let mut step = Step::begin(watch, "looking for holes", None);
    store.reader.replay::<Fault>(LogPosition::START, |entry| {
        if let Entry::Event(stored) = entry {
            step.tick();
            jobs.extend(Gone::by_event(&stored.event.tenant, &stored.event.entity));
            if is_lost(stored.links.prev) || is_lost(stored.links.aside) {
                touched.insert(Touched { tenant: stored.event.tenant, entity: stored.event.entity });
            }
        }
        Ok(())
    })?;
    step.end();
    store.hold_rows()?;
    let mut look = |tenant: &TenantId, entity: Entity, stream: &Stream| {
        if is_lost(stream.history.main.tip()) || is_lost(stream.history.aside.tip()) {
            touched.insert(Touched { tenant: tenant.clone(), entity });
        }
    };
    store.rows.scan(&[], &mut |key, row| {
        match (key, &row) {
            (RowKey::Job(tenant, job), Row::Job(head)) => look(&tenant, Entity::job(job), &head.stream),
            (RowKey::Task(key), Row::Task(task)) => {
                look(&key.tenant, Entity::task(&key.request), &task.entry.stream);
            }
            (RowKey::Entity(tenant, entity), Row::Entity(stream)) => look(&tenant, entity, stream),
            _ => {}
        }
        true
    })?;
    salvaged.touched_total = touched.len() as u64;
    salvaged.touched = touched.into_iter().take(NAMED_MAX).collect();
    Ok(jobs)
}

/// Finds out which of the jobs that something is left of the new store does not have.
fn find_gone(store: &Store, salvaged: &mut Salvaged, jobs: BTreeSet<Gone>) -> Result<(), Fault> {
    if salvaged.log.lost.is_empty() {
        return Ok(());
    }
    let mut gone = Vec::new();
    for job in jobs {
        let is_open = store.state().job(&job.tenant, job.job).is_some();
        if !is_open && store.rows.get(&RowKey::Job(job.tenant.clone(), job.job))?.is_none() {
            gone.push(job);
        }
    }
    salvaged.gone_total = gone.len() as u64;
    gone.truncate(NAMED_MAX);
    salvaged.gone = gone;
    Ok(())
}

/// What an export leaves behind and this must not: keys and tokens. Places in the log mean nothing in the new one.
fn kept_records(store: &Store) -> Result<Vec<(RecordKey, Record)>, Fault> {
    let mut records = Vec::new();
    for kind in [RecordKind::ApiKey, RecordKind::Token] {
        store.rows.scan(&row_key::records_of_all(kind), &mut |key, row| {
            if let (RowKey::Record(key), Row::Record(record)) = (key, row) {
                records.push((key, record));
            }
            true
        })?;
    }
    Ok(records)
}

/// Copies the blobs that are whole and whose names fit, but for those that came with their events. Notes whose they are.
fn copy_blobs(
    from: &Path,
    target: &Arc<RealDisk>,
    salvaged: &mut Salvaged,
    jobs: &mut BTreeSet<Gone>,
    watch: &mut Watch<'_>,
) -> Result<(), SalvageError> {
    let blobs = Blobs::open(Arc::clone(target) as _).map_err(|error| io_fault(&error))?;
    let mut step = Step::begin(watch, "copying large values", None);
    let mut dirs = vec![PathBuf::from(BLOBS)];
    while let Some(dir) = dirs.pop() {
        let entries = match fs::read_dir(from.join(&dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.map_err(io_error("read", &dir))?,
        };
        for entry in entries {
            let entry = entry.map_err(io_error("read", &dir))?;
            let path = dir.join(entry.file_name());
            // Drafts and notes are of what was under way.
            let is_ours = dir.as_os_str() == BLOBS && entry.file_name().as_encoded_bytes().starts_with(b".");
            if is_ours {
                continue;
            }
            if entry.file_type().map_err(io_error("read", &path))?.is_dir() {
                dirs.push(path);
                continue;
            }
            step.tick();
            let Some(name) = path.to_str() else { continue };
            jobs.extend(Gone::by_file(name));
            let bytes = fs::read(from.join(&path)).map_err(io_error("read", &path))?;
            match blobs.adopt(name, &bytes) {
                Ok(()) => salvaged.blobs += 1,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    salvaged.blobs_lost.push(format!("{name}: {error}"));
                }
                Err(error) => return Err(io_fault(&error).into()),
            }
        }
    }
    step.end();
    // The export already reported a damaged one that an event names.
    salvaged.blobs_lost.sort_unstable();
    salvaged.blobs_lost.dedup();
    Ok(())
}

/// A directory that is only read.
struct ReadOnly {
    root: PathBuf,
}

struct ReadOnlyFile(File);

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for ReadOnly {
    fn create_dir(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.root.join(dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                names.extend(entry.file_name().into_string().ok());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create(&self, _: &str) -> io::Result<Arc<dyn DiskFile>> {
        refused()
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(ReadOnlyFile(File::open(self.root.join(path))?)))
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        refused()
    }
}

impl DiskFile for ReadOnlyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        refused()
    }

    fn sync_data(&self) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

/// The pieces in their own directory, with the blobs of the damaged one.
struct Overlay {
    own: RealDisk,
    source: ReadOnly,
}

impl Overlay {
    fn is_blob(path: &str) -> bool {
        path.strip_prefix(BLOBS)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|rest| !rest.starts_with('.'))
    }
}

impl Disk for Overlay {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.own.create_dir(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.own.list(dir)
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.own.create(path)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        if Self::is_blob(path) { self.source.open(path) } else { self.own.open(path) }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.own.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.own.remove(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.own.sync_dir(dir)
    }
}
