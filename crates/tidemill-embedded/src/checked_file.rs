//! A file whose every byte is checked when it is read.
//!
//! The file of the rows is written by pages, and a row that is looked for is found by what other pages say. So a flipped bit can
//! hide a row as well as change it, and no checksum of the row tells. Here each block of 4 KiB lies behind a checksum of its
//! own bytes and its place. What was damaged, swapped, cut or never written is an error of the kind `InvalidData`.

use std::io;
use std::sync::Arc;

use crate::disk::{DiskFile, read_exact_at};

/// What a block holds. The pages of the rows are as large, or a multiple.
const DATA_BYTES: usize = 4096;
/// What stands before it: a mark, then the checksum.
const HEAD_BYTES: usize = 8;
const BLOCK_BYTES: usize = HEAD_BYTES + DATA_BYTES;
/// Every block begins with it, so the file does.
const MARK: [u8; 4] = *b"TMRB";

/// A file in blocks, each with its checksum.
pub struct CheckedFile {
    file: Arc<dyn DiskFile>,
    is_checked: bool,
}

impl CheckedFile {
    pub fn new(file: Arc<dyn DiskFile>) -> Self {
        Self { file, is_checked: true }
    }

    /// One that takes whatever it reads: the mistake that the simulation must find.
    pub(crate) fn unchecked(file: Arc<dyn DiskFile>) -> Self {
        Self { file, is_checked: false }
    }

    /// Reads whole blocks from the number `first` on.
    fn read_blocks(&self, first: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count * BLOCK_BYTES];
        read_exact_at(&*self.file, &mut bytes, first * BLOCK_BYTES as u64).map_err(|error| {
            if error.kind() == io::ErrorKind::UnexpectedEof { damaged(first, "is cut") } else { error }
        })?;
        Ok(bytes)
    }

    fn check(&self, number: u64, block: &[u8]) -> io::Result<()> {
        let (head, data) = block.split_at(HEAD_BYTES);
        if self.is_checked && head != head_of(number, data) {
            return Err(damaged(number, "has a wrong checksum"));
        }
        Ok(())
    }

    /// The block that only part of is written, as it stands. One that was never written is empty.
    fn block_to_change(&self, number: u64) -> io::Result<Vec<u8>> {
        let block = self.read_blocks(number, 1)?;
        if block.iter().any(|byte| *byte != 0) {
            self.check(number, &block)?;
        }
        Ok(block)
    }
}

fn head_of(number: u64, data: &[u8]) -> [u8; HEAD_BYTES] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(data);
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&MARK);
    head[4..].copy_from_slice(&hasher.finalize().to_le_bytes());
    head
}

fn damaged(number: u64, problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("block {number} {problem}"))
}

fn invalid(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

/// The block that a place lies in, and where in it.
fn split(offset: u64) -> (u64, usize) {
    let data = DATA_BYTES as u64;
    (offset / data, usize::try_from(offset % data).unwrap_or(0))
}

impl std::fmt::Debug for CheckedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CheckedFile")
    }
}

impl redb::StorageBackend for CheckedFile {
    fn len(&self) -> io::Result<u64> {
        let bytes = self.file.len()?;
        if self.is_checked && bytes % BLOCK_BYTES as u64 != 0 {
            return Err(damaged(bytes / BLOCK_BYTES as u64, "is cut"));
        }
        Ok(bytes / BLOCK_BYTES as u64 * DATA_BYTES as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (first, mut within) = split(offset);
        let count = (within + out.len()).div_ceil(DATA_BYTES);
        let blocks = self.read_blocks(first, count)?;
        let mut out = out;
        for (number, block) in (first..).zip(blocks.chunks_exact(BLOCK_BYTES)) {
            self.check(number, block)?;
            let part = (DATA_BYTES - within).min(out.len());
            let (now, rest) = out.split_at_mut(part);
            now.copy_from_slice(&block[HEAD_BYTES + within..][..part]);
            (out, within) = (rest, 0);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let (blocks, rest) = split(len);
        if rest != 0 {
            return Err(invalid("the length is no number of blocks"));
        }
        self.file.set_len(blocks * BLOCK_BYTES as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (first, within) = split(offset);
        let count = (within + data.len()).div_ceil(DATA_BYTES);
        let mut bytes = Vec::with_capacity(count * BLOCK_BYTES);
        let (mut rest, mut within) = (data, within);
        for number in (first..).take(count) {
            let part = (DATA_BYTES - within).min(rest.len());
            let start = bytes.len();
            if part == DATA_BYTES {
                bytes.extend_from_slice(&[0; HEAD_BYTES]);
                bytes.extend_from_slice(&rest[..part]);
            } else {
                bytes.extend_from_slice(&self.block_to_change(number)?);
                bytes[start + HEAD_BYTES + within..][..part].copy_from_slice(&rest[..part]);
            }
            let head = head_of(number, &bytes[start + HEAD_BYTES..]);
            bytes[start..start + HEAD_BYTES].copy_from_slice(&head);
            (rest, within) = (&rest[part..], 0);
        }
        self.file.write_at(&bytes, first * BLOCK_BYTES as u64)
    }
}
