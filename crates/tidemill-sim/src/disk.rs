//! A disk that forgets what it may forget.
//!
//! Files are made of sectors; writes, lengths and names that were not synced lie apart from what is durable, and a
//! power loss decides each one's fate by the seed. Operations fail on demand, the disk can be full, the power can go
//! within any operation, and a sync can be left out as if somebody had removed it from the code.

mod inode;
mod names;
mod trouble;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemill_embedded::disk::{Disk, DiskFile};

use crate::rng::Rng;
use inode::{Inode, SECTOR_BYTES};
use names::{InodeId, Names};
use trouble::Troubles;
pub use trouble::{Operation, Trouble};

/// The disk. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    /// Grows when the process or the power dies; handles of earlier lives are dead.
    life: u64,
    power_is_off: bool,
    names: Names,
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    /// Operations that change something, so far.
    operations: u64,
    /// The operation in which the power goes.
    power_goes_at: Option<u64>,
    troubles: Troubles,
    /// Whether troubles and power losses may happen now.
    may_fail_now: bool,
    /// Syncs that do nothing: of which kind, and under which paths.
    ignored: Vec<(Operation, String)>,
    capacity_bytes: Option<u64>,
    rng: Rng,
    digest: u64,
}

impl SimDisk {
    /// An empty disk. What goes wrong on it follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let inner = Inner {
            life: 1,
            power_is_off: false,
            names: Names::default(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            operations: 0,
            power_goes_at: None,
            troubles: Troubles::default(),
            may_fail_now: true,
            ignored: Vec::new(),
            capacity_bytes: None,
            rng: Rng::new(seed),
            digest: 0xcbf2_9ce4_8422_2325,
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// How many operations changed something or tried to.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// A digest of all operations so far: two runs of one seed must have the same.
    pub fn digest(&self) -> u64 {
        self.lock().digest
    }

    /// The power goes within the operation of this number, which may be done in part. Everything after it fails.
    pub fn cut_power_at(&self, operation: u64) {
        self.lock().power_goes_at = Some(operation);
    }

    pub fn power_is_off(&self) -> bool {
        self.lock().power_is_off
    }

    /// A power loss, and power again: what was not synced is dropped, torn or reordered.
    pub fn crash(&self, rng: &mut Rng) {
        let mut inner = self.lock();
        inner.begin_life();
        inner.names.lose_power(rng);
        let named: Vec<InodeId> = inner.names.seen().collect();
        inner.inodes.retain(|id, _| named.contains(id));
        for inode in inner.inodes.values_mut() {
            inode.lose_power(rng);
        }
    }

    /// The process dies and the machine lives: everything written is there, durable or not.
    pub fn kill(&self) {
        self.lock().begin_life();
    }

    /// From now on operations of this kind fail `per_mille` times in a thousand.
    pub fn trouble(&self, operation: Operation, trouble: Trouble, per_mille: u32) {
        self.lock().troubles.set(operation, trouble, per_mille);
    }

    /// Nothing fails any more by [`SimDisk::trouble`].
    pub fn end_troubles(&self) {
        self.lock().troubles.clear();
    }

    /// Suspends everything that goes wrong on demand, or lets it happen again. The capacity stays as it is.
    pub fn let_fail(&self, on: bool) {
        self.lock().may_fail_now = on;
    }

    /// Whether anything was asked to go wrong.
    pub fn may_fail(&self) -> bool {
        let inner = self.lock();
        !inner.troubles.is_empty() || inner.capacity_bytes.is_some()
    }

    /// Takes back [`SimDisk::cut_power_at`].
    pub fn never_cut_power(&self) {
        self.lock().power_goes_at = None;
    }

    /// How much the disk holds. Space that was allocated is there even when the disk is full.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity_bytes = bytes;
    }

    /// The space that files take.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    /// Turns a sync into a no-op, as if somebody had removed it: `Sync` for files, `SyncDir` for directories whose path
    /// starts with `prefix`.
    pub fn ignore_sync(&self, operation: Operation, prefix: &str) {
        self.lock().ignored.push((operation, prefix.to_owned()));
    }

    /// Turns over a few bits of a file, at places that are not empty. Says how many.
    pub fn flip_bits(&self, path: &str, rng: &mut Rng) -> usize {
        let mut inner = self.lock();
        let Some(inode) = inner.names.find(path).and_then(|id| inner.inodes.get_mut(&id)) else { return 0 };
        let places: Vec<usize> = (0..inode.len()).filter(|at| inode.seen()[*at] != 0).collect();
        if places.is_empty() {
            return 0;
        }
        let count = rng.weighted(&[(2, 1), (1, 4), (1, 32)]);
        for _ in 0..count {
            let at = places[rng.index(places.len())];
            inode.flip(at, u32::try_from(rng.below(8)).unwrap_or(0));
        }
        count
    }

    /// All files by their paths, as programs see them.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let inner = self.lock();
        let named = inner.names.named();
        named
            .filter_map(|(path, id)| Some((path.to_owned(), inner.inodes.get(&id)?.seen().to_vec())))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far an operation may go.
enum Go {
    Whole,
    /// It fails, and whether or how much of it happens is open.
    Partly(io::Error),
}

impl Inner {
    fn begin_life(&mut self) {
        self.life += 1;
        self.power_is_off = false;
        self.power_goes_at = None;
    }

    /// Counts an operation and decides how it goes.
    fn begin(&mut self, operation: Operation, path: &str, offset: u64, len: u64) -> io::Result<Go> {
        self.check_power()?;
        self.operations += 1;
        self.record(operation, path, offset, len);
        if self.may_fail_now && self.power_goes_at.is_some_and(|at| at <= self.operations) {
            self.power_is_off = true;
            return Ok(Go::Partly(power_is_off()));
        }
        Ok(match self.strike(operation) {
            None => Go::Whole,
            Some(trouble) => Go::Partly(trouble.error()),
        })
    }

    fn strike(&mut self, operation: Operation) -> Option<Trouble> {
        if self.may_fail_now { self.troubles.strike(operation, &mut self.rng) } else { None }
    }

    fn check_power(&self) -> io::Result<()> {
        if self.power_is_off { Err(power_is_off()) } else { Ok(()) }
    }

    fn record(&mut self, operation: Operation, path: &str, offset: u64, len: u64) {
        let numbers = [operation as u64, offset, len];
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).chain(path.bytes());
        for byte in bytes {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn is_ignored(&self, operation: Operation, path: &str) -> bool {
        self.ignored.iter().any(|(kind, prefix)| *kind == operation && path.starts_with(prefix))
    }

    fn used_bytes(&self) -> u64 {
        let sectors: usize =
            self.names.seen().filter_map(|id| self.inodes.get(&id)).map(Inode::placed_sectors).sum();
        (sectors * SECTOR_BYTES) as u64
    }

    /// Whether the disk has room for this many more sectors.
    fn check_room(&self, sectors: usize) -> io::Result<()> {
        match self.capacity_bytes {
            Some(capacity)
                if sectors > 0 && self.used_bytes() + (sectors * SECTOR_BYTES) as u64 > capacity =>
            {
                Err(Trouble::Full.error())
            }
            _ => Ok(()),
        }
    }

    fn inode(&mut self, id: InodeId) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(dead_handle)
    }

    fn handle(&self, disk: &SimDisk, inode: InodeId, path: &str) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { disk: disk.clone(), inode, path: path.to_owned(), life: self.life })
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off (simulated)")
}

fn dead_handle() -> io::Error {
    io::Error::other("this handle belongs to a process that died")
}

fn place(number: u64) -> io::Result<usize> {
    usize::try_from(number).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl Disk for SimDisk {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        let mut inner = self.lock();
        inner.check_power()?;
        inner.names.create_dir(path);
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let inner = self.lock();
        inner.check_power()?;
        Ok(inner.names.list(dir))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut inner = self.lock();
        let go = inner.begin(Operation::Create, path, 0, 0)?;
        if !inner.names.has_dir(names::parent(path)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if inner.names.find(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if let Go::Partly(error) = go {
            if inner.power_is_off {
                inner.new_file(path);
            }
            return Err(error);
        }
        let inode = inner.new_file(path);
        Ok(inner.handle(self, inode, path))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.lock();
        inner.check_power()?;
        match inner.names.find(path) {
            Some(inode) => Ok(inner.handle(self, inode, path)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let go = inner.begin(Operation::Rename, to, 0, 0)?;
        let Some(inode) = inner.names.find(from) else { return Err(io::ErrorKind::NotFound.into()) };
        match go {
            Go::Whole => inner.names.rename(from, to, inode),
            Go::Partly(error) => {
                if inner.power_is_off {
                    inner.names.rename(from, to, inode);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let go = inner.begin(Operation::Remove, path, 0, 0)?;
        if inner.names.find(path).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        match go {
            Go::Whole => inner.names.remove(path),
            Go::Partly(error) => {
                if inner.power_is_off {
                    inner.names.remove(path);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let go = inner.begin(Operation::SyncDir, dir, 0, 0)?;
        match go {
            _ if inner.is_ignored(Operation::SyncDir, dir) => {}
            Go::Whole => inner.names.sync(dir),
            Go::Partly(error) => {
                inner.names.sync_some(dir, &mut inner.rng);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Inner {
    fn new_file(&mut self, path: &str) -> InodeId {
        let inode = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(inode, Inode::default());
        self.names.create(path, inode);
        inode
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: InodeId,
    path: String,
    life: u64,
}

impl SimFile {
    fn enter(&self) -> io::Result<MutexGuard<'_, Inner>> {
        let inner = self.disk.lock();
        inner.check_power()?;
        if inner.life == self.life { Ok(inner) } else { Err(dead_handle()) }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut inner = self.enter()?;
        let inner = &mut *inner;
        // Reading changes nothing, so it is no operation at which a power loss would be of interest.
        if let Some(trouble) = inner.strike(Operation::Read) {
            return Err(trouble.error());
        }
        Ok(inner.inode(self.inode)?.read(buf, place(offset)?))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut inner = self.enter()?;
        let inner = &mut *inner;
        let go = inner.begin(Operation::Write, &self.path, offset, buf.len() as u64)?;
        let offset = place(offset)?;
        let needed = inner.inode(self.inode)?.sectors_needed(offset, buf.len());
        inner.check_room(needed)?;
        let inode = inner.inodes.get_mut(&self.inode).ok_or_else(dead_handle)?;
        match go {
            Go::Whole => inode.write(buf, offset),
            Go::Partly(error) => {
                inode.write_some(buf, offset, &mut inner.rng);
                return Err(error);
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut inner = self.enter()?;
        let inner = &mut *inner;
        let go = inner.begin(Operation::Sync, &self.path, 0, 0)?;
        let is_ignored = inner.is_ignored(Operation::Sync, &self.path);
        let inode = inner.inodes.get_mut(&self.inode).ok_or_else(dead_handle)?;
        match go {
            Go::Whole if is_ignored => {}
            Go::Whole => inode.sync(),
            Go::Partly(error) => {
                // When the power goes, `crash` decides what is left.
                if !inner.power_is_off {
                    inode.sync_some(&mut inner.rng);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut inner = self.enter()?;
        let go = inner.begin(Operation::Allocate, &self.path, 0, len)?;
        let len = place(len)?;
        let needed = inner.inode(self.inode)?.sectors_needed(0, len);
        inner.check_room(needed)?;
        if let Go::Partly(error) = go {
            return Err(error);
        }
        let inode = inner.inode(self.inode)?;
        inode.set_len(len.max(inode.len()));
        inode.place(0, len);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut inner = self.enter()?;
        let go = inner.begin(Operation::SetLen, &self.path, 0, len)?;
        let len = place(len)?;
        match go {
            Go::Whole => inner.inode(self.inode)?.set_len(len),
            Go::Partly(error) => {
                if inner.power_is_off {
                    inner.inode(self.inode)?.set_len(len);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.enter()?.inode(self.inode)?.len() as u64)
    }
}

#[cfg(test)]
mod tests;
