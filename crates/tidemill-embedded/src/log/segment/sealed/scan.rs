//! Reading the blocks of a sealed segment without its index, which is damaged.

use std::sync::Arc;

use super::block_index::{BLOCK_HEADER_BYTES, STORED, block_checksum};
use super::footer::HEADER_BYTES;
use crate::disk::{Disk, read_exact_at};
use crate::log::LogError;
use crate::log::segment::dictionary::Dictionary;
use crate::log::segment::files;

/// How far a scan came.
#[derive(Debug, Clone, Copy)]
pub(in crate::log) struct BlockScan {
    /// Where the last whole block ends.
    pub(in crate::log) end: u64,
    /// Whether that is where the blocks end: what follows tells where they do.
    pub(in crate::log) is_whole: bool,
}

/// Visits the blocks of a segment from the first on, as long as they are whole and `visit` takes them.
pub(in crate::log) fn scan_blocks(
    disk: &dyn Disk,
    id: u32,
    dictionaries: &[Arc<Dictionary>],
    visit: &mut dyn FnMut(&[u8]) -> Result<bool, LogError>,
) -> Result<BlockScan, LogError> {
    let path = files::sealed(id);
    let file = disk.open(&path).map_err(LogError::io("open", &path))?;
    let length = file.len().map_err(LogError::io("read", &path))?;
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    read_exact_at(&*file, &mut bytes, 0).map_err(LogError::io("read", &path))?;
    let mut at = HEADER_BYTES;
    let mut block = 0;
    while let Some(found) = block_at(&bytes, at, id, block)
        && let Some(entries) = found.entries(dictionaries)
        && visit(&entries)?
    {
        at += BLOCK_HEADER_BYTES + found.data.len();
        block += 1;
    }
    Ok(BlockScan { end: at as u64, is_whole: is_footers_end(&bytes, at) })
}

struct FoundBlock<'a> {
    tag: u32,
    data: &'a [u8],
}

impl FoundBlock<'_> {
    fn entries(&self, dictionaries: &[Arc<Dictionary>]) -> Option<Vec<u8>> {
        if self.tag & STORED != 0 {
            return Some(self.data.to_vec());
        }
        dictionaries.iter().find_map(|dictionary| dictionary.decompress(self.data, self.tag as usize).ok())
    }
}

fn block_at(bytes: &[u8], at: usize, id: u32, block: usize) -> Option<FoundBlock<'_>> {
    let rest = bytes.get(at..)?;
    let (header, data) = rest.split_at_checked(BLOCK_HEADER_BYTES)?;
    let (checksum, tag) = header.split_at(4);
    let [checksum, tag] =
        [checksum, tag].map(|part| u32::from_le_bytes([part[0], part[1], part[2], part[3]]));
    let len = if tag & STORED != 0 {
        (tag & !STORED) as usize
    } else {
        zstd::zstd_safe::find_frame_compressed_size(data).ok()?
    };
    let data = data.get(..len)?;
    (block_checksum(id, block, tag, data) == checksum).then_some(FoundBlock { tag, data })
}

/// Whether the footer, if it can be read, says that the blocks end at `at`.
fn is_footers_end(bytes: &[u8], at: usize) -> bool {
    super::footer::read_from_end(bytes).is_some_and(|footer| footer.blocks_end == at as u64)
}
