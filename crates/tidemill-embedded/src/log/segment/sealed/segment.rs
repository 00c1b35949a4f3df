//! An open sealed segment: its footer and index in memory, the rest read when it is asked for.

use std::io;
use std::sync::Arc;

use super::block_index::{BLOCK_HEADER_BYTES, BlockIndex, STORED, block_checksum};
use super::directory::{self, Directory, ListPlace};
use super::footer::{FOOTER_BYTES, Footer, HEADER_BYTES, HEADER_MAGIC};
use super::posting_list::PostingList;
use crate::codec::{BadBytes, Reader};
use crate::disk::{Disk, DiskFile, read_exact_at};
use crate::log::index::query::PostingKey;
use crate::log::segment::block_cache::BlockKey;
use crate::log::segment::dictionary::Dictionary;
use crate::log::segment::files::{self, VERSION};
use crate::log::{LogError, Seq};

/// A sealed segment.
pub(in crate::log) struct SealedSegment {
    path: String,
    file: Arc<dyn DiskFile>,
    footer: Footer,
    index: BlockIndex,
    directory: Directory,
    dictionary: Arc<Dictionary>,
    generation: u64,
    bytes: u64,
}

impl SealedSegment {
    /// Opens the file of segment `id`. `dictionary` gives the one it was compressed with.
    pub(in crate::log) fn open(
        disk: &dyn Disk,
        id: u32,
        generation: u64,
        dictionary: impl FnOnce(u32) -> Result<Arc<Dictionary>, LogError>,
    ) -> Result<Self, LogError> {
        let path = files::sealed(id);
        let file = disk.open(&path).map_err(LogError::io("open", &path))?;
        let bytes = file.len().map_err(LogError::io("read", &path))?;
        let read = |len: usize, offset: u64| {
            let mut buffer = vec![0; len];
            match read_exact_at(&*file, &mut buffer, offset) {
                Ok(()) => Ok(buffer),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(LogError::corrupt(&path, bytes, "it ends too early"))
                }
                Err(error) => Err(LogError::io("read", &path)(error)),
            }
        };
        let header = read(HEADER_BYTES, 0)?;
        let damaged =
            |offset| move |BadBytes(problem)| LogError::corrupt(&files::sealed(id), offset, problem);
        let version = read_header(&header, id).map_err(damaged(0))?;
        if version > VERSION {
            return Err(LogError::Newer { file: path, found: version, known: VERSION });
        }
        let footer_at = bytes.saturating_sub(FOOTER_BYTES as u64);
        let mut footer = [0; FOOTER_BYTES];
        footer.copy_from_slice(&read(FOOTER_BYTES, footer_at)?);
        let footer = Footer::read(&footer).map_err(damaged(footer_at))?;
        let parts = [HEADER_BYTES as u64, footer.blocks_end, footer.lists_end, footer.pages_end, footer_at];
        if footer.segment != id || !parts.is_sorted() {
            return Err(damaged(footer_at)(BadBytes("its footer is not its own")));
        }
        let index_len = usize::try_from(footer_at - footer.pages_end).unwrap_or(usize::MAX);
        let index_bytes = read(index_len, footer.pages_end)?;
        if crc32fast::hash(&index_bytes) != footer.index_checksum {
            return Err(damaged(footer.pages_end)(BadBytes("its index has the wrong checksum")));
        }
        let mut reader = Reader::new(&index_bytes);
        let index = BlockIndex::read(&mut reader, footer.start.seq, footer.blocks);
        let index = index.map_err(damaged(footer.pages_end))?;
        let directory = Directory::read_index(&mut reader, footer.pages, footer.lists);
        let directory = directory.map_err(damaged(footer.pages_end))?;
        let dictionary = dictionary(footer.dictionary)?;
        Ok(Self { path, file, footer, index, directory, dictionary, generation, bytes })
    }

    pub(in crate::log) fn id(&self) -> u32 {
        self.footer.segment
    }

    pub(in crate::log) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    pub(in crate::log) fn footer(&self) -> &Footer {
        &self.footer
    }

    /// The length of the file.
    pub(in crate::log) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(in crate::log) fn first_seq(&self) -> Seq {
        self.footer.start.seq
    }

    pub(in crate::log) fn damaged(&self, offset: u64, problem: &str) -> LogError {
        LogError::corrupt(&self.path, offset, problem)
    }

    pub(in crate::log) fn block_count(&self) -> usize {
        self.index.len()
    }

    /// The block that holds the event `seq` if any does.
    pub(in crate::log) fn block_of(&self, seq: Seq) -> Option<usize> {
        self.index.block_of(seq)
    }

    /// The number of the first event of a block unless it says otherwise.
    pub(in crate::log) fn seq_at(&self, block: usize) -> Seq {
        self.index.seq_at(block).unwrap_or(self.footer.end.seq)
    }

    /// Where a block starts in the file.
    pub(in crate::log) fn offset_of(&self, block: usize) -> u64 {
        self.index.offset_of(block).unwrap_or(self.footer.blocks_end)
    }

    pub(in crate::log) fn cache_key(&self, block: usize) -> BlockKey {
        let block = u32::try_from(block).expect("the footer's count has 32 bits");
        BlockKey { generation: self.generation, block }
    }

    /// Reads, checks and decompresses a block.
    pub(in crate::log) fn read_block(&self, block: usize) -> Result<Vec<u8>, LogError> {
        let offset = self.offset_of(block);
        let damaged = |problem: &str| self.damaged(offset, problem);
        let len = self.offset_of(block + 1).checked_sub(offset + BLOCK_HEADER_BYTES as u64);
        let len =
            len.and_then(|len| usize::try_from(len).ok()).ok_or_else(|| damaged("a block runs backwards"))?;
        let mut bytes = vec![0; BLOCK_HEADER_BYTES + len];
        read_exact_at(&*self.file, &mut bytes, offset).map_err(LogError::io("read", &self.path))?;
        let mut reader = Reader::new(&bytes);
        let (Ok(checksum), Ok(tag)) = (reader.u32(), reader.u32()) else {
            return Err(damaged("a block has no header"));
        };
        if block_checksum(self.id(), block, tag, reader.rest()) != checksum {
            return Err(damaged("a block has the wrong checksum"));
        }
        if tag & STORED != 0 {
            bytes.drain(..BLOCK_HEADER_BYTES);
            return Ok(bytes);
        }
        let entries = self.dictionary.decompress(reader.rest(), tag as usize);
        entries.map_err(|error| damaged(&format!("a block cannot be decompressed: {error}")))
    }

    /// The lists that a page of the directory names.
    pub(super) fn directory_page(&self, page: usize) -> Result<Vec<ListPlace>, LogError> {
        let range = self.directory.page_range(page);
        let offset = self.footer.lists_end + range.start as u64;
        let mut bytes = vec![0; range.len()];
        read_exact_at(&*self.file, &mut bytes, offset).map_err(LogError::io("read", &self.path))?;
        directory::read_page(&bytes).map_err(|BadBytes(problem)| self.damaged(offset, problem))
    }

    /// Every list with its key as bytes.
    pub(in crate::log) fn all_lists(&self) -> Result<Vec<(Vec<u8>, PostingList)>, LogError> {
        let mut lists = Vec::new();
        for page in 0..self.directory.page_count() {
            for place in self.directory_page(page)? {
                lists.push(PostingList::open(self, &place)?);
            }
        }
        Ok(lists)
    }

    /// The list of `key`; `None` when the segment has no such events.
    pub(in crate::log) fn list(&self, key: &PostingKey<'_>) -> Result<Option<PostingList>, LogError> {
        PostingList::find(self, key)
    }
}

fn read_header(bytes: &[u8], id: u32) -> Result<u32, BadBytes> {
    let mut reader = Reader::new(bytes);
    if reader.array()? != HEADER_MAGIC {
        return Err(BadBytes("it is not a sealed segment"));
    }
    let version = reader.u32()?;
    if version <= VERSION && reader.u32()? != id {
        return Err(BadBytes("it is another segment"));
    }
    Ok(version)
}
