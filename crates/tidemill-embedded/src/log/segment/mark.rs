//! `log/mark`: how far the log was synced, as far as we know.
//!
//! Written after each sync without a sync of its own. So after a power loss it may be old or torn, which is fine, but it
//! is never ahead of what was on disk. A log that ends before it has lost what was acknowledged.

use std::io;
use std::sync::Arc;

use crate::codec::Reader;
use crate::disk::{Disk, DiskFile, read_exact_at};
use crate::log::segment::files;
use crate::log::{LogError, LogPosition, Seq};

const MARK_BYTES: usize = 24;

/// The open mark file.
pub(in crate::log) struct Mark {
    file: Arc<dyn DiskFile>,
}

impl Mark {
    /// Opens or makes the file and tells what it says, if that is readable.
    pub(in crate::log) fn open(
        disk: &dyn Disk,
        exists: bool,
    ) -> Result<(Self, Option<LogPosition>), LogError> {
        let path = files::mark();
        if exists {
            let file = disk.open(&path).map_err(LogError::io("open", &path))?;
            let mut bytes = [0; MARK_BYTES];
            let position = match read_exact_at(&*file, &mut bytes, 0) {
                Ok(()) => decode(&bytes),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
                Err(error) => return Err(LogError::io("read", &path)(error)),
            };
            return Ok((Self { file }, position));
        }
        let file = disk.create(&path).map_err(files::full_or_io("create", &path, MARK_BYTES as u64))?;
        // Written once now, so that later writes need no new space.
        let written = file.write_at(&[0; MARK_BYTES], 0).and_then(|()| file.sync_data());
        written.map_err(files::full_or_io("write", &path, MARK_BYTES as u64))?;
        Ok((Self { file }, None))
    }

    /// Notes that everything before `position` is on disk.
    pub(in crate::log) fn set(&self, position: LogPosition) -> io::Result<()> {
        self.file.write_at(&encode(position), 0)
    }
}

fn encode(position: LogPosition) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..4].copy_from_slice(&position.segment.to_le_bytes());
    bytes[4..12].copy_from_slice(&position.offset.to_le_bytes());
    bytes[12..20].copy_from_slice(&position.next_seq.0.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..20]);
    bytes[20..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; MARK_BYTES]) -> Option<LogPosition> {
    let mut reader = Reader::new(bytes);
    let (segment, offset) = (reader.u32().ok()?, reader.u64().ok()?);
    let next_seq = Seq(reader.u64().ok()?);
    let right = reader.u32().ok()? == crc32fast::hash(&bytes[..20]);
    (right && segment > 0).then_some(LogPosition { segment, offset, next_seq })
}
