//! Files for segments, made before they are needed: their space is taken and they are filled with zeros.
//!
//! A sync into space that was never written costs nearly twice as much as one into written space, since the file
//! system has to note which parts are written now. So files are filled ahead, or the file of a segment that was sealed
//! is used again: frames tell which segment they belong to, and old ones never pass for new ones.

use std::sync::Arc;

use super::files::{self, TEMPORARY};
use super::raw_segment::PAGE_BYTES;
use crate::disk::{Disk, DiskFile};
use crate::log::{LogConfig, LogError};

const FILL_BYTES: u64 = 1 << 20;

/// A file that a segment can be written to.
pub(in crate::log) struct Spare {
    pub(in crate::log) path: String,
    pub(in crate::log) file: Arc<dyn DiskFile>,
    pub(in crate::log) bytes: u64,
}

impl Spare {
    /// Takes over what an earlier life of the process prepared.
    pub(in crate::log) fn reopen(disk: &dyn Disk) -> Result<Self, LogError> {
        let path = files::spare();
        let file = disk.open(&path).map_err(LogError::io("open", &path))?;
        let bytes = file.len().map_err(LogError::io("read", &path))?;
        Ok(Self { path, file, bytes })
    }

    /// Makes a spare of at least `bytes` for any later segment, in the place of an older one.
    pub(in crate::log) fn prepare(disk: &dyn Disk, bytes: u64) -> Result<Self, LogError> {
        let path = files::spare();
        let temporary = format!("{path}{TEMPORARY}");
        let mut spare = Self::make(disk, &temporary, bytes.next_multiple_of(PAGE_BYTES))?;
        // The name tells that the file is filled and synced.
        disk.rename(&temporary, &path).map_err(|error| {
            // Best effort: an open removes it too.
            let _ = disk.remove(&temporary);
            files::full_or_io("rename", &temporary, spare.bytes)(error)
        })?;
        spare.path = path;
        Ok(spare)
    }

    /// Makes a file for a segment that is needed now.
    pub(in crate::log) fn make_hasty(
        disk: &dyn Disk,
        config: &LogConfig,
        needed: u64,
    ) -> Result<Self, LogError> {
        let temporary = format!("{}/hasty{TEMPORARY}", files::DIRECTORY);
        let bytes = config.hasty_segment_bytes.max(needed).next_multiple_of(PAGE_BYTES);
        Self::make(disk, &temporary, bytes)
    }

    fn make(disk: &dyn Disk, path: &str, bytes: u64) -> Result<Self, LogError> {
        let file = files::create_over(disk, path)?;
        fill(&*file, bytes).map_err(|error| {
            // Best effort: an open removes it too.
            let _ = disk.remove(path);
            files::full_or_io("make", path, bytes)(error)
        })?;
        Ok(Self { path: path.to_owned(), file, bytes })
    }
}

fn fill(file: &dyn DiskFile, bytes: u64) -> std::io::Result<()> {
    file.allocate(bytes)?;
    let zeros = vec![0; usize::try_from(bytes.min(FILL_BYTES)).unwrap_or(0)];
    let mut offset = 0;
    while offset < bytes {
        let count = (bytes - offset).min(FILL_BYTES);
        file.write_at(&zeros[..usize::try_from(count).unwrap_or(0)], offset)?;
        offset += count;
    }
    // Now, so that the sync of the first group has nothing else to write.
    file.sync_data()
}
