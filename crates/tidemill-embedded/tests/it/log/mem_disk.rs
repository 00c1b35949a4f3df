//! A disk in memory that can stop at any operation, lose what was not synced, and run full.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tidemill_embedded::disk::{Disk, DiskFile};

use super::support::Random;

const SECTOR: usize = 512;

/// A disk. Clones share the same files.
#[derive(Clone, Default)]
pub(crate) struct MemDisk {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    /// Changing operations so far.
    operations: AtomicU64,
    /// The operation from which on everything fails; 0 for never.
    stop_at: AtomicU64,
    /// The operation that fails alone; 0 for none.
    fail_at: AtomicU64,
    space: AtomicU64,
    /// Reads so far.
    reads: AtomicU64,
}

#[derive(Default)]
struct State {
    names: Names,
    durable_names: Names,
    /// What happened to names since they were synced.
    unsynced: Vec<NameChange>,
    used: u64,
}

type Names = BTreeMap<String, Arc<MemFile>>;

#[derive(Clone)]
enum NameChange {
    Set(String, Arc<MemFile>),
    Remove(String),
}

impl State {
    fn change_name(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.unsynced.push(change);
    }
}

fn apply(names: &mut Names, change: &NameChange) {
    match change {
        NameChange::Set(name, file) => drop(names.insert(name.clone(), Arc::clone(file))),
        NameChange::Remove(name) => drop(names.remove(name)),
    }
}

struct MemFile {
    inner: std::sync::Weak<Inner>,
    bytes: Mutex<Bytes>,
}

#[derive(Default)]
struct Bytes {
    now: Vec<u8>,
    durable: Vec<u8>,
}

impl MemDisk {
    /// How often something was read.
    pub(crate) fn reads(&self) -> u64 {
        self.inner.reads.load(Ordering::Relaxed)
    }

    pub(crate) fn new() -> Self {
        let disk = Self::default();
        disk.inner.space.store(u64::MAX, Ordering::Relaxed);
        disk
    }

    /// How many operations changed something so far.
    pub(crate) fn operations(&self) -> u64 {
        self.inner.operations.load(Ordering::Relaxed)
    }

    /// Everything fails from the `count`th changing operation from now on; the first is 1.
    pub(crate) fn stop_after(&self, count: u64) {
        self.inner.stop_at.store(self.operations() + count, Ordering::Relaxed);
    }

    /// Only the `count`th changing operation from now on fails.
    pub(crate) fn fail_once(&self, count: u64) {
        self.inner.fail_at.store(self.operations() + count, Ordering::Relaxed);
    }

    /// Everything works again.
    pub(crate) fn heal(&self) {
        self.inner.stop_at.store(0, Ordering::Relaxed);
        self.inner.fail_at.store(0, Ordering::Relaxed);
    }

    /// How many bytes files may have together.
    pub(crate) fn set_space(&self, bytes: u64) {
        self.inner.space.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> u64 {
        self.inner.state.lock().unwrap().used
    }

    /// A new disk as a power loss leaves it: what was not synced is lost. With `random` some sectors and some changes of
    /// names made it to the disk, in no order.
    pub(crate) fn after_power_loss(&self, mut random: Option<&mut Random>) -> Self {
        let disk = Self::new();
        let state = self.inner.state.lock().unwrap();
        let mut names = BTreeMap::new();
        let mut durable = state.durable_names.clone();
        if let Some(random) = random.as_deref_mut() {
            for change in &state.unsynced {
                if random.below(2) == 0 {
                    apply(&mut durable, change);
                }
            }
        }
        for (name, file) in &durable {
            let bytes = file.bytes.lock().unwrap();
            let mut left = bytes.durable.clone();
            if let Some(random) = random.as_deref_mut() {
                for (index, sector) in left.chunks_mut(SECTOR).enumerate() {
                    let now = bytes.now.get(index * SECTOR..).unwrap_or_default();
                    let count = sector.len().min(now.len());
                    if random.below(2) == 0 {
                        sector[..count].copy_from_slice(&now[..count]);
                    }
                }
            }
            let copy = Bytes { now: left.clone(), durable: left };
            let inner = Arc::downgrade(&disk.inner);
            names.insert(name.clone(), Arc::new(MemFile { inner, bytes: Mutex::new(copy) }));
        }
        {
            let mut new = disk.inner.state.lock().unwrap();
            new.durable_names.clone_from(&names);
            new.names = names;
        }
        drop(state);
        disk
    }

    /// A new disk with the same files, as a killed process leaves them.
    pub(crate) fn after_kill(&self) -> Self {
        let disk = Self::new();
        let state = self.inner.state.lock().unwrap();
        let mut copies: Vec<(Arc<MemFile>, Arc<MemFile>)> = Vec::new();
        let mut copy = |file: &Arc<MemFile>| {
            if let Some((_, copy)) = copies.iter().find(|(old, _)| Arc::ptr_eq(old, file)) {
                return Arc::clone(copy);
            }
            let bytes = file.bytes.lock().unwrap();
            let bytes = Bytes { now: bytes.now.clone(), durable: bytes.durable.clone() };
            let twin = Arc::new(MemFile { inner: Arc::downgrade(&disk.inner), bytes: Mutex::new(bytes) });
            copies.push((Arc::clone(file), Arc::clone(&twin)));
            twin
        };
        let mut new = disk.inner.state.lock().unwrap();
        new.names = state.names.iter().map(|(name, file)| (name.clone(), copy(file))).collect();
        new.durable_names =
            state.durable_names.iter().map(|(name, file)| (name.clone(), copy(file))).collect();
        new.unsynced = state
            .unsynced
            .iter()
            .map(|change| match change {
                NameChange::Set(name, file) => NameChange::Set(name.clone(), copy(file)),
                NameChange::Remove(name) => NameChange::Remove(name.clone()),
            })
            .collect();
        new.used = state.used;
        drop(new);
        disk
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.inner.state.lock().unwrap().names.keys().cloned().collect()
    }

    /// The bytes of a file.
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        self.inner.state.lock().unwrap().names[path].bytes.lock().unwrap().now.clone()
    }

    /// Puts other bytes into a file, or makes one.
    pub(crate) fn set_bytes(&self, path: &str, bytes: &[u8]) {
        let inner = Arc::downgrade(&self.inner);
        let bytes = Bytes { now: bytes.to_vec(), durable: bytes.to_vec() };
        let file = Arc::new(MemFile { inner, bytes: Mutex::new(bytes) });
        let mut state = self.inner.state.lock().unwrap();
        state.names.insert(path.to_owned(), Arc::clone(&file));
        state.durable_names.insert(path.to_owned(), file);
    }

    pub(crate) fn delete(&self, path: &str) {
        let mut state = self.inner.state.lock().unwrap();
        state.names.remove(path);
        state.durable_names.remove(path);
    }
}

impl Inner {
    fn change(&self) -> io::Result<()> {
        let number = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        let stop = self.stop_at.load(Ordering::Relaxed);
        if (stop > 0 && number >= stop) || number == self.fail_at.load(Ordering::Relaxed) {
            return Err(io::Error::other("the disk failed"));
        }
        Ok(())
    }

    /// Takes space for a file that grows.
    fn grow(&self, by: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.used + by > self.space.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.used += by;
        Ok(())
    }
}

impl Disk for MemDisk {
    fn create_dir(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let state = self.inner.state.lock().unwrap();
        let prefix = format!("{dir}/");
        Ok(state.names.keys().filter_map(|name| name.strip_prefix(&prefix).map(str::to_owned)).collect())
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.change()?;
        let mut state = self.inner.state.lock().unwrap();
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(MemFile { inner: Arc::downgrade(&self.inner), bytes: Mutex::default() });
        state.change_name(NameChange::Set(path.to_owned(), Arc::clone(&file)));
        Ok(file)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.inner.state.lock().unwrap();
        let file = state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::clone(file) as Arc<dyn DiskFile>)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.change()?;
        let mut state = self.inner.state.lock().unwrap();
        let file = Arc::clone(state.names.get(from).ok_or(io::ErrorKind::NotFound)?);
        state.change_name(NameChange::Set(to.to_owned(), file));
        state.change_name(NameChange::Remove(from.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.inner.state.lock().unwrap();
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.inner.change()?;
        let len = state.names[path].bytes.lock().unwrap().now.len() as u64;
        state.used = state.used.saturating_sub(len);
        state.change_name(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        self.inner.change()?;
        let mut state = self.inner.state.lock().unwrap();
        state.durable_names = state.names.clone();
        state.unsynced.clear();
        Ok(())
    }
}

impl MemFile {
    fn change(&self, grow_to: Option<u64>) -> io::Result<()> {
        let Some(inner) = self.inner.upgrade() else { return Ok(()) };
        inner.change()?;
        let len = self.bytes.lock().unwrap().now.len() as u64;
        match grow_to {
            Some(wanted) if wanted > len => inner.grow(wanted - len),
            _ => Ok(()),
        }
    }
}

impl DiskFile for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(inner) = self.inner.upgrade() {
            inner.reads.fetch_add(1, Ordering::Relaxed);
        }
        let bytes = self.bytes.lock().unwrap();
        let rest = bytes.now.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let end = usize::try_from(offset).unwrap() + buf.len();
        self.change(Some(end as u64))?;
        let mut bytes = self.bytes.lock().unwrap();
        if bytes.now.len() < end {
            bytes.now.resize(end, 0);
        }
        bytes.now[end - buf.len()..end].copy_from_slice(buf);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(None)?;
        let mut bytes = self.bytes.lock().unwrap();
        let Bytes { now, durable } = &mut *bytes;
        durable.clone_from(now);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.change(Some(len))?;
        let mut bytes = self.bytes.lock().unwrap();
        let wanted = usize::try_from(len).unwrap().max(bytes.now.len());
        bytes.now.resize(wanted, 0);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(None)?;
        self.bytes.lock().unwrap().now.resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().now.len() as u64)
    }
}
