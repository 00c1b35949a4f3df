//! The disk as the backend sees it: a small port, so that a simulator can stand in for it.
//!
//! Everything the backend keeps goes through these two traits. The simulator's disk drops, tears and reorders what was
//! not synced and returns errors; `RealDisk` is the file system. Paths are relative to the data directory and use `/`.

use std::io;
use std::sync::Arc;

/// A directory tree of files. What was not synced may be lost, torn or reordered by a crash.
pub trait Disk: Send + Sync + 'static {
    /// Makes the directory `path` and those above it; no error when it exists.
    fn create_dir(&self, path: &str) -> io::Result<()>;

    /// The names of the files in `dir`, sorted; empty when there is no such directory.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Makes a new empty file. An error of kind `AlreadyExists` when there is one.
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name, replacing a file that has it. Open handles stay with their file.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name. Open handles can still read and write the file.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
}

/// An open file.
#[expect(clippy::len_without_is_empty, reason = "nobody asks a file whether it is empty")]
pub trait DiskFile: Send + Sync {
    /// Reads at most `buf.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes the whole buffer, extending the file when needed.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Makes what was written, and the length, durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Reserves space for the first `len` bytes and extends the file to `len`; new bytes read as zero.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Cuts or extends the file to `len`.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// The length of the file.
    fn len(&self) -> io::Result<u64>;
}

/// Fills `buf` from `offset`, or fails with `UnexpectedEof` when the file ends before.
pub fn read_exact_at(file: &dyn DiskFile, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        let count = file.read_at(buf, offset)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buf = &mut buf[count..];
        offset += count as u64;
    }
    Ok(())
}

/// Whether the error says that the disk, or the share of it we may use, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
