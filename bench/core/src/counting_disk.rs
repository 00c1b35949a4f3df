//! The real disk, with a count of what the answering side asks of it.
//!
//! The keeper's thread writes rows, spares and sealed segments; everybody else appends groups.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_embedded::disk::{Disk, DiskFile};
use tidemill_embedded::real_disk::RealDisk;

#[derive(Debug, Default)]
pub struct Counts {
    /// Syncs that an answer waited for: one per group.
    pub syncs: AtomicU64,
    /// Bytes written before those syncs, padding included.
    pub bytes: AtomicU64,
    /// Bytes written in the background.
    pub background_bytes: AtomicU64,
}

pub struct CountingDisk {
    disk: RealDisk,
    counts: Arc<Counts>,
}

impl CountingDisk {
    pub fn new(dir: &Path, counts: &Arc<Counts>) -> io::Result<Self> {
        Ok(Self { disk: RealDisk::new(dir)?, counts: Arc::clone(counts) })
    }

    fn counted(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(CountingFile { file, counts: Arc::clone(&self.counts) })
    }
}

impl Disk for CountingDisk {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(path).map(|file| self.counted(file))
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path).map(|file| self.counted(file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
}

struct CountingFile {
    file: Arc<dyn DiskFile>,
    counts: Arc<Counts>,
}

fn is_keeper() -> bool {
    std::thread::current().name() == Some("tidemill-keeper")
}

impl DiskFile for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let counter = if is_keeper() { &self.counts.background_bytes } else { &self.counts.bytes };
        counter.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.file.write_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        if !is_keeper() {
            self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        }
        self.file.sync_data()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
