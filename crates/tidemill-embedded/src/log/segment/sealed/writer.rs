//! Writes a sealed segment: entries go in, in the order of the log, and a finished file takes its name at the end.

use std::sync::Arc;

use zstd::bulk::Compressor;

use super::block_index::{BLOCK_HEADER_BYTES, BlockIndex, STORED, block_checksum};
use super::directory::{self, Directory};
use super::footer::{self, Footer};
use super::posting_list::{Posting, PostingList};
use crate::codec::{BadBytes, decode_fields};
use crate::disk::{Disk, DiskFile};
use crate::log::entry::{EntryKind, TAG_BYTES, put_entry, put_frame_start};
use crate::log::index::postings::Postings;
use crate::log::segment::dictionary::Dictionary;
use crate::log::segment::files::{self, TEMPORARY};
use crate::log::segment::raw_segment::SegmentStart;
use crate::log::{LogConfig, LogError, Seq};

/// How much is written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// A sealed segment in the making.
pub(in crate::log) struct SealedWriter<'a> {
    disk: &'a dyn Disk,
    segment: u32,
    path: String,
    temporary: String,
    file: Arc<dyn DiskFile>,
    /// What is not written yet, and where it goes.
    out: Vec<u8>,
    out_at: u64,
    config: LogConfig,
    compressor: Compressor<'static>,
    dictionary: u32,
    start: SegmentStart,
    block: Vec<u8>,
    block_seq: Seq,
    next_seq: Seq,
    /// Where the group of the next entry started, and the one that this block named last. Each block names its first.
    frame: Option<u64>,
    named_frame: Option<u64>,
    index: BlockIndex,
    postings: Postings,
    seqs: Vec<Seq>,
    controls: u64,
}

/// What is known only at the end of a segment.
#[derive(Debug, Clone, Copy)]
pub(in crate::log) struct SealedEnd {
    pub(in crate::log) next: SegmentStart,
    pub(in crate::log) raw_end: u64,
}

impl<'a> SealedWriter<'a> {
    pub(in crate::log) fn new(
        disk: &'a dyn Disk,
        segment: u32,
        start: SegmentStart,
        dictionary: &Dictionary,
        config: LogConfig,
    ) -> Result<Self, LogError> {
        let path = files::sealed(segment);
        let temporary = format!("{path}{TEMPORARY}");
        let compressor = dictionary.compressor(config.compression_level);
        let compressor = compressor.map_err(LogError::io("compress", &path))?;
        let file = files::create_over(disk, &temporary)?;
        Ok(Self {
            disk,
            segment,
            path,
            temporary,
            file,
            out: footer::header(segment),
            out_at: 0,
            config,
            compressor,
            dictionary: dictionary.id,
            start,
            block: Vec::new(),
            block_seq: start.seq,
            next_seq: start.seq,
            frame: None,
            named_frame: None,
            index: BlockIndex::new(start.seq),
            postings: Postings::default(),
            seqs: Vec::new(),
            controls: 0,
        })
    }

    /// A group started at `offset` of the segment as it was first written.
    pub(in crate::log) fn push_frame(&mut self, offset: u64) {
        self.frame = Some(offset);
    }

    pub(in crate::log) fn push_event(&mut self, seq: Seq, bytes: &[u8]) -> Result<(), LogError> {
        let fields = decode_fields(bytes).map_err(|BadBytes(problem)| {
            LogError::corrupt(&self.path, self.out_at, format!("event {seq} {problem}"))
        })?;
        self.make_room(bytes.len() + 8)?;
        if seq == self.next_seq {
            put_entry(&mut self.block, EntryKind::Event, |out| out.extend_from_slice(bytes));
        } else {
            put_entry(&mut self.block, EntryKind::EventAfterHole, |out| {
                out.extend_from_slice(&seq.0.to_le_bytes());
                out.extend_from_slice(bytes);
            });
        }
        self.postings.push(&fields);
        self.seqs.push(seq);
        self.next_seq = seq.next();
        Ok(())
    }

    pub(in crate::log) fn push_control(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        self.make_room(bytes.len())?;
        put_entry(&mut self.block, EntryKind::Control, |out| out.extend_from_slice(bytes));
        self.controls += 1;
        Ok(())
    }

    /// Writes the rest and gives the file its name, in the place of an older one. Durable when it returns.
    pub(in crate::log) fn finish(mut self, end: SealedEnd) -> Result<(), LogError> {
        self.finish_block()?;
        let blocks_end = self.offset();
        let (lists, lists_end) = self.put_lists()?;
        let directory = Directory::write(&lists, &mut self.out);
        let pages_end = self.offset();
        self.flush()?;
        self.index.put(&mut self.out);
        directory.put_index(&mut self.out);
        let count = |count: usize| u32::try_from(count).expect("segments are shorter than 4 GiB");
        let footer = Footer {
            segment: self.segment,
            dictionary: self.dictionary,
            blocks: count(self.index.len()),
            lists: count(lists.len()),
            pages: count(directory.page_count()),
            start: self.start,
            end: end.next,
            raw_end: end.raw_end,
            events: self.postings.len() as u64,
            controls: self.controls,
            extent: self.postings.extent(),
            blocks_end,
            lists_end,
            pages_end,
            index_checksum: crc32fast::hash(&self.out),
        };
        footer.put(&mut self.out);
        self.flush()?;
        let named = self.file.sync_data().and_then(|()| self.disk.rename(&self.temporary, &self.path));
        named.map_err(|error| self.fail(error))?;
        files::sync_directory(self.disk)
    }

    /// Appends all posting lists and tells where they are, by hash.
    fn put_lists(&mut self) -> Result<(Vec<directory::ListPlace>, u64), LogError> {
        let postings = std::mem::take(&mut self.postings);
        let mut keys: Vec<_> = postings
            .lists()
            .map(|(key, list)| {
                let mut bytes = Vec::new();
                key.put(&mut bytes);
                (directory::hash(&bytes), bytes, list)
            })
            .collect();
        keys.sort_unstable_by(|(hash, key, _), (other, other_key, _)| (hash, key).cmp(&(other, other_key)));
        let mut places = Vec::with_capacity(keys.len());
        for (_, key, list) in keys {
            let offset = self.offset();
            let seqs = &self.seqs;
            let posting = |item: u32| Posting {
                millis: postings.position(item).timestamp.millis(),
                seq: seqs[item as usize],
            };
            places.push(PostingList::write(&mut self.out, offset, &key, list, self.start.seq, posting));
            if self.out.len() >= WRITE_BYTES {
                self.flush()?;
            }
        }
        let end = self.offset();
        self.postings = postings;
        Ok((places, end))
    }

    /// Starts a new block when an entry of `len` bytes would make this one too long.
    fn make_room(&mut self, len: usize) -> Result<(), LogError> {
        if !self.block.is_empty() && self.block.len() + 2 * TAG_BYTES + len > self.config.block_bytes {
            self.finish_block()?;
        }
        if self.block.is_empty() {
            self.block_seq = self.next_seq;
        }
        if let Some(offset) = self.frame
            && self.frame != self.named_frame
        {
            put_frame_start(&mut self.block, offset);
            self.named_frame = self.frame;
        }
        Ok(())
    }

    fn finish_block(&mut self) -> Result<(), LogError> {
        if self.block.is_empty() {
            return Ok(());
        }
        let compressed =
            self.compressor.compress(&self.block).map_err(LogError::io("compress", &self.path))?;
        let len = u32::try_from(self.block.len()).expect("groups are shorter than 2 GiB");
        let (tag, data) = if compressed.len() < self.block.len() {
            (len, &compressed)
        } else {
            (len | STORED, &self.block)
        };
        let checksum = block_checksum(self.segment, self.index.len(), tag, data);
        self.index.push(self.out_at + self.out.len() as u64, self.block_seq);
        self.out.reserve(BLOCK_HEADER_BYTES + data.len());
        self.out.extend_from_slice(&checksum.to_le_bytes());
        self.out.extend_from_slice(&tag.to_le_bytes());
        self.out.extend_from_slice(data);
        self.block.clear();
        self.named_frame = None;
        if self.out.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Where the next byte goes in the file.
    fn offset(&self) -> u64 {
        self.out_at + self.out.len() as u64
    }

    fn flush(&mut self) -> Result<(), LogError> {
        self.file.write_at(&self.out, self.out_at).map_err(|error| self.fail(error))?;
        self.out_at += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    fn fail(&self, error: std::io::Error) -> LogError {
        files::full_or_io("write", &self.path, self.offset())(error)
    }
}

impl Drop for SealedWriter<'_> {
    /// Nothing of an unfinished file stays. After a rename there is nothing of this name; an open removes it too.
    fn drop(&mut self) {
        let _ = self.disk.remove(&self.temporary);
    }
}
