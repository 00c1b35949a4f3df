//! A disk that works until it is broken.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidemill_embedded::disk::{Disk, DiskFile};
use tidemill_embedded::real_disk::RealDisk;

#[derive(Clone)]
pub(crate) struct BreakableDisk {
    disk: Arc<RealDisk>,
    broken: Arc<AtomicBool>,
}

struct BreakableFile {
    file: Arc<dyn DiskFile>,
    broken: Arc<AtomicBool>,
}

impl BreakableDisk {
    pub(crate) fn new(path: &Path) -> Self {
        Self { disk: Arc::new(RealDisk::new(path).unwrap()), broken: Arc::default() }
    }

    /// From now on nothing can be written.
    pub(crate) fn break_down(&self) {
        self.broken.store(true, Ordering::SeqCst);
    }

    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(BreakableFile { file, broken: Arc::clone(&self.broken) })
    }
}

/// An error that names a file, as those of real disks may.
fn check(broken: &AtomicBool) -> io::Result<()> {
    if broken.load(Ordering::SeqCst) { Err(io::Error::other("EIO in /var/lib/tidemill/log")) } else { Ok(()) }
}

impl Disk for BreakableDisk {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        check(&self.broken)?;
        self.disk.create_dir(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        check(&self.broken)?;
        self.disk.create(path).map(|file| self.wrap(file))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path).map(|file| self.wrap(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check(&self.broken)?;
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        check(&self.broken)?;
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        check(&self.broken)?;
        self.disk.sync_dir(dir)
    }
}

impl DiskFile for BreakableFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        check(&self.broken)?;
        self.file.write_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        check(&self.broken)?;
        self.file.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        check(&self.broken)?;
        self.file.allocate(len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        check(&self.broken)?;
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
