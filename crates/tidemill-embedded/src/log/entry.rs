//! Entries: what groups and blocks are made of.
//!
//! An entry is a tag and its bytes. The tag is a `u32` whose low two bits tell the kind and whose other bits tell the
//! length, but for [`EntryKind::Frame`], which has no bytes and tells an offset.

use std::ops::Range;

use super::{Seq, StoredEvent};
use crate::codec::{BadBytes, Reader};

/// One thing in the log.
#[expect(clippy::large_enum_variant, reason = "handed over one at a time, never kept in numbers")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<'a> {
    Event(StoredEvent),
    /// Bytes whose meaning only the store knows.
    Control(&'a [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// An event that follows the last one without a hole.
    Event = 0,
    Control = 1,
    /// An event after a hole: eight bytes of number, then the event.
    EventAfterHole = 2,
    /// A group starts or, at the start of a block, goes on here; the length is its offset in the segment as first
    /// written, in units of 8 bytes.
    Frame = 3,
}

/// The bytes of a tag.
pub(super) const TAG_BYTES: usize = 4;
/// Offsets of groups are multiples of this.
pub(super) const FRAME_ALIGN: u64 = 8;

/// Appends an entry whose bytes `fill` writes, and tells where they are.
pub(super) fn put_entry(out: &mut Vec<u8>, kind: EntryKind, fill: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
    let tag_at = out.len();
    out.extend_from_slice(&[0; TAG_BYTES]);
    fill(out);
    let range = tag_at + TAG_BYTES..out.len();
    // A longer entry would not fit in a group, which the log refuses as a whole.
    let len = u32::try_from(range.len()).unwrap_or(u32::MAX);
    out[tag_at..range.start].copy_from_slice(&(len << 2 | kind as u32).to_le_bytes());
    range
}

/// Appends the mark that what follows belongs to the group that started at `offset` of the segment.
pub(super) fn put_frame_start(out: &mut Vec<u8>, offset: u64) {
    let units = u32::try_from(offset / FRAME_ALIGN).expect("segments are shorter than 4 GiB");
    out.extend_from_slice(&(units << 2 | EntryKind::Frame as u32).to_le_bytes());
}

/// An entry whose event has not been decoded.
#[derive(Debug, Clone, Copy)]
pub(super) enum RawEntry<'a> {
    Event {
        seq: Seq,
        bytes: &'a [u8],
    },
    Control(&'a [u8]),
    /// What follows belongs to the group that started at this offset of the segment.
    Frame(u64),
}

/// Goes through the entries of a group or block.
#[derive(Debug, Clone)]
pub(super) struct Entries<'a> {
    all: &'a [u8],
    reader: Reader<'a>,
    next_seq: Seq,
}

impl<'a> Entries<'a> {
    /// The entries in `bytes`, the first event of which has the number `next_seq` unless it says otherwise.
    pub(super) fn new(bytes: &'a [u8], next_seq: Seq) -> Self {
        Self { all: bytes, reader: Reader::new(bytes), next_seq }
    }

    /// Where the next entry starts in the bytes.
    pub(super) fn offset(&self) -> usize {
        self.all.len() - self.reader.rest().len()
    }

    /// The next entry; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<RawEntry<'a>>, BadBytes> {
        if self.reader.is_at_end() {
            return Ok(None);
        }
        let tag = self.reader.u32()?;
        let len = (tag >> 2) as usize;
        Ok(Some(match tag & 3 {
            0 => self.event(len)?,
            1 => RawEntry::Control(self.reader.take(len)?),
            2 => {
                self.next_seq = Seq(self.reader.u64()?);
                self.event(len.checked_sub(8).ok_or(BadBytes("holds an event without a number"))?)?
            }
            _ => RawEntry::Frame((len as u64) * FRAME_ALIGN),
        }))
    }

    fn event(&mut self, len: usize) -> Result<RawEntry<'a>, BadBytes> {
        let seq = self.next_seq;
        self.next_seq = Seq(seq.0.checked_add(1).ok_or(BadBytes("holds a number without a next"))?);
        Ok(RawEntry::Event { seq, bytes: self.reader.take(len)? })
    }
}
