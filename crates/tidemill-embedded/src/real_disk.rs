//! The file system as a `Disk`.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use crate::disk::{Disk, DiskFile};

/// Only the owner may enter the data directory.
const DIRECTORY_MODE: u32 = 0o700;
pub(crate) const FILE_MODE: u32 = 0o600;
/// How much is written at a time where the file system cannot reserve space by itself.
const FILL_BYTES: usize = 1 << 20;

/// A data directory on the file system.
#[derive(Debug, Clone)]
pub struct RealDisk {
    root: PathBuf,
}

impl RealDisk {
    /// The disk that lives in `dir`, which is made when it is absent.
    pub fn new(dir: impl Into<PathBuf>) -> io::Result<Self> {
        let root = dir.into();
        if !root.is_dir() {
            DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&root)?;
            // The directory itself must survive a crash as well.
            if let Some(parent) = root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(Self { root })
    }

    /// The data directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

impl Disk for RealDisk {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(self.path(path))?;
        // A directory is only there after a crash when its parent was synced.
        let mut parent = Path::new(path);
        while let Some(above) = parent.parent() {
            File::open(self.root.join(above))?.sync_all()?;
            parent = above;
        }
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.path(dir)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
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

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(self.path(path))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path(path))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(path))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        File::open(self.path(dir))?.sync_all()
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.fill_with_zeros(len),
            Err(errno) => Err(errno.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

impl RealFile {
    /// Reserves space where there is no `fallocate`, by writing what is missing.
    fn fill_with_zeros(&self, len: u64) -> io::Result<()> {
        let zeros = vec![0; FILL_BYTES];
        let mut offset = self.len()?;
        while offset < len {
            let count = usize::try_from(len - offset).unwrap_or(FILL_BYTES).min(FILL_BYTES);
            self.0.write_all_at(&zeros[..count], offset)?;
            offset += count as u64;
        }
        Ok(())
    }
}
