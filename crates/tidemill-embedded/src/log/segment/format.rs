//! `log/FORMAT`: the version of the log and its first segment.
//!
//! Segments from the first to the open one must all be there; a missing one is noticed. So segments are only forgotten
//! by moving the first one up here.

use super::files::{self, VERSION};
use crate::disk::{Disk, read_exact_at};
use crate::log::LogError;

/// Whether this release may read the log: nothing but this file is looked at.
pub fn check_format(disk: &dyn Disk) -> Result<(), LogError> {
    Format::read(disk).map(drop)
}

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct Format {
    pub(in crate::log) first_segment: u32,
}

impl Format {
    pub(in crate::log) fn write(self, disk: &dyn Disk) -> Result<(), LogError> {
        let text = format!("tidemill-log {VERSION}\nfirst {}\n", self.first_segment);
        let text = format!("{text}checksum {:08x}\n", crc32fast::hash(text.as_bytes()));
        files::write_whole(disk, &files::format(), text.as_bytes())
    }

    pub(in crate::log) fn read(disk: &dyn Disk) -> Result<Self, LogError> {
        let path = files::format();
        let read = || {
            let file = disk.open(&path)?;
            let mut bytes = vec![0; usize::try_from(file.len()?.min(4096)).unwrap_or(4096)];
            read_exact_at(&*file, &mut bytes, 0)?;
            Ok(bytes)
        };
        let bytes = read().map_err(LogError::io("read", &path))?;
        let damaged = || LogError::corrupt(&path, 0, "it is not a log's format");
        let text = String::from_utf8(bytes).map_err(|_| damaged())?;
        let mut lines = text.lines();
        let version = lines.next().and_then(|line| line.strip_prefix("tidemill-log ")).ok_or_else(damaged)?;
        let found: u32 = version.parse().map_err(|_| damaged())?;
        if found > VERSION {
            return Err(LogError::Newer { file: path, found, known: VERSION });
        }
        let first = lines.next().and_then(|line| line.strip_prefix("first ")).ok_or_else(damaged)?;
        let first_segment = first.parse().map_err(|_| damaged())?;
        let checked = text.find("checksum ").ok_or_else(damaged)?;
        let checksum = format!("checksum {:08x}", crc32fast::hash(&text.as_bytes()[..checked]));
        if lines.next() != Some(checksum.as_str()) {
            return Err(LogError::corrupt(&path, checked as u64, "the checksum is wrong"));
        }
        Ok(Self { first_segment })
    }
}
